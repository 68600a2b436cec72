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

// aheadPlain is the same of a program without input, of which there may be many.
const aheadPlain = 64 << 10

// attended is a program's side of who looks at it and gives it input. It lasts
// from the program's start until nobody attends to it, or all is over.
type attended struct {
	tty  *os.File      // the output's end, which is the input's too; nil: the program has no terminal
	in   *os.File      // where input goes; nil: there is none, and whoever reads the output attends
	free chan struct{} // closed when it is over
	late *time.Timer   // somebody has to come

	turn   chan struct{} // the right to write to in
	taken  int64         // input that the program has got; with turn
	closed bool          // nobody reads any more; with turn

	mu    sync.Mutex // behind the output's, before nothing
	here  int        // calls that attend
	seen  int64      // output that is done with
	fresh bytes.Buffer
	parts []Piece       // of fresh
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
	a.fresh, a.parts = bytes.Buffer{}, nil
	if a.tty == nil && a.in != nil {
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
		most := ahead
		if a.in == nil {
			most = aheadPlain
		}
		if held < most || a.over() {
			return
		}
		<-news
	}
}

// show keeps what was printed until it is seen.
func (a *attended) show(b []byte, p Piece) {
	if a == nil || len(b) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over() {
		a.fresh.Write(b)
		if n := len(a.parts); n > 0 && a.parts[n-1].Error == p.Error && p.Time.Sub(a.parts[n-1].Time) < pieceTime {
			a.parts[n-1].Bytes += p.Bytes
		} else {
			a.parts = append(a.parts, p)
		}
		a.tell()
	}
}

// renew keeps a program without input attended to for as long as its output is read.
func (a *attended) renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.in == nil && !a.over() {
		a.late.Reset(timeout.Control)
	}
}

// unseen gives what was printed from an offset on, before which all is seen; and
// else what to wait for.
func (a *attended) unseen(from int64, most int) ([]byte, []Piece, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over() {
		return nil, nil, nil, nil
	}
	if from < a.seen || from > a.seen+int64(a.fresh.Len()) {
		return nil, nil, nil, code.New(code.BadArg, "read attended output from byte %d on: bytes %d to %d are there", from, a.seen, a.seen+int64(a.fresh.Len()))
	}
	if from > a.seen {
		a.fresh.Next(int(from - a.seen))
		a.parts = dropPieces(a.parts, int(from-a.seen))
		a.seen = from
		a.tell()
	}
	b := a.fresh.Bytes()
	parts, n := takePieces(a.parts, min(len(b), most))
	return bytes.Clone(b[:n]), parts, a.news, nil
}

// dropPieces leaves out the first n bytes.
func dropPieces(parts []Piece, n int) []Piece {
	for len(parts) > 0 && parts[0].Bytes <= n {
		n -= parts[0].Bytes
		parts = parts[1:]
	}
	if n > 0 && len(parts) > 0 {
		parts[0].Bytes -= n
	}
	return parts
}

// takePieces are those of the first n bytes, or of as many as fit into an answer.
func takePieces(parts []Piece, n int) (out []Piece, taken int) {
	for _, p := range parts {
		if p.Bytes = min(p.Bytes, n-taken); p.Bytes == 0 || len(out) == maxPieces {
			break
		}
		out, taken = append(out, p), taken+p.Bytes
	}
	return out, taken
}

// write gives the program input. What it has got already it does not get again.
func (a *attended) write(r WriteRequest, late time.Time, given <-chan struct{}) (Written, error) {
	if a.in == nil {
		return Written{}, code.New(code.BadArg, "write input: the program has none")
	}
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
