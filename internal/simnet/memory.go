package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// room is how much an end in memory has sent at most before the network takes it, and the
// network before the other end does.
const room = 64 << 10

// Pipe gives both ends of a connection in memory. there are the faults of the way from a to
// b, back those of the other way, in the order of their bytes. Other than a Pair's, each of
// its ways lasts until it is closed. What waits is durably blocked for testing/synctest, and
// a bubble that has made one must close it.
func Pipe(there, back []Fault) (a, b *End, c *Conn) {
	near, far := address(1), address(2)
	a, x := wired(near, far)
	y, b := wired(near, far)
	return a, b, join(x, y, true, there, back)
}

// address is one of those that are for examples, RFC 5737.
func address(n byte) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, n), Port: int(n)} }

// End is an end of a connection in memory. Its errors are those of a TCP connection, as far
// as errors.Is can tell.
type End struct {
	in, out       *flow
	local, remote net.Addr
	abort         atomic.Bool // by Close
}

var _ end = (*End)(nil)

// wired are two ends with nothing between them.
func wired(p, q net.Addr) (a, b *End) {
	there, back := newFlow(), newFlow()
	return &End{in: back, out: there, local: p, remote: q}, &End{
		in: there, out: back, local: q, remote: p,
	}
}

// Read waits for bytes.
func (e *End) Read(b []byte) (int, error) {
	n, err := e.in.read(b)
	return n, e.wrap("read", err)
}

// Write waits until there was room for all of b.
func (e *End) Write(b []byte) (int, error) {
	n, err := e.out.write(b)
	return n, e.wrap("write", err)
}

// Close ends both ways. The other end may still read what was sent.
func (e *End) Close() error {
	if e.abort.Load() { // before the end, which a reader might find first
		e.out.reset() // a writer without a reader gets the same error in any case
	}
	e.out.endWriting(net.ErrClosed)
	return e.wrap("close", e.in.endReading())
}

// CloseWrite ends the way from here: the other end reads what was sent, and then the end.
func (e *End) CloseWrite() error {
	e.out.endWriting(syscall.EPIPE)
	return nil
}

// SetLinger is as a TCP connection's: with 0, Close resets it. Other values do nothing.
func (e *End) SetLinger(sec int) error {
	e.abort.Store(sec == 0)
	return nil
}

// LocalAddr is an address that nothing has.
func (e *End) LocalAddr() net.Addr { return e.local }

// RemoteAddr is the other end's.
func (e *End) RemoteAddr() net.Addr { return e.remote }

// SetDeadline is of Read and Write.
func (e *End) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

// SetReadDeadline is of Read, also one that waits already.
func (e *End) SetReadDeadline(t time.Time) error {
	e.in.cond.L.Lock()
	defer e.in.cond.L.Unlock()
	e.in.reading.set(e.in.cond, t)
	return nil
}

// SetWriteDeadline is of Write, also one that waits already.
func (e *End) SetWriteDeadline(t time.Time) error {
	e.out.cond.L.Lock()
	defer e.out.cond.L.Unlock()
	e.out.writing.set(e.out.cond, t)
	return nil
}

func (e *End) wrap(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err // readers compare it
	}
	return &net.OpError{Op: op, Net: "memory", Source: e.local, Addr: e.remote, Err: err}
}

// flow is what one end has sent and the other has not read.
type flow struct {
	cond             *sync.Cond // with the lock of all that follows
	data             []byte
	ended            error // why nothing more may be written
	gone             bool  // no reader is left
	lost             bool  // it was reset
	reading, writing deadline
}

func newFlow() *flow { return &flow{cond: sync.NewCond(new(sync.Mutex))} }

func (f *flow) read(b []byte) (int, error) {
	f.cond.L.Lock()
	defer f.cond.L.Unlock()
	for {
		switch {
		case f.gone:
			return 0, net.ErrClosed
		case f.lost:
			return 0, syscall.ECONNRESET
		case f.reading.passed:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case len(f.data) > 0:
			n := copy(b, f.data)
			f.data = f.data[n:]
			f.cond.Broadcast()
			return n, nil
		case f.ended != nil:
			return 0, io.EOF
		}
		f.cond.Wait()
	}
}

func (f *flow) write(b []byte) (n int, err error) {
	f.cond.L.Lock()
	defer f.cond.L.Unlock()
	for {
		switch {
		case f.ended != nil:
			return n, f.ended
		case f.lost || f.gone:
			return n, syscall.ECONNRESET
		case f.writing.passed:
			return n, os.ErrDeadlineExceeded
		case n == len(b):
			return n, nil
		}
		if k := min(len(b)-n, room-len(f.data)); k > 0 {
			f.data = append(f.data, b[n:n+k]...)
			n += k
			f.cond.Broadcast()
			continue
		}
		f.cond.Wait()
	}
}

func (f *flow) endWriting(why error) {
	f.cond.L.Lock()
	defer f.cond.L.Unlock()
	if f.ended == nil || errors.Is(why, net.ErrClosed) {
		f.ended = why
	}
	f.writing.stop()
	f.cond.Broadcast()
}

func (f *flow) endReading() error {
	f.cond.L.Lock()
	defer f.cond.L.Unlock()
	if f.gone {
		return net.ErrClosed
	}
	f.gone, f.data = true, nil
	f.reading.stop()
	f.cond.Broadcast()
	return nil
}

func (f *flow) reset() {
	f.cond.L.Lock()
	defer f.cond.L.Unlock()
	f.lost, f.data = true, nil
	f.cond.Broadcast()
}
