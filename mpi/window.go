package mpi

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	engine "github.com/vmmc-go/vmmc/internal/mpi"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Win is a window: memory of each rank of a communicator that the others read and write without its
// help (MPI_Win, chapter One-Sided Communications). Values have type T, and places are numbers of
// values. All ranks give the same T.
//
// A call that reads or writes needs an epoch: one of Fence, of Start, of Lock or of LockAll. What
// it does is in place when the epoch has ended, or after a flush. Calls may be made from any
// goroutine.
//
// When a rank has ended, calls that name it fail with [ErrProcFailed]. So do Fence, and calls that wait
// for a lock which it had. A call whose context ends fails
// with [ErrCanceled], and is over; that of Wait fails with [ErrPending], as the epoch goes on.
//
// Experimental: it may change in any release.
type Win[T any] struct {
	c       *Comm // of the window's own messages
	own     []T
	ranks   []*far
	close   []func() error // of this rank's memory
	size    int            // bytes of a value
	words   bool           // reports whether values are words that remote atomics change
	integer bool

	info hintSet
	// unordered reports whether accumulates of this rank have no order.
	unordered atomic.Bool

	mu      sync.Mutex
	freed   bool
	fenced  bool
	started []int // targets of the epoch of Start
	// Ranks whose Post a Start has taken that failed at another one.
	seen   map[int]bool
	posted []*engineWait
	locked map[int]LockType
	all    allState
	// noLocks reports whether the window has the hint no_locks.
	noLocks bool
}

// engineWait is the receive of an origin's Complete.
type engineWait struct {
	q    *Request
	rank int
}

// LockType is how a window is locked.
//
// Experimental: it may change in any release.
type LockType int

// The types of locks.
//
// Experimental: they may change in any release.
const (
	LockShared    LockType = iota + 1 // MPI_LOCK_SHARED: with others that share it
	LockExclusive                     // MPI_LOCK_EXCLUSIVE: alone
)

// WinAllocate makes a window of n values at this rank (MPI_Win_allocate, chapter One-Sided
// Communications). It is a collective. Ranks may give different n. Ranks of one node map the
// memory.
//
// Errors: [ErrArg] if n is negative; [ErrType]; [ErrOther], at all ranks, if one has no memory.
//
// Experimental: it may change in any release.
func WinAllocate[T any](ctx context.Context, c *Comm, n int) (*Win[T], error) {
	return newWin[T](ctx, c, "MPI_Win_allocate", nil, n)
}

// WinCreate makes a window of memory of the program's (MPI_Win_create, chapter One-Sided
// Communications). It is a collective. The memory stays in place until Free. Other ranks reach it
// through connections, also on one node: memory of WinAllocate is faster.
//
// Errors: those of WinAllocate; [ErrArg], at all ranks, if the memory is no whole number of words
// of 4 bytes.
//
// Experimental: it may change in any release.
func WinCreate[T any](ctx context.Context, c *Comm, mem []T) (*Win[T], error) {
	return newWin(ctx, c, "MPI_Win_create", mem, len(mem))
}

// winOffer is what ranks tell each other about a window.
type winOffer struct{ data, control, values, failed int64 }

// importsAtOnce bounds how many windows are imported at a time.
const importsAtOnce = 16

func newWin[T any](ctx context.Context, c *Comm, call string, mem []T, n int) (*Win[T], error) {
	return makeWin(ctx, c, call, mem, n, false)
}

// makeWin makes a window. If it is shared its memory is rank 0's.
func makeWin[T any](ctx context.Context, c *Comm, call string, mem []T, n int, shared bool) (_ *Win[T], err error) {
	defer func() { err = c.raise(err) }()
	size, err := sizeOf[T](call)
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case err != nil:
		return nil, err
	case n < 0:
		return nil, fail(call, "n", ErrArg, "it is %d, want 0 or more", n)
	}
	if err := c.intra(call); err != nil {
		return nil, err
	}
	t := reflect.TypeFor[T]()
	w := &Win[T]{size: size, locked: map[int]LockType{}, seen: map[int]bool{}}
	w.words = (size == 4 || size == 8) && t.Align() == size
	w.integer = t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr
	if w.c, err = c.dup(ctx, call); err != nil {
		return nil, err
	}
	w.c.SetName(c.Name() + " window")
	var each []int64
	if shared {
		if err := c.canShare(call); err != nil {
			return nil, err
		}
		all := 0
		if each, all, err = w.c.shares(ctx, call, n); err != nil {
			return nil, err
		}
		if n = 0; c.rank == 0 {
			n = all
		}
	}
	data, control, o, bad := w.expose(call, mem, n)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.release())
		}
	}()
	offers := make([]winOffer, len(c.ranks))
	if err := allgatherPlan(w.c, call, []winOffer{o}, offers).do(ctx); err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, bad
	}
	if i := slices.IndexFunc(offers, func(o winOffer) bool { return o.failed != 0 }); i >= 0 {
		return nil, fail(call, "", ErrOther, "rank %d cannot make its part: its error says why", i)
	}
	bad = w.reach(ctx, call, offers, data, control)
	if shared && bad == nil {
		bad = w.share(call, each)
	}
	failed := []int64{0}
	if bad != nil {
		failed[0] = 1
	}
	sum := []int64{0}
	if err := allreducePlan(w.c, call, failed, sum, Sum[int64]()).do(ctx); err != nil {
		return nil, err
	}
	switch {
	case bad != nil:
		return nil, bad
	case sum[0] > 0:
		return nil, fail(call, "", ErrOther, "%d ranks do not reach a part: their errors say why", sum[0])
	}
	return w, nil
}

