package vmmc

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// A process outlives its node's daemon and comes back to the next one, as docs/models/rejoin.pml has it:
// it says who it is, offers what it has, and only then asks for anything.

// Between attempts to come back: an eighth of the time that has passed, and for a daemon that is started anew
// within a minute so little that all are served again soon. One that stays away costs less and less. Who hears its
// bell tries at that, and else seldom: a hundred processes that look every few milliseconds take the machine from
// the daemon that they look for.
const (
	firstReturn = time.Millisecond
	soonReturn  = 25 * time.Millisecond
	lateReturn  = 500 * time.Millisecond // after ten minutes, or with the bell
	deafness    = 100 * time.Millisecond // for how long who waits for the bell does not hear that the process leaves
)

func betweenReturns(away time.Duration) time.Duration {
	return min(max(away/8, firstReturn), max(min(away/1200, lateReturn), soonReturn))
}

// attend stays with the daemon, reports its end, and comes back to the next.
func (p *Process) attend() {
	for {
		c := p.node.now.Load()
		<-c.Done()
		if p.life.Err() != nil {
			return
		}
		p.log.Info("the node's daemon has ended", "why", c.Err())
		p.event(Event{Kind: NodeGone, Err: failf("node", ErrNoDaemon, "the node's daemon has ended: %v", c.Err())}, nil)
		if !p.node.lasting() || !p.comeBack() {
			return
		}
		p.event(Event{Kind: NodeBack}, nil)
	}
}

// comeBack returns when the process has another connection; false when it has left.
func (p *Process) comeBack() bool {
	gone := time.Now()
	var heard time.Time // why it may not
	for rest(p.life, firstReturn); p.life.Err() == nil; {
		if p.tryReturn(gone, &heard) {
			p.log.Info("came back to the node's daemon", "after", time.Since(gone))
			return true
		}
	}
	return false
}

// tryReturn waits for as long as there is no use in another attempt when this one has failed.
func (p *Process) tryReturn(gone time.Time, heard *time.Time) bool {
	ctx, stop := context.WithTimeout(p.life, timeout.Control)
	defer stop()
	// Without the bell first: at its limit of descriptors the process has one, which the connection needs.
	s, away := local.Dial(ctx, p.node.socket)
	var bell *unix.Bell
	deaf := errNoBell
	if away != nil {
		if bell, deaf = unix.HearBell(local.Bell(p.node.socket), p.served, 0); deaf == nil {
			defer bell.Close()
			s, away = local.Dial(ctx, p.node.socket) // a daemon that comes later rings
		}
	}
	err := away
	if err == nil {
		err = p.rejoin(ctx, s)
	}
	if err == nil || p.life.Err() != nil {
		return err == nil
	}
	pause := betweenReturns(time.Since(gone))
	var no refusedReturn
	told := errors.As(err, &no)
	switch {
	case told || away == nil && errors.Is(err, code.NoDaemon):
		// It says why, or has hung up: at its limit it does, on the oldest of those that it refuses. Those who have heard
		// why and come back at once would take the place of those who have not, so both wait. What this process has heard
		// stands for a while, and the bell is for the next daemon.
		if told {
			p.log.Debug("the daemon does not take the process back", "err", err)
			p.node.refused(err)
			*heard = time.Now()
		} else if time.Since(*heard) > timeout.Control {
			p.node.refused(nil)
		}
		pause = max(pause, min(time.Since(gone)/8, lateReturn))
		if bell == nil {
			if bell, deaf = unix.HearBell(local.Bell(p.node.socket), p.served, 0); deaf == nil {
				defer bell.Close()
			}
		}
	default:
		p.node.refused(nil)
		if away != nil && deaf == nil {
			pause = lateReturn
		}
	}
	pause = pause/2 + rand.N(pause/2+1) //nolint:gosec // not all processes of the node at once
	for over := time.Now().Add(pause); p.life.Err() == nil; {
		left := time.Until(over)
		if left <= 0 {
			break
		}
		if deaf == nil {
			var rung bool
			if rung, deaf = bell.Wait(min(left, deafness)); rung {
				break
			}
		} else {
			rest(p.life, left)
		}
	}
	return false
}

// errNoBell is where none is listened for.
var errNoBell = errors.New("there is no bell")

// rest waits, but not beyond the context's end.
func rest(ctx context.Context, pause time.Duration) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// refusedReturn is the answer of a daemon that is there: waiting does not mend it soon.
type refusedReturn struct{ error }

func (r refusedReturn) Unwrap() error { return r.error }

