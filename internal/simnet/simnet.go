// Package simnet is a network under a test's control. What passes through it is harmed at
// the places that the test has chosen: at bytes of a connection, however it is written and
// read in pieces, and at datagrams by their number.
//
// [Pair], [Before] and [Join] are of real TCP connections of this machine, which have
// descriptors and take real time. [Pipe] and [Datagrams] are in memory: in a bubble of
// testing/synctest an hour passes there at once.
package simnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Kind is what happens.
type Kind uint8

// The faults. Each happens when byte At of its way has come, after what is before it was
// passed on, or when the datagram comes.
const (
	Flip   Kind = iota + 1 // bit Bit of byte At is another one
	Lose                   // Len bytes do not come
	Repeat                 // Len bytes come twice, as a whole and one after the other
	Swap                   // Len bytes and the Len bytes behind them change places
	Stall                  // nothing passes on this way for a time
	// This way ends in order; what comes later is lost, and the other way goes on.
	Trunc
	Cut   // both ends see the connection end in order; what comes later is lost
	Reset // both ends see it reset, which also loses what they have not read
	Part  // nothing passes on either way any more, and neither end is told
)

func (k Kind) String() string {
	if k < Flip || k > Part {
		return fmt.Sprintf("fault %d", uint8(k))
	}
	return [...]string{"flip", "lose", "repeat", "swap", "stall", "trunc", "cut", "reset", "part"}[k-Flip]
}

// Fault is one of them, in a way of bytes.
type Fault struct {
	// At counts the bytes from 0 as they were written: those that other faults lose or
	// repeat change nothing. A fault within the bytes of a Lose, Repeat or Swap before it
	// happens at the first byte behind these. Where the bytes of a Swap do not all come,
	// those that have come are passed on as they are.
	At   int64
	Kind Kind
	Len  int64         // bytes of Lose and Repeat, and of each of the two that Swap exchanges
	Bit  uint8         // of Flip
	For  time.Duration // of Stall
}

// end is what a connection through the network consists of twice.
type end interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// Conn is a connection through the network: two connections, and two goroutines between
// them that pass on what comes and make the faults.
type Conn struct {
	ends [2]end
	half bool          // one way may end before the other
	over chan struct{} // closed when it has ended, or is about to
	once sync.Once
	wg   sync.WaitGroup

	mu     sync.Mutex
	passed [2]int64
	ended  int           // ways, where half
	parted chan struct{} // closed when nothing passes any more
	part   sync.Once
}

func join(x, y end, half bool, there, back []Fault) *Conn {
	c := &Conn{ends: [2]end{x, y}, half: half, over: make(chan struct{}), parted: make(chan struct{})}
	c.wg.Go(func() { c.pass(0, there) })
	c.wg.Go(func() { c.pass(1, back) })
	return c
}

// Passed is how many bytes were passed on, there and back.
func (c *Conn) Passed() (there, back int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed[0], c.passed[1]
}

// Over is closed when the connection has ended.
func (c *Conn) Over() <-chan struct{} { return c.over }

// Part lets nothing pass any more; both ends still have their connection.
func (c *Conn) Part() { c.part.Do(func() { close(c.parted) }) }

// Reset ends the connection and loses what its ends have not read.
func (c *Conn) Reset() { c.end(true) }

// Close ends it in order and waits until nothing of it runs.
func (c *Conn) Close() {
	c.end(false)
	c.wg.Wait()
}

func (c *Conn) end(reset bool) {
	c.once.Do(func() {
		close(c.over)
		for _, e := range c.ends {
			if reset {
				_ = e.SetLinger(0)
			}
			_ = e.Close()
		}
	})
}

// pass is one way.
func (c *Conn) pass(n int, faults []Fault) {
	from := c.ends[n]
	w := way{faults: faults}
	buf := make([]byte, 64<<10)
	for {
		k, err := from.Read(buf)
		for b := buf[:k]; len(b) > 0; {
			out, rest, f := w.take(b)
			if !c.write(n, out) || f.Kind != 0 && !c.make(n, f) {
				return
			}
			b = rest
		}
		if err != nil {
			if c.write(n, w.rest()) {
				c.finish(n, err)
			}
			return
		}
	}
}

// write passes on b, and says whether more may pass.
func (c *Conn) write(n int, b []byte) bool {
	select {
	case <-c.parted:
		return false
	default:
	}
	if len(b) == 0 {
		return true
	}
	if _, err := c.ends[1-n].Write(b); err != nil {
		c.end(false)
		return false
	}
	c.mu.Lock()
	c.passed[n] += int64(len(b))
	c.mu.Unlock()
	return true
}

// finish ends a way from which nothing comes any more.
func (c *Conn) finish(n int, err error) {
	if c.half && errors.Is(err, io.EOF) {
		_ = c.ends[1-n].CloseWrite()
		c.mu.Lock()
		c.ended++
		both := c.ended == 2
		c.mu.Unlock()
		if !both {
			return
		}
	}
	c.end(false)
}

// make makes a fault that is not of the bytes alone, and says whether more may pass.
func (c *Conn) make(n int, f Fault) bool {
	switch f.Kind {
	case Stall:
		t := time.NewTimer(f.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.over:
			return false
		}
	case Trunc:
		_ = c.ends[1-n].CloseWrite()
	case Cut, Reset:
		c.end(f.Kind == Reset)
		return false
	case Part:
		c.Part()
		return false
	}
	return true
}
