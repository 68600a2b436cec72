package ask

import (
	"context"
	"io"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// CopySystemLog writes the last lines of one of the node's own logs, or all of them
// if lines is negative. With follow it also writes later lines, until ctx ends.
func (n *Node) CopySystemLog(
	ctx context.Context, w io.Writer, log nodev1.SystemLog, lines int32, follow bool,
) error {
	r := &nodev1.ReadSystemLogRequest{Log: log, Lines: lines}
	if follow {
		r.TimeoutNs = int64(timeout.Control / 2)
	}
	for {
		a, err := within(ctx, func(ctx context.Context) (*connect.Response[nodev1.ReadSystemLogResponse], error) {
			return n.System.ReadSystemLog(ctx, connect.NewRequest(r))
		})
		if err != nil {
			return ErrorOf(n, err)
		}
		b := a.Msg.GetData()
		if _, err := w.Write(b); err != nil {
			return err
		}
		r.Position, r.Incarnation = a.Msg.GetPosition(), a.Msg.GetIncarnation()
		if len(b) == 0 && !follow {
			return nil
		}
	}
}
