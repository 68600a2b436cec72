package queue

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc"
)

func init() { closeTime = time.Minute } // only a guard against hanging

// DelayAcks has acknowledgements on a socket come late by d, and returns a function that undoes it.
func DelayAcks(d time.Duration) (undo func()) {
	old := ackDelay
	ackDelay = d
	return func() { ackDelay = old }
}

// CoalesceWithin has values coalesced that are put within d after others, and returns a function that
// undoes it.
func CoalesceWithin(d time.Duration) (undo func()) {
	old := coalesceGap
	coalesceGap = d
	return func() { coalesceGap = old }
}

// StartAt numbers the values of each producer from n on.
func StartAt(n uint64) Option { return func(o *options) { o.start = n } }

// Unmapped has the values go by the stream.
func Unmapped() Option {
	return func(o *options) { o.export = append(o.export, vmmc.Unmapped()) }
}

// Values is how many values of all producers have arrived and were not taken. No get may be under
// way.
func (c *Consumer[T]) Values() (n int) {
	for _, l := range *c.lanes.Load() {
		for i := l.next; i < l.next+c.slots; i++ {
			if w, err := l.own.Word(c.offset(i) + c.slot - wordSize); err != nil || w.Load() != c.number(i) {
				break
			}
			n++
		}
	}
	return n
}

// LanesOver reports whether all producers have ended, and the consumer knows that.
func (c *Consumer[T]) LanesOver() bool {
	return !slices.ContainsFunc(*c.lanes.Load(), func(l *lane) bool { return !l.isOver() })
}

// SomeLaneOver reports whether a producer has ended, and the consumer knows that.
func (c *Consumer[T]) SomeLaneOver() bool {
	return slices.ContainsFunc(*c.lanes.Load(), func(l *lane) bool { return l.isOver() })
}

// Requests is how many processes dial.
func (c *Consumer[T]) Requests() int { return c.listener.Diallers() }

// Count sends producers a count that is n more than were taken.
func (c *Consumer[T]) Count(ctx context.Context, n uint32) error {
	var word [wordSize]byte
	for _, l := range *c.lanes.Load() {
		binary.NativeEndian.PutUint32(word[:], uint32(l.next)+n)
		if err := l.im.Send(ctx, word[:], takenOff); err != nil {
			return err
		}
	}
	return nil
}

// Lane is what the producer can write to.
func (q *Producer[T]) Lane() *vmmc.Import { return q.lane }

// Own is what the consumer can write to.
func (q *Producer[T]) Own() *vmmc.Export { return q.own.Export }

// Process is the producer's.
func (q *Producer[T]) Process() *vmmc.Process { return q.p }

// Closed reports whether a close has begun.
func (c *Consumer[T]) Closed() bool { return c.closed.Load() }

// ReadHeader reads the header of a lane with so many slots and bytes.
func ReadHeader(slots uint32, size, value int) error {
	var b [laneHeader]byte
	binary.NativeEndian.PutUint32(b[slotsOff:], slots)
	_, _, err := readHeader(b[:], size, value)
	return err
}

// Lanes is how many producers the consumer has.
func (c *Consumer[T]) Lanes() int { return len(*c.lanes.Load()) }

// Values is how many values of all producers the consumer has.
func (b *ByteConsumer) Values() int { return b.c.Values() }

// Lanes is how many producers the consumer has.
func (b *ByteConsumer) Lanes() int { return b.c.Lanes() }

// Requests is how many processes dial.
func (b *ByteConsumer) Requests() int { return b.c.Requests() }

// Lane is what the producer can write to.
func (b *ByteProducer) Lane() *vmmc.Import { return b.q.Lane() }

// Process is the producer's.
func (b *ByteProducer) Process() *vmmc.Process { return b.q.Process() }

// ReadRecordHeader reads the length of the longest record of a lane with so many slots, of which its
// header says that it is n.
func ReadRecordHeader(slots uint64, n uint32) (int, error) {
	var b [laneHeader]byte
	binary.NativeEndian.PutUint32(b[recordOff:], n+1)
	r := newGeometry(slots, valueSize)
	return r.recordOf(b[:])
}

// Takers is how many takers have called, and not ended.
func (s *Shared[T]) Takers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.takers)
}

// Waiters is how many takes wait.
func (s *Shared[T]) Waiters() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters)
}

// Ended is closed when the sharing's pump is to end.
func (s *Shared[T]) Ended() <-chan struct{} { return s.ctx.Done() }

// Told is the loss that the last look for one has found for the first time, or nil.
func (c *Consumer[T]) Told() *LostError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told
}

// Request sends a request as it is.
func (t *Taker[T]) Request(ctx context.Context, request, finished, most uint64) error {
	q := takeRequest{Request: request, Finished: finished, Most: most}
	return t.client.Call(ctx, &q, new(takeAnswer[T]))
}

// GiveUp has the consumer take all its producers for lost.
func (c *Consumer[T]) GiveUp() {
	for _, l := range *c.lanes.Load() {
		l.violation.Store(&vmmc.Error{Code: vmmc.ErrProtocol, Err: vmmc.ErrProtocol})
	}
}
