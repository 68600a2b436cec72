package daemon

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/supervise"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// systemService answers administrators.
type systemService struct{ n *Node }

func (s *systemService) ReadSystemLog(
	ctx context.Context, r *connect.Request[nodev1.ReadSystemLogRequest],
) (*connect.Response[nodev1.ReadSystemLogResponse], error) {
	n := s.n
	c, err := users.CallerOf(ctx)
	if err == nil && !n.accounts.Administrates(c) {
		err = code.New(code.NoRights, "user %q may not read the logs of node %q: root, the daemon's "+
			"user and those named with --admin may", c.User, n.cfg.Name)
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	f, kept := n.logs.File(r.Msg.GetLog())
	switch {
	case !kept:
		return nil, peers.Coded(code.New(code.BadConfig,
			"node %q keeps no logs: start its daemon with --root", n.cfg.Name))
	case f == nil:
		return nil, peers.Coded(code.New(code.BadArg,
			"node %q has no log %v: there are server and driver", n.cfg.Name, r.Msg.GetLog()))
	}
	at := r.Msg.GetPosition()
	switch last := r.Msg.GetLines(); {
	case r.Msg.GetIncarnation() == n.incarnation:
	case r.Msg.GetIncarnation() != 0:
		at = f.Begun()
	case last < 0:
		at = 0
	default:
		at = f.Last(int(last))
	}
	// The answer is sent while the caller still waits, and when the node stops.
	wait, stop := context.WithTimeout(ctx, max(clampTimeout(r.Msg.GetTimeoutNs()), time.Millisecond))
	defer stop()
	defer context.AfterFunc(n.ctx, stop)()
	b := make([]byte, supervise.MaxChunk)
	read, next := f.Read(wait, at, b)
	return reply(&nodev1.ReadSystemLogResponse{
		Data: b[:read], Position: next, Incarnation: n.incarnation,
	}, nil)
}
