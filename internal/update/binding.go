package update

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Remote is where a binding's words go. Offsets count from the binding's beginning.
type Remote interface {
	// Put brings a run of words to its place. It may wait; words may change when it has returned.
	Put(ctx context.Context, off int, words []byte) error
	// Publish brings a flag to its place by one atomic store, after all that was put before.
	Publish(ctx context.Context, off int, flag []byte) error
	// Done follows a pass that has put or published something. When it returns, that is visible or
	// in flight.
	Done() error
}

// Span is a range of bytes, whole words.
type Span struct{ From, To int }

// Config describes a binding.
type Config struct {
	Local       []byte      // Word-aligned.
	Region      *shm.Region // The region that Local lies in.
	At          int         // Offset of Local in it.
	Flags       []Span      // Sorted, without overlap.
	CompareOnly bool        // Do not use the kernel's page tracking.
	All         bool        // Send the initial contents.
	Remote      Remote
	Direct      bool  // Remote never waits.
	Duty        *Duty // Shared by all bindings of the process.
	// Called when Passed has advanced, and at the end. It must not wait.
	OnPassed func()
}

// small is the size up to which comparing is faster than asking the kernel.
const small = 32 << 10

// Binding carries the stores to one piece of memory over.
type Binding struct {
	c        Config
	twin     *shm.Twin
	watch    *shm.Watch // nil: pages are only compared.
	watchErr error      // Why watch is nil.
	lo       int        // The cold pages are in [lo, hi).
	hi       int

	// The binding's lock: held by the goroutine that has put an element in.
	sem chan struct{}
	// Goroutines other than the scanner that wait for it.
	waiters  atomic.Int32
	hot      hotPages // Guarded by sem, as the fields that follow.
	nextCold int      // Where the next look at cold pages begins.
	// nil: a full pass looks at one slice after another.
	prescan *prescan
	runs    [128]shm.PageRun

	lastProtect int64 // When a sweep last protected what it found.
	protecting  bool  // The current sweep protects.
	heating     bool  // What is sent makes its page hot.

	flags   []uint32 // The flags as they were loaded.
	sent    bool     // This pass has sent something.
	sendAll bool     // The contents are to be sent.

	requested atomic.Uint64 // Full passes requested.
	passed    atomic.Uint64 // Requests that are complete.
	kick      chan struct{} // Ends the scanner's nap.
	ctx       context.Context
	cancel    context.CancelFunc
	failing   sync.Once
	cause     error         // Why it has ended. Set before ended is closed.
	ended     chan struct{} // Closed when nothing more is carried over.
	released  chan struct{} // Closed when, after that, nothing of it runs.

	counters
}

