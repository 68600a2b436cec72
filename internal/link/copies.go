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
// a quarter moved that way of what does now. Where somebody sleeps, and where nobody waits within leftFor, a goroutine has to be at it.
//
// To set the timer takes as long as many a copy, if it is its processor's next, so it is put off only when most of its time is over, and to twice
// as much: so long waiters have come.
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
	// some says that there are any. It is stored with mu. Who misses it sleeps in the end, and takes mu after it is known to.
	some atomic.Bool

	mu     sync.Mutex // never with a backlog's
	outs   []*Out
	timer  *unix.Timer // nil before the first copy, and if there can be none
	due    int64       // when it goes off, of [unix.Monotonic]; 0 if it is not set
	span   int64       // how long what is left is left
	closed bool
}

// leave has who waits work off o's backlog, without whose lock it is called by whom it was left.
func (e *Engine) leave(o *Out) {
	// Who sleeps after this look finds o listed, see start.
	if !e.copies.add(e.ep, o) || e.sleepers.Asleep() {
		o.hurry()
	}
}

// add lists o, or notes that it was worked at, and says whether somebody will come.
func (c *copies) add(ep *unix.Epoll, o *Out) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.timer == nil && !c.startTimer(ep) {
		return false
	}
	now := unix.Monotonic()
	o.later.since = now
	if !o.later.listed {
		o.later.listed = true
		c.outs = append(c.outs, o)
		c.some.Store(true)
	}
	switch {
	case c.due == 0:
		c.span = int64(leftFor)
		c.set(now)
	case c.due-now < c.span/4:
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
func (c *copies) startTimer(ep *unix.Epoll) bool {
	t, err := unix.NewTimer()
	if err != nil { // of descriptors
		return false
	}
	if err := ep.Add(t.Descriptor(), copiesID, false); err != nil {
		t.Close()
		return false
	}
	c.timer = t
	return true
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

// work copies until l holds or the context ends, and says whether l holds. It waits for nothing: the caller may be in the middle of a
// message that others wait for.
func (c *copies) work(ctx context.Context, l *wait.Look) (found bool) {
	for i := 0; ctx.Err() == nil; {
		c.mu.Lock()
		if i >= len(c.outs) {
			c.mu.Unlock()
			break
		}
		o := c.outs[i]
		c.mu.Unlock()
		worked, found := o.workFor(ctx, l)
		if found {
			return true
		}
		if !worked {
			i++
		}
	}
	return l.Done()
}

// workFor works off copies of o's backlog until l holds. worked says that it has done all that was there.
func (o *Out) workFor(ctx context.Context, l *wait.Look) (worked, found bool) {
	b := &o.later
	b.mu.Lock()
	if b.turn {
		b.mu.Unlock()
		return false, false
	}
	b.turn = true
	for ended := false; len(b.ops) > 0 && !b.dead && b.slow == 0 && !found && !ended; {
		d := b.ops[0]
		b.mu.Unlock()
		done, err := d.copy.now()
		if done {
			d.err = err
		}
		b.mu.Lock()
		if !done {
			d.slow = true
			b.slow++
			break
		}
		o.finished(d)
		b.mu.Unlock()
		found, ended = l.Done(), ctx.Err() != nil // of others, who may take the lock
		b.mu.Lock()
	}
	return o.resign(), found
}

// resign ends the turn of who waits, and says whether all is done; b.mu is held, and not any more when this returns.
func (o *Out) resign() (all bool) {
	b := &o.later
	b.turn = false
	switch {
	case len(b.ops) == 0:
		b.mu.Unlock()
		o.e.copies.drop(o)
		return true
	case b.dead:
		b.turn = true
		b.mu.Unlock()
		o.workOff()
		return true
	case b.slow > 0:
		o.employ()
		b.mu.Unlock()
	default:
		b.mu.Unlock()
		o.e.leave(o)
	}
	return false
}

// start has goroutines work off all that was left. It is called by who goes to sleep, when others can know that, and by who has waited for long.
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
