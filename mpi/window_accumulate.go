package mpi

import (
	"context"
	"slices"
)

// Accumulate combines values with those of a rank's memory from place at on (MPI_Accumulate,
// chapter One-Sided Communications). It is atomic for each value: accumulates, fetches and
// compare-and-swaps of all ranks on one value take place one after another, whichever operations
// they have. Those of one rank to another take place in the order of their calls, unless the window has the
// hint accumulate_ordering "none" ([Win.SetInfo]). Put and Get are
// not atomic.
//
// An operation is called as op(src, memory) for one value or more, and may be called several times.
// Errors as Put, and [ErrOp].
//
// Experimental: it may change in any release.
func (w *Win[T]) Accumulate(ctx context.Context, src []T, target, at int, op Op[T]) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Accumulate"
	return w.accumulate(ctx, call, src, nil, target, at, op)
}

// GetAccumulate is Accumulate that also gives what was there before in result (MPI_Get_accumulate,
// chapter One-Sided Communications). [ErrCount]: src and result have different lengths.
//
// Experimental: it may change in any release.
func (w *Win[T]) GetAccumulate(ctx context.Context, src, result []T, target, at int, op Op[T]) (err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Get_accumulate"
	if len(src) != len(result) {
		return fail(call, "result", ErrCount, "it has %d values, and src %d", len(result), len(src))
	}
	return w.accumulate(ctx, call, src, result, target, at, op)
}

// FetchAndOp combines one value, and returns what was there before (MPI_Fetch_and_op, chapter
// One-Sided Communications). See [Win.Accumulate].
//
// Experimental: it may change in any release.
func (w *Win[T]) FetchAndOp(ctx context.Context, v T, target, at int, op Op[T]) (_ T, err error) {
	defer func() { err = w.raise(err) }()
	was := make([]T, 1)
	err = w.accumulate(ctx, "MPI_Fetch_and_op", []T{v}, was, target, at, op)
	return was[0], err
}

// CompareAndSwap stores v if the memory holds old, bit by bit, and returns what was there before
// (MPI_Compare_and_swap, chapter One-Sided Communications). See [Win.Accumulate].
//
// Experimental: it may change in any release.
func (w *Win[T]) CompareAndSwap(ctx context.Context, old, v T, target, at int) (_ T, err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Compare_and_swap"
	was := make([]T, 1)
	f, err := w.target(call, ctx, target, at, 1)
	if f == nil {
		return was[0], err
	}
	from, _ := bytesOf(call, []T{old})
	to, _ := bytesOf(call, []T{v})
	got, _ := bytesOf(call, was)
	end, err := w.turn(ctx, call, f)
	if err != nil {
		return was[0], err
	}
	defer end()
	if w.words {
		prev, err := f.data.compareAndSwap(ctx, w.size, at*w.size, word(from), word(to))
		putWord(got, prev)
		return was[0], wrapMemory(call, err)
	}
	err = w.update(ctx, call, f, func(ctx context.Context) error {
		if err := f.data.get(ctx, got, at*w.size); err != nil || !slices.Equal(got, from) {
			return err
		}
		return f.data.put(ctx, to, at*w.size)
	})
	return was[0], err
}

// Raccumulate is Accumulate with a request, which is over when src may be used again
// (MPI_Raccumulate, chapter One-Sided Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) Raccumulate(src []T, target, at int, op Op[T]) (_ *Request, err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Raccumulate"
	return w.raccumulate(call, src, nil, target, at, op)
}

// RgetAccumulate is GetAccumulate with a request, which is over when result is there
// (MPI_Rget_accumulate, chapter One-Sided Communications).
//
// Experimental: it may change in any release.
func (w *Win[T]) RgetAccumulate(src, result []T, target, at int, op Op[T]) (_ *Request, err error) {
	defer func() { err = w.raise(err) }()
	const call = "MPI_Rget_accumulate"
	if len(src) != len(result) {
		return nil, fail(call, "result", ErrCount, "it has %d values, and src %d", len(result), len(src))
	}
	return w.raccumulate(call, src, result, target, at, op)
}