// New watches memory from here on. [Binding.Start] begins to carry over.
func New(c Config) (*Binding, error) {
	b := &Binding{
		c: c, sem: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		ended: make(chan struct{}), released: make(chan struct{}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	n := len(c.Local)
	b.lo = shm.RoundUp(c.At) - c.At
	b.hi = (c.At+n)/shm.PageSize*shm.PageSize - c.At
	switch {
	case n <= small || b.lo >= b.hi:
		b.lo, b.hi, b.watchErr = n, n, errSmall
	case c.CompareOnly:
		b.watchErr = errAsked
	default:
		// Before the twin is made, so that no store falls between the two.
		if b.watch, b.watchErr = shm.NewWatch(c.Region, c.At+b.lo, b.hi-b.lo); b.watch != nil &&
			!singleProc && b.hi-b.lo >= minStretches*stretch {
			b.prescan = b.newPrescan(stretch)
		}
	}
	b.nextCold, b.sendAll = b.lo, c.All
	for _, f := range c.Flags {
		b.flags = append(b.flags, make([]uint32, (f.To-f.From)/shm.WordSize)...)
	}
	var err error
	if b.twin, err = shm.NewTwin(c.Local); err != nil {
		b.cancel()
		b.release()
		return nil, err
	}
	return b, nil
}

var (
	errSmall = errors.New("the memory is small: comparing it is quicker")
	errAsked = errors.New("asked for")
)

// Start begins to carry stores over.
func (b *Binding) Start() { go b.run() }

// Fail ends the binding, once. It does not wait, and plain stores go on.
func (b *Binding) Fail(err error) {
	b.failing.Do(func() {
		b.cause = err
		b.cancel()
		close(b.ended)
		b.c.OnPassed()
	})
}

// Ended is closed when the binding has ended.
func (b *Binding) Ended() <-chan struct{} { return b.ended }

// Gone is closed when, after that, nothing of it runs or is mapped any more.
func (b *Binding) Gone() <-chan struct{} { return b.released }

// Err returns why the binding has ended, or nil.
func (b *Binding) Err() error {
	select {
	case <-b.ended:
		return b.cause
	default:
		return nil
	}
}

func (b *Binding) release() {
	if b.watch != nil {
		b.watch.Close()
	}
	if b.twin != nil {
		b.twin.Retire()
	}
}

// lock acquires the binding's lock.
func (b *Binding) lock(ctx context.Context) error {
	select {
	case b.sem <- struct{}{}:
		return b.checkEnded()
	default:
	}
	b.waiters.Add(1)
	defer b.waiters.Add(-1)
	select {
	case b.sem <- struct{}{}:
		return b.checkEnded()
	case <-b.ended:
		return b.cause
	case <-ctx.Done():
		return timeout.Ended(ctx)
	}
}

// checkEnded releases the lock and returns the cause if the binding has ended.
func (b *Binding) checkEnded() error {
	err := b.Err()
	if err != nil {
		b.unlock()
	}
	return err
}

func (b *Binding) unlock() { <-b.sem }

// Request asks for a pass over all memory and returns its number. The pass is complete when
// [Binding.Passed] is not less. A pass that can be made here and now is. When the context ends in
// its middle, the scanner makes another one.
func (b *Binding) Request(ctx context.Context) (n uint64, err error) {
	if err := b.Err(); err != nil {
		return 0, err
	}
	n = b.requested.Add(1)
	if !b.c.Direct {
		b.wake()
		return n, nil
	}
	if err := b.lock(ctx); err != nil {
		return n, err
	}
	_, err = b.pass(ctx, true)
	b.unlock()
	if errors.Is(err, errInterrupted) {
		b.wake() // the scanner finishes it
		return n, timeout.Ended(ctx)
	}
	if err != nil {
		b.Fail(err)
	}
	return n, err
}

// Passed returns the last request whose changes are all put.
func (b *Binding) Passed() uint64 { return b.passed.Load() }

func (b *Binding) wake() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// Store stores v at off here and, by send, at once in the remote memory. If nothing was sent, which
// maybe reports of an error, the word is carried over like any other.
func (b *Binding) Store(
	ctx context.Context, off int, v uint32, send func([]byte) error, maybe func(error) bool,
) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	was := b.twin.At(off)
	b.twin.Local(off).Store(v)
	b.twin.Set(off, v) // otherwise it would be sent again, over what the remote side makes of it
	err := send(b.twin.Copied(off, off+shm.WordSize))
	if err != nil && !maybe(err) {
		b.twin.Set(off, was) // the kernel has recorded the store, and no pass has looked since
	}
	return err
}

// counters only ever grow.
type counters struct {
	messages, words, passes, scans atomic.Uint64
}

// Stats is what a binding has done so far.
type Stats struct {
	Messages, Words, Passes, Scans uint64
	Watched                        bool  // the kernel tells which pages were stored to
	Why                            error // why it does not
}

// Stats may be called at any time.
func (b *Binding) Stats() Stats {
	return Stats{
		Messages: b.messages.Load(), Words: b.words.Load(), Passes: b.passes.Load(), Scans: b.scans.Load(),
		Watched: b.watch != nil, Why: b.watchErr,
	}
}
