package mpi

import "context"

// waiter is what a goroutine sleeps on. It is the context of the goroutine's wait for words, too: Done
// is the channel by which the goroutine is told, which also has an element when its own context ends.
type waiter struct {
	context.Context //nolint:containedctx // the goroutine's, during a wait for words

	e      *Engine
	ch     chan struct{}
	r      *Request    // that it waits for, or nil: then
	any    func() bool // reports whether the wait is over
	roused func() bool // w.hasNews: made once, because it allocates
}

// Done is the channel.
func (w *waiter) Done() <-chan struct{} { return w.ch }

func (w *waiter) done() bool {
	if w.r != nil {
		return w.r.done.Load()
	}
	return w.any()
}

func (w *waiter) hasNews() bool { return w.done() || w.Err() != nil || w.e.news() }

// A waiter polls so many times by itself, about 2 µs, and then waits for words as all of the library
// does: that yields to other goroutines and processes, and sleeps when nothing comes. A yield between the
// first polls costs as much as a message.
const spins = 300

// Done reports whether the request is over. It takes what has arrived.
func (r *Request) Done() bool {
	if r.done.Load() {
		return true
	}
	r.e.step()
	return r.done.Load()
}

// step takes what has arrived, whichever way.
func (e *Engine) step() {
	e.polls.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pollAll()
}

// await waits until a request is over. Its error is the context's alone.
func (r *Request) await(ctx context.Context) error {
	if r.done.Load() || r.polled && r.e.spin(r.done.Load) {
		return nil
	}
	e := r.e
	e.mu.Lock()
	if r.done.Load() {
		e.mu.Unlock()
		return nil
	}
	if r.waiter != nil {
		e.mu.Unlock()
		return Fail(ErrRequest, "request", "another goroutine waits for the request")
	}
	w := e.newWaiter()
	r.waiter = w
	e.mu.Unlock()
	w.r = r
	err := e.sleep(ctx, w)
	e.mu.Lock()
	r.waiter = nil
	e.freeWaiter(w)
	if r.done.Load() {
		err = nil
	}
	e.mu.Unlock()
	return err
}

// sleep waits until what the waiter waits for is over.
func (e *Engine) sleep(ctx context.Context, w *waiter) error {
	if e.words && e.looking.CompareAndSwap(false, true) {
		e.attend()
		e.look(ctx, w)
		e.stopLooking()
	}
	if w.done() {
		return nil
	}
	e.parked.Add(1)
	defer e.parked.Add(-1)
	e.attend()
	for !w.done() {
		select {
		case <-w.ch: // it may be of an earlier wait, whose context has ended
		case <-ctx.Done():
			return stillPending(ctx)
		}
	}
	return nil
}

// look waits for the words of all rings, and takes what arrives, until the waiter's condition holds or
// the context ends. It also returns when the process cannot wait any more.
func (e *Engine) look(ctx context.Context, w *waiter) {
	e.pollers.Add(1)
	defer e.pollers.Add(-1)
	w.Context = ctx
	defer func() { w.Context = nil }()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			select {
			case w.ch <- struct{}{}:
			default:
			}
		})()
	}
	for !e.ending.Load() && !w.done() && ctx.Err() == nil {
		if err := e.p.WaitUntil(w, w.roused); err != nil {
			return
		}
		e.polls.Add(1)
		e.mu.Lock()
		e.pollAll()
		e.failEnded()
		e.mu.Unlock()
	}
}

// newWaiter returns a waiter. mu is held.
func (e *Engine) newWaiter() *waiter {
	if n := len(e.waiters); n > 0 {
		w := e.waiters[n-1]
		e.waiters = e.waiters[:n-1]
		return w
	}
	w := &waiter{e: e, ch: make(chan struct{}, 1)}
	w.roused = w.hasNews
	return w
}

// freeWaiter takes back a waiter that no request has any more. mu is held.
func (e *Engine) freeWaiter(w *waiter) {
	select {
	case <-w.ch:
	default:
	}
	w.r, w.any = nil, nil
	e.waiters = append(e.waiters, w)
}

// Wait waits until the request is over, and returns what it is over with. When the context ends the
// request goes on.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	if err := r.await(ctx); err != nil {
		return Status{}, err
	}
	return r.Result()
}

// WaitAny returns the index of a request that is over, and -1 if all are nil.
func WaitAny(ctx context.Context, rs []*Request) (int, error) {
	var e *Engine
	for _, r := range rs {
		if r != nil {
			e = r.e
			break
		}
	}
	if e == nil {
		return -1, nil
	}
	at := -1
	done := func() bool {
		for i, r := range rs {
			if r != nil && r.done.Load() {
				at = i
				return true
			}
		}
		return false
	}
	if done() || e.spin(done) {
		return at, nil
	}
	e.mu.Lock()
	w := e.newWaiter()
	w.any = done
	busy := false
	for _, r := range rs {
		if r != nil && !r.done.Load() && r.waiter != nil && r.waiter != w {
			busy = true
		} else if r != nil {
			r.waiter = w
		}
	}
	for !busy && !done() {
		e.mu.Unlock()
		err := e.sleep(ctx, w)
		e.mu.Lock()
		if err != nil && !done() {
			e.unwait(rs, w)
			e.mu.Unlock()
			return -1, err
		}
	}
	e.unwait(rs, w)
	e.mu.Unlock()
	if busy {
		return -1, Fail(ErrRequest, "requests", "another goroutine waits for one of the requests")
	}
	return at, nil
}

// unwait takes a waiter from requests. mu is held.
func (e *Engine) unwait(rs []*Request, w *waiter) {
	for _, r := range rs {
		if r != nil && r.waiter == w {
			r.waiter = nil
		}
	}
	e.freeWaiter(w)
}
