package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/members"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// maxHandovers bounds the descriptors in unanswered handovers to a process: a process that never
// reads would otherwise pin them in the kernel.
const maxHandovers = 8

// process is a process of this node with its control connection.
type process struct {
	n    *Node
	conn *nodeproto.Conn
	cred unix.Cred
	user string // set before the first request is handled

	pendingHandovers chan struct{}
	linkOrder        atomic.Uint64 // numbers the links to it in the order of introduction

	id      atomic.Pointer[nodeproto.ProcessID] // nil before it has registered
	session string                              // set before id
	names   *names.Owner                        // in the node's table of names; set before id
	// Its place in a session of this node; nil: none; set before id.
	member  *member
	joined  atomic.Bool            // reports whether the journal knows this connection
	noted   bool                   // reports whether depart has run; of the connection's goroutine
	program atomic.Pointer[string] // nil: not known yet

	counters           linkCounters
	releaseDescriptors func() // ends the reservations in descriptors
	refusedFull        bool   // the node is out of descriptors: requests are refused with that error
	logLimiter         systemlog.Limiter

	exports exportTable

	expected map[uint32]*child // programs that it starts itself, by pid; guarded by registry.mu

	mu            sync.Mutex
	grantors      map[*process]struct{} // exporters of this node that granted it imports
	linkCount     int                   // links introduced to or by it
	rejoinedLinks int                   // links that it announced on rejoining
}

// lost takes the names of a process whose connection is lost, unless it is just joining.
func (p *process) lost() {
	if p.joined.Load() {
		p.depart()
	}
}

// depart notes the end of the process's connection, and ends its names. Only the first call does
// something: the process may have another connection by the second one.
func (p *process) depart() {
	if p.noted {
		return
	}
	p.noted = true
	p.n.registry.noteDeparture(p)
	if !p.n.isStopping() { // else the process lives on and has its names at the next daemon
		p.n.names.Drop(p.names) // after noteDeparture: a claim awaits a process that may return
		p.n.withdrawEnded()
		p.n.endReservation(p.id.Load().PID, p)
	}
}

