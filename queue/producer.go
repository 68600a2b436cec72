package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/view"
)

// maxBatch is how many bytes of slots one message has at most, if they are more than one.
const maxBatch = 64 << 10

// Producer puts values into a queue.
//
// Experimental: it may change in any release.
type Producer[T any] struct {
	typed[T]
	geometry
	p     *vmmc.Process
	name  string
	lane  *vmmc.Import
	own   buffer
	taken vmmc.Word // the consumer's acknowledgement, in own
	marks bool      // reports whether the consumer wants the producer's states

	record int // the length of the longest record, or noRecords

	sem   *semaphore.Semaphore // The producer's lock. It guards what follows, up to put.
	one   []T                  // one value, which must not lie on a stack
	batch []byte               // the last message's slots
	// inDoubt is how many values batch has if the last message's outcome is unknown: the consumer
	// may have got some. They are sent again before others are.
	inDoubt int
	queued  // Values that were coalesced.

	put atomic.Uint64 // the number of the next value; stored by the lock's holder

	mu             sync.Mutex
	closed         bool // Guarded by mu. The words of own must not be used any more.
	pendingAtClose int  // Guarded by mu. What Pending returns once closed is set.
}

// Dial makes a producer of the queue that is published under a name, see [vmmc.Process.ImportName]:
// it waits for the name as long as the context allows. Errors: a [*view.TypeError];
// [view.ErrLayout], with a [*view.LayoutError], if the consumer's values are of another layout;
// [vmmc.ErrBadArg] if the name is not a queue's; [vmmc.ErrNoMem] if the consumer has no memory for
// another producer, or has as many as it may; those of ImportName and [vmmc.Process.Export]. It may
// return up to a second after its context has ended.
//
// Experimental: it may change in any release.
func Dial[T any](ctx context.Context, p *vmmc.Process, name string) (*Producer[T], error) {
	q, err := dialAny[T](ctx, p, name)
	if err == nil && q.record != noRecords {
		err = fmt.Errorf("%s: %w", q.op("dial"), badHeader(errors.New("it is a queue of records")))
		return nil, errors.Join(err, q.release())
	}
	return q, err
}

