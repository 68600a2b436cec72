package call

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/view"
)

// Client calls a server.
//
// Experimental: it may change in any release.
type Client[Q, A any] struct {
	requests typed[Q]
	answers  typed[A]
	c        *client
}

// client is what does not depend on the types.
type client struct {
	shape
	p           *vmmc.Process
	name        string
	answerPrint []byte       // the fingerprint of the answers' layout
	lane        *vmmc.Import // the server's export
	own         pair.Buffer

	number atomic.Uint64 // of the last call
	slots  []slot
	ctx    context.Context //nolint:containedctx // ends with Close
	end    context.CancelFunc
	broken atomic.Pointer[vmmc.Error] // the server broke the protocol

	// sem admits a call for each free slot.
	sem     *semaphore.Semaphore
	mu      sync.Mutex
	free    []int          // Slots without a call, the last used one at the end. Guarded by mu.
	waiting int            // Calls that wait for a slot. Guarded by mu.
	late    int            // Slots whose call was given up. Guarded by mu.
	reaping bool           // Reports whether a goroutine waits for late answers. Guarded by mu.
	closed  bool           // Guarded by mu.
	calls   sync.WaitGroup // those that have a slot; added to under mu, unless closed
	wg      sync.WaitGroup // goroutines that take care of calls that were given up; likewise
}

// slot is a call's, or free.
type slot struct {
	request []byte        // the message
	word    vmmc.Word     // the low word of the answer's number
	number  uint64        // of the slot's last call
	last    atomic.Uint32 // what word was before that call was answered
	// Reports whether that call was given up, and its request has left. The slot is free when an
	// answer comes.
	late atomic.Bool
}

