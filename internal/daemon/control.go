package daemon

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// service answers other nodes and tools. The certificate identifies the caller:
// a node speaks for its own processes only.
type service struct{ n *Node }

// callerKey is where the TLS peer stands in a request's context.
type callerKey struct{}

// asItIs is for all services. Messages are short, and are not compressed: a writer of gzip takes
// 0.8 MB, and there would be as many as there were answers at a time.
var asItIs = connect.WithHandlerOptions(connect.WithReadMaxBytes(nodeproto.MaxPacket),
	connect.WithCompression("gzip", nil, nil))

// control is the node's services for other nodes, and for users and their tools.
type control struct{ n *Node }

// handler is that of the control connections.
func (ctl *control) handler() http.Handler {
	h := http.NewServeMux()
	h.Handle(nodev1connect.NewNodeServiceHandler(&service{ctl.n}, asItIs))
	h.Handle(nodev1connect.NewDirectoryServiceHandler(&directoryService{ctl.n}, asItIs))
	for _, s := range ctl.userServices() {
		h.Handle(s.prefix, s.handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil {
			http.Error(w, "mutual TLS only", http.StatusForbidden)
			return
		}
		p, err := ctl.n.identity.Current().PeerOf(*r.TLS)
		if err != nil {
			ctl.n.logs.Driver.Warn("a control connection was refused", "from", r.RemoteAddr, "err", err)
			// Of the authority before: it may come again with its new one.
			w.Header().Set("Connection", "close")
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if !ctl.n.cluster.IsMember(p) {
			ctl.n.logs.DriverFile.Warn("a node was refused that is not in the hosts file", "from",
				r.RemoteAddr, "node", p.Name)
			_ = connect.NewErrorWriter().Write(w, r, peers.Coded(code.New(code.NoRights,
				"node %q is not in the hosts file of node %q", p.Name, ctl.n.cfg.Name)))
			return
		}
		ctx := context.WithValue(r.Context(), callerKey{}, p)
		h.ServeHTTP(w, r.WithContext(users.WithCaller(ctx, users.Vouched(p, r.Header))))
	})
}

// importer reads the importer's identity, and checks that the caller may vouch for it.
func importer(
	ctx context.Context, id *nodev1.ProcessID, user, session string,
) (nodeproto.Importer, error) {
	p, _ := ctx.Value(callerKey{}).(cert.Peer)
	if p.Kind != cert.Node || p.Name != id.GetNode() {
		return nodeproto.Importer{}, code.New(code.NoRights, "%v may not speak for a process of node %q",
			p, id.GetNode())
	}
	return nodeproto.Importer{
		Process: nodeproto.ProcessID{
			Node: id.GetNode(), PID: id.GetPid(), Incarnation: id.GetIncarnation(),
		},
		User: user, Session: session,
	}, nil
}

func (s *service) Ping(
	context.Context, *connect.Request[nodev1.PingRequest],
) (*connect.Response[nodev1.PingResponse], error) {
	return connect.NewResponse(s.n.control.ping()), nil
}

func (s *service) Import(
	ctx context.Context, r *connect.Request[nodev1.ImportRequest],
) (*connect.Response[nodev1.ImportResponse], error) {
	im, err := importer(ctx, r.Msg.GetImporter(), r.Msg.GetUser(), r.Msg.GetSession())
	if err != nil {
		return nil, peers.Coded(err)
	}
	ctx, _, leave, err := s.n.network.use(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	defer leave()
	g, fds, err := s.n.broker.awaitGrant(ctx, r.Msg.GetTargetPid(),
		importQuery{im: im, id: r.Msg.GetBufferId()})
	closeAll(fds)
	if err != nil {
		return nil, peers.Coded(s.orEnding(err))
	}
	return connect.NewResponse(grantMessage(g)), nil
}

func (s *service) Connect(
	ctx context.Context, r *connect.Request[nodev1.ConnectRequest],
) (*connect.Response[nodev1.ConnectResponse], error) {
	im, err := importer(ctx, r.Msg.GetImporter(), r.Msg.GetUser(), r.Msg.GetSession())
	if err != nil {
		return nil, peers.Coded(err)
	}
	c, err := s.n.broker.prepareLink(ctx, im, nodeproto.ProcessID{
		Node: s.n.cfg.Name, PID: r.Msg.GetTargetPid(), Incarnation: r.Msg.GetTargetIncarnation(),
	},
		nodeproto.Secrecy{Encrypt: r.Msg.GetEncrypt(), Fingerprint: r.Msg.GetFingerprint()})
	if err != nil {
		return nil, peers.Coded(s.orEnding(err))
	}
	return connect.NewResponse(&nodev1.ConnectResponse{
		Link: c.Link, Key: c.Key, DataAddress: c.Address, Encrypt: c.Encrypt, Fingerprint: c.Fingerprint,
	}), nil
}

func (s *service) Release(
	ctx context.Context, r *connect.Request[nodev1.ReleaseRequest],
) (*connect.Response[nodev1.ReleaseResponse], error) {
	im, err := importer(ctx, r.Msg.GetImporter(), "", "")
	if err == nil {
		err = s.n.broker.releaseHere(ctx, nodeproto.ReleaseRequest{
			Importer: im.Process,
			Exporter: nodeproto.ProcessID{
				Node: s.n.cfg.Name, PID: r.Msg.GetTargetPid(), Incarnation: r.Msg.GetTargetIncarnation(),
			},
			Handle: r.Msg.GetHandle(),
		})
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	return connect.NewResponse(&nodev1.ReleaseResponse{}), nil
}

// Leave is asked by a node that was taken down.
func (s *service) Leave(
	ctx context.Context, r *connect.Request[nodev1.LeaveRequest],
) (*connect.Response[nodev1.LeaveResponse], error) {
	p, _ := ctx.Value(callerKey{}).(cert.Peer)
	if p.Kind != cert.Node {
		return nil, peers.Coded(code.New(code.NoRights, "%v is no node that could leave", p))
	}
	links, _ := s.n.registry.severAll(ctx, nodeproto.SeverRequest{
		Node: p.Name, Why: truncateReason(r.Msg.GetReason()),
	})
	s.n.logs.Driver.Info("a node was taken down", "node", p.Name, "why",
		truncateReason(r.Msg.GetReason()), "links", links)
	return connect.NewResponse(&nodev1.LeaveResponse{}), nil
}

// ping is what the node says of itself.
func (ctl *control) ping() *nodev1.PingResponse {
	a := &nodev1.PingResponse{
		Node: ctl.n.cfg.Name, Incarnation: ctl.n.incarnation, Version: ctl.n.cfg.Version,
		ProtocolVersion: nodeproto.Version,
		UptimeNs:        int64(time.Since(ctl.n.started)), ClockUnixNs: time.Now().UnixNano(),
		Load_1MMillis: loadAverage(),
		HostsDigest:   ctl.n.cluster.Roster().Digest(),
		StateFault:    peers.ErrorText(ctl.n.disk.Fault()),
	}
	ctl.n.mu.Lock()
	a.State, a.Reason = ctl.n.state.proto(), ctl.n.network.reason()
	ctl.n.mu.Unlock()
	ps := ctl.n.registry.all()
	a.Processes, a.Sessions = uint32(len(ps)), uint32(len(ctl.n.sessions.after("")))
	for _, p := range ps {
		a.ExportedBytes += p.exports.bytes()
	}
	return a
}

// proto is the state in messages to other nodes and to tools.
func (s nodeState) proto() nodev1.NodeState {
	return [...]nodev1.NodeState{
		nodeStarting: nodev1.NodeState_NODE_STATE_STARTING,
		nodeUp:       nodev1.NodeState_NODE_STATE_UP,
		nodeDown:     nodev1.NodeState_NODE_STATE_DOWN,
		nodeStopping: nodev1.NodeState_NODE_STATE_STOPPING,
	}[s]
}

// loadAverage is the machine's, in thousandths; 0 where it is not told.
func loadAverage() uint32 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil || v < 0 || v > math.MaxUint32/1000 {
		return 0
	}
	return uint32(v * 1000)
}

// userService is one that users call: with a certificate, or through the node of
// their machine.
type userService struct {
	prefix  string // of its procedures' paths
	handler http.Handler
}

// userServices are all of them. Services in which a node is trusted more than its
// users are not among them: what is relayed comes with this node's certificate.
func (ctl *control) userServices() []userService {
	of := func(prefix string, h http.Handler) userService { return userService{prefix, h} }
	return []userService{
		of(nodev1connect.NewSessionServiceHandler(&sessionService{ctl.n}, asItIs)),
		of(nodev1connect.NewClusterServiceHandler(&clusterService{ctl.n}, asItIs)),
		of(nodev1connect.NewSystemServiceHandler(&systemService{ctl.n}, asItIs)),
		of(nodev1connect.NewLinkServiceHandler(&linkService{ctl.n}, asItIs)),
		of(nodev1connect.NewNameServiceHandler(&nameService{ctl.n}, asItIs)),
	}
}

// relay passes a call of this machine's user on to a service for users, here or on another node,
// together with the user's name.
func (ctl *control) relay(
	ctx context.Context, c users.Caller, r nodeproto.ControlRequest,
) (nodeproto.ControlAnswer, error) {
	services := ctl.userServices()
	i := slices.IndexFunc(services, func(u userService) bool {
		return strings.HasPrefix(r.Path, u.prefix)
	})
	if i < 0 || strings.ContainsAny(r.Path, "?#%") {
		return nodeproto.ControlAnswer{}, code.New(code.BadArg, "%q is no call of a service for users",
			r.Path)
	}
	if r.Node != "" && r.Node != ctl.n.cfg.Name {
		p, err := ctl.n.cluster.Peer(r.Node)
		if err != nil {
			return nodeproto.ControlAnswer{}, err
		}
		return p.Relay(ctx, c.User, r)
	}
	q, err := peers.NewRequest(users.WithCaller(ctx, c), r, "http://"+ctl.n.cfg.Name)
	if err != nil {
		return nodeproto.ControlAnswer{}, err
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	services[i].handler.ServeHTTP(w, q)
	return peers.Answer(w.status, w.header, w.body.Bytes())
}

// recorder is an answer in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// Departed answers another node, one of whose processes waits for a process of this node.
func (s *service) Departed(
	ctx context.Context, r *connect.Request[nodev1.DepartedRequest],
) (*connect.Response[nodev1.DepartedResponse], error) {
	p, _ := ctx.Value(callerKey{}).(cert.Peer)
	if p.Kind != cert.Node {
		return nil, peers.Coded(code.New(code.NoRights, "%v is no node", p))
	}
	m := r.Msg.GetProcess()
	id := nodeproto.ProcessID{Node: s.n.cfg.Name, PID: m.GetPid(), Incarnation: m.GetIncarnation()}
	return connect.NewResponse(&nodev1.DepartedResponse{
		Departed: m.GetNode() == id.Node && s.n.registry.journal.HasDeparted(id),
	}), nil
}

// Spawn is asked by the node of the process that spawns.
func (s *service) Spawn(
	ctx context.Context, r *connect.Request[nodev1.SpawnRequest],
) (*connect.Response[nodev1.SpawnResponse], error) {
	m := r.Msg
	im, err := importer(ctx, m.GetParent(), m.GetUser(), m.GetSession())
	if err != nil {
		return nil, peers.Coded(err)
	}
	o := order{
		parent: im.Process, session: im.Session,
		SpawnRequest: nodeproto.SpawnRequest{
			Path: m.GetPath(), Args: m.GetArgs(), Directory: m.GetDirectory(), Hosts: m.GetHosts(),
		},
	}
	if err := o.Check(o.session); err != nil {
		return nil, peers.Coded(err)
	}
	var pid uint32
	if m.GetInSession() {
		if o.name = m.GetName(); len(o.name) > 4096 || bytes.IndexByte(o.name, 0) >= 0 {
			return nil, peers.Coded(code.New(code.BadArg,
				"the program's argument 0 has a zero byte, or %d bytes, at most 4096", len(o.name)))
		}
		pid, err = s.n.children.spawnInSession(ctx, im, o, m.GetGroup())
	} else if o.runAs, err = s.n.accounts.Named(im.User); err == nil {
		pid, err = s.n.children.spawn(ctx, o)
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	return connect.NewResponse(&nodev1.SpawnResponse{Pid: pid}), nil
}

// orEnding returns err, or NoDaemon while this daemon is ending: then its answers about processes,
// which have lost it, would be wrong, and the next daemon knows them.
func (s *service) orEnding(err error) error {
	if s.n.ctx.Err() != nil {
		return code.New(code.NoDaemon, "the daemon of node %q is ending: ask the next one", s.n.cfg.Name)
	}
	return err
}
