package vmmc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// tie is what holds a process to its node: the connection with the daemon, and while that is
// away, whoever waits for the next one.
type tie struct {
	socket string
	now    atomic.Pointer[local.Conn] // the latest; nil before there was one

	mu    sync.Mutex
	next  chan struct{} // closed when there is another connection, or none will come, or why was set
	why   error         // what a daemon that is there has refused this process with
	ended bool          // no other connection will come
}

// lasting says whether the daemon may come back. A socket without a file is that of a node in
// a program, which ends with it.
func (t *tie) lasting() bool { return !strings.HasPrefix(t.socket, "@") }

// up says whether the daemon is there, as far as was read.
func (t *tie) up() bool {
	c := t.now.Load()
	return c != nil && c.Err() == nil
}

// alive looks, too.
func (t *tie) alive() bool {
	c := t.now.Load()
	return c != nil && c.Alive()
}

// set gives the process another connection; false if it has left.
func (t *tie) set(c *local.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.now.Store(c)
	t.why = nil
	t.wake()
	return true
}

// refused notes that a daemon is there and does not take the process back; nil: there is none.
func (t *tie) refused(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.why = why; why != nil {
		t.wake()
	}
}

// end lets nobody wait any more, and closes the connection.
func (t *tie) end() {
	t.mu.Lock()
	t.ended = true
	t.wake()
	c := t.now.Load()
	t.mu.Unlock()
	if c != nil {
		c.Close()
		<-c.Done()
	}
}

// wake is called with mu.
func (t *tie) wake() {
	if t.next != nil {
		close(t.next)
		t.next = nil
	}
}

// wait gives the connection. While the daemon is away it waits for the next one, until the context ends; of one
// that never does, until timeout.Control.
func (t *tie) wait(ctx context.Context) (*local.Conn, error) {
	var late <-chan time.Time
	for {
		t.mu.Lock()
		c := t.now.Load()
		if err := c.Err(); err == nil {
			t.mu.Unlock()
			return c, nil
		}
		why, over := t.why, t.ended || !t.lasting()
		if t.next == nil {
			t.next = make(chan struct{})
		}
		next := t.next
		t.mu.Unlock()
		switch {
		case why != nil:
			return nil, why
		case over:
			return nil, code.New(code.NoDaemon, "the connection to the daemon is closed: %v", c.Err())
		}
		if _, bounded := ctx.Deadline(); !bounded && late == nil {
			timer := time.NewTimer(timeout.Control)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", code.New(code.NoDaemon, "the daemon at %s has ended, and none has taken its place", t.socket), context.Cause(ctx))
		case <-late:
			return nil, code.New(code.NoDaemon, "the daemon at %s has ended (%v), and none has taken its place within %v: start vmmcd", t.socket, c.Err(), timeout.Control)
		}
	}
}

// ask asks the node what may be asked twice. A question that the daemon has not answered when it
// ended goes to the next one.
func ask[T any](ctx context.Context, p *Process, m local.Method, in any, fds []int) (v T, got []int, err error) {
	for {
		c, err := p.node.wait(ctx)
		if err != nil {
			return v, nil, err
		}
		v, got, err = local.Ask[T](ctx, c, m, in, fds)
		if err == nil || !errors.Is(err, code.NoDaemon) || c.Alive() {
			return v, got, err
		}
		select {
		case <-c.Done(): // what was answered was read by then
		case <-ctx.Done():
			return v, nil, err
		}
	}
}
