package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// lane is what the consumer has of one producer.
type lane struct {
	im  *vmmc.Import // the producer's
	own buffer

	next   uint64    // the next value's number
	acked  uint64    // next when acknowledge was called last
	number vmmc.Word // of the next value's slot
	state  vmmc.Word // the producer's

	mapped  bool           // reports whether messages to the producer are copies in memory
	count   atomic.Uint32  // next modulo 2^32 at the last acknowledge or acknowledgeSome
	sent    atomic.Uint32  // the count that was sent last; stored by the holder of sending
	sending atomic.Bool    // reports whether a goroutine sends count, or has found that it cannot
	word    [wordSize]byte // the count that is sent; guarded by sending

	// dropWhenEmpty reports whether the producer has ended, and left values. Guarded by Consumer.sem.
	dropWhenEmpty bool

	// records is how many records were taken, in a queue of records.
	records uint64
	// violation is what the producer has sent that none of this package sends.
	violation atomic.Pointer[vmmc.Error]

	// The rest is of queues that end.

	// finished reports whether the producer was counted as one that has ended. Set under Consumer.mu.
	finished atomic.Bool
	// abandoned reports whether another producer has this one's place: its Dial failed before it had
	// joined. Guarded by Consumer.mu.
	abandoned bool
}

// accept makes the lane of a producer.
func (c *Consumer[T]) accept(theirs *vmmc.Import) (id uint32, err error) {
	if n := theirs.Size(); n != producerSize {
		return 0, fmt.Errorf("the producer's buffer has %d bytes", n)
	}
	if c.opts.ends { // those that had not joined count for no bound, so they must cost no memory
		c.dropDue.Store(true)
		c.dropEnded()
	}
	if err := c.addLane(nil); err != nil {
		return 0, err
	}
	l := &lane{im: theirs, next: c.opts.start, acked: c.opts.start}
	l.mapped = theirs.Path() == vmmc.PathMapped
	l.count.Store(uint32(l.next))
	l.sent.Store(uint32(l.next))
	header := func(b []byte) { c.writeHeader(b, &c.opts) }
	opts := append(slices.Clip(c.opts.export), pair.For(theirs.Exporter()))
	if l.own, err = newBuffer(c.p, c.size(), header, opts...); err != nil {
		return 0, err
	}
	if l.state, err = l.own.Word(stateOff); err == nil {
		err = c.advance(l, 0)
	}
	if err == nil {
		err = c.addLane(l)
	}
	if err != nil {
		return 0, errors.Join(err, l.own.Close())
	}
	c.wg.Go(func() { c.watch(l) })
	return l.own.ID(), nil
}

// addLane adds a lane, or with nil only reports why none can be added.
func (c *Consumer[T]) addLane(l *lane) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lanes := *c.lanes.Load()
	atATime, inAll := c.takenPlaces(lanes)
	switch {
	case c.closed.Load():
		return closedError("accept a producer")
	case atATime >= c.opts.producers:
		return fmt.Errorf("there are %d producers", atATime)
	case c.opts.ends && inAll >= c.opts.total:
		return fmt.Errorf("there have been %d producers", inAll)
	case l != nil:
		lanes = append(slices.Clip(lanes), l)
		c.lanes.Store(&lanes)
	}
	return nil
}

// takenPlaces is how many producers count for the bounds on their number: at a time, and, in a
// queue that ends, in all. mu is held.
func (c *Consumer[T]) takenPlaces(lanes []*lane) (atATime, inAll int) {
	if !c.opts.ends {
		return len(lanes), 0
	}
	inAll = c.finished
	for _, l := range lanes {
		if l.isOver() && l.state.Load() == stateNone {
			l.abandoned = true
		}
		if l.abandoned {
			continue
		}
		atATime++
		if !l.finished.Load() {
			inAll++
		}
	}
	return atATime, inAll
}

// watch has a lane dropped when its producer has ended.
func (c *Consumer[T]) watch(l *lane) {
	select {
	case <-l.im.Done():
		pair.At("lane.over")
		c.dropDue.Store(true)
		c.dropEnded()
	case <-c.ctx.Done(): // Close closes all lanes
	}
}

// dropEnded drops the lanes without values whose producers have ended. If a call has the consumer's
// lock, that call drops them when it releases the lock. One with values is dropped when they are
// taken. In a queue that ends, the lane of a producer that was lost is dropped by the get that finds
// the loss.
func (c *Consumer[T]) dropEnded() {
	c.dropMu.Lock()
	defer c.dropMu.Unlock()
	for c.dropDue.Load() && c.sem.TryAcquire() {
		c.dropDue.Store(false)
		if !c.closed.Load() {
			for _, l := range *c.lanes.Load() {
				switch {
				case !l.isOver() || c.opts.ends && l.state.Load() == stateJoined:
				case c.hasValue(l):
					l.dropWhenEmpty = true
				default:
					c.finish(l, true)
				}
			}
		}
		c.sem.Release()
	}
}

// release gives back the consumer's lock.
func (c *Consumer[T]) release() {
	c.sem.Release()
	if c.dropDue.Load() { // after the release: otherwise dropEnded could have failed before
		c.dropEnded()
	}
}

// tryAcquire takes the consumer's lock unless a call has it. dropEnded is none.
func (c *Consumer[T]) tryAcquire() bool {
	if c.sem.TryAcquire() {
		return true
	}
	c.dropMu.Lock()
	defer c.dropMu.Unlock()
	return c.sem.TryAcquire()
}

