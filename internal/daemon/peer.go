package daemon

import (
	"context"
	"net"
	"net/http"
	"sync"

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
		TLSClientConfig: c.n.identity.clientTLS(h.Name), DialContext: d.DialContext, ForceAttemptHTTP2: true,
		IdleConnTimeout: timeout.Idle, TLSHandshakeTimeout: timeout.Hello,
		// A node whose machine has died says nothing, and there are calls that wait.
		HTTP2: &http.HTTP2Config{SendPingTimeout: timeout.Control, PingTimeout: timeout.Control},
	}}
	way, base, limit := &http.Client{Transport: t}, hosts.URL(h.Control), connect.WithReadMaxBytes(nodeproto.MaxPacket)
	return &peer{
		host: h, transport: t,
		client:   nodev1connect.NewNodeServiceClient(way, base, limit),
		cluster:  nodev1connect.NewClusterServiceClient(way, base, limit),
		sessions: nodev1connect.NewSessionServiceClient(way, base, limit),
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
				c.n.driver.Info("a node was not told that this one is down", "node", p.host.Name, "err", err)
				mu.Lock()
				defer mu.Unlock()
				untold = append(untold, p.host.Name)
			}
		})
	}
	all.Wait()
	return untold
}
