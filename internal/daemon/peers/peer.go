package peers

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/sessionnodes"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// Peer is another node as this one reaches it.
type Peer struct {
	host      hosts.Host
	transport *peerTransport
	client    nodev1connect.NodeServiceClient
	cluster   nodev1connect.ClusterServiceClient
	lists     listComparison
	sessions  nodev1connect.SessionServiceClient
	names     nodev1connect.NameServiceClient
	directory nodev1connect.DirectoryServiceClient
}

func (c *Cluster) newPeer(h hosts.Host) *Peer {
	d := &net.Dialer{Timeout: timeout.Connect}
	t := &peerTransport{logs: c.cfg.Logs, host: h, Transport: &http.Transport{
		TLSClientConfig: c.cfg.ClientTLS(h.Name), DialContext: d.DialContext,
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   timeout.Idle, TLSHandshakeTimeout: timeout.Hello,
		// A node whose machine has died says nothing, and there are calls that wait.
		HTTP2: &http.HTTP2Config{SendPingTimeout: timeout.Control, PingTimeout: timeout.Control},
	}}
	client, base := &http.Client{Transport: t}, hosts.URL(h.Control)
	limit := connect.WithReadMaxBytes(nodeproto.MaxPacket)
	return &Peer{
		host: h, transport: t,
		client:    nodev1connect.NewNodeServiceClient(client, base, limit),
		cluster:   nodev1connect.NewClusterServiceClient(client, base, limit),
		sessions:  nodev1connect.NewSessionServiceClient(client, base, limit),
		names:     nodev1connect.NewNameServiceClient(client, base, limit),
		directory: nodev1connect.NewDirectoryServiceClient(client, base, limit),
	}
}

func (p *Peer) close() { p.transport.CloseIdleConnections() }

// failed turns what came back into our own error.
func (p *Peer) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, answered := answeredError(err); answered {
		return e
	}
	return code.New(code.Unreachable, "node %q at %s cannot be reached: %v", p.host.Name,
		p.host.Control, err)
}

// ProcessID is a process in messages to other nodes.
func ProcessID(p nodeproto.ProcessID) *nodev1.ProcessID {
	return &nodev1.ProcessID{Node: p.Node, Pid: p.PID, Incarnation: p.Incarnation}
}

// Import requests a grant for an importer of this node.
func (p *Peer) Import(
	ctx context.Context, im nodeproto.Importer, r nodeproto.ImportRequest,
) (nodeproto.Grant, error) {
	a, err := retryInterrupted(ctx, p.client.Import, &nodev1.ImportRequest{
		Importer: ProcessID(im.Process), User: im.User, Session: im.Session, TargetPid: r.PID,
		BufferId: r.ID,
	})
	if err != nil {
		return nodeproto.Grant{}, p.failed(ctx, err)
	}
	return p.grant(a.Msg), nil
}

// grant reads what the node has granted.
func (p *Peer) grant(m *nodev1.ImportResponse) nodeproto.Grant {
	return nodeproto.Grant{
		Exporter: nodeproto.ProcessID{
			Node: p.host.Name, PID: m.GetExporter().GetPid(), Incarnation: m.GetExporter().GetIncarnation(),
		},
		Handle: m.GetHandle(), Size: int(m.GetSize()), Rights: nodeproto.Rights(m.GetRights()),
		Label: m.GetLabel(),
	}
}

// ImportName requests a grant of what is published under a name there, for an importer of this
// node.
func (p *Peer) ImportName(
	ctx context.Context, im nodeproto.Importer, r *nodev1.ImportNameRequest,
) (nodeproto.Grant, error) {
	r.Importer, r.User, r.Session = ProcessID(im.Process), im.User, im.Session
	a, err := retryInterrupted(ctx, p.client.ImportName, r)
	if err != nil {
		return nodeproto.Grant{}, p.olderThanNames(ctx, err)
	}
	g := p.grant(a.Msg.GetGrant())
	g.Buffer = a.Msg.GetBufferId()
	return g, nil
}

// ListNames lists names of a user and session there.
func (p *Peer) ListNames(
	ctx context.Context, user, session string, r nodeproto.ListNamesRequest,
) (out nodeproto.NameList, err error) {
	q := connect.NewRequest(&nodev1.ListNamesRequest{
		Pattern: r.Pattern, Cluster: r.Cluster, Session: session, OwnScope: true, After: &nodev1.Name{
			Name: r.After, Cluster: r.Cluster, Pid: r.AfterPID, BufferId: r.AfterBuffer,
		},
	})
	q.Header().Set(users.Header, user)
	a, err := p.names.ListNames(ctx, q)
	if err != nil {
		return out, p.olderThanNames(ctx, err)
	}
	for _, n := range a.Msg.GetNames() {
		out.Rows = append(out.Rows, nodeproto.NameRow{
			Name: n.GetName(), PID: n.GetPid(), Buffer: n.GetBufferId(), Size: int(n.GetSize()),
			Set: n.GetSet(),
		})
	}
	if len(out.Rows) > nodeproto.ListedNames {
		return out, code.New(code.Protocol, "node %q lists %d names at once, at most %d", p.host.Name,
			len(out.Rows), nodeproto.ListedNames)
	}
	out.More = a.Msg.GetMore()
	return out, nil
}

