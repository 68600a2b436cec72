package ask

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Output takes what a process has printed, a piece of one stream at a time. The time is zero where
// the node does not know it.
type Output func(toStderr bool, at time.Time, b []byte) error

// CopyOptions are how output is to be copied.
type CopyOptions struct {
	Follow   bool // until the process has ended
	Attended bool // as it comes: the process was started with follow
	Tail     int  // the last so many lines; negative: all
	// Outlast is how long the node may be away, as while its daemon is started again: it is asked on.
	Outlast time.Duration
}

// Lost is output of a process that is not kept, and was not copied.
type Lost struct {
	Bytes int64
	Why   string
}

// Error makes an error of it, if it is any.
func (l Lost) Error(node string, pid uint32) error {
	if l.Bytes == 0 {
		return nil
	}
	return fmt.Errorf("%d bytes of the output of process %d on node %q are lost: %s",
		l.Bytes, pid, node, l.Why)
}

// errOutput is why what was read could not be given on: the node is not to blame.
type errOutput struct{ error }

func (e errOutput) Unwrap() error { return e.error }

// IsOutput reports whether copying has ended because the output took no more.
func IsOutput(err error) bool {
	var o errOutput
	return errors.As(err, &o)
}

// CopyLog gives on what a process has printed.
func (n *Node) CopyLog(
	ctx context.Context, session string, pid uint32, o CopyOptions, to Output,
) (lost Lost, err error) {
	r := &nodev1.ReadLogRequest{Session: session, Pid: pid, Apart: true, Attended: o.Attended}
	last, known := (*lastLines)(nil), false
	if o.Tail >= 0 {
		apart := false
		if r.Offset, apart, err = n.tail(ctx, session, pid, o.Tail); err != nil {
			return lost, err
		}
		if !apart { // the node is older than that
			last = &lastLines{n: o.Tail}
		}
	}
	for {
		r.TimeoutNs = 0
		if o.Follow && last == nil {
			r.TimeoutNs = int64(timeout.Control / 2)
		}
		a, err := outlasting(ctx, n, o.Outlast, func(ctx context.Context) (*connect.Response[nodev1.ReadLogResponse], error) {
			return n.Client.ReadLog(ctx, connect.NewRequest(r))
		})
		if err != nil {
			return lost, err
		}
		m := a.Msg
		known = known || m.GetApart()
		if m.GetLostBytes() > 0 {
			lost.Bytes, lost.Why = lost.Bytes+m.GetLostBytes(), m.GetLostWhy()
		}
		if last != nil && len(m.GetData()) > 0 {
			last.add(m.GetData())
		} else if err := Pieces(m, to); err != nil {
			return lost, err
		}
		if m.GetApart() && m.GetNext() < r.Offset {
			return lost, code.New(code.Protocol,
				"node %q has read output backwards, from byte %d to byte %d", n.Name, r.Offset, m.GetNext())
		}
		if r.Offset += int64(len(m.GetData())); m.GetApart() {
			r.Offset = m.GetNext()
		}
		over := m.GetDone() || len(m.GetData()) == 0 && m.GetLostBytes() == 0
		if over && last != nil {
			err := given(to(false, time.Time{}, last.b))
			if last = nil; err != nil {
				return lost, err
			}
		}
		if !m.GetDone() && (!over || o.Follow) {
			continue
		}
		if !known { // the node is older than that: it says what it has not kept in all
			p, err := n.Now(ctx, session, pid)
			return Lost{p.GetMissingBytes(), p.GetMissingWhy()}, err
		}
		return lost, nil
	}
}

// Pieces gives on what one answer has.
func Pieces(m *nodev1.ReadLogResponse, to Output) error {
	b := m.GetData()
	for _, p := range m.GetPieces() {
		n := int(min(int64(p.GetBytes()), int64(len(b))))
		if err := given(to(p.GetToStderr(), time.Unix(0, p.GetTimeUnixNs()), b[:n])); err != nil {
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	return given(to(false, time.Time{}, b))
}

func given(err error) error {
	if err == nil {
		return nil
	}
	return errOutput{err}
}

// tail finds where the last lines of a process's output begin; apart says whether the node can.
func (n *Node) tail(
	ctx context.Context, session string, pid uint32, lines int,
) (at int64, apart bool, err error) {
	k := int32(min(lines, 1<<30))
	a, err := within(ctx, func(ctx context.Context) (*connect.Response[nodev1.ReadLogResponse], error) {
		return n.Client.ReadLog(ctx, connect.NewRequest(&nodev1.ReadLogRequest{Session: session, Pid: pid, Apart: true, Tail: &k}))
	})
	if err != nil {
		return 0, false, ErrorOf(n, err)
	}
	if !a.Msg.GetApart() {
		return 0, false, nil
	}
	return a.Msg.GetNext(), true, nil
}

// lastLines keeps the last lines of what it is given, and some more until there is much.
type lastLines struct {
	n int
	b []byte
}

func (l *lastLines) add(b []byte) {
	l.b = append(l.b, b...)
	at, lines := len(l.b), 0
	if l.n == 0 {
		l.b = nil
		return
	}
	for i := len(l.b) - 2; i >= 0; i-- {
		if l.b[i] == '\n' {
			if lines++; lines == l.n {
				at = i + 1
				break
			}
		}
	}
	if lines == l.n {
		l.b = append([]byte(nil), l.b[at:]...)
	}
}

// Now is what a node knows of a process.
func (n *Node) Now(ctx context.Context, session string, pid uint32) (*nodev1.Process, error) {
	a, err := within(ctx, func(ctx context.Context) (*connect.Response[nodev1.WaitResponse], error) {
		return n.Client.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: session, Pid: pid}))
	})
	if err != nil {
		return nil, ErrorOf(n, err)
	}
	return a.Msg.GetProcess(), nil
}

// Wait returns when a process has ended. The node may be away for a time, 0 for none, as in
// [CopyOptions].
func (n *Node) Wait(ctx context.Context, session string, pid uint32, outlast time.Duration) (*nodev1.Process, error) {
	for {
		a, err := outlasting(ctx, n, outlast, func(ctx context.Context) (*connect.Response[nodev1.WaitResponse], error) {
			return n.Client.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: session, Pid: pid, TimeoutNs: int64(timeout.Control / 2)}))
		})
		if err != nil {
			return nil, err
		}
		if p := a.Msg.GetProcess(); p.GetEnded() {
			return p, nil
		}
	}
}

// outlasting asks a question, and asks it again while the node cannot be reached, until that has taken
// a time. The question changes nothing at the node. The error is one of this program's.
func outlasting[T any](
	ctx context.Context, n *Node, outlast time.Duration, f func(context.Context) (T, error),
) (T, error) {
	const again = 100 * time.Millisecond
	for began := time.Now(); ; {
		v, err := within(ctx, f)
		err = ErrorOf(n, err)
		if !isUnreachable(err) || time.Since(began) > outlast || !timeout.Sleep(ctx, again) {
			return v, err
		}
	}
}

// isUnreachable reports whether an error says that a node has not answered, or has been lost meanwhile.
// The node that this program is connected with by its socket is none: it is not dialled again.
func isUnreachable(err error) bool {
	return errors.Is(err, code.Unreachable) || errors.Is(err, code.OutcomeUnknown)
}

// within bounds one question of many: a node that is cut off does not say so.
func within[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	return f(ctx)
}
