package vmmc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// handleRequest answers the daemon. It owns fds.
func (p *Process) handleRequest(_ context.Context, m nodeproto.Method, body []byte, fds []int) (any, []int, error) {
	switch m {
	case nodeproto.Offer:
		r, err := nodeproto.Decode[nodeproto.OfferRequest](body)
		if err != nil {
			closeAll(fds)
			return nil, nil, err
		}
		return p.handleOffer(r, fds)
	case nodeproto.Accept:
		r, err := nodeproto.Decode[nodeproto.AcceptRequest](body)
		if err != nil {
			closeAll(fds)
			return nil, nil, err
		}
		return p.handleAccept(r, fds)
	case nodeproto.Handover:
		r, err := nodeproto.Decode[nodeproto.HandoverRequest](body)
		if err != nil || len(fds) != 1 {
			closeAll(fds)
			return nil, nil, code.New(code.Protocol, "handover with %d descriptors: %v", len(fds), err)
		}
		foreign.Own(fds[0]) // the node has accepted it
		return nodeproto.Empty{}, nil, p.handleHandover(r, fds[0])
	case nodeproto.Withdraw:
		r, err := nodeproto.Decode[nodeproto.ReleaseRequest](body)
		closeAll(fds)
		if err == nil {
			p.handleWithdraw(r.Importer, r.Handle)
		}
		return nodeproto.Empty{}, nil, err
	case nodeproto.Sever:
		r, err := nodeproto.Decode[nodeproto.SeverRequest](body)
		closeAll(fds)
		if err != nil {
			return nil, nil, err
		}
		return nodeproto.Severed{Links: p.handleSever(r)}, nil, nil
	}
	closeAll(fds)
	return nil, nil, code.New(code.NotImplemented, "unknown request %d: the daemon is newer than this program's vmmc", m)
}

// nodeConn is the control connection to the node's daemon. While there is none, callers of
// awaitConn wait for the next one.
type nodeConn struct {
	socket string
	conn   atomic.Pointer[nodeproto.Conn] // the latest connection, which may have ended; nil before the first one

	mu      sync.Mutex
	state   nodeConnState // Guarded by mu.
	refusal error         // why, in nodeRefused. Guarded by mu.
	changed chan struct{} // closed by changes but to nodeAway; nil: no waiter. Guarded by mu.
}

// nodeConnState is whether the process has its node.
//
//	away <--> up
//	  ^       ^
//	  v       |
//	refused --+
//
// All lead to closed, which is final. An attempt to reconnect that changes nothing sets the state
// again.
type nodeConnState uint8

const (
	nodeAway    nodeConnState = iota // there was no daemon yet, or it has ended
	nodeUp                           // the connection may have failed since: see connected
	nodeRefused                      // the running daemon does not take this process back
	nodeClosed                       // no further connection will be made
)

func (s nodeConnState) String() string {
	return [...]string{"away", "up", "refused", "closed"}[s]
}

var nodeConnTransitions = state.Table[nodeConnState]{
	nodeAway:    {nodeAway, nodeUp, nodeRefused, nodeClosed},
	nodeUp:      {nodeAway, nodeClosed},
	nodeRefused: {nodeRefused, nodeAway, nodeUp, nodeClosed},
}

// setState changes the state, unless it is closed, and wakes the callers of awaitConn. c is the new
// connection, for nodeUp, and refusal is the reason, for nodeRefused. It reports false if the state
// is closed.
func (t *nodeConn) setState(to nodeConnState, c *nodeproto.Conn, refusal error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == nodeClosed {
		return false
	}
	nodeConnTransitions.Check(t.state, to)
	t.state, t.refusal = to, refusal
	if to == nodeUp {
		t.conn.Store(c)
	}
	if t.changed != nil && to != nodeAway {
		close(t.changed)
		t.changed = nil
	}
	return true
}

// outlivesDaemon reports whether another daemon can take the place of this one. An abstract socket
// ("@") belongs to an embedded node, which ends with its program.
func (t *nodeConn) outlivesDaemon() bool { return !strings.HasPrefix(t.socket, "@") }