// expose makes this rank's memory and control block, and exports them.
func (w *Win[T]) expose(call string, mem []T, n int) (data, control ownMemory, o winOffer, err error) {
	o = winOffer{values: int64(n), failed: 1}
	p, bytes := w.c.j.e.Process(), (n*w.size+7)/8*8
	if p == nil { // one rank
		if mem == nil {
			mem = make([]T, n)
		}
		w.own = mem
		data, err = bytesOf(call, mem)
		c, _ := bytesOf(call, make([]uint64, controlSize(1)/8))
		o.failed = 0
		return data, c, o, err
	}
	var opts []vmmc.ExportOption
	if w.c.j.unmapped {
		opts = append(opts, vmmc.Unmapped())
	}
	lock, err := pair.NewBuffer(p, controlSize(len(w.c.ranks)), nil, opts...)
	if err != nil {
		return nil, nil, o, wrapMemory(call, err)
	}
	w.close = append(w.close, lock.Close)
	control, o.control = lock.Bytes(), int64(lock.ID())
	switch {
	case n == 0:
	case mem == nil:
		b, err := pair.NewBuffer(p, bytes, nil, opts...)
		if err != nil {
			return nil, nil, o, wrapMemory(call, err)
		}
		w.close = append(w.close, b.Close)
		data, o.data = b.Bytes()[:n*w.size], int64(b.ID())
		v, err := valuesOf[T](call, data)
		if err != nil {
			return nil, nil, o, err
		}
		w.own = v
	default:
		w.own = mem
		b, err := bytesOf(call, mem)
		if err != nil {
			return nil, nil, o, err
		}
		e, err := pair.Export(func(id uint32) (*vmmc.Export, error) { return p.Export(id, b, opts...) })
		if err != nil {
			return nil, nil, o, &Error{Call: call, Arg: "mem", Class: ErrArg, Err: err}
		}
		w.close = append(w.close, e.Close)
		data, o.data = b, int64(e.ID())
	}
	o.failed = 0
	return data, control, o, nil
}

// reach imports the windows of all other ranks.
func (w *Win[T]) reach(ctx context.Context, call string, offers []winOffer, data, control ownMemory) error {
	w.ranks = make([]*far, len(offers))
	errs := make([]error, len(offers))
	room := make(chan struct{}, importsAtOnce)
	var wg sync.WaitGroup
	for rank, o := range offers {
		f := &far{values: int(o.values), data: data, control: control}
		w.ranks[rank] = f
		if rank == w.c.rank {
			continue
		}
		f.data, f.control = ownMemory(nil), ownMemory(nil)
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			im, err := w.c.j.e.Import(ctx, w.c.ranks[rank], uint32(o.control))
			if err != nil {
				errs[rank] = wrapMemory(call, err)
				return
			}
			f.control = farMemory{im}
			if o.values == 0 {
				return
			}
			if im, err = w.c.j.e.Import(ctx, w.c.ranks[rank], uint32(o.data)); err != nil {
				errs[rank] = wrapMemory(call, err)
				return
			}
			f.data = farMemory{im}
		})
	}
	wg.Wait()
	for rank, f := range w.ranks {
		f.epoch = newMemoryLock(w.c, f.control, 0, tagLocks+2*rank)
		f.updates = newMemoryLock(w.c, f.control, lockSize(len(w.ranks)), tagLocks+2*rank+1)
	}
	return errors.Join(errs...)
}

// release gives back all that the window has at this rank.
func (w *Win[T]) release() error {
	var errs []error
	for _, f := range w.ranks {
		errs = append(errs, f.data.close(), f.control.close())
	}
	for _, c := range w.close {
		errs = append(errs, c())
	}
	w.ranks, w.close = nil, nil
	return errors.Join(errs...)
}

