package group

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vmmc-go/vmmc"
)

// MemberGoneError is the error of a collective in which a member takes no part any more: it has
// died, left or cannot be reached. It is also [vmmc.ErrPeerGone].
//
// Experimental: it may change in any release.
type MemberGoneError struct{ Rank int }

// Error says which member it is.
func (m MemberGoneError) Error() string {
	return fmt.Sprintf("group: member %d takes no part any more", m.Rank)
}

// Is reports whether target is [vmmc.ErrPeerGone].
func (m MemberGoneError) Is(target error) bool { return target == vmmc.ErrPeerGone }

// failure says that a member takes no part in collectives from seq on.
type failure struct {
	rank int
	seq  uint32
}

// before reports whether it fails a collective before one that fails from s on.
func (f *failure) before(s uint32) bool { return int32(f.seq-s) < 0 }

// partner is a member that this one exchanges words with.
type partner struct {
	rank   int
	edge   int   // of this member there, where it writes
	edges  []int // of the partner here
	rounds []int // in which the partner sends here

	// Guarded by Group.mu.
	linking  bool          // reports whether a task makes the link
	settled  bool          // reports whether it is linked, or was gone before
	ended    bool          // reports whether another member says that it has ended
	stopLink func()        // ends the attempt to link; nil before the first
	err      error         // why the last attempt has failed, until awaitLinks has returned it
	im       *vmmc.Import  // of its block; nil before the link, or if it was gone before
	flooding chan struct{} // closed when the task that sends failures ends; nil if there is none
	flooded  uint32        // the last failure that was sent
	notices  []int         // dead ranks that are to be sent to it
	noticing bool          // reports whether a task sends them
}

// addPartner notes that a member is a partner: edge here, and this member's edge there.
func (g *Group) addPartner(rank, edge, there int) *partner {
	for _, pt := range g.all {
		if pt.rank == rank {
			pt.edges = append(pt.edges, edge)
			return pt
		}
	}
	pt := &partner{rank: rank, edge: there, edges: []int{edge}}
	g.all = append(g.all, pt)
	return pt
}

func (g *Group) importOf(pt *partner) *vmmc.Import {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pt.im
}

// startLinks starts a link with each partner that has none. They go on when the collective is over.
// busy is held.
func (g *Group) startLinks() {
	if g.linked {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pt := range g.all {
		if !pt.linking && !pt.settled {
			pt.err = nil
			pt.linking = g.begin(func() { g.link(pt) })
		}
	}
}

// awaitLinks waits until no link is being made. It fails as soon as one fails, once for each. busy
// is held.
func (g *Group) awaitLinks(ctx context.Context) error {
	for {
		linking, err := g.takeLinks()
		if linking == nil || err != nil {
			return err
		}
		select {
		case <-g.linkEnded:
		case <-ctx.Done():
			return fmt.Errorf("member %d has not joined: %w", linking.rank, ctx.Err())
		}
	}
}

// takeLinks returns a partner whose link is being made, and the error of one that has failed.
func (g *Group) takeLinks() (linking *partner, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pt := range g.all {
		if pt.err != nil {
			err, pt.err = pt.err, nil
			return nil, err
		}
		if pt.linking {
			linking = pt
		}
	}
	return linking, nil
}

// link imports the block of a partner, sends it what is known already, and awaits its end.
func (g *Group) link(pt *partner) {
	im, err := g.importPartner(pt)
	if left := g.hasLeft(pt); err != nil && (left || g.saidEnded(pt) || codeOf(err) == vmmc.ErrNoSuchProcess) {
		g.takeFailures(pt)
		g.fail(pt.rank, 1)
		if !left { // it has ended before it joined
			g.noteGone(pt.rank)
		}
		err = nil
	}
	g.mu.Lock()
	pt.im, pt.err, pt.linking, pt.settled = im, err, false, err == nil
	if im != nil {
		g.ids[pt.rank] = im.Exporter()
		g.scheduleNotices(pt)
	}
	g.mu.Unlock()
	select {
	case g.linkEnded <- struct{}{}:
	default:
	}
	if im == nil {
		return
	}
	g.step("linked")
	g.flood()
	select {
	case <-im.Done():
		g.partnerEnded(pt, im)
	case <-g.ctx.Done():
	}
}

// importPartner imports the block of a partner. It fails when the partner leaves, which takes the
// block away, and when another member says that the partner has ended.
func (g *Group) importPartner(pt *partner) (*vmmc.Import, error) {
	ctx, stop := context.WithCancel(g.ctx)
	g.mu.Lock()
	if pt.stopLink = stop; pt.ended {
		stop()
	}
	g.mu.Unlock()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if g.p.WaitUntil(ctx, func() bool { return g.hasLeft(pt) }) == nil {
			stop()
		}
	}()
	im, err := g.importBlock(ctx, pt.rank)
	stop()
	<-watched
	return im, err
}