// connected reports whether the connection has not ended, as far as its reader knows.
func (t *nodeConn) connected() bool {
	c := t.conn.Load()
	return c != nil && c.Err() == nil
}

// checkConnected is connected that also asks the kernel whether the peer has hung up.
func (t *nodeConn) checkConnected() bool {
	c := t.conn.Load()
	return c != nil && c.Alive()
}

// close ends all waits, closes the connection and waits for its goroutines.
func (t *nodeConn) close() {
	t.setState(nodeClosed, nil, nil)
	if c := t.conn.Load(); c != nil {
		c.Close()
		<-c.Done()
	}
}

// awaitConn returns the connection. While there is no daemon it waits for the next one until the
// context ends, or for timeout.Control if the context has no deadline.
func (t *nodeConn) awaitConn(ctx context.Context) (*nodeproto.Conn, error) {
	var late <-chan time.Time
	for {
		t.mu.Lock()
		c := t.conn.Load()
		if err := c.Err(); err == nil {
			t.mu.Unlock()
			return c, nil
		}
		why, over := t.refusal, t.state == nodeClosed || !t.outlivesDaemon()
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
			return nil, fmt.Errorf("%w: %w", code.New(code.NoDaemon, "the daemon at %s has ended, and none has taken its place", t.socket), timeout.Ended(ctx))
		case <-late:
			return nil, code.New(code.NoDaemon, "the daemon at %s has ended (%v), and none has taken its place within %v: start vmmcd", t.socket, c.Err(), timeout.Control)
		}
	}
}

