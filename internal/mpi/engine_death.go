package mpi

import (
	"fmt"

	"github.com/vmmc-go/vmmc/group"
)

// GroupGone is the error of a group with a rank that is gone, or nil.
func (e *Engine) GroupGone(group []int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead == 0 {
		return nil
	}
	return e.groupGone(group, nil)
}

// failEnded fails the peers whose connection has ended, after it has taken what they had sent.
// mu is held.
func (e *Engine) failEnded() {
	if e.closed {
		return
	}
	for _, pr := range *e.active.Load() {
		if pr.err != nil || !pr.port.Ended() {
			continue
		}
		if err := pr.port.Poll(); err != nil {
			pr.fail(err)
			continue
		}
		pr.fail(pr.port.Err())
	}
}

// fail notes that a rank is gone: all that waits for it fails. Requests of a collective fail too if
// their own peer lives. That peer can still name them: they are abandoned. mu is
// held.
func (pr *peer) fail(err error) {
	e := pr.e
	if pr.err != nil {
		return
	}
	pr.err = err
	pr.gone.Store(true)
	e.dead++
	if e.dead >= separators(e.size) {
		e.search()
	}
	e.failed = append(e.failed, pr.rank)
	switch {
	case e.gone == nil:
	case e.finishing: // it has ended as this rank is about to, unless Finish gives up
		e.untold = append(e.untold, pr)
	default:
		go e.gone(pr.rank, e.errGone(pr.rank))
	}
	pr.notices, pr.control, pr.queue, pr.streams = nil, nil, nil, nil
	if pr.port != nil && pr.port.Err() == nil { // it lives, and must not wait for this rank
		pr.port.Refuse()
	}
	e.q.each(unexpected, func(i uint32, n entry) {
		if n.rank() == pr.rank && n.kind() == entryRTS { // its data does not come any more
			e.q.remove(unexpected, i)
		}
	})
	for _, s := range e.requests {
		switch r := s.r; {
		case r == nil || !r.concerns(pr):
		case r.peer == pr:
			r.fail(e.errGone(pr.rank))
		default:
			r.abandon(e.errGone(pr.rank))
		}
	}
	for i := len(e.probers) - 1; i >= 0; i-- {
		if r := e.probers[i]; r.concerns(pr) {
			e.probers = append(e.probers[:i], e.probers[i+1:]...)
			r.finish(e.errGone(pr.rank))
		}
	}
}

// noteDeath is called by the group for a rank that has ended without Finish. A rank that this one is
// connected with is left to its port, which takes what the rank has sent before.
//
// A call may depend on a rank that it does not name: a receive from any rank, and a collective. The group
// tells all ranks of a death by a flood over its links, each rank's with ⌈log2 n⌉ others in both
// directions. That graph looks alike from each rank, so fewer deaths than separators leave it connected,
// and the flood reaches all that live. A rank that the flood does not reach is cut off by ranks that are
// dead: as many as separators, all of which it has heard of, because they have links with ranks that
// reach it. It then connects to all others, and finds those that are dead.
func (e *Engine) noteDeath(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pr := e.peers[rank]
	if e.closed || pr.port == nil || pr.err != nil {
		return
	}
	err := fmt.Errorf("other ranks have found that it has ended: %w", group.MemberGoneError{Rank: rank})
	if pr.port.Lost(err) {
		pr.fail(err)
	}
}

// separators is how many ranks must be dead for the group's links to fall into parts, at least. In a
// connected graph of n nodes that looks alike from each of them, with d neighbours for each, it is
// 2(d+1)/3 (Watkins, Connectivity of transitive graphs, 1970).
func separators(n int) int {
	neighbours := map[int]bool{}
	for k := 1; k < n; k *= 2 {
		neighbours[k], neighbours[n-k] = true, true
	}
	return (2*(len(neighbours)+1) + 2) / 3
}

// search connects to all ranks. mu is held.
func (e *Engine) search() {
	if e.searching || e.closed {
		return
	}
	e.searching = true
	for _, pr := range e.peers {
		pr.want()
	}
}
