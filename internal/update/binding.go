package update

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Remote is where a binding's words go. Offsets count from the binding's beginning.
type Remote interface {
	// Put brings a run of words to its place. It may wait; words may change when it
	// has returned.
	Put(ctx context.Context, off int, words []byte) error
	// Publish brings a flag to its place, after all that was put before, by one
	// atomic store.
	Publish(ctx context.Context, off int, flag []byte) error
	// Done follows a pass that has put or published something. What was put is
	// visible then, or on its way.
	Done() error
}

// Span is a range of bytes, whole words.
type Span struct{ From, To int }

// Config is what a binding is made of.
type Config struct {
	Local       []byte      // word-aligned
	Region      *shm.Region // that Near lies in
	At          int         // and where
	Flags       []Span      // sorted, without overlap
	CompareOnly bool        // do without the kernel
	All         bool        // send what is there at the beginning
	Remote      Remote
	Direct      bool   // Far never waits
	Duty        *Duty  // of all bindings of the process
	OnPassed    func() // called when Passed has moved, and at the end; it does not wait
}

// small is up to where comparing beats asking the kernel.
const small = 32 << 10

// Binding carries the stores to one piece of memory over.
type Binding struct {
	c        Config
	twin     *shm.Twin
	watch    *shm.Watch // nil: comparing alone
	watchErr error      // why it is nil
	lo       int        // the cold pages are in [lo, hi)
	hi       int

	sem      chan struct{} // who has put something in may pass
	waiters  atomic.Int32  // somebody else than the scanner waits for it
	hot      hotPages      // these with the turn
	nextCold int           // where the next look at cold pages begins
	prescan  *prescan      // nil: a full pass looks at one slice after another
	runs     [128]shm.PageRun

	lastProtect int64 // when a sweep last protected what it found
	protecting  bool  // and whether this one does
	heating     bool  // what is sent makes its page hot

	flags   []uint32 // the flags as they were loaded
	sent    bool     // this pass has put something
	sendAll bool     // the contents are to be sent

	requested atomic.Uint64 // full passes that were asked for
	passed    atomic.Uint64 // and that are over
	kick      chan struct{} // ends the scanner's nap
	ctx       context.Context
	cancel    context.CancelFunc
	failing   sync.Once
	cause     error         // why it has ended; set before ended is closed
	ended     chan struct{} // nothing more is carried over
	released  chan struct{} // and nothing of it runs any more

	counters
}

// New watches memory from here on; [Binding.Start] begins to carry over.
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
		if b.watch, b.watchErr = shm.NewWatch(c.Region, c.At+b.lo, b.hi-b.lo); b.watch != nil && !singleProc && b.hi-b.lo >= minStretches*stretch {
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

// Fail ends the binding, once. It waits for nobody, and plain stores go on.
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

// Err is why it has ended, or nil.
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

// lock gets the turn.
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
		return context.Cause(ctx)
	}
}

// checkEnded gives the turn back if there is nothing more to do with it.
func (b *Binding) checkEnded() error {
	err := b.Err()
	if err != nil {
		b.unlock()
	}
	return err
}

func (b *Binding) unlock() { <-b.sem }

// Request asks for a pass over all memory and gives its number; it is over when
// [Binding.Passed] is not less. A pass that can be made here and now is; when the
// context ends in its middle, the scanner makes another one.
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
		return n, context.Cause(ctx)
	}
	if err != nil {
		b.Fail(err)
	}
	return n, err
}

// Passed is up to which request all is put.
func (b *Binding) Passed() uint64 { return b.passed.Load() }

func (b *Binding) wake() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// Store stores v at off here and, by send, there at once. If nothing was sent,
// which maybe says of an error, the word is carried over as any other.
func (b *Binding) Store(ctx context.Context, off int, v uint32, send func([]byte) error, maybe func(error) bool) error {
	if err := b.lock(ctx); err != nil {
		return err
	}
	defer b.unlock()
	was := b.twin.At(off)
	b.twin.Local(off).Store(v)
	b.twin.Set(off, v) // or it would be sent once more, over what the far side makes of it
	err := send(b.twin.Copied(off, off+shm.WordSize))
	if err != nil && !maybe(err) {
		b.twin.Set(off, was) // the store is noted, and nobody has looked since
	}
	return err
}
