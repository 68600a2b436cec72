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

// nodeConn is what holds a process to its node: the connection with the daemon, and while that is
// away, whoever waits for the next one.
type nodeConn struct {
	socket string
	conn   atomic.Pointer[nodeproto.Conn] // the latest; nil before there was one

	mu      sync.Mutex
	changed chan struct{} // closed when there is another connection, or none will come, or why was set
	refusal error         // what a daemon that is there has refused this process with
	closed  bool          // no other connection will come
}

// outlivesDaemon says whether the daemon may come back. A socket without a file is that of a node in
// a program, which ends with it.
func (t *nodeConn) outlivesDaemon() bool { return !strings.HasPrefix(t.socket, "@") }

// connected says whether the daemon is there, as far as was read.
func (t *nodeConn) connected() bool {
	c := t.conn.Load()
	return c != nil && c.Err() == nil
}

// checkConnected looks, too.
func (t *nodeConn) checkConnected() bool {
	c := t.conn.Load()
	return c != nil && c.Alive()
}

// setConn gives the process another connection; false if it has left.
func (t *nodeConn) setConn(c *nodeproto.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.conn.Store(c)
	t.refusal = nil
	t.wakeWaiters()
	return true
}

// setRefusal notes that a daemon is there and does not take the process back; nil: there is none.
func (t *nodeConn) setRefusal(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refusal = why; why != nil {
		t.wakeWaiters()
	}
}

// close lets nobody wait any more, and closes the connection.
func (t *nodeConn) close() {
	t.mu.Lock()
	t.closed = true
	t.wakeWaiters()
	c := t.conn.Load()
	t.mu.Unlock()
	if c != nil {
		c.Close()
		<-c.Done()
	}
}

// wakeWaiters is called with mu.
func (t *nodeConn) wakeWaiters() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// awaitConn gives the connection. While the daemon is away it waits for the next one, until the context ends; of one
// that never does, until timeout.Control.
func (t *nodeConn) awaitConn(ctx context.Context) (*nodeproto.Conn, error) {
	var late <-chan time.Time
	for {
		t.mu.Lock()
		c := t.conn.Load()
		if err := c.Err(); err == nil {
			t.mu.Unlock()
			return c, nil
		}
		why, over := t.refusal, t.closed || !t.outlivesDaemon()
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
			return nil, fmt.Errorf("%w: %w", code.New(code.NoDaemon, "the daemon at %s has ended, and none has taken its place", t.socket), context.Cause(ctx))
		case <-late:
			return nil, code.New(code.NoDaemon, "the daemon at %s has ended (%v), and none has taken its place within %v: start vmmcd", t.socket, c.Err(), timeout.Control)
		}
	}
}

// ask asks the node what may be asked twice. A question that the daemon has not answered when it
// ended goes to the next one.
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
		case <-c.Done(): // what was answered was read by then
		case <-ctx.Done():
			return v, nil, err
		}
	}
}

// A process outlives its node's daemon and comes back to the next one, as docs/models/rejoin.pml has it:
// it says who it is, offers what it has, and only then asks for anything.

// Between attempts to come back: an eighth of the time that has passed, and for a daemon that is started anew
// within a minute so little that all are served again soon. One that stays away costs less and less. Who hears its
// bell tries at that, and else seldom: a hundred processes that look every few milliseconds take the machine from
// the daemon that they look for.
const (
	minReconnectDelay   = time.Millisecond
	shortReconnectDelay = 25 * time.Millisecond
	maxReconnectDelay   = 500 * time.Millisecond // after ten minutes, or with the bell
	bellPollInterval    = 100 * time.Millisecond // for how long who waits for the bell does not hear that the process leaves
)

func reconnectDelay(away time.Duration) time.Duration {
	return min(max(away/8, minReconnectDelay), max(min(away/1200, maxReconnectDelay), shortReconnectDelay))
}

// watchDaemon stays with the daemon, reports its end, and comes back to the next.
func (p *Process) watchDaemon() {
	for {
		c := p.node.conn.Load()
		<-c.Done()
		if p.ctx.Err() != nil {
			return
		}
		p.log.Info("the node's daemon has ended", "why", c.Err())
		p.dispatchEvent(Event{Kind: NodeGone, Err: failf("node", ErrNoDaemon, "the node's daemon has ended: %v", c.Err())}, nil)
		if !p.node.outlivesDaemon() || !p.reconnect() {
			return
		}
		p.dispatchEvent(Event{Kind: NodeBack}, nil)
	}
}