// ask sends an idempotent request to the node. If the daemon ends before it answers, ask sends the
// request to the next daemon.
func ask[T any](ctx context.Context, p *Process, m nodeproto.Method, in any, fds []int) (v T, got []int, err error) {
	for {
		c, err := p.node.awaitConn(ctx)
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

// A process outlives its node's daemon and rejoins the next one. The model is
// docs/models/rejoin.pml: the process first identifies itself, then announces its exports and
// links, and only then sends requests.

// Delays between attempts to reconnect. A delay is an eighth of the time since the daemon ended, at
// most 25 ms in the first half minute, so that all processes are served soon after a restart; a
// longer absence costs less and less. A process that listens to the daemon's bell reconnects when
// it rings and polls rarely: a hundred processes that dial every few milliseconds take the CPU from
// the daemon that they wait for.
const (
	minReconnectDelay   = time.Millisecond
	shortReconnectDelay = 25 * time.Millisecond
	maxReconnectDelay   = 500 * time.Millisecond // after ten minutes, or while listening to the bell
	bellPollInterval    = 100 * time.Millisecond // how late a goroutine that waits for the bell notices Process.Close
)

func reconnectDelay(away time.Duration) time.Duration {
	return min(max(away/8, minReconnectDelay), max(min(away/1200, maxReconnectDelay), shortReconnectDelay))
}

// watchDaemon waits for the daemon's end, reports it, and reconnects to the next daemon.
func (p *Process) watchDaemon() {
	for {
		c := p.node.conn.Load()
		<-c.Done()
		if p.ctx.Err() != nil {
			return
		}
		if p.node.outlivesDaemon() {
			p.node.setState(nodeAway, nil, nil)
		} else {
			p.node.setState(nodeClosed, nil, nil)
		}
		p.log.Info("the node's daemon has ended", "why", c.Err())
		p.dispatchEvent(Event{Kind: NodeGone, Err: failf("node", ErrNoDaemon, "the node's daemon has ended: %v", c.Err())}, nil)
		if !p.node.outlivesDaemon() || !p.reconnect() {
			return
		}
		p.dispatchEvent(Event{Kind: NodeBack}, nil)
	}
}

// reconnect retries until the process has a new connection. It reports false when the process is
// closed.
func (p *Process) reconnect() bool {
	lostAt := time.Now()
	var refusedAt time.Time // why it may not
	for sleep(p.ctx, minReconnectDelay); p.ctx.Err() == nil; {
		if p.tryReconnect(lostAt, &refusedAt) {
			p.log.Info("came back to the node's daemon", "after", time.Since(lostAt))
			return true
		}
	}
	return false
}

// tryReconnect makes one attempt. After a failure it waits until the next attempt is worthwhile.
func (p *Process) tryReconnect(lostAt time.Time, refusedAt *time.Time) bool {
	ctx, stop := context.WithTimeout(p.ctx, timeout.Control)
	defer stop()
	// The first dial is without the bell: a process at its descriptor limit has one descriptor
	// left, which the connection needs.
	s, dialErr := nodeproto.Dial(ctx, p.node.socket)
	var bell *unix.Bell
	bellErr := errNoBell
	if dialErr != nil {
		if bell, bellErr = unix.HearBell(nodeproto.BellPath(p.node.socket), p.daemonUID, 0); bellErr == nil {
			defer bell.Close()
			s, dialErr = nodeproto.Dial(ctx, p.node.socket) // a daemon that comes later rings
		}
	}
	err := dialErr
	if err == nil {
		err = p.rejoin(ctx, s)
	}
	if err == nil || p.ctx.Err() != nil {
		return err == nil
	}
	pause := reconnectDelay(time.Since(lostAt))
	var no rejoinRefused
	refused := errors.As(err, &no)
	switch {
	case refused || dialErr == nil && errors.Is(err, code.NoDaemon):
		// The daemon gave a reason or hung up. At its connection limit it hangs up on the oldest
		// refused connections. A refused process that redialled at once would displace others that
		// have not received the reason yet, so both kinds wait. The reason stands for
		// timeout.Control; the bell then announces the next daemon.
		if refused {
			p.log.Debug("the daemon does not take the process back", "err", err)
			p.node.setState(nodeRefused, nil, err)
			*refusedAt = time.Now()
		} else if time.Since(*refusedAt) > timeout.Control {
			p.node.setState(nodeAway, nil, nil)
		}
		pause = max(pause, min(time.Since(lostAt)/8, maxReconnectDelay))
		if bell == nil {
			if bell, bellErr = unix.HearBell(nodeproto.BellPath(p.node.socket), p.daemonUID, 0); bellErr == nil {
				defer bell.Close()
			}
		}
	default:
		p.node.setState(nodeAway, nil, nil)
		if dialErr != nil && bellErr == nil {
			pause = maxReconnectDelay
		}
	}
	pause = pause/2 + rand.N(pause/2+1) //nolint:gosec // not all processes of the node at once
	for over := time.Now().Add(pause); p.ctx.Err() == nil; {
		left := time.Until(over)
		if left <= 0 {
			break
		}
		if bellErr == nil {
			var rung bool
			if rung, bellErr = bell.Wait(min(left, bellPollInterval)); rung {
				break
			}
		} else {
			sleep(p.ctx, left)
		}
	}
	return false
}

// errNoBell means that this attempt does not listen to the bell.
var errNoBell = errors.New("there is no bell")

// sleep waits for pause or until the context ends.
func sleep(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// rejoinRefused is a refusal by a running daemon. Retrying soon does not help.
type rejoinRefused struct{ error }

func (r rejoinRefused) Unwrap() error { return r.error }

func newRejoinRefused(socket string, err error) error {
	return rejoinRefused{code.New(code.NoDaemon, "the daemon that now is at %s does not take this process back: %v", socket, err)}
}

// rejoin registers this process on a new connection, which it takes over: it becomes the process's,
// or it is closed.
func (p *Process) rejoin(ctx context.Context, s *net.UnixConn) error {
	// Exports and keys of links are for the user that had them before.
	who, err := unix.PeerCred(s)
	if err == nil && who.UID != p.daemonUID && who.UID != 0 {
		err = newRejoinRefused(p.node.socket, code.New(code.NoRights, "it is user %d's, and the one before was user %d's", who.UID, p.daemonUID))
	}
	if err != nil {
		_ = s.Close()
		return err
	}
	c := nodeproto.NewDialledConn(s, p.handleLogged)
	c.Trace(p.logRequest)
	offered, err := p.announceAll(ctx, c)
	if err != nil || !p.node.setState(nodeUp, c, nil) {
		c.Close()
		<-c.Done()
		return errors.Join(err, p.ctx.Err())
	}
	// An export that was closed during the absence could not be withdrawn from the daemon.
	for _, e := range offered {
		if e.closed.Load() {
			if err := p.withdrawExport(e); err != nil {
				p.log.Warn("the node was not told that an export has ended", "buffer", e.id, "err", err)
			}
		}
	}
	return nil
}

// announceAll identifies this process to a new daemon and announces its exports and its links.
func (p *Process) announceAll(ctx context.Context, c *nodeproto.Conn) (offered []*Export, err error) {
	p.dropUnlinked()
	p.mu.Lock()
	r := nodeproto.RejoinRequest{Version: nodeproto.Version, Process: p.id, Pass: p.rejoinToken}
	for _, peer := range p.importers {
		r.Order = max(r.Order, peer.order)
	}
	p.mu.Unlock()
	counters, err := p.engine.Counters()
	if err != nil {
		return nil, err
	}
	defer closeAll([]int{counters})
	w, fds, err := nodeproto.Ask[nodeproto.Welcome](ctx, c, nodeproto.Rejoin, r, []int{counters})
	closeAll(fds)
	switch {
	case errors.Is(err, code.NoDaemon) && !c.Alive(), errors.Is(err, code.InProgress):
		return nil, err // a daemon that hung up may have given its reason on an earlier connection
	case err != nil:
		return nil, newRejoinRefused(p.node.socket, err)
	case w.Process != p.id:
		return nil, newRejoinRefused(p.node.socket, code.New(code.Protocol, "it takes process %v for %v", p.id, w.Process))
	}
	p.linksWithImport.Store(w.Introduces)
	offered, a := p.announcements()
	for _, e := range offered {
		if len(e.permit) > 0 { // its permissions may fill a packet by themselves
			if fds, err = c.Call(ctx, nodeproto.Export, e.announcement(), nil, nil); err != nil {
				return nil, err
			}
			closeAll(fds)
		}
	}
	for !a.Last {
		part := nodeproto.AgainRequest{}
		part.Exports, a.Exports = takeBatch(a.Exports)
		part.Links, a.Links = takeBatch(a.Links)
		a.Last = len(a.Exports)+len(a.Links) == 0
		part.Last = a.Last
		wait := ctx
		if part.Last { // from here on the daemon takes a closed connection for this process's end
			wait = p.ctx
		}
		if fds, err = c.Call(wait, nodeproto.Again, part, nil, nil); err != nil {
			return nil, err
		}
		closeAll(fds)
	}
	return offered, nil
}

// takeBatch splits off as many entries as fit into half a packet.
func takeBatch[T any](all []T) (part, rest []T) {
	n := min(len(all), nodeproto.AgainEntries/2)
	return all[:n], all[n:]
}

// announcements returns the exports and the resumable links that a new daemon must know. The list
// includes exports that are still being made; Process.Export announces these once more.
func (p *Process) announcements() (offered []*Export, a nodeproto.AgainRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.exports {
		if e.closed.Load() {
			continue
		}
		offered = append(offered, e)
		if len(e.permit) == 0 {
			a.Exports = append(a.Exports, e.announcement())
		}
	}
	for l, peer := range p.pendingDials {
		if peer.attempt > 0 && peer.responder != nil && peer.responder.Terms().ReconnectLimit > 0 {
			a.Links = append(a.Links, nodeproto.LinkAgain{Link: l, Key: peer.key})
		}
	}
	return offered, a
}

// announcement describes the export to the daemon.
func (e *Export) announcement() nodeproto.ExportRequest {
	return nodeproto.ExportRequest{ID: e.id, Size: len(e.mem), Rights: e.rights, Serial: e.serial, Permit: e.permit}
}

// dropUnlinked drops grants that had no link yet when the daemon ended. An importer that did
// receive such a grant is told that it is void, and imports again.
func (p *Process) dropUnlinked() {
	p.joinMu.Lock() // while one link replaces another, grants have no link for a moment
	defer p.joinMu.Unlock()
	p.mu.Lock()
	var ids []nodeproto.ProcessID
	for id := range p.importers {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.dropGrant(id, allUnlinked)
	}
}