// dialAny makes a producer of values or records.
func dialAny[T any](ctx context.Context, p *vmmc.Process, name string) (*Producer[T], error) {
	op := fmt.Sprintf("dial queue %q", name)
	if err := checkCall(ctx, op); err != nil {
		return nil, err
	}
	t, err := typeOf[T]()
	if err != nil {
		return nil, err
	}
	im, err := p.ImportName(ctx, name)
	if err != nil {
		return nil, err
	}
	pair.At("dial.found")
	q, err := dial(ctx, p, im, t)
	err = errors.Join(err, im.Close())
	if err != nil {
		if q != nil {
			err = errors.Join(err, q.release())
		}
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	q.name = name
	return q, nil
}

// dial makes a producer by a letterbox.
func dial[T any](
	ctx context.Context, p *vmmc.Process, im *vmmc.Import, t typed[T],
) (*Producer[T], error) {
	if err := checkLetterbox[T](ctx, im); err != nil {
		return nil, err
	}
	q := &Producer[T]{typed: t, p: p, sem: semaphore.New(1), one: make([]T, 1)}
	var err error
	if q.own, err = newBuffer(p, producerSize, nil, pair.For(im.Exporter())); err != nil {
		return nil, err
	}
	if q.taken, err = q.own.Word(takenOff); err == nil {
		q.lane, err = pair.Dial(ctx, p, im, bellOff, q.own.Export)
	}
	if err == nil {
		if err = q.useHeader(ctx); err == nil {
			err = q.join(ctx)
		}
		if err != nil {
			err = errors.Join(err, q.lane.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(err, q.own.Close())
	}
	pair.At("dial.joined")
	return q, nil
}

// checkLetterbox reports an error if an export is no letterbox of values of type T.
func checkLetterbox[T any](ctx context.Context, im *vmmc.Import) error {
	if _, err := view.RemoteOf[T](im); err != nil {
		return err
	}
	var b [letterboxSize]byte
	if im.Size() < len(b) {
		return badHeader(errors.New("it is no queue: it is too small"))
	}
	if err := im.Get(ctx, b[:], 0); err != nil {
		return err
	}
	if string(b[magicOff:magicOff+len(magic)]) != magic {
		return badHeader(errors.New("it is no queue of this version, though it has values of this type"))
	}
	return nil
}

// useHeader sets up q by the header of its lane.
func (q *Producer[T]) useHeader(ctx context.Context) error {
	var b [laneHeader]byte
	if q.lane.Size() < len(b) {
		return badHeader(errors.New("the lane is too small"))
	}
	if err := q.lane.Get(ctx, b[:], 0); err != nil {
		return err
	}
	r, start, err := readHeader(b[:], q.lane.Size(), q.layout.Size)
	if err != nil {
		return badHeader(err)
	}
	q.geometry, q.marks = r, binary.NativeEndian.Uint32(b[marksOff:]) != 0
	q.put.Store(start)
	q.taken.Store(uint32(start)) // the consumer stores here when it has taken a value
	if q.record, err = r.recordOf(b[:]); err != nil {
		return badHeader(err)
	}
	most := min(uint64(max(maxBatch/r.slot, 1)), r.quarter())
	if q.record != noRecords {
		most = max(most, slotsOf(q.record)) // a record is one message
	}
	q.batch = make([]byte, int(most)*r.slot)
	q.makeQueued()
	return nil
}

// withdrawTime bounds how long a Dial whose context has ended waits until it can withdraw.
const withdrawTime = time.Second

// join tells the consumer that this producer has joined. A join that is given up is withdrawn:
// otherwise the consumer would take it for a producer that was lost.
func (q *Producer[T]) join(ctx context.Context) error {
	if !q.marks {
		return nil
	}
	pair.At("dial.entered")
	err := q.sendState(ctx, stateJoined)
	if err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
		defer stop()
		_ = q.sendState(ctx, stateNone)
	}
	return err
}

// sendState returns when the consumer has the state, also if this process is killed then.
func (q *Producer[T]) sendState(ctx context.Context, state uint32) error {
	var word [wordSize]byte
	binary.NativeEndian.PutUint32(word[:], state)
	if err := q.lane.Send(ctx, word[:], stateOff); err != nil {
		return err
	}
	return q.lane.Fence(ctx)
}

// markEnd tells the consumer that no value follows those that were put. It arrives behind them.
func (q *Producer[T]) markEnd(ctx context.Context) error {
	if !q.marks {
		return nil
	}
	pair.At("close.unmarked")
	var words [2 * wordSize]byte
	binary.NativeEndian.PutUint32(words[:], uint32(q.put.Load()))
	binary.NativeEndian.PutUint32(words[stateOff-countOff:], stateEnded)
	if err := q.lane.Send(ctx, words[:], countOff); err != nil {
		return err
	}
	pair.At("close.marked")
	return nil
}

func badHeader(err error) error {
	return &vmmc.Error{Op: "read its header", Code: vmmc.ErrBadArg, Err: err}
}

func (q *Producer[T]) op(what string) string { return fmt.Sprintf("%s queue %q", what, q.name) }

// acquire takes the producer's lock.
func (q *Producer[T]) acquire(ctx context.Context, what string) error {
	if ctx == nil || vmmc.InHandler() {
		return checkCall(ctx, q.op(what))
	}
	if q.sem.Acquire(ctx) != nil {
		return contextError(ctx, q.op(what))
	}
	if q.isClosed() {
		q.sem.Release()
		return closedError(q.op(what))
	}
	return nil
}

func (q *Producer[T]) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Put puts v, and waits while there is no room. It returns when v has left, not when it was taken. To
// another node a value that follows another one at once leaves together with more: when this process
// next waits for a message, and otherwise within about 1 ms, later if all CPUs are busy.
// Errors: [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends; [vmmc.ErrPeerGone] when
// the consumer is gone, and [vmmc.ErrRevoked] when it was closed; [vmmc.ErrProtocol] when it counts
// what was not put; [vmmc.ErrClosed], [vmmc.ErrNotInHandler]. After an error v is not in the queue,
// unless that is also [vmmc.ErrOutcomeUnknown]: then the consumer gets it if it lives, at the
// latest by the next call that succeeds (Put, PutAll, TryPut or Close), so v must not be put again.
//
// Experimental: it may change in any release.
func (q *Producer[T]) Put(ctx context.Context, v T) error {
	if err := q.acquire(ctx, "put into"); err != nil {
		return err
	}
	defer q.sem.Release()
	q.one[0] = v
	_, err := q.putAll(ctx, q.one, q.inBurst())
	q.putEnded()
	return err
}

// PutAll puts all of vs, in as few messages as there is room for. It returns how many it has put,
// which are all unless it fails. Errors as [Producer.Put]; with ErrOutcomeUnknown the values in
// doubt are counted as put.
//
// Experimental: it may change in any release.
func (q *Producer[T]) PutAll(ctx context.Context, vs []T) (int, error) {
	if err := q.acquire(ctx, "put into"); err != nil {
		return 0, err
	}
	defer q.sem.Release()
	n, err := q.putAll(ctx, vs, len(vs) == 1 && q.inBurst())
	q.putEnded()
	return n, err
}

// TryPut puts v if there is room, if the connection takes it at once, and if no other call of this
// producer is under way; otherwise it returns false. It does not wait, except for the transfer of a
// value of 64 KiB or more. Errors as [Producer.Put], with v put if it returns true.
//
// Experimental: it may change in any release.
func (q *Producer[T]) TryPut(v T) (bool, error) {
	ctx := noWait
	if q.slot > maxBatch {
		ctx = context.Background() // its transfer would be given up after the first piece
	}
	if vmmc.InHandler() {
		return false, checkCall(ctx, q.op("put into"))
	}
	if !q.sem.TryAcquire() {
		return false, nil
	}
	defer q.sem.Release()
	if q.isClosed() {
		return false, closedError(q.op("put into"))
	}
	switch room, err := q.room(); {
	case err != nil:
		return false, fmt.Errorf("%s: %w", q.op("put into"), err)
	case room == 0:
		if err := q.lane.Err(); err != nil { // there will be none
			return false, fmt.Errorf("%s: %w", q.op("put into"), err)
		}
		return false, nil
	}
	q.one[0] = v
	n, err := q.putAll(ctx, q.one, false)
	if n == 0 && errors.Is(err, vmmc.ErrCanceled) {
		return false, nil // it would have had to wait
	}
	return n == 1, err
}

// room is how many more values the lane can take.
func (q *Producer[T]) room() (uint64, error) {
	pending := uint64(uint32(q.put.Load()) - q.taken.Load())
	if pending > q.slots {
		return 0, &vmmc.Error{
			Op: "count taken values", Peer: q.lane.Exporter().String(), Code: vmmc.ErrProtocol,
			Err: errors.New("the consumer says that it has taken values that were not put"),
		}
	}
	return q.slots - pending, nil
}

// putAll waits for room and sends, until all are put. If burst is set each value is left to the
// link's queue.
func (q *Producer[T]) putAll(ctx context.Context, vs []T, burst bool) (n int, err error) {
	if err = q.resend(ctx); err == nil {
		n, err = q.sendAll(ctx, vs, burst)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", q.op("put into"), err)
	}
	return n, err
}

// sendAll is putAll when no earlier value is in doubt.
func (q *Producer[T]) sendAll(ctx context.Context, vs []T, burst bool) (n int, err error) {
	for n < len(vs) {
		room, err := q.waitRoom(ctx, 1)
		if err != nil {
			return n, err
		}
		pair.At("put.room")
		first := q.put.Load()
		if burst {
			if err := q.enqueue(ctx, first, vs[n:n+1]); err != nil {
				return n, err
			}
			n++
			q.put.Store(first + 1)
			pair.At("put.sent")
			continue
		}
		run := int(min(uint64(len(vs)-n), room, q.longestRun(first)))
		q.encode(q.batch, first, vs[n:n+run])
		sent, err := q.sendRun(ctx, first, run)
		if n += sent; err != nil {
			return n, err
		}
	}
	return n, nil
}

// waitRoom waits until there is room for n values, and returns for how many there is.
func (q *Producer[T]) waitRoom(ctx context.Context, n uint64) (uint64, error) {
	for {
		seen := q.taken.Load()
		room, err := q.room()
		if err != nil || room >= n {
			return room, err
		}
		pair.At("put.wait")
		if _, err := q.lane.WaitWord(ctx, q.taken, seen); err != nil {
			return 0, fmt.Errorf("there is no room: %w", err)
		}
	}
}

// longestRun is how many values a message can have whose first value has a number.
func (q *Producer[T]) longestRun(first uint64) uint64 {
	return min(uint64(len(q.batch)/q.slot), q.slots-first&(q.slots-1))
}

// sendRun sends the slots of a run of values, which are encoded in q.batch, as one message. It
// returns how many values were put: all or none.
func (q *Producer[T]) sendRun(ctx context.Context, first uint64, run int) (int, error) {
	pair.At("put.encoded")
	err := q.lane.Send(ctx, q.batch[:run*q.slot], q.offset(first+uint64(run)-1))
	if err != nil && !errors.Is(err, vmmc.ErrOutcomeUnknown) {
		return 0, err
	}
	pair.At("put.arrived")
	q.put.Store(first + uint64(run))
	if err != nil {
		q.inDoubt = run
		return run, err
	}
	pair.At("put.sent")
	return run, nil
}

// encode fills b with the slots of vs, the first of which has a number: the last one first.
func (q *Producer[T]) encode(b []byte, first uint64, vs []T) {
	b = b[:len(vs)*q.slot]
	for i := range vs {
		copy(b[(len(vs)-1-i)*q.slot:], q.values.Bytes(vs[i:i+1]))
	}
	q.encodeNumbers(b, first)
}

// encodeNumbers ends each slot in b with its number.
func (q *Producer[T]) encodeNumbers(b []byte, first uint64) {
	number := q.number(first) // of all: the run ends where the slots do
	for at := q.slot - wordSize; at < len(b); at += q.slot {
		binary.NativeEndian.PutUint32(b[at:], number)
	}
}

// resend repeats the message whose outcome is unknown. A consumer that has taken its values does
// not read these slots before their next values are sent.
func (q *Producer[T]) resend(ctx context.Context) error {
	if q.inDoubt == 0 || q.taken.Load() == uint32(q.put.Load()) { // there is none, or all were taken
		q.inDoubt = 0
		return nil
	}
	if err := q.lane.Send(ctx, q.batch[:q.inDoubt*q.slot], q.offset(q.put.Load()-1)); err != nil {
		return q.knownError("send earlier values", err)
	}
	q.inDoubt = 0
	return nil
}

// knownError is the error of sending what goes before the values of a call, which were not put: it is
// not ErrOutcomeUnknown.
func (q *Producer[T]) knownError(op string, err error) error {
	e := &vmmc.Error{Op: op, Peer: q.lane.Exporter().String(), Code: vmmc.ErrUnreachable}
	errors.As(err, &e.Code)
	e.Err = errors.New(err.Error())
	return e
}

// Pending is how many values are not known to be taken. It may be called at any time, also in a
// handler, after Close, and when the consumer is gone.
//
// Experimental: it may change in any release.
func (q *Producer[T]) Pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.pendingAtClose
	}
	return q.pending()
}