func refuseReturn(socket string, err error) error {
	return refusedReturn{code.New(code.NoDaemon, "the daemon that now is at %s does not take this process back: %v", socket, err)}
}

// rejoin comes back on a connection, which is the process's or closed then.
func (p *Process) rejoin(ctx context.Context, s *net.UnixConn) error {
	// Exports and keys of links are for the user that had them before.
	who, err := unix.PeerCred(s)
	if err == nil && who.UID != p.served && who.UID != 0 {
		err = refuseReturn(p.node.socket, code.New(code.NoRights, "it is user %d's, and the one before was user %d's", who.UID, p.served))
	}
	if err != nil {
		_ = s.Close()
		return err
	}
	c := local.Dialled(s, p.handler)
	c.Trace(p.asked)
	offered, err := p.offerAgain(ctx, c)
	if err != nil || !p.node.set(c) {
		c.Close()
		<-c.Done()
		return errors.Join(err, p.life.Err())
	}
	// Whoever ended an export meanwhile found nobody to tell.
	for _, e := range offered {
		if e.closed.Load() {
			if err := p.unexport(e); err != nil {
				p.log.Warn("the node was not told that an export has ended", "buffer", e.id, "err", err)
			}
		}
	}
	return nil
}

// offerAgain says who this process is, and what it has.
func (p *Process) offerAgain(ctx context.Context, c *local.Conn) (offered []*Export, err error) {
	p.dropUnlinked()
	p.mu.Lock()
	r := local.RejoinRequest{Version: local.Version, Process: p.id, Pass: p.pass}
	for _, peer := range p.peers {
		r.Order = max(r.Order, peer.order)
	}
	p.mu.Unlock()
	counters, err := p.engine.Counters()
	if err != nil {
		return nil, err
	}
	defer closeAll([]int{counters})
	w, fds, err := local.Ask[local.Welcome](ctx, c, local.Rejoin, r, []int{counters})
	closeAll(fds)
	switch {
	case errors.Is(err, code.NoDaemon) && !c.Alive(), errors.Is(err, code.InProgress):
		return nil, err // who has hung up may have said why before
	case err != nil:
		return nil, refuseReturn(p.node.socket, err)
	case w.Process != p.id:
		return nil, refuseReturn(p.node.socket, code.New(code.Protocol, "it takes process %v for %v", p.id, w.Process))
	}
	p.introduces.Store(w.Introduces)
	offered, a := p.belongings()
	for _, e := range offered {
		if len(e.permit) > 0 { // which may fill a packet by themselves
			if fds, err = c.Call(ctx, local.Export, e.announcement(), nil, nil); err != nil {
				return nil, err
			}
			closeAll(fds)
		}
	}
	for !a.Last {
		part := local.AgainRequest{}
		part.Exports, a.Exports = cut(a.Exports)
		part.Links, a.Links = cut(a.Links)
		a.Last = len(a.Exports)+len(a.Links) == 0
		part.Last = a.Last
		wait := ctx
		if part.Last { // from here on the daemon takes it for this process's end if it hangs up
			wait = p.life
		}
		if fds, err = c.Call(wait, local.Again, part, nil, nil); err != nil {
			return nil, err
		}
		closeAll(fds)
	}
	return offered, nil
}

// cut takes as many as go into half a packet.
func cut[T any](all []T) (part, rest []T) {
	n := min(len(all), local.AgainEntries/2)
	return all[:n], all[n:]
}

// belongings are what the daemon is told of again: exports, and links that may be resumed. Exports are
// in the list that are just being made: those who make them tell the daemon once more.
func (p *Process) belongings() (offered []*Export, a local.AgainRequest) {
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
	for l, peer := range p.waiting {
		if peer.attempt > 0 && peer.in != nil && peer.in.Terms().ReconnectLimit > 0 {
			a.Links = append(a.Links, local.LinkAgain{Link: l, Key: peer.key})
		}
	}
	return offered, a
}

// announcement is what the daemon knows of an export.
func (e *Export) announcement() local.ExportRequest {
	return local.ExportRequest{ID: e.id, Size: len(e.mem), Rights: e.rights, Serial: e.serial, Permit: e.permit}
}

// dropUnlinked forgets grants whose link was not there when the daemon ended: their importers, if the answer
// reached them, hear that it is not good any more and ask again.
func (p *Process) dropUnlinked() {
	p.joins.Lock() // a link that takes another's place has their grants for a moment
	defer p.joins.Unlock()
	p.mu.Lock()
	var ids []local.ProcessID
	for id := range p.peers {
		ids = append(ids, id)
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.dropGrant(id, allUnlinked)
	}
}
