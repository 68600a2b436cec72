package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Barrier waits until every member has entered it. Then all that any member has sent before its
// first call of this barrier is in place. It is a collective. What was sent over a link that has
// failed ([vmmc.Import.Err]) may be lost, and stores into bound memory need a [vmmc.Binding.Flush]
// before.
//
// Errors: [MemberGoneError]; [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends;
// [vmmc.ErrInProgress] while another collective is under way, or if another one was interrupted and
// is not over; [vmmc.ErrProtocol] if a program of another group has a member's name; those of
// [vmmc.Process.ImportName], of the first collective; [vmmc.ErrClosed] also when Leave has begun;
// [vmmc.ErrNotInHandler].
func (g *Group) Barrier(ctx context.Context) error {
	const op = "barrier"
	if err := g.enter(ctx, op, barrierKind); err != nil {
		return err
	}
	defer g.busy.Unlock()
	return g.collective(ctx, op, barrierKind, nil)
}

// The kinds of collectives. That of an Exchange is at least exchangeKind.
const (
	barrierKind = iota
	shareKind
	exchangeKind
)

// enter begins a call of a collective. Without an error busy is held.
func (g *Group) enter(ctx context.Context, op string, kind uint64) error {
	if err := check(ctx, op); err != nil {
		return err
	}
	if !g.busy.TryLock() {
		return fail(op, vmmc.ErrInProgress, "another collective is under way")
	}
	err := g.checkEntry(ctx, op, kind)
	if err != nil {
		g.busy.Unlock()
	}
	return err
}

func (g *Group) checkEntry(ctx context.Context, op string, kind uint64) error {
	if g.isClosed() {
		return fail(op, vmmc.ErrClosed, "the member has left the group")
	}
	if g.leaving {
		return fail(op, vmmc.ErrClosed, "the member is leaving the group: call Leave again")
	}
	g.startLinks() // a failure that is known already goes over each link when it is made
	g.readFailures(g.seq + 1)
	if err := g.checkFailed(ctx, g.seq+1); err != nil {
		return err
	}
	if g.begun && g.kind != kind {
		return fail(op, vmmc.ErrInProgress, "another collective was interrupted: call that again first")
	}
	return nil
}

// collective is a call of a collective that has been entered. value is what is exchanged, nil for a
// barrier.
func (g *Group) collective(ctx context.Context, op string, kind uint64, value []byte) error {
	s := g.seq + 1
	if !g.begun {
		g.begun, g.kind, g.round, g.sent = true, kind, 0, false
		if value != nil {
			g.storeCell(s, kind, value)
		}
	}
	return g.untilFailed(ctx, op, s, func(ctx context.Context) error { return g.disseminate(ctx, s, value != nil) })
}

// disseminate runs the rounds: in round r a member sends a word to the member 2^r ranks after it,
// when it has that of the member 2^r ranks before it in all earlier rounds. So after the last round
// every member has entered. A barrier begins with a fence.
//
// An error of the fence or of a send is none of the collective's, unless it has a cause at this
// member: that a partner is gone shows where its word is awaited. What was sent is not sent again
// by a repeated call, because partners may be reading it.
func (g *Group) disseminate(ctx context.Context, s uint32, cells bool) error {
	if !cells {
		g.step("fence")
		if err := g.p.Fence(ctx); err != nil && (ctx.Err() != nil || errors.Is(err, vmmc.ErrClosed)) {
			return err
		}
	}
	if err := g.connect(ctx); err != nil {
		return err
	}
	for ; g.round < g.rounds; g.round++ {
		if !g.sent {
			g.step("send")
			if err := g.send(ctx, s, cells); err != nil && ctx.Err() != nil {
				return err
			}
			g.sent = true
		}
		g.step("await")
		if err := g.await(ctx, s); err != nil {
			return err
		}
		g.sent = false
	}
	g.mu.Lock()
	g.seq = s
	g.mu.Unlock()
	g.begun = false
	g.step("end")
	return nil
}

// floodWait bounds how long a collective that fails waits for partners that do not take the
// failure: they are stopped or cut off.
const floodWait = time.Second

// checkFailed returns an error if a member is missing in sequence s. The failure is sent to all
// linked partners before, as this member may end next.
func (g *Group) checkFailed(ctx context.Context, s uint32) error {
	g.mu.Lock()
	f := g.failed
	g.mu.Unlock()
	if f == nil || !f.before(s+1) {
		return nil
	}
	g.awaitFlood(ctx)
	return MemberGoneError{f.rank}
}

// awaitFlood sends the least failure to all linked partners.
func (g *Group) awaitFlood(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, floodWait)
	defer stop()
	for _, end := range g.flood() {
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
}

// watchAfter is how long a collective runs before a goroutine reads the failures meanwhile. Most
// are over by then.
const watchAfter = time.Millisecond

// untilFailed runs f under a context that ends when another failure becomes known, and again if
// that does not concern sequence s.
func (g *Group) untilFailed(ctx context.Context, op string, s uint32, f func(ctx context.Context) error) error {
	for {
		until, stop := context.WithCancel(ctx)
		g.mu.Lock()
		g.wake = stop
		g.mu.Unlock()
		if err := g.checkFailed(ctx, s); err != nil { // it may have become known before
			stop()
			return err
		}
		watched := make(chan struct{})
		watch := time.AfterFunc(watchAfter, func() {
			defer close(watched)
			g.watchFailures(until, s)
		})
		err := f(until)
		woken := until.Err() != nil
		stop()
		if !watch.Stop() {
			<-watched
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return interrupted(ctx, op, err)
		case !woken:
			return &vmmc.Error{Op: op, Code: codeOf(err), Err: err}
		}
	}
}

// watchFailures takes over failures until ctx ends.
func (g *Group) watchFailures(ctx context.Context, s uint32) {
	for {
		g.readFailures(s)
		if _, err := g.p.WaitAny(ctx, g.watches...); err != nil {
			return
		}
	}
}

// connect links this member with its partners.
func (g *Group) connect(ctx context.Context) error {
	g.startLinks()
	err := g.awaitLinks(ctx)
	if g.linked = err == nil; g.linked {
		err = ctx.Err() // it has ended if a partner was gone before
	}
	return err
}

// interrupted is the error of a call whose context has ended, whatever it was waiting for.
func interrupted(ctx context.Context, op string, err error) error {
	code := vmmc.ErrCanceled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code = vmmc.ErrTimeout
	}
	return &vmmc.Error{Op: op, Code: code, Err: err}
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

// await waits for the word of this round.
func (g *Group) await(ctx context.Context, s uint32) error {
	for w := g.slots[g.round]; ; {
		v := w.Load()
		if int32(v-s) >= 0 {
			return nil
		}
		if _, err := w.Wait(ctx, v); err != nil {
			return fmt.Errorf("member %d has not sent its word: %w", g.in[g.round].rank, err)
		}
	}
}
