package daemon

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
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// peer is another node as this one reaches it.
type peer struct {
	host      hosts.Host
	transport *peerTransport
	client    nodev1connect.NodeServiceClient
	cluster   nodev1connect.ClusterServiceClient
	lists     listComparison
	sessions  nodev1connect.SessionServiceClient
}

func (c *cluster) newPeer(h hosts.Host) *peer {
	d := &net.Dialer{Timeout: timeout.Connect}
	t := &peerTransport{n: c.n, host: h, Transport: &http.Transport{
		TLSClientConfig: c.n.identity.ClientTLS(h.Name), DialContext: d.DialContext,
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   timeout.Idle, TLSHandshakeTimeout: timeout.Hello,
		// A node whose machine has died says nothing, and there are calls that wait.
		HTTP2: &http.HTTP2Config{SendPingTimeout: timeout.Control, PingTimeout: timeout.Control},
	}}
	client, base := &http.Client{Transport: t}, hosts.URL(h.Control)
	limit := connect.WithReadMaxBytes(nodeproto.MaxPacket)
	return &peer{
		host: h, transport: t,
		client:   nodev1connect.NewNodeServiceClient(client, base, limit),
		cluster:  nodev1connect.NewClusterServiceClient(client, base, limit),
		sessions: nodev1connect.NewSessionServiceClient(client, base, limit),
	}
}

func (p *peer) close() { p.transport.CloseIdleConnections() }

// failed turns what came back into our own error.
func (p *peer) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, answered := answeredError(err); answered {
		return e
	}
	return code.New(code.Unreachable, "node %q at %s cannot be reached: %v", p.host.Name,
		p.host.Control, err)
}

func (p *peer) importBuffer(
	ctx context.Context, im nodeproto.Importer, r nodeproto.ImportRequest,
) (nodeproto.Grant, error) {
	a, err := retryInterrupted(ctx, p.client.Import, &nodev1.ImportRequest{
		Importer: processID(im.Process), User: im.User, Session: im.Session, TargetPid: r.PID,
		BufferId: r.ID,
	})
	if err != nil {
		return nodeproto.Grant{}, p.failed(ctx, err)
	}
	m := a.Msg
	return nodeproto.Grant{
		Exporter: nodeproto.ProcessID{
			Node: p.host.Name, PID: m.GetExporter().GetPid(), Incarnation: m.GetExporter().GetIncarnation(),
		},
		Handle: m.GetHandle(), Size: int(m.GetSize()), Rights: nodeproto.Rights(m.GetRights()),
		Label: m.GetLabel(),
	}, nil
}

func (p *peer) connect(
	ctx context.Context, im nodeproto.Importer, exporter nodeproto.ProcessID, s nodeproto.Secrecy,
) (nodeproto.Connected, error) {
	a, err := retryInterrupted(ctx, p.client.Connect, &nodev1.ConnectRequest{
		Importer: processID(im.Process), User: im.User, Session: im.Session,
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

func (p *peer) release(ctx context.Context, r nodeproto.ReleaseRequest) error {
	_, err := p.client.Release(ctx, connect.NewRequest(&nodev1.ReleaseRequest{
		Importer: processID(r.Importer), TargetPid: r.Exporter.PID,
		TargetIncarnation: r.Exporter.Incarnation, Handle: r.Handle,
	}))
	if err != nil {
		return p.failed(ctx, err)
	}
	return nil
}

// announceLeave tells all other nodes concurrently, and returns those that did not answer.
func (c *cluster) announceLeave(ctx context.Context, why string) (untold []string) {
	// Each gives its own processes half of that, in severAll.
	ctx, stop := context.WithTimeout(ctx, 2*timeout.Ping)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, p := range c.roster.Load().peers {
		all.Go(func() {
			if _, err := p.client.Leave(ctx,
				connect.NewRequest(&nodev1.LeaveRequest{Reason: why})); err != nil {
				c.n.logs.Driver.Info("a node was not told that this one is down", "node", p.host.Name, "err",
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
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// answeredError returns the error that the daemon sent; ok is false if the call failed otherwise.
func answeredError(err error) (e *code.Error, ok bool) {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return nil, false
	}
	n, err := strconv.Atoi(ce.Meta().Get(codeHeader))
	return &code.Error{Code: code.Code(n), Text: ce.Message()}, err == nil
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
	n    *Node
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
}

// RoundTrip sends a request to the node. A reused connection may break because the node was
// restarted since: an idempotent call is then repeated once on a new connection.
func (t *peerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
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
		t.n.logs.DriverFile.Warn("another node is unreachable", "node", t.host.Name, "address", t.host.Control,
			"err", err)
	case err == nil && (first || changed):
		t.n.logs.DriverFile.Info("another node is reachable", "node", t.host.Name, "address", t.host.Control)
	}
}
