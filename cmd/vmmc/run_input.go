package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// checkInput refuses what input cannot be passed on to, before anything is started.
func (o *runOptions) checkInput(where *ask.Flags) (err error) {
	switch {
	case o.tty && !o.input:
		return serve.Usage("-t without -i: nothing could be typed; give both, -it")
	case !o.input:
		return nil
	case o.count > 1 || len(where.Nodes) > 1:
		return serve.Usage("-i with several processes or nodes: input goes to one process on one node")
	case o.detach:
		return serve.Usage("-i with --detach: input is passed on for as long as this tool runs")
	case o.tty:
		o.screen, err = openScreen()
	}
	return err
}

// askForInput says in the request what the program is to have.
func (o *runOptions) askForInput() {
	o.request.Input = o.input
	if o.screen != nil {
		rows, columns := o.screen.size()
		o.request.Terminal = &nodev1.Terminal{Rows: rows, Columns: columns, Term: env.Get("TERM")}
	}
}

// inputSession is this tool's part in a program whose input it passes on.
type inputSession struct {
	started
	session string
	screen  *screen // nil: its input is no terminal
	in      io.Reader
	out     *streams
	lost    ask.Lost
}

// errHungUp is what ends an attendance that a signal has ended.
type errHungUp struct{ by syscall.Signal }

func (e errHungUp) Error() string {
	return fmt.Sprintf("%v: the program's terminal is hung up", e.by)
}

// run passes input and output on until the program ends.
func (a *inputSession) run(
	ctx context.Context, told <-chan os.Signal, pass func(os.Signal),
) (status int, err error) {
	if err := a.screen.raw(); err != nil {
		return 0, a.screen.lost(err)
	}
	defer a.screen.restore()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var all sync.WaitGroup
	// Reading standard input cannot be given up: that goroutine ends with the tool.
	for _, f := range []func(context.Context, context.CancelCauseFunc){
		a.attend, a.pass,
		func(ctx context.Context, stop context.CancelCauseFunc) { a.listen(ctx, stop, told, pass) },
	} {
		all.Go(func() {
			defer a.screen.guard()
			f(ctx, stop)
		})
	}
	shown := make(chan error, 1)
	go func() { // may have to wait for this tool's own terminal, for ever
		defer a.screen.guard()
		shown <- a.show(ctx)
	}()
	select {
	case err = <-shown:
	case <-ctx.Done():
	}
	var p *nodev1.Process
	if err == nil && ctx.Err() == nil {
		p, err = a.n.Wait(ctx, a.session, a.p.GetPid(), 0)
	}
	if why := context.Cause(ctx); why != nil {
		err = why // which has ended the calls
	}
	stop(nil)
	all.Wait()
	if err == nil {
		err = errors.Join(a.out.err(), a.lost.Error(a.n.Name, a.p.GetPid()))
	}
	if err == nil && p.GetLost() {
		err = fmt.Errorf("process %d on node %q has ended and nobody saw how", p.GetPid(), a.n.Name)
	}
	return statusOf(p), a.meanwhile(err)
}

// attend tells the program's node that this tool is attached. When the call ends the
// node knows that the tool has gone.
func (a *inputSession) attend(ctx context.Context, stop context.CancelCauseFunc) {
	_, err := a.n.Client.Attend(ctx, connect.NewRequest(&nodev1.AttendRequest{Session: a.session, Pid: a.p.GetPid()}))
	if err = ask.ErrorOf(a.n, err); err != nil && ctx.Err() == nil {
		stop(fmt.Errorf("the connection to process %d on node %q is lost: %w", a.p.GetPid(), a.n.Name, err))
	}
}

// show prints what the program prints. What is read next says that all before it
// is shown, so that the program waits for a slow reader.
func (a *inputSession) show(ctx context.Context) error {
	r := &nodev1.ReadLogRequest{Session: a.session, Pid: a.p.GetPid(), Attended: true, Apart: true, TimeoutNs: int64(timeout.Control / 2)}
	for {
		m, err := answered(ctx, a.n, r, a.n.Client.ReadLog)
		if err != nil {
			return err
		}
		if m.GetLostBytes() > 0 {
			a.lost = ask.Lost{Bytes: a.lost.Bytes + m.GetLostBytes(), Why: m.GetLostWhy()}
		}
		if err := ask.Pieces(m, a.out.plain()); err != nil {
			return a.screen.lost(err)
		}
		if r.Offset += int64(len(m.GetData())); m.GetApart() {
			r.Offset = m.GetNext()
		}
		if m.GetDone() {
			return nil
		}
	}
}

