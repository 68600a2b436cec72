// Package simnet is a network under a test's control. A connection through it consists of
// two real TCP connections of this machine and two goroutines between them, which pass on
// what comes and make the faults that the test has asked for, each at a byte of its
// choice: what happens does not depend on how the kernel cuts the bytes into pieces.
package simnet

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Kind is what happens.
type Kind uint8

// The faults. What is before byte At of a way has been passed on when they happen.
const (
	Flip  Kind = iota + 1 // bit Bit of byte At is another one
	Stall                 // nothing passes on this way for a time
	Cut                   // both ends see the connection end in order; what comes later is lost
	Reset                 // both ends see it reset, which also loses what they have not read
	Part                  // nothing passes on either way any more, and nobody is told
)

func (k Kind) String() string {
	if k < Flip || k > Part {
		return fmt.Sprintf("fault %d", uint8(k))
	}
	return [...]string{"flip", "stall", "cut", "reset", "part"}[k-Flip]
}

// Fault is one of them.
type Fault struct {
	At   int64
	Kind Kind
	Bit  uint8         // of Flip
	For  time.Duration // of Stall
}

// Conn is a connection through the network.
type Conn struct {
	ends [2]*net.TCPConn
	over chan struct{} // closed when it has ended, or is about to
	once sync.Once
	wg   sync.WaitGroup

	mu     sync.Mutex
	passed [2]int64
	parted chan struct{} // closed when nothing passes any more
	part   sync.Once
}

// Pair gives both ends of a connection. there are the faults of the way from a to b,
// back those of the other way, in the order of their bytes.
func Pair(there, back []Fault) (a, b *net.TCPConn, c *Conn, err error) {
	a, x, err := loopback()
	if err != nil {
		return nil, nil, nil, err
	}
	y, b, err := loopback()
	if err != nil {
		return nil, nil, nil, errors.Join(err, a.Close(), x.Close())
	}
	return a, b, Join(x, y, there, back), nil
}

// Before puts the network in front of a connection, and gives the end that takes its place.
func Before(far *net.TCPConn) (near *net.TCPConn, c *Conn, err error) {
	near, x, err := loopback()
	if err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return near, Join(x, far, nil, nil), nil
}

// Join passes on what comes from x to y, and back. The connections are its own from now on.
func Join(x, y *net.TCPConn, there, back []Fault) *Conn {
	c := &Conn{ends: [2]*net.TCPConn{x, y}, over: make(chan struct{}), parted: make(chan struct{})}
	c.wg.Go(func() { c.pass(0, there) })
	c.wg.Go(func() { c.pass(1, back) })
	return c
}

// loopback is a connection of this machine with itself.
func loopback() (dialled, accepted *net.TCPConn, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	if dialled, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	for {
		if accepted, err = l.AcceptTCP(); err != nil {
			return nil, nil, errors.Join(err, dialled.Close())
		}
		if accepted.RemoteAddr().String() == dialled.LocalAddr().String() {
			return dialled, accepted, nil
		}
		_ = accepted.Close() // somebody else's
	}
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
func (c *Conn) pass(way int, faults []Fault) {
	from, to := c.ends[way], c.ends[1-way]
	buf := make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := from.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			k := len(b)
			if len(faults) > 0 {
				if f := faults[0]; f.At <= at {
					faults = faults[1:]
					if !c.make(f, b) {
						return
					}
					continue
				}
				k = int(min(int64(k), faults[0].At-at))
			}
			if c.isParted() {
				return
			}
			if _, err := to.Write(b[:k]); err != nil {
				c.end(false)
				return
			}
			at, b = at+int64(k), b[k:]
			c.mu.Lock()
			c.passed[way] = at
			c.mu.Unlock()
		}
		if err != nil {
			c.end(false)
			return
		}
	}
}

func (c *Conn) isParted() bool {
	select {
	case <-c.parted:
		return true
	default:
		return false
	}
}

// make makes a fault before the first byte of b, and says whether anything passes after it.
func (c *Conn) make(f Fault, b []byte) bool {
	switch f.Kind {
	case Flip:
		b[0] ^= 1 << (f.Bit % 8)
	case Stall:
		t := time.NewTimer(f.For)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.over:
			return false
		}
	case Cut, Reset:
		c.end(f.Kind == Reset)
		return false
	case Part:
		c.Part()
		return false
	}
	return true
}
