package vrpc

import (
	"context"
	"sync"
)

// pending are the calls of a client that wait for their replies.
type pending struct {
	mu    sync.Mutex
	calls map[uint32]*waiter
	// To wait again, of this client alone: a channel is its bubble's, in testing/synctest.
	idle []*waiter
	err  error // why there are no more
}

// waiter is one. It gets one reply, or nil when err says why not.
type waiter struct {
	reply chan *buffer
	err   error
}

// add has a call wait.
func (p *pending) add(xid uint32) (*waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	if p.calls == nil {
		p.calls = map[uint32]*waiter{}
	}
	var w *waiter
	if n := len(p.idle); n > 0 {
		w, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		w = &waiter{reply: make(chan *buffer, 1)}
	}
	p.calls[xid] = w
	return w, nil
}

// remove has it wait no more, whether it has its reply or not.
func (p *pending) remove(xid uint32, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, xid)
	select {
	case b := <-w.reply:
		if b != nil {
			b.release()
		}
	default:
	}
	w.err = nil
	p.idle = append(p.idle, w)
}

// deliver hands over a reply, which is the pending's then. Its call may have given up.
func (p *pending) deliver(xid uint32, b *buffer) {
	p.mu.Lock()
	w, ok := p.calls[xid]
	if ok {
		delete(p.calls, xid)
		w.reply <- b
	}
	p.mu.Unlock()
	if !ok {
		b.release()
	}
}

// fail ends all waiting calls, and if good is set all later ones. It reports whether it was the
// first to do so.
func (p *pending) fail(err error, good bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false
	}
	if good {
		p.err = err
	}
	for xid, w := range p.calls {
		delete(p.calls, xid)
		w.err = err
		w.reply <- nil
	}
	return true
}

// wait waits for the reply.
func (w *waiter) wait(ctx context.Context) (*buffer, error) {
	select {
	case b := <-w.reply:
		if b == nil {
			return nil, w.err
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
