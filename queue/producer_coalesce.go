package queue

import (
	"context"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// A value that is put to another node is written at once if the producer was idle, which costs a
// system call. One that is put within coalesceGap after another one is part of a burst. It goes into
// the link's queue of asynchronous messages, and the link writes many of them by one call: when a
// goroutine of this process next waits for anything, and otherwise in the background. The messages
// of a link stay in their order, so what has arrived when this process dies is a prefix.

// coalesceGap is shorter than the write of a message takes. A variable for tests.
var coalesceGap = 2 * time.Microsecond

const (
	maxQueued     = 512 // values in the link's queue, and in flight
	maxQueuedSlot = 448 // bytes: the link does not coalesce longer messages
	flushAfter    = 64  // values, after which Put itself has the link write them
)

// queued are the values in the link's queue, and those that the consumer's process has not
// acknowledged. Their memory is the link's until their requests are done.
type queued struct {
	memory   []byte
	requests []vmmc.Request
	n        uint64    // how many values were queued
	last     time.Time // when the last put ended
}

// makeQueued makes q.queued if values are coalesced.
func (q *Producer[T]) makeQueued() {
	if q.lane.Path() == vmmc.PathMapped || q.slot > maxQueuedSlot {
		return
	}
	n := min(q.slots, maxQueued)
	q.queued = queued{memory: make([]byte, int(n)*q.slot), requests: make([]vmmc.Request, n)}
}

// inBurst reports whether a value is part of a burst.
func (q *Producer[T]) inBurst() bool {
	return q.requests != nil && time.Since(q.last) < coalesceGap
}

// putEnded notes that a put has ended.
func (q *Producer[T]) putEnded() {
	if q.requests != nil {
		q.last = time.Now()
	}
}

// enqueue puts a value into the link's queue. It waits only while maxQueued are there.
func (q *Producer[T]) enqueue(ctx context.Context, first uint64, v []T) error {
	k := q.n % uint64(len(q.requests))
	if q.n >= uint64(len(q.requests)) {
		// The error of a request that is done is that of its link, and SendAsync returns it for v.
		if err := q.requests[k].Wait(ctx); err != nil && !q.requests[k].Done() {
			return err
		}
	}
	slot := q.memory[int(k)*q.slot:][:q.slot]
	q.encode(slot, first, v)
	pair.At("put.encoded")
	r, err := q.lane.SendAsync(ctx, slot, q.offset(first))
	if err != nil {
		return err
	}
	pair.At("put.queued")
	q.requests[k] = r
	if q.n++; q.n%flushAfter == 0 {
		_ = r.Status() // has the link write them
	}
	return nil
}
