package supervise

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// ahead is how far a program may print ahead of what who attends to it has seen:
// what is typed to stop a flood must not have to wait for all of it to be shown.
const ahead = 256 << 10

// attended is a program's side of who looks at it and gives it input. It lasts
// from the program's start until nobody attends to it, or all is over.
type attended struct {
	tty  *os.File      // the output's end, which is the input's too; nil: the program has no terminal
	in   *os.File      // where input goes
	free chan struct{} // closed when it is over
	late *time.Timer   // somebody has to come

	turn   chan struct{} // the right to write to in
	taken  int64         // input that the program has got; with turn
	closed bool          // nobody reads any more; with turn

	mu    sync.Mutex // behind the output's, before nothing
	here  int        // calls that attend
	seen  int64      // output that is done with
	fresh bytes.Buffer
	news  chan struct{} // closed and replaced when any of this changes
}

func newAttended(in, tty *os.File) *attended {
	a := &attended{tty: tty, in: in, free: make(chan struct{}), turn: make(chan struct{}, 1), news: make(chan struct{})}
	a.late = time.AfterFunc(timeout.Control, a.hangUp)
	return a
}

func (a *attended) over() bool {
	select {
	case <-a.free:
		return true
	default:
		return false
	}
}

// tell wakes who waits for a change. With mu.
func (a *attended) tell() {
	close(a.news)
	a.news = make(chan struct{})
}

// come and leave are around a call that attends. The last one that leaves hangs
// up, if the program's end has not come first.
func (a *attended) come() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.here++
	a.late.Stop()
}

func (a *attended) leave() {
	a.mu.Lock()
	a.here--
	last := a.here == 0
	a.mu.Unlock()
	if last {
		a.hangUp()
	}
}

// release ends the input, and lets the program print what it likes. It says
// whether it was the first to do so.
func (a *attended) release() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over() {
		return false
	}
	close(a.free)
	a.late.Stop()
	a.fresh = bytes.Buffer{}
	if a.tty == nil {
		_ = a.in.Close()
	}
	a.tell()
	return true
}

// hangUp is release that takes the terminal away: the kernel tells the programs
// in it, as it does when a line is cut.
func (a *attended) hangUp() {
	if a.release() && a.tty != nil {
		_ = a.tty.SetReadDeadline(time.Unix(1, 0)) // copy closes it
	}
}

// room waits until the program may print more. Nobody attends to a nil one.
func (a *attended) room() {
	for a != nil {
		a.mu.Lock()
		held, news := a.fresh.Len(), a.news
		a.mu.Unlock()
		if held < ahead || a.over() {
			return
		}
		<-news
	}
}

// show keeps what was printed until it is seen.
func (a *attended) show(b []byte) {
	if a == nil || len(b) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over() {
		a.fresh.Write(b)
		a.tell()
	}
}

// unseen gives what was printed from an offset on, before which all is seen; and
// else what to wait for.
func (a *attended) unseen(from int64, most int) ([]byte, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over() {
		return nil, nil, nil
	}
	if from < a.seen || from > a.seen+int64(a.fresh.Len()) {
		return nil, nil, code.New(code.BadArg, "read attended output from byte %d on: bytes %d to %d are there", from, a.seen, a.seen+int64(a.fresh.Len()))
	}
	if from > a.seen {
		a.fresh.Next(int(from - a.seen))
		a.seen = from
		a.tell()
	}
	b := a.fresh.Bytes()
	return bytes.Clone(b[:min(len(b), most)]), a.news, nil
}

// write gives the program input. What it has got already it does not get again.
func (a *attended) write(r WriteRequest, late time.Time, given <-chan struct{}) (Written, error) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-given:
		return Written{}, code.New(code.Timeout, "write input: given up")
	}
	if r.Offset > a.taken {
		return Written{}, code.New(code.BadArg, "write input from byte %d on: the program has got %d", r.Offset, a.taken)
	}
	b := r.Data[min(a.taken-r.Offset, int64(len(r.Data))):]
	if len(b) > 0 && !a.closed {
		n, err := a.put(b, late, given)
		a.taken += int64(n)
		a.closed = err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	if r.End && !a.closed && r.Offset+int64(len(r.Data)) == a.taken {
		a.closed = true
		if a.tty != nil {
			a.hangUp()
		} else {
			_ = a.in.Close()
		}
	}
	return Written{Taken: a.taken, Closed: a.closed}, nil
}

func (a *attended) put(b []byte, late time.Time, given <-chan struct{}) (int, error) {
	if err := a.in.SetWriteDeadline(late); err != nil {
		return 0, err
	}
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-given:
			_ = a.in.SetWriteDeadline(time.Unix(1, 0))
		case <-over:
		}
	}()
	n, err := a.in.Write(b)
	close(over)
	<-gone
	return n, err
}
