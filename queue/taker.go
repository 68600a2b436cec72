package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// ErrProducerLost is the error of takes when all producers of a queue with [Producers] have ended,
// all values are finished, and a producer has ended without a Close. [Shared.Lost] names it.
//
// Experimental: it may change in any release.
var ErrProducerLost = errors.New("a producer has ended without a close, and all values are finished")

// Taker takes values out of a queue that is shared by [Share].
//
// Experimental: it may change in any release.
type Taker[T any] struct {
	name   string
	client *call.Client[takeRequest, takeAnswer[T]]
	ctx    context.Context //nolint:containedctx // of withdrawals; ends with Close
	stop   context.CancelFunc
	closed atomic.Bool // Set under sem, or when a call that has it ends.

	sem *semaphore.Semaphore // The taker's lock. It guards what follows.
	q   takeRequest          // the last one
	a   takeAnswer[T]
}

// DialTaker makes a taker of the queue that is shared under a name. Errors as [Dial].
//
// Experimental: it may change in any release.
func DialTaker[T any](ctx context.Context, p *vmmc.Process, name string) (*Taker[T], error) {
	t := &Taker[T]{name: name, sem: semaphore.New(1)}
	t.ctx, t.stop = context.WithCancel(context.Background())
	var err error
	t.client, err = call.Dial[takeRequest, takeAnswer[T]](ctx, p, name, call.Slots(takerSlots))
	if err != nil {
		t.stop()
		return nil, fmt.Errorf("%s: %w", t.op(), err)
	}
	return t, nil
}

func (t *Taker[T]) op() string { return "take from queue " + strconv.Quote(t.name) }

// Take finishes the values that the taker has, takes one, and waits while there is none. Errors:
// [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends; [ErrEnd] and [ErrProducerLost] when
// the queue has ended and no taker has unfinished values; [vmmc.ErrPeerGone] when the process that
// shares the queue is gone, and [vmmc.ErrRevoked] when it shares it no longer; [vmmc.ErrClosed],
// [vmmc.ErrNotInHandler]. After an error no value was taken. After ErrPeerGone and ErrRevoked the
// values that the taker had may be unfinished, and go to another taker.
//
// Experimental: it may change in any release.
func (t *Taker[T]) Take(ctx context.Context) (v Taken[T], err error) {
	vs := [1]Taken[T]{}
	_, err = t.TakeSome(ctx, vs[:])
	return vs[0], err
}

// TakeSome is Take of as many values as are there and dst has room for, but at most 16. It returns
// how many it has taken, at least one unless dst is empty.
//
// Experimental: it may change in any release.
func (t *Taker[T]) TakeSome(ctx context.Context, dst []Taken[T]) (int, error) {
	return t.call(ctx, min(len(dst), maxTaken), dst)
}

// Finish says that the values that the taker has are finished: no other taker gets them any more.
// Errors as [Taker.Take]; after one the values may be unfinished.
//
// Experimental: it may change in any release.
func (t *Taker[T]) Finish(ctx context.Context) error {
	_, err := t.call(ctx, 0, nil)
	return err
}

// All takes all values, one at a time, until the queue or the context ends, or the loop is left. Each
// value is finished when the loop comes to the next one. If the loop is left, the last value is
// unfinished: see [Taker.Finish]. Unless the queue has ended ([ErrEnd]), its last pair is the error.
//
// Experimental: it may change in any release.
func (t *Taker[T]) All(ctx context.Context) iter.Seq2[Taken[T], error] {
	return func(yield func(Taken[T], error) bool) {
		for {
			v, err := t.Take(ctx)
			if errors.Is(err, ErrEnd) || !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the taker. Values that it has not finished go to other takers. A second call does
// nothing. Errors: those of [call.Client.Close].
//
// Experimental: it may change in any release.
func (t *Taker[T]) Close() error {
	if err := checkCall(context.Background(), "close: "+t.op()); err != nil {
		return err
	}
	t.closed.Store(true)
	t.stop()
	return t.client.Close()
}

// call sends a request and stores the values of its answer.
func (t *Taker[T]) call(ctx context.Context, most int, dst []Taken[T]) (int, error) {
	if ctx == nil || vmmc.InHandler() {
		return 0, checkCall(ctx, t.op())
	}
	if t.sem.Acquire(ctx) != nil {
		return 0, contextError(ctx, t.op())
	}
	if t.closed.Load() {
		t.sem.Release()
		return 0, closedError(t.op())
	}
	t.q = takeRequest{Request: t.q.Request + 1, Finished: t.a.Batch, Most: uint64(most)}
	pair.At("take.begins")
	err := t.client.Call(ctx, &t.q, &t.a)
	if err != nil && errors.Is(err, vmmc.ErrOutcomeUnknown) && !isOver(err) {
		go t.withdraw()
		return 0, fmt.Errorf("%s: %w", t.op(), err)
	}
	defer t.sem.Release()
	if err == nil {
		err = t.answerError(most)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", t.op(), err)
	}
	pair.At("take.taken")
	n := int(t.a.Values)
	for i := range n {
		dst[i] = Taken[T]{t.a.Value[i], int(t.a.Attempts[i])}
	}
	return n, nil
}

// isOver reports whether an error says that no call succeeds any more.
func isOver(err error) bool {
	return errors.Is(err, vmmc.ErrPeerGone) || errors.Is(err, vmmc.ErrRevoked) ||
		errors.Is(err, vmmc.ErrClosed) || errors.Is(err, vmmc.ErrProtocol)
}

// withdraw withdraws a take that was given up, and releases the lock then. Otherwise values could be
// given to a taker that does not look at them.
func (t *Taker[T]) withdraw() {
	defer t.sem.Release()
	pair.At("take.withdraws")
	t.q = takeRequest{Request: t.q.Request + 1, Finished: t.q.Finished}
	_ = t.client.Call(t.ctx, &t.q, &t.a) // it fails if the host or the taker has ended
}

// answerError is the error that an answer says.
func (t *Taker[T]) answerError(most int) error {
	switch t.a.Status {
	case takeEnded:
		return ErrEnd
	case takeProducerLost:
		return ErrProducerLost
	case takeClosed:
		return &vmmc.Error{
			Op: "take", Code: vmmc.ErrRevoked, Err: errors.New("the queue's consumer was closed"),
		}
	case takeGiven:
		if n := t.a.Values; n <= uint32(most) && (n > 0 || most == 0) {
			return nil
		}
	}
	return &vmmc.Error{
		Op: "take", Code: vmmc.ErrProtocol,
		Err: fmt.Errorf("an answer with status %d and %d values, of at most %d",
			t.a.Status, t.a.Values, most),
	}
}
