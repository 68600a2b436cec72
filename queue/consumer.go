package queue

import (
	"context"
	"errors"
	"fmt"
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
	fetches   uint64               // how many values sharings have taken out of the queue
	ready     func() bool          // anyReady
	ended     bool                 // reports whether a get has returned ErrEnd: then all do, but for values that a Shared gives back

	dropMu  sync.Mutex  // Held by dropEnded, and so by those that take sem beside calls.
	dropDue atomic.Bool // reports whether dropEnded is to look at the lanes

	ackTimer   *time.Timer // for counts that may be late
	ackPending atomic.Bool // reports whether ackTimer is set, or its function has not loaded counts

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
	// told is the loss that the last look for one has found, if it was in untold. Guarded by mu.
	told   *LostError
	shared []*Shared[T] // Guarded by mu.
	// Values that a sharing has given back: gets return them before all others. Guarded by mu. A get
	// looks at their number without mu; it is stored under mu.
	returned     []unfinished[T]
	returnedSize atomic.Int32
	// The last wait's context, and one that ends with it and with Close. Guarded by mu.
	from, waiting context.Context //nolint:containedctx // see above
	stop          context.CancelFunc
	ctx           context.Context //nolint:containedctx // ends with Close
	end           context.CancelFunc
	wg            sync.WaitGroup // goroutines that watch and close lanes, and send counts
}

// Listen makes the queue and publishes it under a name, see [vmmc.Export.PublishAs]. This process
// is its consumer. Errors: a [*view.TypeError]; [vmmc.ErrBadArg] for an option that cannot be;
// those of [vmmc.Process.Export] and PublishAs.
//
// Experimental: it may change in any release.
func Listen[T any](
	ctx context.Context, p *vmmc.Process, name string, opts ...Option,
) (*Consumer[T], error) {
	return listen[T](ctx, p, name, noRecords, opts)
}

// listen is Listen, of a queue of records if record is the length of the longest one.
func listen[T any](
	ctx context.Context, p *vmmc.Process, name string, record int, opts []Option,
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
	c.opts.record = record
	c.opts.setBounds()
	if c.geometry, err = c.opts.laneGeometry(t.layout.Size); err != nil {
		return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: err}
	}
	c.lanes.Store(new([]*lane))
	c.ready = c.anyReady
	c.ackTimer = time.AfterFunc(time.Hour, c.acknowledgeLate)
	c.ackTimer.Stop()
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

// Close ends the queue. Values that were not taken are lost, also those that a [Shared.Close] has
// given back, and calls of the producers fail with [vmmc.ErrRevoked]. Errors: those of
// [vmmc.Export.Close], [vmmc.ErrNotInHandler]. It is [vmmc.ErrBlockedNotifications], and nothing has
// happened, if a producer dials while the program blocks its notifications. A producer that is
// stopped, or whose link is away, delays it a few seconds at most. After an error call Close again;
// otherwise a second call does nothing.
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
	c.ackTimer.Stop()
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