// olderThanNames is failed of a call that older nodes do not know.
func (p *Peer) olderThanNames(ctx context.Context, err error) error {
	if _, answered := answeredError(err); !answered &&
		connect.CodeOf(err) == connect.CodeUnimplemented {
		return code.New(code.NotImplemented, "node %q runs an older version, which knows no names",
			p.host.Name)
	}
	return p.failed(ctx, err)
}

// Connect requests a link for an importer of this node.
func (p *Peer) Connect(
	ctx context.Context, im nodeproto.Importer, exporter nodeproto.ProcessID, s nodeproto.Secrecy,
) (nodeproto.Connected, error) {
	a, err := retryInterrupted(ctx, p.client.Connect, &nodev1.ConnectRequest{
		Importer: ProcessID(im.Process), User: im.User, Session: im.Session,
		TargetPid: exporter.PID, TargetIncarnation: exporter.Incarnation,
		Encrypt: s.Encrypt, Fingerprint: s.Fingerprint,
	})
	if err != nil {
		return nodeproto.Connected{}, p.failed(ctx, err)
	}
	m := a.Msg
	if s.Encrypt && !m.GetEncrypt() {
		return nodeproto.Connected{}, code.New(code.NotImplemented,
			"node %q makes no encrypted links, which are asked for here: it runs an older version",
			p.host.Name)
	}
	return nodeproto.Connected{
		Link: m.GetLink(), Key: m.GetKey(), Address: m.GetDataAddress(),
		Secrecy: nodeproto.Secrecy{Encrypt: m.GetEncrypt(), Fingerprint: m.GetFingerprint()},
	}, nil
}

// Release returns a grant.
func (p *Peer) Release(ctx context.Context, r nodeproto.ReleaseRequest) error {
	_, err := p.client.Release(ctx, connect.NewRequest(&nodev1.ReleaseRequest{
		Importer: ProcessID(r.Importer), TargetPid: r.Exporter.PID,
		TargetIncarnation: r.Exporter.Incarnation, Handle: r.Handle,
	}))
	if err != nil {
		return p.failed(ctx, err)
	}
	return nil
}

// Departed reports whether a process of that node is known to have ended.
func (p *Peer) Departed(ctx context.Context, id nodeproto.ProcessID) (bool, error) {
	ctx, stop := context.WithTimeoutCause(ctx, timeout.Ping,
		code.New(code.Unreachable, "node %q at %s has not answered within %v", p.host.Name,
			p.host.Control, timeout.Ping))
	defer stop()
	a, err := p.client.Departed(ctx, connect.NewRequest(&nodev1.DepartedRequest{
		Process: ProcessID(id),
	}))
	if err != nil {
		return false, p.failed(ctx, err)
	}
	return a.Msg.GetDeparted(), nil
}

// SessionOrigin asks how a session there was made, for a user of this node.
func (p *Peer) SessionOrigin(
	ctx context.Context, user, session string, a *sessionnodes.Answer,
) {
	r := connect.NewRequest(&nodev1.SessionOriginRequest{Session: session})
	r.Header().Set(users.Header, user)
	m, err := p.sessions.SessionOrigin(ctx, r)
	if err == nil {
		if m.Msg.GetUser() == user { // root may ask for another user's session of that name too
			a.Origin = m.Msg
		}
		return
	}
	e, answered := answeredError(err)
	a.Silent = !answered || e.Code != code.NoSuchSession && e.Code != code.NoRights
}

// Spawn starts a program there. The request goes out once: an answer that got lost
// leaves a program that no caller knows of, and a second request would start another one.
func (p *Peer) Spawn(ctx context.Context, r *nodev1.SpawnRequest) (pid uint32, err error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	a, err := p.client.Spawn(ctx, connect.NewRequest(r))
	if err == nil {
		return a.Msg.GetPid(), nil
	}
	if refusedSpawn(err) {
		return 0, p.failed(context.WithoutCancel(ctx), err)
	}
	if !sent.Load() {
		return 0, code.New(code.Unreachable, "node %q at %s cannot be reached: %v", p.host.Name,
			p.host.Control, err)
	}
	return 0, code.New(code.OutcomeUnknown,
		"node %q at %s was lost while it was asked; whether it has started %s is not known: %v",
		p.host.Name, p.host.Control, r.GetPath(), err)
}

// refusedSpawn reports whether the other node has answered that it does not.
func refusedSpawn(err error) bool {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return false
	}
	if _, err := strconv.Atoi(ce.Meta().Get(codeHeader)); err == nil {
		return true
	}
	switch ce.Code() { // without our code: it never got to the service
	case connect.CodePermissionDenied, connect.CodeUnimplemented, connect.CodeResourceExhausted:
		return true
	}
	return false
}

