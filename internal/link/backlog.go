package link

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// deferred is an asynchronous operation that was not begun at once: one on
// mapped memory behind messages of the stream, a long copy, an update behind a
// get that reads the same place.
type deferred struct {
	do   func(context.Context, *deferred) error // nil for a copy
	copy replica
	slow bool   // it may wait for something; with the backlog's mu once it is listed
	seq  uint64 // what is to be acknowledged, if it went to the stream
	err  error
	done atomic.Bool // seq and err are set before
}

// backlog is what was put off on one link, in order. While there is any, all
// that comes later on the link waits behind it, so that the order of a pair of
// processes holds over both ways. A goroutine works it off and ends with it, or, as long as all of it is copies, whoever
// waits for something meanwhile, see copies.go. One at a time has the turn to.
type backlog struct {
	mu    sync.Mutex
	ops   []*deferred
	slow  int  // how many of them may wait for something
	turn  bool // somebody works it off
	dead  bool
	begun atomic.Uint64 // in all
	over  atomic.Uint64
	left  atomic.Int32 // the difference, by itself: it is looked at for every message

	listed bool  // among those that are left to who waits; with copies.mu
	since  int64 // since it is, or was worked at, of [unix.Monotonic]; with copies.mu
}

func (b *backlog) busy() bool { return b.left.Load() != 0 }

// postpone puts an operation off.
func (o *Out) postpone(ctx context.Context, d *deferred) (Request, error) {
	b := &o.later
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
	if b.dead {
		b.mu.Unlock()
		return Request{}, o.err()
	}
	b.ops = append(b.ops, d)
	b.begun.Add(1)
	b.left.Add(1)
	if d.slow {
		b.slow++
	}
	if invariant.Enabled {
		b.check()
	}
	left := b.slow == 0 && !b.turn
	if !left {
		o.employ()
	}
	b.mu.Unlock()
	if left {
		o.e.leave(o, false)
	}
	return Request{o: o, d: d}, nil
}

// employ has a goroutine work off what there is, unless somebody has the turn; b.mu is held. Of a dead link somebody has the turn
// until nothing is left, so the engine does not wait for its goroutines yet.
func (o *Out) employ() {
	if b := &o.later; !b.turn && len(b.ops) > 0 {
		b.turn = true
		o.e.wg.Go(o.workOff)
	}
}

// hurry has a goroutine work off what was left to who waits.
func (o *Out) hurry() {
	b := &o.later
	b.mu.Lock()
	o.employ()
	b.mu.Unlock()
}

// workOff runs what was put off, with the turn. The link's end makes each operation fail.
func (o *Out) workOff() {
	b := &o.later
	b.mu.Lock()
	for len(b.ops) > 0 {
		d := b.ops[0]
		b.mu.Unlock()
		d.err = o.err()
		switch {
		case d.err != nil && d.copy.there == 0:
			o.uncredit(d.copy.notify)
		case d.do != nil:
			d.err = d.do(context.Background(), d)
		default:
			d.err = d.copy.run(context.Background())
		}
		b.mu.Lock()
		o.finished(d)
	}
	b.turn = false
	b.mu.Unlock()
	o.e.copies.drop(o)
}

// finished takes the first operation, which is over, off the list; b.mu is held, and the turn is the caller's.
func (o *Out) finished(d *deferred) {
	b := &o.later
	d.done.Store(true)
	n := copy(b.ops, b.ops[1:])
	b.ops[n] = nil
	b.ops = b.ops[:n]
	if d.slow {
		b.slow--
	}
	b.over.Add(1)
	b.left.Add(-1)
	if invariant.Enabled {
		b.check()
	}
	o.tick.Move()
	o.e.sleepers.Wake()
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

// closeBacklog lets nothing more be put off, and has what nobody works off fail.
func (o *Out) closeBacklog() {
	b := &o.later
	b.mu.Lock()
	b.dead = true
	idle := !b.turn
	b.turn = true
	b.mu.Unlock()
	if idle {
		o.workOff()
	}
}