// noteEnded ends the attempt to link with a member that another one says has ended: it does not
// join any more. mu is held.
func (g *Group) noteEnded(rank int) {
	for _, pt := range g.all {
		if pt.rank == rank {
			pt.ended = true
			if pt.stopLink != nil {
				pt.stopLink()
			}
		}
	}
}

// saidEnded reports whether another member says that a partner has ended.
func (g *Group) saidEnded(pt *partner) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pt.ended
}

// partnerEnded is called when a partner's block is gone.
func (g *Group) partnerEnded(pt *partner, im *vmmc.Import) {
	left := g.hasLeft(pt)
	switch err := im.Err(); {
	case errors.Is(err, vmmc.ErrClosed): // this process is closed
		return
	case errors.Is(err, vmmc.ErrRevoked) && !left:
		// It closes its process, and its last words may be under way.
		select {
		case <-im.PeerDone():
		case <-g.ctx.Done():
			return
		}
		if g.processClosed() {
			return
		}
		left = g.hasLeft(pt)
	}
	g.takeFailures(pt)
	for _, r := range pt.rounds { // all its words have arrived
		g.fail(pt.rank, g.next(g.slots[r].Load()))
	}
	if !left {
		g.noteGone(pt.rank)
	}
}

// next is the sequence after one that a partner has reached, which is two ahead of the last one
// here at most, whatever it has stored.
func (g *Group) next(reached uint32) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seq + uint32(min(int32(reached-g.seq), 2)) + 1
}

// processClosed reports whether this member's process is closed.
func (g *Group) processClosed() bool {
	ended, stop := context.WithCancel(g.ctx)
	stop()
	return errors.Is(g.p.Fence(ended), vmmc.ErrClosed)
}

// hasLeft reports whether a partner has said that it leaves.
func (g *Group) hasLeft(pt *partner) bool {
	for _, edge := range pt.edges {
		if g.left[edge].Load() != 0 {
			return true
		}
	}
	return false
}

// fail notes that a member takes no part in collectives from seq on, and starts a flood if that is
// less than was known.
func (g *Group) fail(rank int, seq uint32) {
	g.mu.Lock()
	g.noteEnded(rank)
	f := &failure{rank, seq}
	less := g.failed == nil || f.before(g.failed.seq)
	if less {
		g.failed = f
		if g.wake != nil {
			g.wake()
		}
	}
	g.mu.Unlock()
	if less {
		g.flood()
	}
}

// flood starts to send the least failure to the linked partners that do not have it. It returns
// what is closed when these sends are over. link calls it for partners that are linked later.
func (g *Group) flood() (ends []<-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pt := range g.all {
		if pt.im == nil || g.failed == nil {
			continue
		}
		if end := make(chan struct{}); pt.flooding == nil && pt.flooded != g.failed.word() &&
			g.begin(func() { g.sendFailures(pt) }) {
			pt.flooding = end
		}
		if pt.flooding != nil {
			ends = append(ends, pt.flooding)
		}
	}
	return ends
}

// sendFailures sends a partner the least failure, and again if a lesser one becomes known
// meanwhile. Sequences only fall: a later death does not replace the one that fails this
// collective.
func (g *Group) sendFailures(pt *partner) {
	for {
		g.mu.Lock()
		w := g.failed.word()
		if w == pt.flooded || g.closed {
			close(pt.flooding)
			pt.flooding = nil
			g.mu.Unlock()
			return
		}
		pt.flooded = w
		g.mu.Unlock()
		g.step("failure")
		_ = pt.im.Send(g.ctx, wordBytes(w), failureAt(pt.edge)) // fails if the partner is gone, too
	}
}

