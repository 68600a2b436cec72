package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/view"
)

// closeTime is how long Close waits until producers know what was taken. A variable for tests.
var closeTime = 5 * time.Second

// Consumer takes values out of a queue.
//
// Experimental: it may change in any release.
type Consumer[T any] struct {
	typed[T]
	geometry
	p            *vmmc.Process
	name         string
	opts         options
	letterbox    *view.Local[T]
	letterboxMem *vmmc.Memory
	listener     *pair.Listener

	sem       *semaphore.Semaphore // The consumer's lock. It guards the lanes, and what follows.
	one       []T                  // one value, which must not lie on a stack
	firstLane int                  // the lane where the next get begins
	word      [wordSize]byte       // a count that is sent
	ready     func() bool          // anyReady
	ended     bool                 // reports whether a get has returned ErrEnd: then all do

	closeMu sync.Mutex // Held by Close.

	mu     sync.Mutex
	lanes  atomic.Pointer[[]*lane] // Replaced as a whole, under mu.
	closed atomic.Bool             // Set under mu.
	// Of the producers that the queue has in all, how many have ended; of these, those that were not
	// closed or replaced; and of these, those that no get has returned yet. Guarded by mu.
	finished int
	lost     []*LostError
	untold   []*LostError
	losses   atomic.Int32 // len(untold): a get looks at it without mu. Stored under mu.
	// Dropped lanes that Close is to close again. Guarded by mu.
	unclosed []*lane
	// The last wait's context, and one that ends with it and with Close. Guarded by mu.
	from, waiting context.Context //nolint:containedctx // see above
	stop          context.CancelFunc
	ctx           context.Context //nolint:containedctx // ends with Close
	end           context.CancelFunc
	wg            sync.WaitGroup // goroutines that close lanes and send counts
}

// lane is what the consumer has of one producer.
type lane struct {
	im  *vmmc.Import // the producer's
	own buffer

	next   uint64    // the next value's number
	sent   uint64    // next when sendCount was called last
	number vmmc.Word // of the next value's slot
	state  vmmc.Word // the producer's

	// The rest is of queues that end.

	// finished reports whether the producer was counted as one that has ended. Set under Consumer.mu.
	finished atomic.Bool
	// abandoned reports whether another producer has this one's place: its Dial failed before it had
	// joined. Guarded by Consumer.mu.
	abandoned bool

	count   atomic.Uint32 // sent modulo 2^32
	sending atomic.Bool   // reports whether a goroutine sends count, or has found that it cannot
}

// Listen makes the queue and publishes it under a name, see [vmmc.Export.PublishAs]. This process
// is its consumer. Errors: a [*view.TypeError]; [vmmc.ErrBadArg] for an option that cannot be;
// those of [vmmc.Process.Export] and PublishAs.
//
// Experimental: it may change in any release.
func Listen[T any](
	ctx context.Context, p *vmmc.Process, name string, opts ...Option,
) (*Consumer[T], error) {
	op := fmt.Sprintf("listen as queue %q", name)
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	t, err := typeOf[T]()
	if err != nil {
		return nil, err
	}
	c := &Consumer[T]{typed: t, p: p, name: name, opts: defaults}
	c.sem, c.one = semaphore.New(1), make([]T, 1)
	for _, o := range opts {
		if o == nil {
			return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("an option is nil")}
		}
		o(&c.opts)
	}
	if c.geometry, err = c.opts.laneGeometry(t.layout.Size); err != nil {
		return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: err}
	}
	c.lanes.Store(new([]*lane))
	c.ready = c.anyReady
	c.ctx, c.end = context.WithCancel(context.Background())
	c.listener = pair.NewListener(p, c.accept)
	if err := c.export(); err != nil {
		c.end()
		return nil, err
	}
	if err := c.letterbox.Export().PublishAs(ctx, name); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// export exports the letterbox.
func (c *Consumer[T]) export() (err error) {
	n := (letterboxSize + c.layout.Size - 1) / c.layout.Size * c.layout.Size
	if c.letterboxMem, err = c.p.Alloc(n); err != nil {
		return err
	}
	copy(c.letterboxMem.Bytes()[magicOff:], magic)
	opts := slices.Concat(c.opts.export, c.opts.permit)
	opts = append(opts, vmmc.WithHandler(c.listener.Handle))
	c.letterbox, err = pair.Export(func(id uint32) (*view.Local[T], error) {
		return view.ExportBytes[T](c.p, id, c.letterboxMem.Bytes(), opts...)
	})
	if err != nil {
		return errors.Join(err, c.letterboxMem.Close())
	}
	return nil
}

// accept makes the lane of a producer.
func (c *Consumer[T]) accept(theirs *vmmc.Import) (id uint32, err error) {
	if n := theirs.Size(); n != producerSize {
		return 0, fmt.Errorf("the producer's buffer has %d bytes", n)
	}
	if err := c.addLane(nil); err != nil {
		return 0, err
	}
	l := &lane{im: theirs, next: c.opts.start, sent: c.opts.start}
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
	return l.own.ID(), nil
}