// disconnected removes the process after its connection has ended. Imports that wait for its
// buffers end.
func (p *process) disconnected() {
	p.counters.close()
	p.releaseDescriptors()
	p.n.children.unexpectAll(p)
	id := p.id.Load()
	if id == nil {
		return
	}
	n := p.n
	p.depart() // before an importer that dials it is refused
	// Before the process can rejoin: it would find that its links are another one's.
	n.broker.forgetExporter(p)
	for _, q := range n.registry.remove(p, id.PID) { // processes that may have imported from it
		q.mu.Lock()
		delete(q.grantors, p)
		q.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.linkCount > 0 {
		n.logs.DriverFile.Info("links ended with their process", "pid", id.PID, "links", p.linkCount,
			"why", p.conn.Err())
	}
	for e := range p.grantors { // a grant without a link would stay at the exporter
		n.wg.Go(func() {
			ctx, stop := context.WithTimeout(context.Background(), timeout.Control)
			defer stop()
			e.withdraw(ctx, nodeproto.ReleaseRequest{Importer: *id})
		})
	}
	if m := p.member; m != nil {
		n.wg.Go(func() { m.leave(id.PID) })
	}
	n.logs.Server.Info("process left", "pid", id.PID, "realpid", p.cred.PID, "why", p.conn.Err())
}

// handle answers a request of the process.
func (p *process) handle(
	ctx context.Context, m nodeproto.Method, body []byte, fds []int,
) (any, []int, error) {
	defer func() { closeAll(fds) }()
	switch m {
	case nodeproto.Register, nodeproto.Rejoin, nodeproto.Import, nodeproto.Connect:
	default: // these take no descriptors and may wait
		closeAll(fds)
		fds = nil
	}
	if p.refusedFull && (m != nodeproto.Control || !p.n.accounts.Administrates(users.Caller{
		User: p.user, Cred: &p.cred,
	})) {
		return nil, nil, p.n.descriptors.RunOut()
	}
	if m == nodeproto.Register {
		w, err := p.register(body)
		if err == nil {
			w.Pass = p.n.registry.journal.Join(p.record(w.Parent))
			p.joined.Store(true)
			p.counters.open(fds)
			p.findProgram()
		}
		return w, nil, err
	}
	if m == nodeproto.Rejoin {
		r, err := nodeproto.Decode[nodeproto.RejoinRequest](body)
		if err != nil {
			return nil, nil, err
		}
		w, err := p.rejoin(r)
		if err == nil {
			p.counters.open(fds)
			p.findProgram()
		}
		return w, nil, err
	}
	if m == nodeproto.Control {
		r, err := nodeproto.Decode[nodeproto.ControlRequest](body)
		if err != nil {
			return nil, nil, err
		}
		a, err := p.n.control.relay(ctx, users.Caller{User: p.user, Cred: &p.cred}, r)
		return a, nil, err
	}
	if m == nodeproto.Expect {
		r, err := nodeproto.Decode[nodeproto.ExpectRequest](body)
		if err != nil {
			return nil, nil, err
		}
		e, err := p.n.children.expect(p, r)
		return e, nil, err
	}
	if m == nodeproto.Unexpect {
		r, err := nodeproto.Decode[nodeproto.UnexpectRequest](body)
		if err == nil {
			p.n.children.unexpect(p, r.PID)
		}
		return nodeproto.Empty{}, nil, err
	}
	id := p.id.Load()
	if id == nil {
		return nil, nil, code.New(code.BadArg, "request %d before registration", m)
	}
	switch m {
	case nodeproto.Export, nodeproto.Unexport:
		r, err := nodeproto.Decode[nodeproto.ExportRequest](body)
		if err == nil {
			err = p.announce(r, m == nodeproto.Export)
		}
		return nodeproto.Empty{}, nil, err
	case nodeproto.Publish, nodeproto.Unpublish:
		r, err := nodeproto.Decode[nodeproto.PublishRequest](body)
		if err != nil {
			return nil, nil, err
		}
		if m == nodeproto.Unpublish {
			err = p.n.names.Withdraw(ctx, p.names, p.nameKey(r.Name, r.Cluster), r.Serial)
			p.n.withdrawEnded()
			return nodeproto.Empty{}, nil, err
		}
		a, err := p.publish(ctx, r)
		return a, nil, err
	case nodeproto.ListNames:
		r, err := nodeproto.Decode[nodeproto.ListNamesRequest](body)
		if err != nil {
			return nil, nil, err
		}
		a, err := p.listNames(ctx, r)
		return a, nil, err
	case nodeproto.Again:
		r, err := nodeproto.Decode[nodeproto.AgainRequest](body)
		if err != nil {
			return nil, nil, err
		}
		lost, err := p.takeBelongings(r)
		return nodeproto.AgainAnswer{Lost: lost}, nil, err
	case nodeproto.Import:
		r, err := nodeproto.Decode[nodeproto.ImportRequest](body)
		if err != nil {
			return nil, nil, err
		}
		if !r.Link || r.Name != nil || r.Node != p.n.cfg.Name { // which may wait for ever
			closeAll(fds)
			fds = nil
		}
		return p.importBuffer(ctx, r, fds)
	case nodeproto.Connect:
		r, err := nodeproto.Decode[nodeproto.ConnectRequest](body)
		if err != nil {
			return nil, nil, err
		}
		return p.connect(ctx, r, fds)
	case nodeproto.Release:
		r, err := nodeproto.Decode[nodeproto.ReleaseRequest](body)
		if err == nil {
			r.Importer = *id
			err = p.release(ctx, r)
		}
		return nodeproto.Empty{}, nil, err
	case nodeproto.Forget:
		r, err := nodeproto.Decode[nodeproto.ForgetRequest](body)
		if err == nil {
			p.n.broker.forgetLink(r.Link, p)
		}
		return nodeproto.Empty{}, nil, err
	case nodeproto.Departed:
		r, err := nodeproto.Decode[nodeproto.ProcessID](body)
		if err != nil {
			return nil, nil, err
		}
		gone, err := p.n.registry.hasDeparted(ctx, r)
		return nodeproto.Departure{Departed: gone}, nil, err
	case nodeproto.SessionNodes:
		a, err := p.sessionNodes(ctx)
		return a, nil, err
	case nodeproto.ReportEvent:
		r, err := nodeproto.Decode[nodeproto.LinkEvent](body)
		if err == nil {
			err = p.logLinkEvent(r)
		}
		return nodeproto.Empty{}, nil, err
	case nodeproto.Spawn:
		r, err := nodeproto.Decode[nodeproto.SpawnRequest](body)
		if err != nil {
			return nil, nil, err
		}
		pid, err := p.n.children.spawnFor(ctx, p, r)
		return nodeproto.Spawned{PID: pid}, nil, err
	}
	return nil, nil, code.New(code.BadArg,
		"unknown request %d: the program's vmmc is newer than its daemon", m)
}

// mayJoin returns the node's session of a name, nil if it has none, and an error if the process's
// user cannot join it.
func (p *process) mayJoin(name string) (*session, error) {
	if len(name) > members.MaxSession {
		return nil, code.New(code.BadArg, "the session's name has %d bytes, at most %d are possible",
			len(name), members.MaxSession)
	}
	in := p.n.sessions.named(name)
	if in != nil && in.User != p.user {
		return nil, code.New(code.NoRights,
			"session %q on node %q is another user's than %q: join another one (%s)", name, p.n.cfg.Name,
			p.user, nodeproto.SessionEnv)
	}
	return in, nil
}

func (p *process) register(body []byte) (w nodeproto.Welcome, err error) {
	h, err := nodeproto.Decode[nodeproto.Hello](body)
	if err != nil {
		return w, err
	}
	if h.Version != nodeproto.Version {
		return w, code.New(code.Protocol, "the program speaks version %d of the local protocol, this "+
			"daemon %d: build both from one release", h.Version, nodeproto.Version)
	}
	n := p.n
	in, err := p.mayJoin(h.Session)
	if err != nil {
		return w, err
	}
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	if p.id.Load() != nil {
		return w, code.New(code.BadArg, "this connection has registered already")
	}
	pid, parent, c := n.registry.claim(p, h.Token)
	id := nodeproto.ProcessID{Node: n.cfg.Name, PID: pid, Incarnation: h.Incarnation}
	p.session = h.Session
	p.names = &names.Owner{ID: id, Alive: p.conn.Alive}
	if in != nil {
		p.member = in.join(p, pid, c)
	}
	p.id.Store(&id)
	n.registry.processes[id.PID] = p
	n.logs.Server.Info("process joined", "pid", id.PID, "realpid", p.cred.PID, "user", p.user,
		"session", p.session)
	return nodeproto.Welcome{
		Process: id, Parent: parent, User: p.user, Hosts: n.cluster.NodeNames(), Introduces: true,
		InSession: p.member != nil, Names: true,
	}, nil
}

// record is what the journal of members has of a process that joins.
func (p *process) record(parent nodeproto.ProcessID) members.Record {
	r := members.Record{
		Process: *p.id.Load(), UID: p.cred.UID, Real: p.cred.PID, Parent: parent, Session: p.session,
	}
	if m := p.member; m != nil {
		r.Group, r.Started = m.group, m.noted == nil
	}
	return r
}

// closeAll closes descriptors that processes have sent.
func closeAll(fds []int) { foreign.Close(fds...) }

const (
	maxComm    = 15 // bytes of a program's name that the kernel keeps
	maxProgram = 64 // bytes of one that the node tells
)

// findProgram looks up what the process runs, when it joins. Nothing waits for that: the
// process's owner can hold up a look at it.
func (p *process) findProgram() {
	p.n.wg.Go(func() {
		name := programOf(p.cred.PID)
		p.program.Store(&name)
	})
}

// programName is empty as long as the node does not know the program.
func (p *process) programName() string {
	if name := p.program.Load(); name != nil {
		return *name
	}
	return ""
}

// programOf is the name of the program that a process of this machine runs: the kernel's,
// which is a script's own where an interpreter runs that, or the file's where the kernel
// has cut the name.
func programOf(real int) string {
	found := make(chan string, 1)
	if unix.LookAt(real, time.Second, func() {
		dir := "/proc/" + strconv.Itoa(real)
		b, _ := os.ReadFile(dir + "/comm")
		name := string(bytes.TrimSuffix(b, []byte("\n")))
		if len(name) == maxComm {
			if exe, err := os.Readlink(dir + "/exe"); err == nil {
				if file := filepath.Base(strings.TrimSuffix(exe, " (deleted)")); strings.HasPrefix(file, name) {
					name = file
				}
			}
		}
		found <- name
	}) != nil {
		return ""
	}
	name := strings.ToValidUTF8(<-found, "�")
	return strings.ToValidUTF8(name[:min(len(name), maxProgram)], "")
}

// logLinkEvent logs an event that a process reports about one of its links. Each kind is a line of
// its own, of which so many are kept (logfile.Limit).
func (p *process) logLinkEvent(e nodeproto.LinkEvent) error {
	say, ok := map[string]string{
		nodeproto.LinkDown:      "a link is down",
		nodeproto.LinkFailed:    "a link has failed",
		nodeproto.LinkLost:      "a link has lost its connection",
		nodeproto.LinkResumed:   "a link was resumed",
		nodeproto.ImportRevoked: "an import was revoked",
	}[e.Kind]
	if !ok {
		return code.New(code.BadArg, "unknown event %.32q: the program's vmmc is newer than its daemon",
			e.Kind)
	}
	more, ok := p.logLimiter.Allow(time.Now())
	if !ok {
		return nil
	}
	e.Peer.Node = truncateReason(e.Peer.Node)
	side := "exports"
	if e.Imports {
		side = "imports"
	}
	what := []any{
		"process", *p.id.Load(), "peer", e.Peer, "role", side, "why", truncateReason(e.Why), "more", more,
	}
	if e.State != "" {
		what = append(what, "state", truncateReason(e.State))
	}
	p.n.logs.DriverFile.Info(say, what...)
	return nil
}
