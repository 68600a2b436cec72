package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// acquire takes the consumer's lock.
func (c *Consumer[T]) acquire(ctx context.Context) error {
	if ctx == nil || vmmc.InHandler() {
		return checkCall(ctx, c.op())
	}
	if c.sem.Acquire(ctx) != nil {
		return contextError(ctx, c.op())
	}
	if c.closed.Load() {
		c.sem.Release()
		return closedError(c.op())
	}
	return nil
}

func (c *Consumer[T]) op() string { return fmt.Sprintf("get from queue %q", c.name) }

// Get takes a value, and waits while there is none, also while there is no producer. Errors:
// [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends, [vmmc.ErrClosed],
// [vmmc.ErrNotInHandler]; with [Producers] also [ErrEnd], and a [*LostError] when a producer has
// ended without a Close that succeeded. After an error no value was taken.
//
// Experimental: it may change in any release.
func (c *Consumer[T]) Get(ctx context.Context) (v T, err error) {
	if err := c.acquire(ctx); err != nil {
		return v, err
	}
	defer c.release()
	if _, err = c.takeOrWait(ctx, 1, c.into(c.one)); err == nil {
		v = c.one[0]
	}
	return v, err
}

// GetSome takes as many values as are there and dst has room for, and waits while there is none. It
// returns how many it has taken: of each producer in turn, each one's in their order. Errors as
// [Consumer.Get].
//
// Experimental: it may change in any release.
func (c *Consumer[T]) GetSome(ctx context.Context, dst []T) (int, error) {
	if err := c.acquire(ctx); err != nil {
		return 0, err
	}
	defer c.release()
	return c.takeOrWait(ctx, len(dst), c.into(dst))
}

