package link

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// A long copy that was begun asynchronously is left to whoever waits next in this process, who would have nothing to do but look. A
// goroutine that copies at once is a thread more, which takes a processor of those on which both ends look: of 128 KiB both ways a tenth to
// a quarter moved that way of what does now. Where somebody sleeps, and where nobody waits within leftFor or longLeft, a goroutine has to be at it.
//
// To set the timer takes as long as many a copy, if it is its processor's next, so where waiters come it is put off only when most of its time
// is over, and to twice as much. It takes with it what has been left for half of its time.
const (
	leftFor  = 200 * time.Microsecond
	longLeft = 800 * time.Microsecond
)

// leftLooks is how often who has begun to wait before looks in vain until it has a goroutine come.
const leftLooks = 64

// copiesID is that of its timer's events. Those of links have low numbers.
const copiesID = ^uint64(0)

// copies is the links that have such copies and nobody who works them off.
type copies struct {
	// some says that there are any. It is stored with mu. Who leaves one stores it and then looks for sleepers; who goes to sleep is known to
	// and then loads it. Both are sequentially consistent, so one of them sees the other.
	some atomic.Bool

	mu     sync.Mutex // never with a backlog's
	outs   []*Out
	timer  *unix.Timer // nil before the first copy, and if there can be none
	due    int64       // when it goes off, of [unix.Monotonic]; 0 if it is not set
	span   int64       // how long what is left is left
	closed bool
}

// leave has who waits work off o's backlog, without whose lock it is called by whom it was left, who has worked at it or has
// begun one more.
func (e *Engine) leave(o *Out, worked bool) {
	// Who sleeps after the second look finds o listed, see start; with the first nothing is listed where somebody sleeps anyway.
	if e.sleepers.Asleep() || !e.copies.add(e.ep, o, worked) || e.sleepers.Asleep() {
		o.hurry()
	}
}

// add lists o and says whether somebody will come.
func (c *copies) add(ep *unix.Epoll, o *Out, worked bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.timer == nil && !c.startTimer(ep) {
		return false
	}
	now := unix.Monotonic()
	if !o.later.listed {
		o.later.listed = true
		c.outs = append(c.outs, o)
		c.some.Store(true)
		worked = true
	}
	if worked {
		o.later.since = now
	}
	switch {
	case c.due == 0:
		c.span = int64(leftFor)
		c.set(now)
	case worked && c.due-now < c.span/4:
		c.span = min(2*c.span, int64(longLeft))
		c.set(now)
	}
	return true
}

// set has the timer go off when the link that nobody has worked at for longest has been left for span.
func (c *copies) set(now int64) {
	if len(c.outs) == 0 {
		c.due = 0
		return
	}
	oldest := now
	for _, o := range c.outs {
		oldest = min(oldest, o.later.since)
	}
	c.due = oldest + c.span
	c.timer.Set(time.Duration(max(c.due-now, 1)))
}

// startTimer is with mu.
func (c *copies) startTimer(ep *unix.Epoll) (ok bool) {
	var err error
	c.timer, err = newTimer(ep, copiesID)
	return err == nil
}

// drop takes o off the list, if it has nothing more. Who adds to its backlog counts before it lists.
func (c *copies) drop(o *Out) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.later.listed && !o.later.busy() {
		c.unlist(slices.Index(c.outs, o))
	}
}

func (c *copies) unlist(i int) {
	c.outs[i].later.listed = false
	c.outs = slices.Delete(c.outs, i, i+1)
	if len(c.outs) == 0 {
		c.some.Store(false)
	}
}

// work copies until l holds, the context ends, it has copied leftMost bytes, or others are at it. Unless l holds, goroutines have the rest then,
// and the caller other things to see to. It waits for nothing: the caller may be in the middle of a message that others wait for.
func (c *copies) work(ctx context.Context, l *wait.Look) (found bool) {
	most := leftMost
	for i := 0; most > 0 && ctx.Err() == nil; {
		o := c.listed(i)
		if o == nil {
			break
		}
		n := o.workFor(ctx, l, most)
		if l.Done() {
			return true
		}
		most -= n
		if n == 0 { // somebody else is at it, or has been
			i++
		}
	}
	c.start()
	return false
}

// listed is the ith, or nil.
func (c *copies) listed(i int) *Out {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= len(c.outs) {
		return nil
	}
	return c.outs[i]
}

// workFor works off pieces of o's backlog until l holds, and says how many bytes that were. The engine's end waits for it as for a goroutine.
func (o *Out) workFor(ctx context.Context, l *wait.Look, most int) (n int) {
	b := &o.later
	b.mu.Lock()
	if b.turn || b.dead {
		b.mu.Unlock()
		return 0
	}
	b.turn = true
	o.e.wg.Add(1) // as in employ
	b.mu.Unlock()
	defer o.e.wg.Done()
	for found := false; n < most && !found && ctx.Err() == nil; {
		d := o.first()
		if d == nil {
			break
		}
		n += o.step(d)
		// A condition is the caller's code, which may end the process or panic: not with the turn.
		found = l.Until != nil || l.Done()
	}
	o.resign()
	return n
}

// first is the operation that who waits may go on with, if there is one.
func (o *Out) first() *deferred {
	b := &o.later
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ops) == 0 || b.dead || b.slow > 0 {
		return nil
	}
	d := b.ops[0]
	if !d.copy.ready() {
		d.slow = true
		b.slow++
		return nil
	}
	return d
}

// step makes a piece of d, with the turn, and says how long it was.
func (o *Out) step(d *deferred) (n int) {
	had := d.copy.there
	over, err := d.copy.step()
	if n = d.copy.there - had; over {
		d.err = err
		o.later.mu.Lock()
		o.finished(d)
		o.later.mu.Unlock()
	}
	return n
}

// resign ends the turn of who waits.
func (o *Out) resign() {
	b := &o.later
	b.mu.Lock()
	left, all := false, len(b.ops) == 0
	switch b.turn = false; {
	case all:
	case b.dead:
		b.turn = true
		b.mu.Unlock()
		o.workOff()
		return
	case b.slow > 0:
		o.employ()
	default:
		left = true
	}
	b.mu.Unlock()
	switch {
	case all:
		o.e.copies.drop(o)
	case left:
		o.e.leave(o, true)
	}
}

// start has goroutines work off all that was left. It is called by who goes to sleep, when others can know that, and by who looks on.
func (c *copies) start() {
	if !c.some.Load() {
		return
	}
	c.mu.Lock()
	outs := c.outs
	c.outs = nil
	for _, o := range outs {
		o.later.listed = false
	}
	c.some.Store(false)
	c.mu.Unlock()
	for _, o := range outs {
		o.hurry()
	}
}

// expired serves the timer's event.
func (c *copies) expired(ep *unix.Epoll) {
	var late []*Out
	c.mu.Lock()
	now := unix.Monotonic()
	for i := len(c.outs) - 1; i >= 0; i-- {
		if o := c.outs[i]; now-o.later.since >= c.span/2 {
			late = append(late, o)
			c.unlist(i)
		}
	}
	if !c.closed {
		c.timer.Set(0) // one that has gone off would raise another event at once
		c.set(now)
		_ = ep.Arm(c.timer.Descriptor(), copiesID, false)
	}
	c.mu.Unlock()
	for _, o := range late {
		o.hurry()
	}
}

// close is called when there are no links any more.
func (c *copies) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.timer != nil {
		c.timer.Close()
	}
}