// addLane adds a lane, or with nil only reports why none can be added.
func (c *Consumer[T]) addLane(l *lane) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lanes := *c.lanes.Load()
	switch {
	case c.closed.Load():
		return closedError("accept a producer")
	case c.takenPlaces(lanes) >= c.opts.producers:
		return fmt.Errorf("there are %d producers", c.opts.producers)
	case l != nil:
		lanes = append(slices.Clip(lanes), l)
		c.lanes.Store(&lanes)
	}
	return nil
}

// takenPlaces is how many producers count for the bound on their number. mu is held.
func (c *Consumer[T]) takenPlaces(lanes []*lane) (n int) {
	if !c.opts.ends {
		return len(lanes)
	}
	for _, l := range lanes {
		if l.isOver() && l.state.Load() == stateNone {
			l.abandoned = true
		}
		if !l.abandoned && !l.finished.Load() {
			n++
		}
	}
	return n + c.finished
}

// isOver reports whether the producer has ended. If it has died, or was closed after all values
// were taken, all that arrives has arrived then. If its Close was given up, or its process was
// closed without, its last values may still be in flight. They are lost.
func (l *lane) isOver() bool {
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

// anyReady reports whether a lane has a value, or an end. It only reads.
func (c *Consumer[T]) anyReady() bool {
	for _, l := range *c.lanes.Load() {
		if c.hasValue(l) || l.isOver() || c.hasEnded(l) {
			return true
		}
	}
	return false // orClosed's context ends with Close
}

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
	defer c.sem.Release()
	if err = c.fill(ctx); err == nil {
		v = c.one[0]
	}
	return v, err
}