// Free ends the window (MPI_Win_free, chapter One-Sided Communications). It is a collective: no
// memory is given back before all ranks have called it. Memory of WinAllocate must not be used
// then. If a rank is gone the window ends at this rank, with [ErrProcFailed].
//
// Experimental: it may change in any release.
func (w *Win[T]) Free(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_free"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	err = w.settle(ctx, call)
	if err == nil {
		err = barrierPlan(w.c, call).do(ctx)
	}
	if errors.Is(err, ErrPending) || errors.Is(err, ErrCanceled) {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.freed {
		return fail(call, "win", ErrWin, "it is freed already")
	}
	w.freed = true
	w.c.drainWakes()
	return errors.Join(err, wrapMemory(call, w.release()))
}

// Values is this rank's memory (MPI_Win_get_attr of MPI_WIN_BASE). Others write there during
// epochs.
//
// Experimental: it may change in any release.
func (w *Win[T]) Values() []T { return w.own }

// Name is the window's name, which its errors have too (MPI_Win_get_name). It is the communicator's
// name and "window" unless SetName has given another one.
//
// Experimental: it may change in any release.
func (w *Win[T]) Name() string { return w.c.Name() }

// SetName gives the window a name (MPI_Win_set_name). Other ranks do not learn of it.
//
// Experimental: it may change in any release.
func (w *Win[T]) SetName(name string) { w.c.SetName(name) }

// Group is the group of the window's ranks (MPI_Win_get_group).
//
// Experimental: it may change in any release.
func (w *Win[T]) Group() Group { return w.c.Group() }

// live checks that a window is there.
func (w *Win[T]) live(call string, ctx context.Context) error {
	switch {
	case w == nil:
		return fail(call, "win", ErrWin, "it is nil")
	case ctx == nil:
		return fail(call, "ctx", ErrArg, "the context is nil")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.freed {
		return fail(call, "win", ErrWin, "it is freed")
	}
	return nil
}

// target checks where n values from at on go. It is nil for ProcNull.
func (w *Win[T]) target(call string, ctx context.Context, target, at, n int) (*far, error) {
	if err := w.live(call, ctx); err != nil {
		return nil, err
	}
	switch {
	case target == ProcNull:
		return nil, nil //nolint:nilnil // MPI_PROC_NULL
	case target < 0 || target >= len(w.ranks):
		return nil, w.c.badRank(call, "target", target)
	}
	w.mu.Lock()
	open := w.fenced || w.all == allOpen || w.locked[target] > 0 || slices.Contains(w.started, target)
	w.mu.Unlock()
	f := w.ranks[target]
	switch {
	case !open:
		return nil, fail(call, "win", ErrRMASync, "no epoch is open for rank %d: call Fence, Start, Lock or LockAll first", target)
	case at < 0 || n > f.values || at > f.values-n:
		return nil, fail(call, "at", ErrRMARange, "%d values from %d on, and rank %d has %d", n, at, target, f.values)
	}
	return f, nil
}

// Put writes values to a rank's memory from place at on (MPI_Put, chapter One-Sided
// Communications). It returns when src may be used again. Puts of several ranks to one place in one
// epoch leave any of the values, or parts of them.
//
// Errors: [ErrRank], [ErrRMASync], [ErrRMARange], [ErrWin], before anything is written;
// [ErrProcFailed].
//
// Experimental: it may change in any release.
func (w *Win[T]) Put(ctx context.Context, src []T, target, at int) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Put"
	f, err := w.target(call, ctx, target, at, len(src))
	if f == nil {
		return err
	}
	b, err := bytesOf(call, src)
	if err != nil {
		return err
	}
	return wrapMemory(call, f.data.put(ctx, b, at*w.size))
}

// Get reads values of a rank's memory from place at on (MPI_Get, chapter One-Sided Communications).
// It returns when they are in dst. Errors as Put.
//
// Experimental: it may change in any release.
func (w *Win[T]) Get(ctx context.Context, dst []T, target, at int) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Get"
	f, err := w.target(call, ctx, target, at, len(dst))
	if f == nil {
		return err
	}
	b, err := bytesOf(call, dst)
	if err != nil {
		return err
	}
	return wrapMemory(call, f.data.get(ctx, b, at*w.size))
}

// request runs a call on a goroutine of its own. Ordered ones take place in the order of their
// begin.
func (w *Win[T]) request(f *far, call string, ordered bool, do func(ctx context.Context) error) *Request {
	if f == nil {
		return &Request{nil, call, w.c}
	}
	before, end := f.begin(ordered)
	q := w.c.j.e.NewGeneral()
	go func() {
		if before != nil {
			<-before
		}
		err := do(context.Background())
		end()
		q.EndGeneral(asEngine(err))
	}()
	return &Request{q, call, w.c}
}

// asEngine is an error that Request.Wait names the call of.
func asEngine(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return &engine.Error{Class: engine.Class(e.Class), Arg: e.Arg, Err: e.Err}
	}
	return err
}

// Rput is Put with a request, which is over when src may be used again (MPI_Rput, chapter One-Sided
// Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) Rput(src []T, target, at int) (_ *Request, err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Rput"
	f, err := w.target(call, context.Background(), target, at, len(src))
	if err != nil {
		return nil, err
	}
	b, err := bytesOf(call, src)
	if err != nil {
		return nil, err
	}
	return w.request(f, call, false, func(ctx context.Context) error {
		return wrapMemory(call, f.data.put(ctx, b, at*w.size))
	}), nil
}

// Rget is Get with a request, which is over when the values are in dst (MPI_Rget, chapter One-Sided
// Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) Rget(dst []T, target, at int) (_ *Request, err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Rget"
	f, err := w.target(call, context.Background(), target, at, len(dst))
	if err != nil {
		return nil, err
	}
	b, err := bytesOf(call, dst)
	if err != nil {
		return nil, err
	}
	return w.request(f, call, false, func(ctx context.Context) error {
		return wrapMemory(call, f.data.get(ctx, b, at*w.size))
	}), nil
}
