// Package nodeconn keeps a process connected to its node: it dials the daemon, and the next one
// after a daemon has ended. The model is docs/models/rejoin.pml: the process first identifies
// itself, then announces its exports and links, and only then sends requests.
package nodeconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Process is what the connection calls of the process that it belongs to.
type Process struct {
	Handle nodeproto.Handler // answers the daemon's requests
	Trace  nodeproto.Tracer  // is told of the process's requests

	// Rejoin identifies the process to another daemon, and announces what it has. The error of a
	// daemon that does not take it back is from Conn.Refused. rejoined is called when the process
	// may make requests on the connection.
	Rejoin func(ctx context.Context, c *nodeproto.Conn) (rejoined func(), err error)
	Gone   func(why error) // the daemon has ended
	Back   func()          // the process has rejoined
}

// Conn is the control connection to the node's daemon. While there is none, callers of Await wait
// for the next one.
type Conn struct {
	Socket    string // the daemon's
	Process   Process
	daemonUID uint32 // of the first daemon; a later one must have the same, or root's

	ctx context.Context // Watch's
	log *slog.Logger    // Watch's

	// The latest connection, which may have ended; nil before the first one.
	conn atomic.Pointer[nodeproto.Conn]

	mu      sync.Mutex
	state   connState     // Guarded by mu.
	refusal error         // why, in stateRefused. Guarded by mu.
	changed chan struct{} // closed by changes but to stateAway; nil: no waiter. Guarded by mu.
}

// connState is whether the process has its node.
//
//	away <--> up
//	  ^       ^
//	  v       |
//	refused --+
//
// All lead to closed, which is final. An attempt to reconnect that changes nothing sets the state
// again.
type connState uint8

const (
	stateAway    connState = iota // there was no daemon yet, or it has ended
	stateUp                       // the connection may have failed since: see Connected
	stateRefused                  // the running daemon does not take this process back
	stateClosed                   // no further connection will be made
)

func (s connState) String() string {
	return [...]string{"away", "up", "refused", "closed"}[s]
}

var transitions = state.Table[connState]{
	stateAway:    {stateAway, stateUp, stateRefused, stateClosed},
	stateUp:      {stateAway, stateClosed},
	stateRefused: {stateRefused, stateAway, stateUp, stateClosed},
}

// setState changes the state, unless it is closed, and wakes the callers of Await. c is the new
// connection, for stateUp, and refusal is the reason, for stateRefused. It reports false if the
// state is closed.
func (t *Conn) setState(to connState, c *nodeproto.Conn, refusal error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == stateClosed {
		return false
	}
	transitions.Check(t.state, to)
	t.state, t.refusal = to, refusal
	if to == stateUp {
		t.conn.Store(c)
	}
	if t.changed != nil && to != stateAway {
		close(t.changed)
		t.changed = nil
	}
	return true
}

// Dial connects to the daemon at the socket.
func (t *Conn) Dial(ctx context.Context) (*nodeproto.Conn, error) {
	s, err := nodeproto.Dial(ctx, t.Socket)
	if err != nil {
		return nil, err
	}
	daemon, err := unix.PeerCred(s)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	t.daemonUID = daemon.UID
	c := t.start(s)
	t.setState(stateUp, c, nil)
	return c, nil
}

func (t *Conn) start(s *net.UnixConn) *nodeproto.Conn {
	c := nodeproto.NewDialledConn(s, t.Process.Handle)
	c.Trace(t.Process.Trace)
	return c
}

// Latest is the latest connection, which may have ended. There is one after Dial.
func (t *Conn) Latest() *nodeproto.Conn { return t.conn.Load() }

// outlivesDaemon reports whether another daemon can take the place of this one. An abstract socket
// ("@") belongs to an embedded node, which ends with its program.
func (t *Conn) outlivesDaemon() bool { return !strings.HasPrefix(t.Socket, "@") }

// Connected reports whether the connection has not ended, as far as its reader knows.
func (t *Conn) Connected() bool {
	c := t.conn.Load()
	return c != nil && c.Err() == nil
}

// CheckConnected is Connected that also asks the kernel whether the peer has hung up.
func (t *Conn) CheckConnected() bool {
	c := t.conn.Load()
	return c != nil && c.Alive()
}

// Close ends all waits, closes the connection and waits for its goroutines.
func (t *Conn) Close() {
	t.setState(stateClosed, nil, nil)
	if c := t.conn.Load(); c != nil {
		c.Close()
		<-c.Done()
	}
}

// Await returns the connection. While there is no daemon it waits for the next one until the
// context ends, or for timeout.Control if the context has no deadline.
func (t *Conn) Await(ctx context.Context) (*nodeproto.Conn, error) {
	var late <-chan time.Time
	for {
		t.mu.Lock()
		c := t.conn.Load()
		if err := c.Err(); err == nil {
			t.mu.Unlock()
			return c, nil
		}
		why, over := t.refusal, t.state == stateClosed || !t.outlivesDaemon()
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		next := t.changed
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
			return nil, fmt.Errorf("%w: %w", code.New(code.NoDaemon, "the daemon at %s has ended, and none has taken its place", t.Socket), timeout.Ended(ctx))
		case <-late:
			return nil, code.New(code.NoDaemon, "the daemon at %s has ended (%v), and none has taken its place within %v: start vmmcd", t.Socket, c.Err(), timeout.Control)
		}
	}
}

// Ask sends an idempotent request to the node. If the daemon ends before it answers, Ask sends the
// request to the next daemon.
func Ask[T any](
	ctx context.Context, t *Conn, m nodeproto.Method, in any, fds []int,
) (v T, got []int, err error) {
	for {
		c, err := t.Await(ctx)
		if err != nil {
			return v, nil, err
		}
		v, got, err = nodeproto.Ask[T](ctx, c, m, in, fds)
		if err == nil || !errors.Is(err, code.NoDaemon) || c.Alive() {
			return v, got, err
		}
		select {
		case <-c.Done(): // every answer that arrived has been read by then
		case <-ctx.Done():
			return v, nil, err
		}
	}
}
