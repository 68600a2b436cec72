package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
)

// client is a process's side of what another one hosts.
type client struct {
	p        *vmmc.Process
	name     string
	kind     kind
	lane     *vmmc.Import
	own      pair.Buffer
	answered vmmc.Word // the number of the request that the last answer is for, in own

	// turn is held by the goroutine that makes requests, and as long as it has what it got. It
	// guards seq and word.
	turn *semaphore.Semaphore
	seq  uint32 // of the last request
	word [4]byte

	// inUse reports whether the host may still have something of an earlier request of that number:
	// the next one would be taken for it. Nil: it has not.
	inUse func(seq uint32) bool

	asking sync.Mutex // Held while words of own are used.

	mu     sync.Mutex
	closed bool            // Guarded by mu.
	over   chan struct{}   // closed when closed is set
	ctx    context.Context //nolint:containedctx // ends with Close
	end    context.CancelFunc
	wg     sync.WaitGroup // goroutines that finish what a context has ended

	closeMu     sync.Mutex // Held by Close.
	heldAtClose bool       // Guarded by closeMu.
	released    bool       // Guarded by closeMu.
}

// open connects to what is hosted under a name.
func open(ctx context.Context, p *vmmc.Process, name string, k kind) (*client, error) {
	op := fmt.Sprintf("open %s %q", k, name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	im, err := p.ImportName(ctx, name)
	if err != nil {
		return nil, err
	}
	pair.At("open.found")
	c, err := connect(ctx, p, im, k)
	if err = errors.Join(err, im.Close()); err != nil {
		if c != nil {
			err = errors.Join(err, c.release())
		}
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	c.name = name
	return c, nil
}

// connect makes a client by a letterbox.
func connect(ctx context.Context, p *vmmc.Process, im *vmmc.Import, k kind) (*client, error) {
	if err := checkLetterbox(ctx, im, k); err != nil {
		return nil, err
	}
	c := &client{p: p, kind: k, turn: semaphore.New(1), over: make(chan struct{})}
	var err error
	if c.own, err = pair.NewBuffer(p, clientSize, nil, pair.For(im.Exporter())); err != nil {
		return nil, err
	}
	if c.answered, err = c.own.Word(seqOff); err == nil {
		c.lane, err = pair.Dial(ctx, p, im, bellOff, c.own.Export)
	}
	if err != nil {
		return nil, errors.Join(err, c.own.Close())
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	if n := c.lane.Size(); n != laneSize {
		err = protocolError("connect", c.lane.Exporter(), fmt.Sprintf("the lane has %d bytes", n))
		return nil, errors.Join(err, c.release())
	}
	pair.At("open.joined")
	return c, nil
}

func (c *client) op(what string) string {
	return what + " " + c.kind.String() + " " + strconv.Quote(c.name)
}

// acquire waits for this process's turn.
func (c *client) acquire(ctx context.Context, what string) error {
	if ctx == nil || vmmc.InHandler() {
		return pair.CheckCall(ctx, c.op(what))
	}
	switch err := c.turn.AcquireUntil(ctx, c.over); {
	case errors.Is(err, semaphore.ErrStopped):
		return closedError(c.op(what))
	case err != nil:
		return pair.ContextError(ctx, c.op(what))
	case c.isClosed():
		c.turn.Release()
		return closedError(c.op(what))
	}
	return nil
}

// tryAcquire takes this process's turn if no call has it.
func (c *client) tryAcquire(ctx context.Context, what string) (bool, error) {
	if err := pair.CheckCall(ctx, c.op(what)); err != nil {
		return false, err
	}
	if !c.turn.TryAcquire() {
		if c.isClosed() {
			return false, closedError(c.op(what))
		}
		return false, nil
	}
	return true, nil
}

// callError is the error of a call that has failed.
func (c *client) callError(what string, err error) error {
	if c.isClosed() {
		return closedError(c.op(what))
	}
	return fmt.Errorf("%s: %w", c.op(what), err)
}

func (c *client) isClosed() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// notify notifies the host. The caller has the turn.
func (c *client) notify(ctx context.Context, op, seq uint32, mark bool) error {
	binary.NativeEndian.PutUint32(c.word[:], opWord(op, seq, mark))
	return c.lane.SendNotify(ctx, c.word[:], opOff)
}

// request makes a request and returns the answer. The caller has the turn, and keeps it unless
// there is an error: then the request is withdrawn, and the turn is given on.
func (c *client) request(ctx context.Context, op uint32) (uint64, error) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.isClosed() {
		c.turn.Release()
		return 0, closedError("request")
	}
	c.nextSeq()
	pair.At("lock.request")
	if err := c.notify(ctx, op, c.seq, false); err != nil {
		if errors.Is(err, vmmc.ErrOutcomeUnknown) {
			c.withdraw()
		} else {
			c.turn.Release()
		}
		return 0, err
	}
	for seen := c.answered.Load(); seen != c.seq; {
		pair.At("lock.waits")
		v, err := c.lane.WaitWord(ctx, c.answered, seen)
		if err != nil {
			c.withdraw()
			return 0, err
		}
		seen = v
	}
	pair.At("lock.answered")
	return binary.NativeEndian.Uint64(c.own.Bytes()[answerOff:]), nil
}

// nextSeq numbers the next request. The numbers wrap around. The caller has the turn.
func (c *client) nextSeq() {
	for {
		if c.seq++; c.seq > maxSeq {
			c.seq = 1
		}
		// the last answer may be that to a request of long ago, and look like the next one's
		if c.seq != c.answered.Load() && (c.inUse == nil || !c.inUse(c.seq)) {
			return
		}
	}
}

// withdraw withdraws the last request, whose answer may cross that, and then gives the turn on. It
// does not wait.
func (c *client) withdraw() {
	pair.At("lock.withdraws")
	seq := c.seq
	if c.notify(pair.NoWait, opWithdraw, seq, false) == nil || c.lane.Err() != nil {
		pair.At("lock.withdrawn")
		c.turn.Release()
		return
	}
	c.finishLater(func(ctx context.Context) error { return c.notify(ctx, opWithdraw, seq, false) })
}

// finishLater runs f in a goroutine, which has the turn until then.
func (c *client) finishLater(f func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		c.turn.Release()
		return
	}
	c.wg.Go(func() {
		_ = f(c.ctx) // it fails only when the lane or the client has ended
		c.turn.Release()
	})
}

// closeCall leaves. holding reports whether this client has what it is a client of. It is called
// once, when no call can begin any more.
func (c *client) closeCall(ctx context.Context, holding func() bool) error {
	if err := pair.CheckCall(ctx, c.op("close")); err != nil {
		return err
	}
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	if c.markClosed() {
		c.heldAtClose = holding()
	}
	if err := c.leave(ctx, c.heldAtClose); err != nil {
		return fmt.Errorf("%s: %w", c.op("close"), err)
	}
	return nil
}

// leave tells the host, and gives back what the client has. When the context ends before the host
// was told, the client keeps all, so that it can tell the host later.
func (c *client) leave(ctx context.Context, holds bool) error {
	if c.released {
		return nil
	}
	if holds {
		if err := c.fence(ctx); err != nil {
			return err
		}
	}
	var word [4]byte
	binary.NativeEndian.PutUint32(word[:], opWord(opClose, 0, holds))
	err := c.lane.SendNotify(ctx, word[:], opOff)
	if err == nil {
		pair.At("close.sent")
		err = c.lane.Fence(ctx) // the import's end would overtake it
	}
	switch {
	case err == nil:
	case c.lane.Err() != nil:
		err = nil // the host has ended, or has ended the lane itself
	case ctx.Err() != nil:
		return err
	}
	return errors.Join(err, c.release())
}

// markClosed lets no call begin any more and reports whether it is the first one.
func (c *client) markClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.closed = true
	close(c.over)
	return true
}

// release gives back what the client has.
func (c *client) release() error {
	c.markClosed()
	c.end()
	err := c.lane.Close() // ends a call that waits for an answer
	c.wg.Wait()
	c.asking.Lock()
	defer c.asking.Unlock()
	err = errors.Join(err, c.own.Close())
	c.released = err == nil
	return err
}

// fence waits until all that this process has sent has arrived. What was sent over a link that has
// failed may be lost; [vmmc.Import.Err] tells.
func (c *client) fence(ctx context.Context) error {
	err := c.p.Fence(ctx)
	if err != nil && (ctx.Err() != nil || errors.Is(err, vmmc.ErrClosed)) {
		return err
	}
	return nil
}
