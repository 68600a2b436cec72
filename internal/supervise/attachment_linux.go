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

// maxUnseen bounds the output that a program may print ahead of its attached client, in bytes:
// input that stops a flood of output must not wait until all of it was shown.
const maxUnseen = 256 << 10

// maxUnseenPlain is the same for a program without input, of which there may be many.
const maxUnseenPlain = 64 << 10

// attachment connects a program with the client that reads its output and gives it input. It lasts
// from the program's start until no client is attached, or the program and its output have ended.
type attachment struct {
	tty      *os.File      // the output's end, which is the input's too; nil: the program has no terminal
	in       *os.File      // where input goes; nil: no input, and reading the output keeps it attached
	released chan struct{} // closed when the attachment has ended

	inputLock chan struct{} // a lock: held to write to in
	taken     int64         // input bytes that the program received. Guarded by inputLock.
	closed    bool          // the program reads no more input. Guarded by inputLock.

	mu            sync.Mutex  // taken after output.mu; a leaf lock
	detachTimer   *time.Timer // ends the attachment when no client attaches in time
	attachedCalls int         // number of attached calls
	seen          int64       // offset up to which the client has seen the output
	unseenBytes   bytes.Buffer
	unseenPieces  []Piece       // of fresh
	changed       chan struct{} // closed and replaced when any of this changes
}

func newAttachment(in, tty *os.File) *attachment {
	a := &attachment{tty: tty, in: in, released: make(chan struct{}), inputLock: make(chan struct{}, 1), changed: make(chan struct{})}
	a.mu.Lock() // which hangUp takes
	defer a.mu.Unlock()
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

// wakeWaiters wakes goroutines that wait for a change. mu is held.
func (a *attachment) wakeWaiters() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// attach and detach surround an attached call. The last detach hangs up, unless the program has
// ended before.
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

// awaitSpace waits until the program may print more. It may be called on nil: no client is
// attached.
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

// append keeps printed output until the client has seen it.
func (a *attachment) append(b []byte, p Piece) {
	if a == nil || len(b) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over() {
		a.unseenBytes.Write(b)
		if n := len(a.unseenPieces); n > 0 && a.unseenPieces[n-1].Error == p.Error &&
			p.Time.Sub(a.unseenPieces[n-1].Time) < pieceTime {
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
		return Written{}, code.New(code.BadArg,
			"write input from byte %d on: the program has got %d", r.Offset, a.taken)
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