func (w *Win[T]) raccumulate(call string, src, result []T, target, at int, op Op[T]) (*Request, error) {
	f, err := w.accumulated(context.Background(), call, src, target, at, op)
	if err != nil {
		return nil, err
	}
	return w.request(f, call, !w.unordered.Load(), func(ctx context.Context) error {
		return w.combine(ctx, call, f, src, result, at, op)
	}), nil
}

// turn begins an accumulate, after those that were begun before unless they have no order.
func (w *Win[T]) turn(ctx context.Context, call string, f *far) (func(), error) {
	if w.unordered.Load() {
		_, end := f.begin(false)
		return end, nil
	}
	return f.turn(ctx, call)
}

// accumulated checks the arguments of an accumulate.
func (w *Win[T]) accumulated(ctx context.Context, call string, src []T, target, at int, op Op[T]) (*far, error) {
	f, err := w.target(call, ctx, target, at, len(src))
	if err == nil && op.f == nil {
		err = fail(call, "op", ErrOp, "it is the zero Op")
	}
	return f, err
}

func (w *Win[T]) accumulate(ctx context.Context, call string, src, result []T, target, at int, op Op[T]) error {
	f, err := w.accumulated(ctx, call, src, target, at, op)
	if err != nil || f == nil {
		return err
	}
	end, err := w.turn(ctx, call, f)
	if err != nil {
		return err
	}
	defer end()
	return w.combine(ctx, call, f, src, result, at, op)
}

// combine does an accumulate. Which of the two ways it takes depends on T alone, so all accumulates
// of a window take the same way, and are atomic for each other.
func (w *Win[T]) combine(ctx context.Context, call string, f *far, src, result []T, at int, op Op[T]) error {
	if !w.words {
		return w.update(ctx, call, f, func(ctx context.Context) error {
			now := make([]T, len(src))
			b, err := bytesOf(call, now)
			if err != nil {
				return err
			}
			if err := f.data.get(ctx, b, at*w.size); err != nil {
				return err
			}
			copy(result, now)
			if op.kind == opNone {
				return nil
			}
			op.f(src, now)
			return f.data.put(ctx, b, at*w.size)
		})
	}
	one := make([]T, 1)
	b, err := bytesOf(call, one)
	if err != nil {
		return err
	}
	for i := range src {
		was, err := w.combineWord(ctx, f.data, (at+i)*w.size, src[i:i+1], one, b, op)
		if err != nil {
			return wrapMemory(call, err)
		}
		if result != nil {
			putWord(b, was)
			result[i] = one[0]
		}
	}
	return nil
}

// combineWord does an accumulate of one word. one is room for a value, whose memory is b.
func (w *Win[T]) combineWord(
	ctx context.Context, m memory, off int, src, one []T, b []byte, op Op[T],
) (was uint64, err error) {
	copy(one, src)
	switch {
	case op.kind == opNone:
		return m.add(ctx, w.size, off, 0)
	case op.kind == opReplace:
		return m.swap(ctx, w.size, off, word(b))
	case op.kind == opSum && w.integer:
		return m.add(ctx, w.size, off, word(b))
	}
	now, err := m.add(ctx, w.size, off, 0)
	for err == nil {
		putWord(b, now)
		op.f(src, one)
		if was, err = m.compareAndSwap(ctx, w.size, off, now, word(b)); was == now {
			break
		}
		now = was
	}
	return now, err
}

// update runs change while this rank holds the lock of accumulates of a rank's window. A call whose
// outcome nobody knows would leave the lock held, or change the memory after another rank has the lock.
// So once the lock is being taken nothing ends with the context. The lock is given back also if an
// operation of the program panics.
func (w *Win[T]) update(
	ctx context.Context, call string, f *far, change func(ctx context.Context) error,
) (err error) {
	if err := f.updates.take(ctx, call, LockExclusive); err != nil {
		return err
	}
	defer func() {
		if free := f.updates.give(call, LockExclusive); err == nil {
			err = free
		}
	}()
	return wrapMemory(call, change(context.WithoutCancel(ctx)))
}
