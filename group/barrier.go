package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// Barrier waits until every member has entered it. Then all that any member has sent before is in
// place. It is a collective.
//
// Errors: [MemberGoneError]; [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends;
// [vmmc.ErrInProgress] while another collective is under way, or if another one was interrupted and
// is not over; [vmmc.ErrProtocol] if a program of another group has a member's name; those of
// [vmmc.Process.ImportName], of the first collective; [vmmc.ErrClosed], [vmmc.ErrNotInHandler].
func (g *Group) Barrier(ctx context.Context) error {
	const op = "barrier"
	if err := g.enter(ctx, op); err != nil {
		return err
	}
	defer g.busy.Unlock()
	return g.barrier(ctx, op, barrierKind)
}

// enter begins a call of a collective. Without an error busy is held.
func (g *Group) enter(ctx context.Context, op string) error {
	if err := check(ctx, op); err != nil {
		return err
	}
	if !g.busy.TryLock() {
		return fail(op, vmmc.ErrInProgress, "another collective is under way")
	}
	if g.isClosed() {
		g.busy.Unlock()
		return fail(op, vmmc.ErrClosed, "the member has left the group")
	}
	return nil
}

// The kinds of collectives. That of an Exchange is at least exchangeKind.
const (
	barrierKind = iota
	shareKind
	exchangeKind
)

var errInterrupted = errors.New("another collective was interrupted: call that again first")

func (g *Group) barrier(ctx context.Context, op string, kind uint64) error {
	step("fence")
	// An error of a link that has ended is no reason: its member does not come, or has sent its words.
	if err := g.p.Fence(ctx); err != nil && (ctx.Err() != nil || errors.Is(err, vmmc.ErrClosed)) {
		return err
	}
	return g.collective(ctx, op, kind, nil)
}

// collective runs the rounds of dissemination: in round r a member sends a word to the member 2^r
// ranks after it, when it has that of the member 2^r ranks before it in all earlier rounds. So after
// the last round every member has entered. value is what is exchanged, nil for a barrier.
//
// A send that fails never fails the collective: that a partner is gone shows where its word is
// awaited. What was sent is not sent again by a repeated call, because partners may be reading it.
func (g *Group) collective(ctx context.Context, op string, kind uint64, value []byte) error {
	if g.size == 1 {
		return nil
	}
	s := g.seq + 1
	g.startLinks() // a failure that is known already goes over each link when it is made
	g.readFailures()
	if err := g.checkFailed(ctx, s); err != nil {
		return err
	}
	switch {
	case !g.begun:
		g.begun, g.kind, g.round, g.sent = true, kind, 0, false
		if value != nil {
			g.storeCell(s, kind, value)
		}
	case g.kind != kind:
		return fail(op, vmmc.ErrInProgress, "%w", errInterrupted)
	}
	if err := g.connect(ctx, op, s); err != nil {
		return err
	}
	for ; g.round < g.rounds; g.round++ {
		if !g.sent {
			step("send")
			if err := g.send(ctx, s, value != nil); ctx.Err() != nil && codeOf(err) == contextCode(ctx) {
				return err
			}
			g.sent = true
		}
		step("await")
		if err := g.await(ctx, op, s); err != nil {
			return err
		}
		g.sent = false
	}
	g.seq, g.begun = s, false
	step("end")
	return nil
}

// checkFailed returns an error if a member is missing in sequence s. The failure is sent to
// all linked partners before, as this member may end next.
func (g *Group) checkFailed(ctx context.Context, s uint32) error {
	g.mu.Lock()
	f := g.failed
	g.mu.Unlock()
	if f == nil || !f.before(s+1) {
		return nil
	}
	select {
	case <-g.flood():
	case <-ctx.Done():
	}
	return MemberGoneError{f.rank}
}

// untilWoken is ctx until stop is called or another failure becomes known. It fails if a member is
// missing in sequence s.
func (g *Group) untilWoken(ctx context.Context, s uint32) (context.Context, context.CancelFunc, error) {
	ctx, stop := context.WithCancel(ctx)
	g.mu.Lock()
	g.wake = stop
	g.mu.Unlock()
	if err := g.checkFailed(ctx, s); err != nil { // it may have become known before
		stop()
		return nil, nil, err
	}
	return ctx, stop, nil
}

// connect links this member with its partners, and reads failures meanwhile.
func (g *Group) connect(ctx context.Context, op string, s uint32) error {
	for !g.linked {
		g.startLinks()
		until, stop, err := g.untilWoken(ctx, s)
		if err != nil {
			return err
		}
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			g.readFailures()
			for {
				if _, err := g.p.WaitAny(until, g.watches[1:]...); err != nil {
					return
				}
				g.readFailures()
			}
		}()
		err = g.awaitLinks(until)
		woken := until.Err() != nil
		stop()
		<-watched
		switch {
		case err == nil:
			g.linked = true
		case ctx.Err() != nil:
			return &vmmc.Error{Op: op, Code: contextCode(ctx), Err: err}
		case !woken:
			return err
		}
	}
	return g.checkFailed(ctx, s)
}

func contextCode(ctx context.Context) vmmc.Code {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return vmmc.ErrTimeout
	}
	return vmmc.ErrCanceled
}

// send sends the word of this round, and before it the cells that the partner lacks.
func (g *Group) send(ctx context.Context, s uint32, cells bool) error {
	im := g.importOf(g.out[g.round])
	if !cells {
		return im.Send(ctx, wordBytes(s), slotAt(g.round))
	}
	n := 1 << g.round
	from := g.cellAt(s, 0)
	src := g.mem.Bytes()[from : from+min(n, g.size-n)*cellSize]
	return im.SendSignal(ctx, src, g.cellAt(s, n), s, slotAt(g.round))
}

// await waits for the word of this round. It looks at the word first: what a dead member has sent
// counts.
func (g *Group) await(ctx context.Context, op string, s uint32) error {
	w := &g.watches[0]
	for w.Word = g.slots[g.round]; ; {
		if w.Old = w.Word.Load(); int32(w.Old-s) >= 0 {
			return nil
		}
		g.readFailures()
		until, stop, err := g.untilWoken(ctx, s)
		if err != nil {
			return err
		}
		_, err = g.p.WaitAny(until, g.watches...)
		woken := until.Err() != nil
		stop()
		if err == nil || woken && ctx.Err() == nil {
			continue
		}
		if failed := g.checkFailed(ctx, s); failed != nil {
			return failed
		}
		code := codeOf(err)
		if ctx.Err() != nil {
			code, err = contextCode(ctx), ctx.Err()
		}
		return &vmmc.Error{Op: op, Code: code, Err: fmt.Errorf("member %d has not sent its word: %w", g.in[g.round].rank, err)}
	}
}
