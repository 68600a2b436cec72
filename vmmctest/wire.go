package vmmctest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// wire carries the connections that one node and its processes make to another node.
type wire struct {
	to string // The address that the other node listens on.
	l  *net.TCPListener
	wg sync.WaitGroup

	mu     sync.Mutex
	delay  time.Duration     // Guarded by mu.
	healed chan struct{}     // Closed by heal, which makes another one. Guarded by mu.
	down   bool              // Guarded by mu.
	closed bool              // Guarded by mu.
	conns  map[*carried]bool // Guarded by mu.
}

// carried is one connection: its two ends on this wire.
type carried struct {
	ends [2]*net.TCPConn
	late [2]chan piece // What has come on each end, and is not written to the other one yet.
	over chan struct{} // Closed when it has ended.
	once sync.Once
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatalf("vmmctest: %v", err)
	}
	w := &wire{to: to, l: l, healed: make(chan struct{}), conns: map[*carried]bool{}}
	w.wg.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

// addr is the address that the near node dials.
func (w *wire) addr() string { return w.l.Addr().String() }

func (w *wire) accept() {
	for {
		near, err := w.l.AcceptTCP()
		if err != nil {
			return
		}
		w.wg.Go(func() { w.carry(near) })
	}
}

// carry passes on what comes on both ends, until the connection ends.
func (w *wire) carry(near *net.TCPConn) {
	c := &carried{over: make(chan struct{})}
	for n := range c.late {
		c.late[n] = make(chan piece, maxLate)
	}
	c.ends[0] = near
	far, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", w.to)
	if err != nil {
		_ = near.SetLinger(0)
		_ = near.Close()
		return
	}
	c.ends[1] = far.(*net.TCPConn)
	w.mu.Lock()
	down := w.down || w.closed
	if !down {
		w.conns[c] = true
	}
	w.mu.Unlock()
	if down {
		c.end(true)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { w.pass(c, 0) })
	both.Go(func() { w.pass(c, 1) })
	both.Wait()
	c.end(false)
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

// end ends both ends, in order or by a reset.
func (c *carried) end(reset bool) {
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

// maxLate bounds how many pieces one end of a connection has under way.
const maxLate = 256

// piece is what has come at once, and when it goes on: when it is due, or the wire is healed.
type piece struct {
	b      []byte
	due    time.Time
	healed <-chan struct{}
}

// delayed is a piece that comes now.
func (w *wire) delayed(b []byte) piece {
	w.mu.Lock()
	defer w.mu.Unlock()
	return piece{b, time.Now().Add(w.delay), w.healed}
}

// pass reads what comes on one end. Another goroutine writes it to the other end when it is due, so
// that pieces are late by the same time while at most maxLate are under way.
func (w *wire) pass(c *carried, n int) {
	late := c.late[n]
	var writer sync.WaitGroup
	writer.Go(func() { c.write(c.ends[1-n], late) })
	defer writer.Wait()
	defer close(late)
	for {
		b := make([]byte, 16<<10)
		k, err := c.ends[n].Read(b)
		if k > 0 {
			select {
			case late <- w.delayed(b[:k]):
			case <-c.over:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.end(true)
			}
			return
		}
	}
}

// write writes pieces until there are no more, and then ends its way. What is not due when the
// connection ends is lost with it.
func (c *carried) write(to *net.TCPConn, late <-chan piece) {
	for p := range late {
		if d := time.Until(p.due); d > 0 {
			select {
			case <-time.After(d):
			case <-p.healed:
			case <-c.over: // before its ends are closed
				return
			}
		}
		if _, err := to.Write(p.b); err != nil {
			c.end(false)
		}
	}
	_ = to.CloseWrite()
}

// cut resets the wire's connections, and those that are made from now on.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for c := range w.conns {
		c.end(true)
	}
}

func (w *wire) setDelay(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// heal undoes cut and setDelay. What is under way goes on at once.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay, w.down = 0, false
	close(w.healed)
	w.healed = make(chan struct{})
}

// close ends the wire when its nodes have ended.
func (w *wire) close() {
	_ = w.l.Close()
	w.mu.Lock()
	w.closed = true
	for c := range w.conns {
		c.end(true)
	}
	w.mu.Unlock()
	w.wg.Wait()
}
