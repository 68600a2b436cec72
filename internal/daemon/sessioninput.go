package daemon

import (
	"context"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/unix"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// maxSide is what the kernel can say of a terminal's size.
const maxSide = 1<<16 - 1

func size(rows, columns uint32) unix.Size {
	return unix.Size{Rows: uint16(min(rows, maxSide)), Columns: uint16(min(columns, maxSide))}
}

// seat is the terminal that a program is to have, if it is to have one.
func seat(t *nodev1.Terminal) *supervise.Terminal {
	if t == nil {
		return nil
	}
	return &supervise.Terminal{Size: size(t.GetRows(), t.GetColumns()), Term: t.GetTerm()}
}

func (s *sessionService) Attend(ctx context.Context, r *connect.Request[nodev1.AttendRequest]) (*connect.Response[nodev1.AttendResponse], error) {
	_, sup, err := s.ask(ctx, r.Msg.GetSession())
	if err == nil {
		err = sup.Attend(ctx, supervise.AttendRequest{PID: r.Msg.GetPid()})
	}
	return reply(&nodev1.AttendResponse{}, err)
}

func (s *sessionService) WriteInput(ctx context.Context, r *connect.Request[nodev1.WriteInputRequest]) (*connect.Response[nodev1.WriteInputResponse], error) {
	m := r.Msg
	if len(m.GetData()) > supervise.MaxChunk {
		return nil, coded(code.New(code.BadArg, "write %d bytes of input: at most %d at a time", len(m.GetData()), supervise.MaxChunk))
	}
	_, sup, err := s.ask(ctx, m.GetSession())
	var w supervise.Written
	if err == nil {
		w, err = sup.Write(ctx, supervise.WriteRequest{PID: m.GetPid(), Offset: m.GetOffset(), Data: m.GetData(), End: m.GetEnd(), For: patience(m.GetTimeoutNs())})
	}
	return reply(&nodev1.WriteInputResponse{Taken: w.Taken, Closed: w.Closed}, err)
}

func (s *sessionService) ResizeTerminal(ctx context.Context, r *connect.Request[nodev1.ResizeTerminalRequest]) (*connect.Response[nodev1.ResizeTerminalResponse], error) {
	_, sup, err := s.ask(ctx, r.Msg.GetSession())
	if err == nil {
		err = sup.Resize(ctx, supervise.ResizeRequest{PID: r.Msg.GetPid(), Size: size(r.Msg.GetRows(), r.Msg.GetColumns())})
	}
	return reply(&nodev1.ResizeTerminalResponse{}, err)
}