// readFailures takes over the failures that partners have sent, near sequence s. busy is held.
func (g *Group) readFailures(s uint32) {
	for i := range g.watches {
		w := &g.watches[i]
		v := w.Word.Load()
		if v == w.Old {
			continue
		}
		w.Old = v
		if f := failureOf(v, s); f.rank >= 0 && f.rank < g.size {
			g.fail(f.rank, f.seq)
		}
	}
}

// takeFailures takes over the failures that a partner has sent before it ended. Collectives are to
// report one of these rather than the partner, as it may be why the partner has ended.
func (g *Group) takeFailures(pt *partner) {
	g.mu.Lock()
	s := g.seq + 1
	g.mu.Unlock()
	for _, edge := range pt.edges {
		if f := failureOf(g.failures[edge].Load(), s); f.rank >= 0 && f.rank < g.size {
			g.fail(f.rank, f.seq)
		}
	}
}

// Gone gives the rank of each member that is known to have died, once: not of those that have left
// by [Group.Leave]. It gives deaths from this member's first collective on, and is never closed.
func (g *Group) Gone() <-chan int { return g.gone }

// OnGone has f called for each rank that [Group.Gone] gives, also for those that it has given, on a
// goroutine of its own, until stop is called. [Group.Leave] waits for f.
//
// Experimental: it may change in any release.
func (g *Group) OnGone(f func(rank int)) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listeners[&f] = struct{}{}
	for rank := range g.reported {
		g.begin(func() { f(rank) })
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.listeners, &f)
	}
}

// Resign tells the others that this member takes no part any more: [Group.Gone] of the others gives it,
// as if its process had ended. It returns when the partners know, or the context ends. Call Leave then.
// Before this member's first collective it tells nobody.
//
// Experimental: it may change in any release.
func (g *Group) Resign(ctx context.Context) error {
	const op = "resign from the group"
	if err := check(ctx, op); err != nil {
		return err
	}
	var telling sync.WaitGroup
	for _, pt := range g.all {
		if im := g.importOf(pt); im != nil {
			telling.Go(func() {
				_ = im.SendNotify(ctx, wordBytes(uint32(g.rank+1)), noticeAt(pt.edge)) // fails if the partner is gone, too
			})
		}
	}
	telling.Wait()
	if ctx.Err() != nil {
		return interrupted(ctx, op, ctx.Err())
	}
	return nil
}

// noteGone reports to the program, and to the partners, that a member has died.
func (g *Group) noteGone(rank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if rank == g.rank || g.reported[rank] {
		return
	}
	g.reported[rank] = true
	g.noteEnded(rank)
	g.gone <- rank
	for f := range g.listeners {
		g.begin(func() { (*f)(rank) })
	}
	for _, pt := range g.all {
		pt.notices = append(pt.notices, rank)
		g.scheduleNotices(pt)
	}
}

// scheduleNotices starts a task that sends a linked partner its notices, unless one runs. mu is
// held.
func (g *Group) scheduleNotices(pt *partner) {
	if pt.im != nil && len(pt.notices) > 0 && !pt.noticing {
		pt.noticing = g.begin(func() { g.sendNotices(pt) })
	}
}

// sendNotices waits where a partner's notifications are blocked.
func (g *Group) sendNotices(pt *partner) {
	for {
		g.mu.Lock()
		if len(pt.notices) == 0 || g.closed {
			pt.noticing = false
			g.mu.Unlock()
			return
		}
		rank := pt.notices[0]
		pt.notices = pt.notices[1:]
		g.mu.Unlock()
		_ = pt.im.SendNotify(g.ctx, wordBytes(uint32(rank+1)), noticeAt(pt.edge)) // fails if the partner is gone, too
	}
}

// handleDeathNotice handles notifications. The word in memory may be a later one's.
func (g *Group) handleDeathNotice(n vmmc.Notification) {
	if rank := int(n.Word) - 1; rank >= 0 && rank < g.size {
		g.noteGone(rank)
	}
}
