package mpi

import (
	"context"
	"errors"
	"slices"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// Tags of the messages that open and close the epochs of Start and Post, and of those that wake ranks which
// wait for a lock. The window's communicator has no other messages.
const (
	tagPost = iota
	tagComplete
	tagLocks // and on: two of each rank's window, for those that wait for its locks
)

// settle returns when all that this rank has done in the window is in place.
func (w *Win[T]) settle(ctx context.Context, call string) error {
	var errs []error
	for _, f := range w.ranks { // also behind one that is gone: memory may be given back next
		err := f.settle(ctx, call)
		if errors.Is(err, ErrCanceled) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Fence ends an epoch of all ranks, and begins the next one (MPI_Win_fence, chapter One-Sided
// Communications). It is a collective. When it returns all that any rank has put is in place.
//
// Experimental: it may change in any release.
func (w *Win[T]) Fence(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_fence"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	if err := w.settle(ctx, call); err != nil {
		return err
	}
	if err := barrierPlan(w.c, call).do(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced = true
	return nil
}

// Post lets the ranks of a group use this rank's memory until Wait (MPI_Win_post, chapter One-Sided
// Communications). It does not wait for them. Errors: [ErrGroup]; [ErrRMASync] if Post was called
// without Wait before; [ErrProcFailed]: the epoch is open for the other ranks, and Wait ends it.
//
// Experimental: it may change in any release.
func (w *Win[T]) Post(ctx context.Context, g Group) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_post"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	ranks, err := w.c.members(call, g)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.posted != nil {
		return fail(call, "win", ErrRMASync, "an epoch of Post is open: call Wait first")
	}
	w.posted = []*engineWait{}
	var errs []error
	for _, rank := range ranks {
		q, err := w.hear(call, rank, tagComplete)
		if err == nil {
			w.posted = append(w.posted, &engineWait{q, rank})
			err = w.tell(call, rank, tagPost)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// tell sends an empty message. It needs no credit, and waits for nothing but room in the ring.
func (w *Win[T]) tell(call string, rank, tag int) error {
	t, _, err := w.c.target(call, context.Background(), rank, tag)
	if err != nil {
		return err
	}
	_, err = w.c.j.e.Isend(&t, nil, engine.Standard)
	return wrap(call, err)
}

// hear begins to receive an empty message. The call that waits for it has the handler called.
func (w *Win[T]) hear(call string, rank, tag int) (*Request, error) {
	s, _, err := w.c.source(call, context.Background(), rank, tag)
	if err != nil {
		return nil, err
	}
	r, err := w.c.j.e.Irecv(&s, nil)
	if err != nil {
		return nil, wrap(call, err)
	}
	return &Request{r, call, nil}, nil
}

// Wait waits until all ranks of Post have called Complete (MPI_Win_wait, chapter One-Sided
// Communications). What they have put is in place then. After an error of the context call it
// again. If one of them is gone the epoch is over, with [ErrProcFailed].
//
// Experimental: it may change in any release.
func (w *Win[T]) Wait(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_wait"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	w.mu.Lock()
	posted := w.posted
	w.mu.Unlock()
	if posted == nil {
		return fail(call, "win", ErrRMASync, "no epoch of Post is open")
	}
	var first error
	for _, p := range posted {
		_, err := p.q.Wait(ctx)
		if errors.Is(err, ErrPending) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posted = nil
	return first
}

// Test is Wait that does not wait: over is false if a rank has not called Complete (MPI_Win_test,
// chapter One-Sided Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) Test() (over bool, err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_test"
	if err := w.live(call, context.Background()); err != nil {
		return false, err
	}
	w.mu.Lock()
	posted := w.posted
	w.mu.Unlock()
	if posted == nil {
		return false, fail(call, "win", ErrRMASync, "no epoch of Post is open")
	}
	for _, p := range posted {
		if !p.q.r.Done() {
			return false, nil
		}
	}
	return true, w.Wait(context.Background())
}

// Start waits until all ranks of a group have called Post, and lets this rank use their memory
// until Complete (MPI_Win_start, chapter One-Sided Communications). Errors: [ErrGroup];
// [ErrRMASync] if Start was called without Complete before; [ErrProcFailed]. After an error, also of the
// context, it may be called again: a Post that was seen already counts for it.
//
// Experimental: it may change in any release.
func (w *Win[T]) Start(ctx context.Context, g Group) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_start"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	ranks, err := w.c.members(call, g)
	if err != nil {
		return err
	}
	w.mu.Lock()
	open := w.started != nil
	w.mu.Unlock()
	if open {
		return fail(call, "win", ErrRMASync, "an epoch of Start is open: call Complete first")
	}
	for _, rank := range ranks {
		w.mu.Lock()
		seen := w.seen[rank]
		w.mu.Unlock()
		if seen {
			continue
		}
		s, _, err := w.c.source(call, ctx, rank, tagPost)
		if err != nil {
			return err
		}
		if _, err := w.c.j.e.Recv(ctx, &s, nil); err != nil {
			return wrap(call, err)
		}
		w.mu.Lock()
		w.seen[rank] = true
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rank := range ranks {
		delete(w.seen, rank)
	}
	w.started = append([]int{}, ranks...)
	return nil
}

// Complete ends the epoch of Start: all that was put is in place, and the ranks are told
// (MPI_Win_complete, chapter One-Sided Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) Complete(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_complete"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	w.mu.Lock()
	ranks := slices.Clone(w.started)
	open := w.started != nil
	w.mu.Unlock()
	if !open {
		return fail(call, "win", ErrRMASync, "no epoch of Start is open")
	}
	var first error
	for _, rank := range ranks {
		err := w.ranks[rank].settle(ctx, call)
		if errors.Is(err, ErrCanceled) {
			return err // nothing was told to this rank, nor to those behind it
		}
		if err == nil {
			err = w.tell(call, rank, tagComplete)
		}
		if first == nil {
			first = err
		}
		w.mu.Lock()
		w.started = slices.DeleteFunc(w.started, func(r int) bool { return r == rank })
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = nil
	return first
}

// Lock begins an epoch for one rank's memory, without its help (MPI_Win_lock, chapter One-Sided
// Communications). It waits while other ranks hold a lock that does not go with this one, and behind those
// that wait for one: first come, first served.
//
// Errors: [ErrRank], [ErrLockType]; [ErrRMASync] if this rank has a lock there; [ErrProcFailed].
//
// Experimental: it may change in any release.
func (w *Win[T]) Lock(ctx context.Context, kind LockType, target int) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_lock"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	switch {
	case kind != LockShared && kind != LockExclusive:
		return fail(call, "lock_type", ErrLockType, "it is %d, want LockShared or LockExclusive", kind)
	case target < 0 || target >= len(w.ranks):
		return w.c.badRank(call, "target", target)
	}
	w.mu.Lock()
	held, none := w.all != allClosed || w.locked[target] != 0, w.noLocks
	if !held && !none {
		w.locked[target] = -1 // it is being taken
	}
	w.mu.Unlock()
	if none {
		return w.noLock(call)
	}
	if held {
		return fail(call, "win", ErrRMASync, "this rank has locked rank %d already: call Unlock first", target)
	}
	err = w.ranks[target].epoch.take(ctx, call, kind)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		delete(w.locked, target)
		return err
	}
	w.locked[target] = kind
	return nil
}

func (w *Win[T]) noLock(call string) error {
	return fail(call, "win", ErrRMASync, "%s has the hint no_locks: set it to false by SetInfo", w.Name())
}

// Unlock ends the epoch of Lock: all that was put is in place (MPI_Win_unlock, chapter One-Sided
// Communications). After an error of the context call it again.
//
// Experimental: it may change in any release.
func (w *Win[T]) Unlock(ctx context.Context, target int) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_unlock"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	w.mu.Lock()
	kind := w.locked[target]
	w.mu.Unlock()
	if kind <= 0 {
		return fail(call, "target", ErrRMASync, "this rank has not locked rank %d", target)
	}
	err = w.ranks[target].settle(ctx, call)
	if errors.Is(err, ErrCanceled) {
		return err
	}
	w.mu.Lock()
	delete(w.locked, target)
	w.mu.Unlock()
	return errors.Join(err, w.ranks[target].epoch.give(call, kind))
}

// allState is that of the epoch of LockAll.
type allState int

const (
	allClosed allState = iota
	allTaken           // its locks are being taken: no call may use the epoch yet
	allOpen
)

// LockAll is Lock of all ranks that others share (MPI_Win_lock_all, chapter One-Sided
// Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) LockAll(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_lock_all"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	w.mu.Lock()
	held, none := w.all != allClosed || len(w.locked) > 0, w.noLocks
	if !held && !none {
		w.all = allTaken
	}
	w.mu.Unlock()
	if none {
		return w.noLock(call)
	}
	if held {
		return fail(call, "win", ErrRMASync, "this rank has a lock already: call Unlock or UnlockAll first")
	}
	for rank, f := range w.ranks {
		if err := f.epoch.take(ctx, call, LockShared); err != nil {
			for _, f := range w.ranks[:rank] {
				_ = f.epoch.give(call, LockShared) // the first error says why
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = allClosed
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = allOpen
	return nil
}

// UnlockAll ends the epoch of LockAll (MPI_Win_unlock_all, chapter One-Sided Communications). After
// an error of the context call it again.
//
// Experimental: it may change in any release.
func (w *Win[T]) UnlockAll(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_unlock_all"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	w.mu.Lock()
	held := w.all == allOpen
	w.mu.Unlock()
	if !held {
		return fail(call, "win", ErrRMASync, "no epoch of LockAll is open")
	}
	var errs []error
	for _, f := range w.ranks {
		err := f.settle(ctx, call)
		if errors.Is(err, ErrCanceled) {
			return err
		}
		errs = append(errs, err)
	}
	w.mu.Lock()
	w.all = allClosed
	w.mu.Unlock()
	for _, f := range w.ranks {
		errs = append(errs, f.epoch.give(call, LockShared))
	}
	return errors.Join(errs...)
}

// Flush returns when all that this rank has done in a rank's memory is in place (MPI_Win_flush,
// chapter One-Sided Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) Flush(ctx context.Context, target int) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_flush"
	f, err := w.target(call, ctx, target, 0, 0)
	if f == nil {
		return err
	}
	return f.settle(ctx, call)
}

// FlushAll is Flush of all ranks (MPI_Win_flush_all, chapter One-Sided Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) FlushAll(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_flush_all"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	return w.settle(ctx, call)
}

// FlushLocal returns when what this rank has begun in a rank's memory no longer uses buffers of the
// program (MPI_Win_flush_local, chapter One-Sided Communications). Only calls with requests use them
// after their return.
//
// Experimental: it may change in any release.
func (w *Win[T]) FlushLocal(ctx context.Context, target int) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_flush_local"
	f, err := w.target(call, ctx, target, 0, 0)
	if f == nil {
		return err
	}
	return f.drain(ctx, call)
}

// FlushLocalAll is FlushLocal of all ranks (MPI_Win_flush_local_all, chapter One-Sided
// Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) FlushLocalAll(ctx context.Context) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Win_flush_local_all"
	if err := w.live(call, ctx); err != nil {
		return err
	}
	for _, f := range w.ranks {
		if err := f.drain(ctx, call); err != nil {
			return err
		}
	}
	return nil
}
