package via

import (
	"context"
	"errors"
	"sync/atomic"
)

// CompletionQueue says which of many queues have completed descriptors (VIP_CQ_HANDLE).
//
// Experimental: it may change in any release.
type CompletionQueue struct {
	n     *NIC
	count atomic.Int32 // entries, or destroyed. Stored under NIC.mu.

	// Guarded by NIC.mu.
	entries  []Completion // a ring
	first    int
	attached int // queues of VIs
	waiters  waitList
	notifies notifyList[Completion]
}

// destroyed is the count of a destroyed queue, so that Done does not take it for an empty one.
const destroyed = -1

// Completion names a queue that has a completed descriptor.
//
// Experimental: it may change in any release.
type Completion struct {
	VI      *VI
	Receive bool // reports whether it is the receive queue
}

// NewCompletionQueue makes a completion queue (VipCreateCQ) for a number of entries: the descriptors
// of its queues that are complete and not taken from it. One that overflows loses entries and raises
// [Catastrophic]. Errors: [ErrInvalidParameter] for a number below 1, or a closed NIC; [ErrResource]
// above MaxCompletionEntries, or when the NIC has MaxCompletionQueues.
//
// Experimental: it may change in any release.
func (n *NIC) NewCompletionQueue(entries int) (*CompletionQueue, error) {
	const op = "create a completion queue"
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errNICClosed(op)
	}
	if err := checkEntries(entries, op); err != nil {
		return nil, err
	}
	if len(n.cqs) >= maxCQs {
		return nil, fail(op, ErrResource, "the NIC has %d: destroy one first", maxCQs)
	}
	c := &CompletionQueue{n: n, entries: make([]Completion, entries)}
	n.cqs[c] = struct{}{}
	return c, nil
}

func checkEntries(entries int, op string) error {
	switch {
	case entries < 1:
		return fail(op, ErrInvalidParameter, "%d entries: at least 1", entries)
	case entries > maxCQEntries:
		return fail(op, ErrResource, "%d entries: at most %d", entries, maxCQEntries)
	}
	return nil
}

// isGone reports whether the queue was destroyed. mu is held.
func (c *CompletionQueue) isGone() bool { return c.count.Load() == destroyed }

// check refuses a queue that was destroyed. mu is held.
func (c *CompletionQueue) check(op string) error {
	if c.isGone() {
		return fail(op, ErrInvalidParameter, "the completion queue is destroyed")
	}
	return nil
}

// Destroy destroys the queue (VipDestroyCQ). Errors: [ErrInvalidParameter] if it is destroyed
// already; [ErrResource] while a VI has it. Handlers that have no entry are forgotten.
//
// Experimental: it may change in any release.
func (c *CompletionQueue) Destroy() error {
	const op = "destroy a completion queue"
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if err := c.check(op); err != nil {
		return err
	}
	if c.attached > 0 {
		return fail(op, ErrResource, "%d queues are attached", c.attached)
	}
	delete(c.n.cqs, c)
	c.destroy()
	return nil
}

// destroy is Destroy without its checks. mu is held.
func (c *CompletionQueue) destroy() {
	c.count.Store(destroyed)
	c.notifies.cancel(c.n)
	c.waiters.wake()
}

// Resize changes the number of entries (VipResizeCQ); those that are there stay. Errors as
// [NIC.NewCompletionQueue], and [ErrResource] if more are there.
//
// Experimental: it may change in any release.
func (c *CompletionQueue) Resize(entries int) error {
	const op = "resize a completion queue"
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if err := c.check(op); err != nil {
		return err
	}
	if err := checkEntries(entries, op); err != nil {
		return err
	}
	n := int(c.count.Load())
	if n > entries {
		return fail(op, ErrResource, "it holds %d entries", n)
	}
	more := make([]Completion, entries)
	for i := range n {
		more[i] = c.entries[(c.first+i)%len(c.entries)]
	}
	c.entries, c.first = more, 0
	return nil
}

// add adds an entry. mu is held.
func (c *CompletionQueue) add(vi *VI, receive bool) {
	if len(c.notifies) > 0 { // there is no entry before it
		e := Completion{VI: vi, Receive: receive}
		c.n.enqueue(call{completion: c.notifies.pop(c.n), c: e})
		return
	}
	n := int(c.count.Load())
	if n == len(c.entries) {
		err := errors.New("the completion queue has overflown: make it larger")
		c.n.raise(AsyncError{VI: vi, CQ: c, Code: Catastrophic, Err: err})
		return
	}
	c.entries[(c.first+n)%len(c.entries)] = Completion{VI: vi, Receive: receive}
	c.count.Store(int32(n + 1))
	c.waiters.wake()
}

// take takes the first entry. mu is held.
func (c *CompletionQueue) take() (Completion, bool) {
	n := c.count.Load()
	if n <= 0 {
		return Completion{}, false
	}
	e := c.entries[c.first]
	c.entries[c.first] = Completion{}
	c.first = (c.first + 1) % len(c.entries)
	c.count.Store(n - 1)
	return e, true
}

// forget drops the entries of a VI that is destroyed. mu is held.
func (c *CompletionQueue) forget(vi *VI) {
	for range c.count.Load() {
		if e, _ := c.take(); e.VI != vi {
			n := int(c.count.Load())
			c.entries[(c.first+n)%len(c.entries)] = e
			c.count.Store(int32(n + 1))
		}
	}
}

// Done takes an entry (VipCQDone), and never waits. Then the Done call of that queue of the VI
// returns a descriptor. Errors: [ErrNotDone]; [ErrInvalidParameter] if the queue is destroyed.
//
// Experimental: it may change in any release.
func (c *CompletionQueue) Done() (Completion, error) {
	if c.count.Load() == 0 && !c.n.hasNews() {
		return Completion{}, ErrNotDone
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.n.progress()
	if e, ok := c.take(); ok {
		return e, nil
	}
	if err := c.check("poll a completion queue"); err != nil {
		return Completion{}, err
	}
	return Completion{}, ErrNotDone
}

// Wait is Done that waits for an entry (VipCQWait). Errors: [ErrTimeout] when the context ends;
// [ErrInvalidParameter] if the queue is destroyed or the context is nil; [ErrInvalidState] in a
// handler of package vmmc.
//
// Experimental: it may change in any release.
func (c *CompletionQueue) Wait(ctx context.Context) (Completion, error) {
	const op = "wait for a completion"
	if err := checkCall(ctx, op); err != nil {
		return Completion{}, err
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		c.n.progress()
		if e, ok := c.take(); ok {
			return e, nil
		}
		if err := c.check(op); err != nil {
			return Completion{}, err
		}
		if err := c.n.sleep(ctx, op, &c.waiters); err != nil {
			return Completion{}, err
		}
	}
}
