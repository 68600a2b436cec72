package link

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// deferred is an asynchronous operation that could not be begun at once: one on
// mapped memory behind messages of the stream, a long copy, an update behind a
// get that reads the same place.
type deferred struct {
	do   func(context.Context, *deferred) error
	seq  uint64 // what is to be acknowledged, if it went to the stream
	err  error
	done atomic.Bool // seq and err are set before
}

// backlog is what was put off on one link, in order. While there is any, all
// that comes later on the link waits behind it, so that the order of a pair of
// processes holds over both ways. A goroutine works it off and ends with it.
type backlog struct {
	mu    sync.Mutex
	ops   []*deferred
	dead  bool
	begun atomic.Uint64 // in all
	over  atomic.Uint64
	left  atomic.Int32 // the difference, by itself: it is looked at for every message
}

func (b *backlog) busy() bool { return b.left.Load() != 0 }

// postpone puts an operation off.
func (o *Out) postpone(ctx context.Context, do func(context.Context, *deferred) error) (Request, error) {
	b := &o.later
	d := &deferred{do: do}
	b.mu.Lock()
	for len(b.ops) >= maxQueue {
		tick := o.tick.Now()
		b.mu.Unlock()
		if err := o.err(); err != nil {
			return Request{}, err
		}
		if err := o.e.Wait(ctx, wait.Look{Word: o.tick.Word(), Old: tick, Broken: &o.broken, Own: true}); err != nil {
			return Request{}, err
		}
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	if b.dead {
		return Request{}, o.err()
	}
	b.ops = append(b.ops, d)
	b.begun.Add(1)
	b.left.Add(1)
	if invariant.Enabled {
		b.check(true)
	}
	if len(b.ops) == 1 {
		o.e.wg.Go(o.workOff)
	}
	return Request{o: o, d: d}, nil
}

// workOff runs what was put off. The link's end makes each operation fail.
func (o *Out) workOff() {
	b := &o.later
	b.mu.Lock()
	for len(b.ops) > 0 {
		d := b.ops[0]
		b.mu.Unlock()
		d.err = o.err()
		if d.err == nil {
			d.err = d.do(context.Background(), d)
		}
		d.done.Store(true)
		b.mu.Lock()
		n := copy(b.ops, b.ops[1:])
		b.ops[n] = nil
		b.ops = b.ops[:n]
		b.over.Add(1)
		b.left.Add(-1)
		if invariant.Enabled {
			b.check(false)
		}
		o.tick.Move()
		o.e.sleepers.Wake()
	}
	b.mu.Unlock()
}

// caughtUp waits until what was put off before this call is done. One load
// where nothing was.
func (o *Out) caughtUp(ctx context.Context) error {
	if !o.later.busy() {
		return nil
	}
	return o.catchUp(ctx)
}

func (o *Out) catchUp(ctx context.Context) error {
	b := &o.later
	upTo := b.begun.Load()
	for b.over.Load() < upTo {
		tick := o.tick.Now()
		if b.over.Load() >= upTo {
			break
		}
		if err := o.err(); err != nil {
			return err
		}
		if err := o.e.Wait(ctx, wait.Look{Word: o.tick.Word(), Old: tick, Broken: &o.broken, Own: true}); err != nil {
			return err
		}
	}
	return nil
}

// close lets nothing more be put off; the engine's end waits for what is.
func (b *backlog) close() {
	b.mu.Lock()
	b.dead = true
	b.mu.Unlock()
}