// answered makes a call that the node answers within a bound.
func answered[In, Out any](
	ctx context.Context, n *ask.Node, r *In,
	call func(context.Context, *connect.Request[In]) (*connect.Response[Out], error),
) (*Out, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	a, err := call(ctx, connect.NewRequest(r))
	if err != nil {
		if ctx.Err() == context.DeadlineExceeded {
			return nil, code.New(code.Unreachable, "node %q does not answer", n.Name)
		}
		return nil, ask.ErrorOf(n, err)
	}
	return a.Msg, nil
}

// maxInput is how much input goes in one call.
const maxInput = 32 << 10

// pass passes input on. While one piece is under way, the next is gathered.
func (a *inputSession) pass(ctx context.Context, stop context.CancelCauseFunc) {
	pieces := make(chan []byte)
	go func() {
		defer a.screen.guard()
		defer close(pieces)
		for b := make([]byte, maxInput); ; {
			n, err := a.in.Read(b)
			if n > 0 {
				select {
				case pieces <- append([]byte(nil), b[:n]...):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				if a.screen != nil { // no key ends the input of a raw terminal: it is gone
					stop(errHungUp{syscall.SIGHUP})
				}
				return
			}
		}
	}()
	r := &nodev1.WriteInputRequest{Session: a.session, Pid: a.p.GetPid(), TimeoutNs: int64(timeout.Control / 2)}
	for {
		select {
		case r.Data = <-pieces:
			r.End = r.Data == nil
		case <-ctx.Done():
			return
		}
		for {
			m, err := answered(ctx, a.n, r, a.n.Client.WriteInput)
			if err != nil {
				if ctx.Err() == nil && !ask.IsMissing(err) {
					stop(fmt.Errorf("pass input to process %d on node %q: %w", a.p.GetPid(), a.n.Name, err))
				}
				return
			}
			if m.GetClosed() { // it may go on without input
				return
			}
			n := m.GetTaken() - r.GetOffset()
			if n < 0 || n > int64(len(r.Data)) {
				stop(code.New(code.Protocol, "node %q has taken %d bytes of %d", a.n.Name, n, len(r.Data)))
				return
			}
			r.Offset, r.Data = m.GetTaken(), r.Data[n:]
			if len(r.Data) == 0 {
				break
			}
		}
		if r.GetEnd() {
			return
		}
	}
}

// listen heeds signals. Those of keys do not come while the terminal is raw: the
// program's own terminal makes them of what is typed.
func (a *inputSession) listen(
	ctx context.Context, stop context.CancelCauseFunc, told <-chan os.Signal, pass func(os.Signal),
) {
	changed := make(chan os.Signal, 1)
	if a.screen != nil {
		watchScreen(changed)
		defer signal.Stop(changed)
	}
	for {
		select {
		case s := <-told:
			if n, _ := s.(syscall.Signal); a.screen != nil && (n == syscall.SIGTERM || n == syscall.SIGHUP) {
				stop(errHungUp{n})
				return
			}
			pass(s)
		case <-changed:
			a.resized(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// resized tells the program the size again, and takes the terminal back after
// this tool was stopped and goes on.
func (a *inputSession) resized(ctx context.Context) {
	_ = a.screen.raw()
	r := &nodev1.ResizeTerminalRequest{Session: a.session, Pid: a.p.GetPid()}
	r.Rows, r.Columns = a.screen.size()
	// the other calls fail too if the node is gone
	_, _ = answered(ctx, a.n, r, a.n.Client.ResizeTerminal)
}

// failedBy is the exit status of a tool that err has ended.
func failedBy(err error) int {
	var h errHungUp
	if errors.As(err, &h) {
		return 128 + int(h.by)
	}
	var d errDeleted
	if errors.As(err, &d) {
		return 128 + int(syscall.SIGKILL)
	}
	return toolFailed
}