// reconnect returns when the process has another connection; false when it has left.
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

// tryReconnect waits for as long as there is no use in another attempt when this one has failed.
func (p *Process) tryReconnect(lostAt time.Time, refusedAt *time.Time) bool {
	ctx, stop := context.WithTimeout(p.ctx, timeout.Control)
	defer stop()
	// Without the bell first: at its limit of descriptors the process has one, which the connection needs.
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
		// It says why, or has hung up: at its limit it does, on the oldest of those that it refuses. Those who have heard
		// why and come back at once would take the place of those who have not, so both wait. What this process has heard
		// stands for a while, and the bell is for the next daemon.
		if refused {
			p.log.Debug("the daemon does not take the process back", "err", err)
			p.node.setRefusal(err)
			*refusedAt = time.Now()
		} else if time.Since(*refusedAt) > timeout.Control {
			p.node.setRefusal(nil)
		}
		pause = max(pause, min(time.Since(lostAt)/8, maxReconnectDelay))
		if bell == nil {
			if bell, bellErr = unix.HearBell(nodeproto.BellPath(p.node.socket), p.daemonUID, 0); bellErr == nil {
				defer bell.Close()
			}
		}
	default:
		p.node.setRefusal(nil)
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

// errNoBell is where none is listened for.
var errNoBell = errors.New("there is no bell")

// sleep waits, but not beyond the context's end.
func sleep(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// rejoinRefused is the answer of a daemon that is there: waiting does not mend it soon.
type rejoinRefused struct{ error }

func (r rejoinRefused) Unwrap() error { return r.error }

func newRejoinRefused(socket string, err error) error {
	return rejoinRefused{code.New(code.NoDaemon, "the daemon that now is at %s does not take this process back: %v", socket, err)}
}

// rejoin comes back on a connection, which is the process's or closed then.
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
	if err != nil || !p.node.setConn(c) {
		c.Close()
		<-c.Done()
		return errors.Join(err, p.ctx.Err())
	}
	// Whoever ended an export meanwhile found nobody to tell.
	for _, e := range offered {
		if e.closed.Load() {
			if err := p.withdrawExport(e); err != nil {
				p.log.Warn("the node was not told that an export has ended", "buffer", e.id, "err", err)
			}
		}
	}
	return nil
}

// announceAll says who this process is, and what it has.
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
		return nil, err // who has hung up may have said why before
	case err != nil:
		return nil, newRejoinRefused(p.node.socket, err)
	case w.Process != p.id:
		return nil, newRejoinRefused(p.node.socket, code.New(code.Protocol, "it takes process %v for %v", p.id, w.Process))
	}
	p.linksWithImport.Store(w.Introduces)
	offered, a := p.announcements()
	for _, e := range offered {
		if len(e.permit) > 0 { // which may fill a packet by themselves
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
		if part.Last { // from here on the daemon takes it for this process's end if it hangs up
			wait = p.ctx
		}
		if fds, err = c.Call(wait, nodeproto.Again, part, nil, nil); err != nil {
			return nil, err
		}
		closeAll(fds)
	}
	return offered, nil
}

// takeBatch takes as many as go into half a packet.
func takeBatch[T any](all []T) (part, rest []T) {
	n := min(len(all), nodeproto.AgainEntries/2)
	return all[:n], all[n:]
}

// announcements are what the daemon is told of again: exports, and links that may be resumed. Exports are
// in the list that are just being made: those who make them tell the daemon once more.
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

// announcement is what the daemon knows of an export.
func (e *Export) announcement() nodeproto.ExportRequest {
	return nodeproto.ExportRequest{ID: e.id, Size: len(e.mem), Rights: e.rights, Serial: e.serial, Permit: e.permit}
}

// dropUnlinked forgets grants whose link was not there when the daemon ended: their importers, if the answer
// reached them, hear that it is not good any more and ask again.
func (p *Process) dropUnlinked() {
	p.joinMu.Lock() // a link that takes another's place has their grants for a moment
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