// isOver reports whether the producer has ended, or has violated the protocol. If it has died, or was closed after all values
// were taken, all that arrives has arrived then. If its Close was given up, or its process was
// closed without, its last values may still be in flight. They are lost.
func (l *lane) isOver() bool {
	if l.violation.Load() != nil {
		return true
	}
	select {
	case <-l.im.Done():
		return true
	default:
		return false
	}
}

// advance goes on by n values.
func (c *Consumer[T]) advance(l *lane, n uint64) (err error) {
	l.next += n
	l.number, err = l.own.Word(c.offset(l.next) + c.slot - wordSize)
	return err
}

// hasValue reports whether the lane's next value is there.
func (c *Consumer[T]) hasValue(l *lane) bool {
	return l.number.Load() == c.number(l.next)
}

// hasEnded reports whether the producer has sent an end mark that was not counted yet.
func (c *Consumer[T]) hasEnded(l *lane) bool {
	return c.opts.ends && l.state.Load() == stateEnded && !l.finished.Load()
}

// anyReady reports whether a lane has a value, or an end, or values were given back. It only reads.
func (c *Consumer[T]) anyReady() bool {
	if c.hasReturned() {
		return true
	}
	for _, l := range *c.lanes.Load() {
		if c.hasValue(l) || l.isOver() || c.hasEnded(l) {
			return true
		}
	}
	return false // orClosed's context ends with Close
}

// ackDelay is how long an acknowledgement of less than a quarter of the slots may be late if it is a
// frame on a socket. A variable for tests.
var ackDelay = time.Millisecond

// acknowledgeSome acknowledges the values before the next one, of which there are fewer than a
// quarter of the slots. The producer has room without that: only Pending and Close wait for it. In
// memory it costs a store, and goes at once. On a socket it costs both processes as much as the
// value did, so it goes with those of the values that follow within ackDelay.
func (c *Consumer[T]) acknowledgeSome(l *lane) {
	if l.mapped {
		c.acknowledge(l)
		return
	}
	l.count.Store(uint32(l.next)) // before the load: a timer that is not set again sees it
	if c.ackPending.Load() || !c.ackPending.CompareAndSwap(false, true) {
		return
	}
	c.ackTimer.Reset(ackDelay)
}

// acknowledgeLate sends the counts that have been put off. It is the timer's function.
func (c *Consumer[T]) acknowledgeLate() {
	c.mu.Lock()
	if c.closed.Load() {
		c.mu.Unlock()
		return // Close acknowledges everything
	}
	c.wg.Add(1)
	c.mu.Unlock()
	defer c.wg.Done()
	pair.At("get.late")
	c.ackPending.Store(false) // before the counts are loaded: a later one sets the timer again
	for _, l := range *c.lanes.Load() {
		if l.sent.Load() != l.count.Load() {
			c.sendCount(l)
		}
	}
}

// acknowledge acknowledges all values before the next one.
func (c *Consumer[T]) acknowledge(l *lane) {
	pair.At("get.counted")
	l.acked = l.next
	l.count.Store(uint32(l.next))
	c.sendCount(l)
}

// sendCount sends the newest count. It never waits: if the link is disconnected, or busy with other
// messages, a goroutine sends the count later, or a newer one.
func (c *Consumer[T]) sendCount(l *lane) {
	for l.sending.CompareAndSwap(false, true) { // otherwise its holder finds the newest count
		n := l.count.Load()
		binary.NativeEndian.PutUint32(l.word[:], n)
		if l.im.Send(noWait, l.word[:], takenOff) != nil {
			c.wg.Go(func() { c.sendCountLater(l) })
			return
		}
		l.sent.Store(n)
		l.sending.Store(false)
		if l.count.Load() == n {
			return
		}
	}
}

// sendCountLater sends the newest count. A send fails only when the lane or the consumer has ended.
func (c *Consumer[T]) sendCountLater(l *lane) {
	for {
		n := l.count.Load()
		binary.NativeEndian.PutUint32(l.word[:], n)
		if l.im.Send(c.ctx, l.word[:], takenOff) != nil {
			return
		}
		l.sent.Store(n)
		l.sending.Store(false)
		if l.count.Load() == n || !l.sending.CompareAndSwap(false, true) {
			return
		}
	}
}

// drop removes a lane that is over and has no values.
func (c *Consumer[T]) drop(l *lane) {
	pair.At("lane.dropped")
	c.mu.Lock()
	defer c.mu.Unlock()
	lanes := slices.DeleteFunc(slices.Clone(*c.lanes.Load()), func(o *lane) bool { return o == l })
	c.lanes.Store(&lanes)
	c.wg.Go(func() { _ = c.closeLane(l) })
}

// endLane says that the consumer is closed, acknowledges what was taken of a lane, and closes it.
func (c *Consumer[T]) endLane(ctx context.Context, l *lane) error {
	var word [wordSize]byte
	binary.NativeEndian.PutUint32(word[:], 1)
	_ = l.im.Send(ctx, word[:], closedOff)
	binary.NativeEndian.PutUint32(word[:], uint32(l.next))
	_ = l.im.Send(ctx, word[:], takenOff)
	_ = l.im.Fence(ctx) // the end of the lane would overtake it
	return c.closeLane(l)
}

// closeLane closes a lane. If it fails, the next Close tries again.
func (c *Consumer[T]) closeLane(l *lane) error {
	err := errors.Join(l.im.Close(), l.own.Close())
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unclosed = append(c.unclosed, l)
	}
	return err
}
