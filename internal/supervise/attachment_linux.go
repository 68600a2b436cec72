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

// maxUnseen is how far a program may print ahead of what who attends to it has seen:
// what is typed to stop a flood must not have to wait for all of it to be shown.
const maxUnseen = 256 << 10

// maxUnseenPlain is the same of a program without input, of which there may be many.
const maxUnseenPlain = 64 << 10

// attachment is a program's side of who looks at it and gives it input. It lasts
// from the program's start until nobody attends to it, or all is over.
type attachment struct {
	tty         *os.File      // the output's end, which is the input's too; nil: the program has no terminal
	in          *os.File      // where input goes; nil: there is none, and whoever reads the output attends
	released    chan struct{} // closed when it is over
	detachTimer *time.Timer   // somebody has to come

	inputLock chan struct{} // the right to write to in
	taken     int64         // input that the program has got; with turn
	closed    bool          // nobody reads any more; with turn

	mu            sync.Mutex // behind the output's, before nothing
	attachedCalls int        // calls that attend
	seen          int64      // output that is done with
	unseenBytes   bytes.Buffer
	unseenPieces  []Piece       // of fresh
	changed       chan struct{} // closed and replaced when any of this changes
}

func newAttachment(in, tty *os.File) *attachment {
	a := &attachment{tty: tty, in: in, released: make(chan struct{}), inputLock: make(chan struct{}, 1), changed: make(chan struct{})}
	a.detachTimer = time.AfterFunc(timeout.Control, a.hangUp)
	return a
}

func (a *attachment) over() bool {
	select {
	case <-a.released:
		return true
	default:
		return false
	}
}

// wakeWaiters wakes who waits for a change. With mu.
func (a *attachment) wakeWaiters() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// attach and leave are around a call that attends. The last one that leaves hangs
// up, if the program's end has not come first.
func (a *attachment) attach() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attachedCalls++
	a.detachTimer.Stop()
}

func (a *attachment) detach() {
	a.mu.Lock()
	a.attachedCalls--
	last := a.attachedCalls == 0
	a.mu.Unlock()
	if last {
		a.hangUp()
	}
}

// release ends the input, and lets the program print what it likes. It says
// whether it was the first to do so.
func (a *attachment) release() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over() {
		return false
	}
	close(a.released)
	a.detachTimer.Stop()
	a.unseenBytes, a.unseenPieces = bytes.Buffer{}, nil
	if a.tty == nil && a.in != nil {
		_ = a.in.Close()
	}
	a.wakeWaiters()
	return true
}

// awaitDisconnect is release that takes the terminal away: the kernel tells the programs
// in it, as it does when a line is cut.
func (a *attachment) hangUp() {
	if a.release() && a.tty != nil {
		_ = a.tty.SetReadDeadline(time.Unix(1, 0)) // copy closes it
	}
}

// awaitSpace waits until the program may print more. Nobody attends to a nil one.
func (a *attachment) awaitSpace() {
	for a != nil {
		a.mu.Lock()
		held, news := a.unseenBytes.Len(), a.changed
		a.mu.Unlock()
		most := maxUnseen
		if a.in == nil {
			most = maxUnseenPlain
		}
		if held < most || a.over() {
			return
		}
		<-news
	}
}

// append keeps what was printed until it is seen.
func (a *attachment) append(b []byte, p Piece) {
	if a == nil || len(b) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over() {
		a.unseenBytes.Write(b)
		if n := len(a.unseenPieces); n > 0 && a.unseenPieces[n-1].Error == p.Error && p.Time.Sub(a.unseenPieces[n-1].Time) < pieceTime {
			a.unseenPieces[n-1].Bytes += p.Bytes
		} else {
			a.unseenPieces = append(a.unseenPieces, p)
		}
		a.wakeWaiters()
	}
}

// keepAttached keeps a program without input attended to for as long as its output is read.
func (a *attachment) keepAttached() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.in == nil && !a.over() {
		a.detachTimer.Reset(timeout.Control)
	}
}

// unseen gives what was printed from an offset on, before which all is seen; and
// else what to wait for.
func (a *attachment) unseen(from int64, most int) ([]byte, []Piece, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over() {
		return nil, nil, nil, nil
	}
	if from < a.seen || from > a.seen+int64(a.unseenBytes.Len()) {
		return nil, nil, nil, code.New(code.BadArg, "read attended output from byte %d on: bytes %d to %d are there", from, a.seen, a.seen+int64(a.unseenBytes.Len()))
	}
	if from > a.seen {
		a.unseenBytes.Next(int(from - a.seen))
		a.unseenPieces = dropPieces(a.unseenPieces, int(from-a.seen))
		a.seen = from
		a.wakeWaiters()
	}
	b := a.unseenBytes.Bytes()
	parts, n := takePieces(a.unseenPieces, min(len(b), most))
	return bytes.Clone(b[:n]), parts, a.changed, nil
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
func (a *attachment) write(r WriteRequest, late time.Time, given <-chan struct{}) (Written, error) {
	if a.in == nil {
		return Written{}, code.New(code.BadArg, "write input: the program has none")
	}
	select {
	case a.inputLock <- struct{}{}:
		defer func() { <-a.inputLock }()
	case <-given:
		return Written{}, code.New(code.Timeout, "write input: given up")
	}
	if r.Offset > a.taken {
		return Written{}, code.New(code.BadArg, "write input from byte %d on: the program has got %d", r.Offset, a.taken)
	}
	b := r.Data[min(a.taken-r.Offset, int64(len(r.Data))):]
	if len(b) > 0 && !a.closed {
		n, err := a.writeInput(b, late, given)
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

func (a *attachment) writeInput(b []byte, late time.Time, given <-chan struct{}) (int, error) {
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
