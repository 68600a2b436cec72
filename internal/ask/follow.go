package ask

import (
	"context"
	"io"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// CopyLog writes what a process has printed; with follow, until its end.
func (n *Node) CopyLog(ctx context.Context, w io.Writer, session string, pid uint32, follow bool) error {
	r := &nodev1.ReadLogRequest{Session: session, Pid: pid}
	if follow {
		r.TimeoutNs = int64(timeout.Control / 2)
	}
	for {
		a, err := within(ctx, func(ctx context.Context) (*connect.Response[nodev1.ReadLogResponse], error) {
			return n.Client.ReadLog(ctx, connect.NewRequest(r))
		})
		if err != nil {
			return Told(n, err)
		}
		b := a.Msg.GetData()
		if _, err := w.Write(b); err != nil {
			return err
		}
		r.Offset += int64(len(b))
		if a.Msg.GetDone() || len(b) == 0 && !follow {
			return nil
		}
	}
}

// Wait returns when a process has ended.
func (n *Node) Wait(ctx context.Context, session string, pid uint32) (*nodev1.Process, error) {
	for {
		a, err := within(ctx, func(ctx context.Context) (*connect.Response[nodev1.WaitResponse], error) {
			return n.Client.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: session, Pid: pid, TimeoutNs: int64(timeout.Control / 2)}))
		})
		if err != nil {
			return nil, Told(n, err)
		}
		if p := a.Msg.GetProcess(); p.GetEnded() {
			return p, nil
		}
	}
}

// within bounds one question of many: a node that is cut off does not say so.
func within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	return f(ctx)
}