// AnnounceLeave tells all other nodes concurrently, and returns those that did not answer.
func (c *Cluster) AnnounceLeave(ctx context.Context, why string) (untold []string) {
	// Each gives its own processes half of that, in severAll.
	ctx, stop := context.WithTimeout(ctx, 2*timeout.Ping)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, p := range c.roster.Load().peers {
		all.Go(func() {
			if _, err := p.client.Leave(ctx,
				connect.NewRequest(&nodev1.LeaveRequest{Reason: why})); err != nil {
				c.cfg.Logs.Driver.Info("a node was not told that this one is down", "node", p.host.Name, "err",
					err)
				mu.Lock()
				defer mu.Unlock()
				untold = append(untold, p.host.Name)
			}
		})
	}
	all.Wait()
	return untold
}

// Delays between attempts to reach a node whose daemon has died.
const (
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = 250 * time.Millisecond
)

// retryInterrupted sends an idempotent request to another node. If the connection breaks during the
// request, or the daemon answers that it is ending, it repeats the request until the next daemon
// answers, for at most timeout.Control, and until the context ends. A node that does not answer the
// first request is not waited for.
func retryInterrupted[Q, A any](
	ctx context.Context, ask func(context.Context, *connect.Request[Q]) (*connect.Response[A], error),
	q *Q,
) (*connect.Response[A], error) {
	var since time.Time
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		asked := time.Now()
		a, err := ask(ctx, connect.NewRequest(q))
		e, answered := answeredError(err)
		ending := answered && e.Code == code.NoDaemon
		if ending { // a code that a running daemon never sends about its processes
			err = errors.New(e.Text)
		}
		switch gone := ending || connectionLost(err); {
		case err == nil, ctx.Err() != nil, answered && !ending:
			return a, err
		case gone && since.IsZero():
			since = time.Now()
		case gone: // while the request was pending a daemon ran, so that time does not count
			since = since.Add(time.Since(asked))
		case since.IsZero():
			return nil, err
		}
		if time.Since(since) > timeout.Control {
			return nil, err
		}
		if !timeout.Sleep(ctx, pause) {
			return nil, err
		}
	}
}

// connectionLost reports whether an established connection ended.
func connectionLost(err error) bool {
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// peerTransport is the HTTP transport to another node. From the results of calls it notices when
// the node becomes unreachable and reachable again, and logs that.
type peerTransport struct {
	*http.Transport
	logs *systemlog.Logs
	host hosts.Host

	mu          sync.Mutex
	unreachable bool
	contacted   bool // a call was made before; the first answer is always logged
}

// idempotent lists the calls that may be repeated.
var idempotent = map[string]bool{
	nodev1connect.NodeServicePingProcedure:             true,
	nodev1connect.ClusterServiceNodesProcedure:         true,
	nodev1connect.SessionServiceListSessionsProcedure:  true,
	nodev1connect.SessionServiceListProcessesProcedure: true,
	nodev1connect.SessionServiceSessionOriginProcedure: true,
	nodev1connect.SessionServiceReadLogProcedure:       true,
	nodev1connect.SystemServiceReadSystemLogProcedure:  true,
	nodev1connect.LinkServiceLinksProcedure:            true,
	nodev1connect.NameServiceListNamesProcedure:        true,
	nodev1connect.DirectoryServiceClaimProcedure:       true,
	nodev1connect.DirectoryServiceUpdateProcedure:      true,
	nodev1connect.DirectoryServiceFindProcedure:        true,
	nodev1connect.DirectoryServiceHoldsProcedure:       true,
	nodev1connect.DirectoryServiceOwnedProcedure:       true,
}

// RoundTrip sends a request to the node. A request of a local user that asks the node waits meanwhile
// (see [fairshare.MayWait]): here, so that none is overdue, whichever method asks. A reused connection may break because the node was
// restarted since: an idempotent call is then repeated once on a new connection.
func (t *peerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	defer fairshare.MayWait(r.Context())()
	var kept atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		GotConn: func(i httptrace.GotConnInfo) { kept.Store(i.Reused) },
	})
	a, err := t.Transport.RoundTrip(r.WithContext(ctx))
	if err != nil && kept.Load() && idempotent[r.URL.Path] && r.GetBody != nil && ctx.Err() == nil {
		again := r.WithContext(r.Context())
		if again.Body, err = r.GetBody(); err == nil {
			a, err = t.Transport.RoundTrip(again)
		}
	}
	if err == nil || ctx.Err() == nil { // else the caller gave up, which says nothing about the node
		t.noteResult(err)
	}
	return a, err
}

func (t *peerTransport) noteResult(err error) {
	t.mu.Lock()
	first, changed := !t.contacted, t.unreachable != (err != nil)
	t.contacted, t.unreachable = true, err != nil
	t.mu.Unlock()
	switch {
	case err != nil && changed:
		t.logs.DriverFile.Warn("another node is unreachable", "node", t.host.Name, "address", t.host.Control,
			"err", err)
	case err == nil && (first || changed):
		t.logs.DriverFile.Info("another node is reachable", "node", t.host.Name, "address", t.host.Control)
	}
}