// takeOrWait takes up to most values of all lanes, and waits while there is none.
func (c *Consumer[T]) takeOrWait(ctx context.Context, most int, take takeLane) (int, error) {
	for most > 0 {
		if c.hasReturned() { // before a loss: they came before it
			return take(nil, 0), nil
		}
		if err := c.lossError(); err != nil {
			return 0, err
		}
		if n := c.takeByTurns(most, take); n > 0 {
			return n, nil
		}
		if err := c.endError(); err != nil {
			return 0, err
		}
		if err := c.wait(ctx); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// TryGet takes a value if there is one, and no other call of this consumer is under way; otherwise
// it returns false. Errors as [Consumer.Get], without those of a context.
//
// Experimental: it may change in any release.
func (c *Consumer[T]) TryGet() (v T, ok bool, err error) {
	err = c.try(func() error {
		take := c.into(c.one)
		if c.hasReturned() {
			ok = take(nil, 0) > 0
		} else if err := c.lossError(); err != nil {
			return err
		} else {
			ok = c.takeByTurns(1, take) > 0
		}
		if ok {
			v = c.one[0]
			return nil
		}
		return c.endError()
	})
	return v, ok, err
}

// try calls take with the consumer's lock, unless another call has it.
func (c *Consumer[T]) try(take func() error) error {
	if vmmc.InHandler() {
		return checkCall(context.Background(), c.op())
	}
	if !c.tryAcquire() {
		return nil
	}
	defer c.release()
	if c.closed.Load() {
		return closedError(c.op())
	}
	return take()
}

// All takes all values, until the queue or the context ends, the queue is closed, or the loop is
// left. Unless the queue has ended ([ErrEnd]), its last pair is the error, as of [Consumer.Get].
// After a [*LostError] another All goes on with the other producers' values.
//
// Experimental: it may change in any release.
func (c *Consumer[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			v, err := c.Get(ctx)
			if errors.Is(err, ErrEnd) || !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// takeLane takes values of a lane when n were taken of others, and returns how many it has taken.
// Without a lane it takes those that were given back, which a queue of records does not have.
type takeLane func(l *lane, n int) int

// into returns a takeLane that stores the values in dst.
func (c *Consumer[T]) into(dst []T) takeLane {
	return func(l *lane, n int) int {
		if l != nil {
			return c.take(l, dst[n:])
		}
		vs := c.takeReturned(len(dst))
		for i, v := range vs {
			dst[i] = v.Value
		}
		return len(vs)
	}
}

// takeByTurns takes up to most values of all lanes, beginning behind the lane that gave the last one.
func (c *Consumer[T]) takeByTurns(most int, take takeLane) (n int) {
	if c.ended {
		return 0
	}
	lanes, first := *c.lanes.Load(), c.firstLane
	for k := range lanes {
		at := (first + k) % len(lanes)
		l := lanes[at]
		got := take(l, n)
		if got == 0 {
			pair.At("lane.empty")
			over := l.isOver() // before hasEnded: a mark may have arrived before the end
			if over || c.hasEnded(l) {
				// a value may have arrived before the end and after the first look
				if got = take(l, n); got == 0 {
					c.finish(l, over)
				}
			}
		}
		if got > 0 {
			c.firstLane = at + 1
		}
		if n += got; n == most {
			break
		}
	}
	return n
}

// take takes values of one lane.
func (c *Consumer[T]) take(l *lane, dst []T) (n int) {
	for n < len(dst) && c.hasValue(l) {
		pair.At("get.seen")
		run := c.copyRun(l, dst[n:])
		pair.At("get.copied")
		n += run
		c.taken(l, uint64(run))
	}
	if n > 0 {
		c.acknowledgeRest(l)
	}
	return n
}

// copyRun copies values of a lane that has one, up to the end of the slots or the next
// acknowledgement, and returns how many. It reads the slots' numbers without a [vmmc.Word] for each:
// to make one takes longer than to copy a short value.
func (c *Consumer[T]) copyRun(l *lane, dst []T) int {
	most := min(uint64(len(dst)), c.slots-l.next&(c.slots-1), c.quarter()-(l.next-l.acked))
	lane, at, number := l.own.Bytes(), c.offset(l.next), c.number(l.next)
	to := c.values.Bytes(dst[:most])
	for n := 1; ; n++ {
		copy(to, lane[at:at+c.value])
		if n == int(most) {
			return n
		}
		to, at = to[c.value:], at-c.slot
		if shm.Word(lane, at+c.slot-wordSize).Load() != number {
			return n
		}
	}
}

// taken goes on behind n values that were copied, and acknowledges each quarter of the slots.
func (c *Consumer[T]) taken(l *lane, n uint64) {
	_ = c.advance(l, n) // each slot has its word
	if l.next-l.acked >= c.quarter() {
		c.acknowledge(l)
	}
}

// acknowledgeRest acknowledges what was taken of a lane if it has no more values. It has the lane
// dropped if its producer has ended.
func (c *Consumer[T]) acknowledgeRest(l *lane) {
	if c.hasValue(l) {
		return
	}
	if l.next != l.acked {
		c.acknowledgeSome(l)
	}
	if l.dropWhenEmpty {
		c.dropDue.Store(true)
	}
}

// wait waits until a lane has a value or is over.
func (c *Consumer[T]) wait(ctx context.Context) error {
	ctx = c.orClosed(ctx)
	pair.At("get.sleeps")
	err := c.p.WaitUntil(ctx, c.ready)
	switch {
	case c.closed.Load():
		return closedError(c.op())
	case c.hasReturned(): // giveBack has ended the wait
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", c.op(), err)
	}
	return nil
}

// orClosed returns a context that ends with ctx and with Close: the same one for the same ctx, so
// that a wait allocates nothing. It stays until the next wait with another one, or Close.
func (c *Consumer[T]) orClosed(ctx context.Context) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Others may panic when they are compared.
	comparable := ctx == context.Background() || reflect.TypeOf(ctx).Kind() == reflect.Pointer
	if c.from != nil && comparable && c.from == ctx {
		return c.waiting
	}
	if c.stop != nil {
		c.stop()
	}
	c.from = ctx
	c.waiting, c.stop = context.WithCancel(ctx)
	if c.closed.Load() {
		c.stop()
	}
	return c.waiting
}