// pending may be called without the lock. The consumer may have counted values whose put is about
// to return.
func (q *Producer[T]) pending() int {
	n := int32(uint32(q.put.Load()) - q.taken.Load())
	return min(max(int(n), 0), int(q.slots))
}

// Close waits until all values are taken, and then gives back the producer's memory. It gives that
// back in any case: if the context ends before, or the consumer does, values that are not taken may
// be lost, see [Producer.Pending]. If all were taken it returns nil, also if the consumer was
// closed or died afterwards; one on another node may take a millisecond to acknowledge the last
// values, and if it dies within that, Close returns [vmmc.ErrPeerGone]. With [Producers] the
// consumer must also have learned that this producer has been closed: if it dies before, or the
// link is lost, Close returns [vmmc.ErrPeerGone] though all values were taken, and if the consumer
// has given this producer up, [vmmc.ErrRevoked]. Errors as [Producer.Put]. A second call does nothing.
//
// Experimental: it may change in any release.
func (q *Producer[T]) Close(ctx context.Context) error {
	if err := checkCall(ctx, q.op("close")); err != nil {
		return err
	}
	gaveUp := q.sem.Acquire(ctx) != nil
	if gaveUp {
		_ = q.lane.Close() // ends a call that waits for room
		_ = q.sem.Acquire(context.Background())
	}
	defer q.sem.Release()
	if q.isClosed() {
		return nil
	}
	err := q.finish(ctx)
	switch {
	case gaveUp && errors.Is(err, vmmc.ErrClosed): // the context, and not the lane, is why
		err = contextError(ctx, q.op("close"))
	case err != nil:
		err = fmt.Errorf("%s: %w", q.op("close"), err)
	}
	return errors.Join(err, q.release())
}