// fill waits for one value.
func (c *Consumer[T]) fill(ctx context.Context) error {
	for {
		if err := c.lossError(); err != nil {
			return err
		}
		if c.takeSome(c.one) > 0 {
			return nil
		}
		if err := c.endError(); err != nil {
			return err
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
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
	defer c.sem.Release()
	for len(dst) > 0 {
		if err := c.lossError(); err != nil {
			return 0, err
		}
		if n := c.takeSome(dst); n > 0 {
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
	if vmmc.InHandler() {
		return v, false, checkCall(context.Background(), c.op())
	}
	if !c.sem.TryAcquire() {
		return v, false, nil
	}
	defer c.sem.Release()
	if c.closed.Load() {
		return v, false, closedError(c.op())
	}
	if err = c.lossError(); err != nil {
		return v, false, err
	}
	if c.takeSome(c.one) == 0 {
		return v, false, c.endError()
	}
	return c.one[0], true, nil
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

// takeSome takes values of all lanes, beginning behind the lane that gave the last one.
func (c *Consumer[T]) takeSome(dst []T) (n int) {
	if c.ended {
		return 0
	}
	lanes, first := *c.lanes.Load(), c.firstLane
	for k := range lanes {
		at := (first + k) % len(lanes)
		l := lanes[at]
		got := c.take(l, dst[n:])
		if got == 0 {
			pair.At("lane.empty")
			over := l.isOver() // before hasEnded: a mark may have arrived before the end
			if over || c.hasEnded(l) {
				// a value may have arrived before the end and after the first look
				if got = c.take(l, dst[n:]); got == 0 {
					c.finish(l, over)
				}
			}
		}
		if got > 0 {
			c.firstLane = at + 1
		}
		if n += got; n == len(dst) {
			break
		}
	}
	return n
}

// take takes values of one lane.
func (c *Consumer[T]) take(l *lane, dst []T) (n int) {
	for n < len(dst) && c.hasValue(l) {
		pair.At("get.seen")
		at := c.offset(l.next)
		copy(c.values.Bytes(dst[n:n+1]), l.own.Bytes()[at:at+c.value])
		pair.At("get.copied")
		n++
		_ = c.advance(l, 1) // each slot has its word
		if l.next-l.sent >= c.quarter() {
			c.sendCount(l)
		}
	}
	if l.next != l.sent && !c.hasValue(l) {
		c.sendCount(l)
	}
	return n
}

// sendCount acknowledges all values before the next one. It never waits: if the link is
// disconnected, or busy with other messages, a goroutine sends the count later, or a newer one.
func (c *Consumer[T]) sendCount(l *lane) {
	pair.At("get.counted")
	l.sent = l.next
	l.count.Store(uint32(l.next))
	if !l.sending.CompareAndSwap(false, true) {
		return // that goroutine loads it after it has stored false
	}
	binary.NativeEndian.PutUint32(c.word[:], uint32(l.next))
	if l.im.Send(noWait, c.word[:], takenOff) == nil {
		l.sending.Store(false)
		return
	}
	c.wg.Go(func() { c.sendCountLater(l) })
}

// sendCountLater sends the newest count. A send fails only when the lane or the consumer has ended.
func (c *Consumer[T]) sendCountLater(l *lane) {
	for {
		var word [wordSize]byte
		n := l.count.Load()
		binary.NativeEndian.PutUint32(word[:], n)
		if l.im.Send(c.ctx, word[:], takenOff) != nil {
			return
		}
		l.sending.Store(false)
		if l.count.Load() == n || !l.sending.CompareAndSwap(false, true) {
			return
		}
	}
}

// finish is called when a lane has no values and its producer's end mark is there, or it is over. A
// lane with an end mark stays until it is over: its end could overtake the last count.
func (c *Consumer[T]) finish(l *lane, over bool) {
	if !c.opts.ends || !c.countEnd(l) || over {
		c.drop(l)
	}
}

// countEnd counts a producer that has ended, if it had a place. It reports whether the producer has
// sent an end mark that holds.
func (c *Consumer[T]) countEnd(l *lane) bool {
	pair.At("lane.ended")
	c.mu.Lock()
	defer c.mu.Unlock()
	state, count := l.state.Load(), binary.NativeEndian.Uint32(l.own.Bytes()[countOff:])
	marked := state == stateEnded && count == uint32(l.next)
	if l.abandoned || l.finished.Load() || state == stateNone {
		return marked
	}
	l.finished.Store(true)
	c.finished++
	if marked {
		return true
	}
	e := &LostError{Queue: c.name, Producer: l.im.Exporter(), Values: l.next - c.opts.start}
	if e.Err = l.im.Err(); e.Err == nil {
		e.Err = errors.New("its end mark counts other values than those that it has put")
	}
	c.lost, c.untold = append(c.lost, e), append(c.untold, e)
	c.losses.Store(int32(len(c.untold)))
	return false
}

// lossError is the error of a get before it looks for values: a producer that was lost, and of which
// none has told. Otherwise no get would, while other producers keep values coming.
func (c *Consumer[T]) lossError() error {
	if c.losses.Load() == 0 {
		return nil
	}
	return c.endError()
}

// endError is the error of a get that finds no value in a queue that ends: a producer that was
// lost, or the end.
func (c *Consumer[T]) endError() error {
	if !c.opts.ends {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.untold) > 0:
		e := c.untold[0]
		c.untold = c.untold[1:]
		c.losses.Store(int32(len(c.untold)))
		return e
	case c.finished < c.opts.producers:
		return nil
	case len(c.lost) > 0:
		return c.lost[0]
	}
	c.ended = true
	return fmt.Errorf("%s: %w", c.op(), ErrEnd)
}

// Replace lets another producer dial in place of one that was lost, of which a get has told. The
// queue then ends as if the lost one had never been. It reports whether it did: not for a second
// time, nor for what is not of this queue.
//
// Experimental: it may change in any release.
func (c *Consumer[T]) Replace(lost *LostError) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.lost, lost)
	if i < 0 || slices.Contains(c.untold, lost) {
		return false
	}
	c.lost = slices.Delete(c.lost, i, i+1)
	c.finished--
	return true
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

// wait waits until a lane has a value or is over.
func (c *Consumer[T]) wait(ctx context.Context) error {
	ctx = c.orClosed(ctx)
	pair.At("get.sleeps")
	err := c.p.WaitUntil(ctx, c.ready)
	switch {
	case c.closed.Load():
		return closedError(c.op())
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

// Close ends the queue. Values that were not taken are lost, and calls of the producers fail with
// [vmmc.ErrRevoked]. Errors: those of [vmmc.Export.Close], [vmmc.ErrNotInHandler]. It is
// [vmmc.ErrBlockedNotifications], and nothing has happened, if a producer dials while the program
// blocks its notifications. A producer that is stopped, or whose link is away, delays it a few
// seconds at most. After an error call Close again; otherwise a second call does nothing.
//
// Experimental: it may change in any release.
func (c *Consumer[T]) Close() error {
	op := "close queue " + strconv.Quote(c.name)
	if err := checkCall(context.Background(), op); err != nil {
		return err
	}
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	err := c.letterbox.Close()
	if errors.Is(err, vmmc.ErrBlockedNotifications) {
		return fmt.Errorf("%s: %w", op, err)
	}
	c.mu.Lock()
	c.closed.Store(true)
	c.end()
	if c.stop != nil {
		c.stop()
	}
	c.mu.Unlock()
	c.listener.Close()
	_ = c.sem.Acquire(context.Background()) // a call that is under way ends
	defer c.sem.Release()
	c.wg.Wait()
	c.mu.Lock()
	lanes := append(slices.Clip(*c.lanes.Load()), c.unclosed...)
	c.lanes.Store(new([]*lane))
	c.unclosed = nil
	c.mu.Unlock()
	if err == nil {
		err = c.letterboxMem.Close()
	}
	ctx, stop := context.WithTimeout(context.Background(), closeTime)
	defer stop()
	errs := make([]error, len(lanes))
	for i, l := range lanes {
		c.wg.Go(func() { errs[i] = c.endLane(ctx, l) })
	}
	c.wg.Wait()
	err = errors.Join(err, errors.Join(errs...))
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// endLane acknowledges what was taken of a lane, and closes it.
func (c *Consumer[T]) endLane(ctx context.Context, l *lane) error {
	var word [wordSize]byte
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