// Dial makes a client of the server that is published under a name, see [vmmc.Process.ImportName]:
// it waits for the name as long as the context allows. Errors: a [*view.TypeError];
// [view.ErrLayout], with a [*view.LayoutError], if the server's requests or answers are of another
// layout; [vmmc.ErrBadArg] for an option that cannot be, or if the name is not a server's;
// [vmmc.ErrNoMem] if the server has no memory for another client, has as many as it may, or allows
// fewer slots; those of ImportName and [vmmc.Process.Export]. It may return up to a second after
// its context has ended.
//
// Experimental: it may change in any release.
func Dial[Q, A any](
	ctx context.Context, p *vmmc.Process, name string, opts ...DialOption,
) (*Client[Q, A], error) {
	op := fmt.Sprintf("dial server %q", name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	q, err := typeOf[Q]()
	if err != nil {
		return nil, err
	}
	a, err := typeOf[A]()
	if err != nil {
		return nil, err
	}
	o := dialOptions{slots: defaultSlot}
	for _, f := range opts {
		if f == nil {
			return nil, pair.BadArg(op, errors.New("an option is nil"))
		}
		f(&o)
	}
	form, err := shape{request: q.size, answer: a.size}.withSlots(o.slots)
	if err != nil {
		return nil, pair.BadArg(op, err)
	}
	im, err := p.ImportName(ctx, name)
	if err != nil {
		return nil, err
	}
	pair.At("dial.found")
	c := &client{shape: form, p: p, name: name, answerPrint: a.print}
	err = checkLetterbox[Q](ctx, im)
	if err == nil {
		err = c.join(ctx, im, o)
	}
	if err == nil {
		if _, err = view.RemoteOf[A](c.lane); err == nil {
			err = c.checkLane()
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("answers: %w", err), c.close())
		}
	}
	if err = errors.Join(err, im.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	pair.At("dial.joined")
	return &Client[Q, A]{q, a, c}, nil
}

// checkLetterbox reports an error if an export is no letterbox of a server of such requests.
func checkLetterbox[Q any](ctx context.Context, im *vmmc.Import) error {
	if _, err := view.RemoteOf[Q](im); err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	var b [letterboxSize]byte
	if im.Size() < len(b) {
		return pair.BadArg("read its header", errors.New("it is no server of calls: it is too small"))
	}
	if err := im.Get(ctx, b[:], 0); err != nil {
		return err
	}
	if string(b[magicOff:magicOff+len(magic)]) != magic {
		return pair.BadArg("read its header",
			errors.New("it is no server of calls of this version, though it has values of this type"))
	}
	return nil
}

// join connects to the server that has a letterbox.
func (c *client) join(ctx context.Context, im *vmmc.Import, o dialOptions) (err error) {
	c.own, err = pair.NewBufferBy(c.p, c.answersSize(), func(mem *vmmc.Memory) (*vmmc.Export, error) {
		return pair.Export(func(id uint32) (*vmmc.Export, error) {
			opts := append(slices.Clip(o.export), pair.For(im.Exporter()), vmmc.WithLabel(c.answerPrint))
			return c.p.Export(id, mem.Bytes(), opts...)
		})
	})
	if err != nil {
		return err
	}
	c.slots, c.free = make([]slot, c.count), make([]int, c.count)
	for i := range c.slots {
		s := &c.slots[i]
		if s.word, err = c.own.Word(c.answerEnd(i) - wordSize); err != nil {
			return errors.Join(err, c.own.Close())
		}
		s.request = make([]byte, words(c.request)+requestTail, words(c.request)+requestTail+wordSize)
		c.free[i] = len(c.free) - 1 - i
	}
	c.number.Store(o.number)
	c.sem = semaphore.New(len(c.slots))
	c.ctx, c.end = context.WithCancel(context.Background())
	if c.lane, err = pair.Dial(ctx, c.p, im, bellOff, c.own.Export); err != nil {
		c.end()
		return errors.Join(err, c.own.Close())
	}
	return nil
}

// checkLane checks the size of the server's export.
func (c *client) checkLane() error {
	if n := c.lane.Size(); n < c.requestsSize() {
		return pair.BadArg("read its size", fmt.Errorf("it has %d bytes for %d calls, want %d", n,
			len(c.slots), c.requestsSize()))
	}
	return nil
}

func (c *client) op() string { return "call server " + strconv.Quote(c.name) }

// Call has the server run its function with the request q, and waits for the answer, which it
// stores in a. It changes a only if it returns nil. If as many calls are under way as there are
// slots it first waits for one ([Slots]).
//
// Errors: a [*RemoteError] is the handler's. [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the
// context ends; [vmmc.ErrPeerGone] when the server is gone, and [vmmc.ErrRevoked] when it was
// closed; [vmmc.ErrProtocol] when it answers what was not asked, then and for all later calls;
// [vmmc.ErrClosed], [vmmc.ErrNotInHandler]. If the request may have been sent they are also
// [vmmc.ErrOutcomeUnknown]; otherwise it does not run.
//
// Experimental: it may change in any release.
func (c *Client[Q, A]) Call(ctx context.Context, q *Q, a *A) error {
	if q == nil || a == nil {
		return pair.BadArg(c.c.op(), errors.New("the request or the answer is nil"))
	}
	return c.c.call(ctx, c.requests.values.Of(q), c.answers.values.Of(a))
}

// Close ends the client. Calls that are under way fail with [vmmc.ErrClosed]; the server may run
// them all the same. A second call does nothing.
//
// Experimental: it may change in any release.
func (c *Client[Q, A]) Close() error {
	op := "close client of server " + strconv.Quote(c.c.name)
	if err := pair.CheckCall(context.Background(), op); err != nil {
		return err
	}
	if err := c.c.close(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

func (c *client) call(ctx context.Context, q, a []byte) error {
	if ctx == nil || vmmc.InHandler() {
		return pair.CheckCall(ctx, c.op())
	}
	i, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	s := &c.slots[i]
	copy(s.request, q)
	c.begin(s)
	pair.At("call.encoded")
	if err := c.send(ctx, i, runs); err != nil {
		if errors.Is(err, vmmc.ErrOutcomeUnknown) {
			c.abandon(i, true)
		} else {
			s.number = 0 // no answer will come
			c.release(i)
		}
		return fmt.Errorf("%s: %w", c.op(), err)
	}
	pair.At("call.sent")
	if _, err := c.lane.WaitWord(ctx, s.word, s.last.Load()); err != nil {
		c.abandon(i, false)
		return fmt.Errorf("%s: %w (%w)", c.op(), err, vmmc.ErrOutcomeUnknown)
	}
	pair.At("call.answered")
	return c.finish(i, a)
}

// begin numbers a call. The server sees it by the number's low word, which must differ from that of
// the slot's last call.
func (c *client) begin(s *slot) {
	last := s.word.Load()
	s.last.Store(last)
	for s.number = c.number.Add(1); uint32(s.number) == last; {
		s.number = c.number.Add(1)
	}
}

// send sends a slot's request, or in its place one of another kind.
func (c *client) send(ctx context.Context, i int, kind uint32) error {
	s := &c.slots[i]
	n := len(s.request) - requestTail
	binary.NativeEndian.PutUint32(s.request[n:], kind)
	binary.NativeEndian.PutUint32(s.request[n+wordSize:], uint32(s.number>>32))
	if c.large() {
		b := binary.NativeEndian.AppendUint32(s.request, uint32(s.number))
		return c.lane.Send(ctx, b, c.requestAt(i))
	}
	return c.lane.SendSignal(ctx, s.request, c.requestAt(i), uint32(s.number), c.requestWord(i))
}

// finish takes the answer of a call.
func (c *client) finish(i int, a []byte) error {
	b := c.answerBytes(i)
	status, text, err := readAnswer(b, c.slots[i].number)
	if err == nil && status == voided {
		err = errors.New("the answer is that to another request")
	}
	if err != nil {
		c.breakOff(err)
		c.release(i)
		return fmt.Errorf("%w (%w)", c.broken.Load(), vmmc.ErrOutcomeUnknown)
	}
	if status == succeeded {
		copy(a, b[len(b)-answerTail-words(len(a)):])
	}
	c.release(i)
	pair.At("call.done")
	switch status {
	case failed, panicked:
		return fmt.Errorf("%s: %w", c.op(), &RemoteError{Text: text, Panicked: status == panicked})
	case notRun:
		return &vmmc.Error{
			Op: c.op(), Peer: c.lane.Exporter().String(), Code: vmmc.ErrRevoked,
			Err: errors.New("the server shuts down and has not run it"),
		}
	}
	return nil
}

// breakOff has later calls fail: what the server writes has no meaning any more.
func (c *client) breakOff(err error) {
	c.broken.CompareAndSwap(nil, &vmmc.Error{
		Op: c.op(), Peer: c.lane.Exporter().String(), Code: vmmc.ErrProtocol, Err: err,
	})
}

func (c *client) closedError() error {
	return pair.ClosedError(c.op(), "the client")
}

// acquire takes a free slot, and waits for one.
func (c *client) acquire(ctx context.Context) (int, error) {
	if ctx.Err() != nil {
		return 0, pair.ContextError(ctx, c.op())
	}
	if !c.sem.TryAcquire() {
		if err := c.awaitSlot(ctx); err != nil {
			return 0, err
		}
	}
	c.mu.Lock()
	if c.closed || c.broken.Load() != nil {
		c.mu.Unlock()
		c.sem.Release()
		if e := c.broken.Load(); e != nil {
			return 0, e
		}
		return 0, c.closedError()
	}
	c.calls.Add(1)
	i := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.mu.Unlock()
	return i, nil
}

// awaitSlot is acquire without a free slot.
func (c *client) awaitSlot(ctx context.Context) error {
	c.mu.Lock()
	c.sweep()
	c.waiting++
	c.startReaping()
	c.mu.Unlock()
	pair.At("call.waits")
	err := c.sem.AcquireUntil(ctx, c.ctx.Done())
	c.mu.Lock()
	c.waiting--
	c.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, semaphore.ErrStopped):
		return c.closedError()
	default:
		return fmt.Errorf("there is no free slot: %w", pair.ContextError(ctx, c.op()))
	}
}

// release frees the slot of a call.
func (c *client) release(i int) {
	c.mu.Lock()
	c.free = append(c.free, i)
	c.mu.Unlock()
	c.calls.Done()
	c.sem.Release()
}

// abandon leaves the slot of a call that was given up to its late answer. If the request may not
// have arrived, the server is asked to take it for void in that case: otherwise none would come
// (docs/models: call).
func (c *client) abandon(i int, inDoubt bool) {
	pair.At("call.abandoned")
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.calls.Done()
	c.late++
	s := &c.slots[i]
	if inDoubt && !c.closed {
		c.wg.Go(func() {
			_ = c.send(c.ctx, i, void) // fails when the client or the server has ended
			c.mu.Lock()
			defer c.mu.Unlock()
			s.late.Store(true)
			c.sweep()
			c.startReaping()
		})
		return
	}
	s.late.Store(true)
	c.sweep()
	c.startReaping()
}

// hasCome reports whether a slot's call was given up, and its answer has come, or none will.
func (c *client) hasCome(s *slot) bool {
	return s.late.Load() && (s.word.Load() != s.last.Load() || c.isOver())
}

// isOver reports whether the server has ended.
func (c *client) isOver() bool {
	select {
	case <-c.lane.Done():
		return true
	default:
		return false
	}
}

// sweep frees the slots whose late answers have come. The caller holds mu.
func (c *client) sweep() {
	for i := range c.slots {
		if c.late == 0 || c.closed { // then the words may be gone
			return
		}
		s := &c.slots[i]
		if !c.hasCome(s) {
			continue
		}
		s.late.Store(false)
		c.late--
		if _, _, err := readAnswer(c.answerBytes(i), s.number); err != nil && !c.isOver() {
			c.breakOff(fmt.Errorf("late: %w", err))
		}
		c.free = append(c.free, i)
		c.sem.Release()
	}
}

func (c *client) answerBytes(i int) []byte {
	return c.own.Bytes()[c.answerEnd(i)-c.answerStride() : c.answerEnd(i)]
}

// startReaping has a goroutine wait for late answers, if a call waits for them. While it sleeps,
// each message to this process wakes it. The caller holds mu.
func (c *client) startReaping() {
	if c.waiting > 0 && c.late > 0 && !c.reaping && !c.closed {
		c.reaping = true
		c.wg.Go(c.reap)
	}
}

func (c *client) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.waiting > 0 && c.late > 0 && !c.closed {
		c.mu.Unlock()
		err := c.p.WaitUntil(c.ctx, c.anyHasCome)
		c.mu.Lock()
		c.sweep()
		if err != nil {
			c.end() // the process is closed, if the client is not
			break
		}
	}
	c.reaping = false
}

// anyHasCome reports whether sweep has something to do. It only reads.
func (c *client) anyHasCome() bool {
	for i := range c.slots {
		if c.hasCome(&c.slots[i]) {
			return true
		}
	}
	return false
}

func (c *client) close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	err := c.lane.Close() // ends all waits
	c.calls.Wait()
	c.wg.Wait()
	return errors.Join(err, c.own.Close())
}