// finish waits until all values are taken.
func (q *Producer[T]) finish(ctx context.Context) error {
	if err := q.resend(ctx); err != nil {
		return err
	}
	err := q.markEnd(ctx)
	for last := uint32(q.put.Load()); ; {
		seen := q.taken.Load()
		if seen == last {
			return q.fenceEnd(ctx, err)
		}
		if err != nil {
			return err
		}
		if _, err := q.room(); err != nil {
			return err
		}
		pair.At("close.wait")
		// Unlike WaitWord it awaits counts that arrive behind the first signs of the consumer's
		// end.
		w := vmmc.Watch{Word: q.taken, Old: seen, From: q.lane}
		if _, err := q.p.WaitAny(ctx, w); err != nil {
			return err
		}
	}
}

// fenceEnd waits until the consumer has the end mark, which the end of this producer's export could
// overtake. err is that of sending the mark. A consumer that was closed needs none. One that lives
// without the mark takes this producer for a lost one. So the link's end is an error, as one cannot
// tell it from the consumer's death, and so is the end of the lane alone.
func (q *Producer[T]) fenceEnd(ctx context.Context, err error) error {
	if !q.marks {
		return nil
	}
	if err == nil {
		pair.At("close.fence")
		err = q.lane.Fence(ctx)
	}
	if err == nil || errors.Is(q.lane.Err(), vmmc.ErrRevoked) && q.consumerClosed() {
		return nil
	}
	return err
}

// consumerClosed reports whether the consumer has said that it is closed.
func (q *Producer[T]) consumerClosed() bool {
	w, err := q.own.Word(closedOff)
	return err == nil && w.Load() == 1
}

// release gives back what the producer has.
func (q *Producer[T]) release() error {
	q.mu.Lock()
	q.pendingAtClose, q.closed = q.pending(), true
	q.mu.Unlock()
	return errors.Join(q.lane.Close(), q.own.Close())
}
