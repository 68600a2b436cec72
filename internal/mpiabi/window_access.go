package mpiabi

import (
	"bytes"
	"errors"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "One-Sided Communications": epochs, and calls that read and write.

func init() {
	// Assertions permit the library to leave something out. It does all.
	register("MPI_Win_fence", winCall(1, func(_ *Env, a *arguments, w *window) error { return w.w.Fence(a.ctx) }))
	register("MPI_Win_post", winCall(2, func(e *Env, a *arguments, w *window) error {
		g, err := e.group(a, 0)
		if err != nil {
			return err
		}
		return w.w.Post(a.ctx, g)
	}))
	register("MPI_Win_start", winCall(2, func(e *Env, a *arguments, w *window) error {
		g, err := e.group(a, 0)
		if err != nil {
			return err
		}
		return w.w.Start(a.ctx, g)
	}))
	register("MPI_Win_complete", winCall(0, func(_ *Env, a *arguments, w *window) error { return w.w.Complete(a.ctx) }))
	register("MPI_Win_wait", winCall(0, func(_ *Env, a *arguments, w *window) error { return w.w.Wait(a.ctx) }))
	register("MPI_Win_test", winCall(0, func(_ *Env, a *arguments, w *window) error {
		// An address that is wrong must not end the epoch.
		if err := a.setFlag(1, false); err != nil {
			return err
		}
		over, err := w.w.Test()
		if err != nil {
			return err
		}
		return a.setFlag(1, over)
	}))
	register("MPI_Win_lock", winCall(3, func(e *Env, a *arguments, w *window) error {
		kind := mpi.LockExclusive
		switch a.Int(0) {
		case lockExclusive:
		case lockShared:
			kind = mpi.LockShared
		default:
			return fail(a.name(0), errLockType, "it is %d, want MPI_LOCK_EXCLUSIVE or MPI_LOCK_SHARED", a.Int(0))
		}
		if a.Int(1) == procNull {
			return nil
		}
		return w.w.Lock(a.ctx, kind, a.Int(1))
	}))
	register("MPI_Win_unlock", winCall(1, func(e *Env, a *arguments, w *window) error {
		if a.Int(0) == procNull {
			return nil
		}
		return w.w.Unlock(a.ctx, a.Int(0))
	}))
	register("MPI_Win_lock_all", winCall(1, func(_ *Env, a *arguments, w *window) error { return w.w.LockAll(a.ctx) }))
	register("MPI_Win_unlock_all", winCall(0, func(_ *Env, a *arguments, w *window) error { return w.w.UnlockAll(a.ctx) }))
	register("MPI_Win_flush", winCall(1, func(e *Env, a *arguments, w *window) error { return w.w.Flush(a.ctx, a.Int(0)) }))
	register("MPI_Win_flush_all", winCall(0, func(_ *Env, a *arguments, w *window) error { return w.w.FlushAll(a.ctx) }))
	register("MPI_Win_flush_local", winCall(1, func(e *Env, a *arguments, w *window) error { return w.w.FlushLocal(a.ctx, a.Int(0)) }))
	register("MPI_Win_flush_local_all", winCall(0, func(_ *Env, a *arguments, w *window) error { return w.w.FlushLocalAll(a.ctx) }))
	// Memory is the same for this rank and for others. The call itself orders accesses.
	register("MPI_Win_sync", winCall(0, func(*Env, *arguments, *window) error { return nil }))

	register("MPI_Put", winCall(7, func(e *Env, a *arguments, w *window) error { return e.put(a, w, -1) }))
	register("MPI_Rput", winCall(7, func(e *Env, a *arguments, w *window) error { return e.put(a, w, 8) }))
	register("MPI_Get", winCall(7, func(e *Env, a *arguments, w *window) error { return e.get(a, w, -1) }))
	register("MPI_Rget", winCall(7, func(e *Env, a *arguments, w *window) error { return e.get(a, w, 8) }))
	register("MPI_Compare_and_swap", winCall(6, compareAndSwap))
}

// winCall is a call whose argument i is a window.
func winCall(i int, f func(e *Env, a *arguments, w *window) error) call {
	return func(e *Env, a *arguments) error {
		w, err := e.win(a, i)
		if err != nil {
			return err
		}
		return f(e, a, w)
	}
}

// run is bytes of a datatype that follow one another.
type run struct{ at, n int }

// runs are those of n items, from the first byte of the first one on, in the order in which they are packed.
func (d *datatype) runs(n int) ([]run, error) {
	if n == 0 || d.size == 0 {
		return nil, nil
	}
	if !d.gaps {
		return []run{{0, n * d.size}}, nil
	}
	one, err := d.itemRuns()
	if err != nil {
		return nil, err
	}
	var all []run
	for i := range n {
		for _, r := range one {
			all = joinRun(all, run{i*d.extent + r.at, r.n})
		}
	}
	return all, nil
}

func joinRun(list []run, r run) []run {
	if k := len(list) - 1; k >= 0 && list[k].at+list[k].n == r.at {
		list[k].n += r.n
		return list
	}
	return append(list, r)
}

// itemRuns finds the runs of one item, as package mpi packs one whose bytes are their own places, one byte
// of these at a time.
func (d *datatype) itemRuns() ([]run, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.places != nil {
		return d.places, nil
	}
	item, places := make([]byte, d.trueExtent), make([]int, d.size)
	for bits := 0; bits == 0 || d.trueExtent>>bits > 0; bits += 8 {
		for i := range item {
			item[i] = byte(i >> bits)
		}
		packed, err := mpi.Pack(nil, item, 1, d.d)
		if err != nil {
			return nil, err
		}
		for i, b := range packed {
			places[i] |= int(b) << bits
		}
	}
	for _, at := range places {
		d.places = joinRun(d.places, run{at, 1})
	}
	return d.places, nil
}

// target is where a call reads or writes.
type target struct {
	rank int // MPI_PROC_NULL: nothing is done
	runs []run
	size int // bytes in all
}

// target is what two or four arguments from i on say: a rank, a displacement, and a number of items of
// a datatype. The number is 1 if only the datatype, argument typ, is there.
func (e *Env) target(a *arguments, w *window, i, count, typ int) (target, error) {
	t := target{rank: a.Int(i)}
	n := 1
	var err error
	if count >= 0 {
		if n, err = a.count(count); err != nil {
			return t, err
		}
	}
	d, err := e.committed(a, typ)
	if err != nil {
		return t, err
	}
	switch {
	case t.rank == procNull:
		return t, nil
	case t.rank < 0 || t.rank >= len(w.parts):
		return t, fail(a.name(i), errRank, "it is %d, and the window has the ranks 0 to %d", t.rank, len(w.parts)-1)
	case n > 0 && d.size > maxBytes/n:
		return t, fail(a.name(count), errCount, "%d items of %s are more than a window has", n, d.describe())
	}
	t.size = n * d.size
	runs, err := d.runs(n)
	if err != nil {
		return t, err
	}
	part, disp := w.parts[t.rank], a.Count(i+1)
	if disp > maxBytes/int(part.unit) || disp < -(maxBytes/int(part.unit)) {
		return t, fail(a.name(i+1), errRMARange, "it is %d, and rank %d has %d bytes", disp, t.rank, part.size)
	}
	start := disp*int(part.unit) + d.trueLB
	t.runs = make([]run, len(runs))
	for k, r := range runs {
		from := start + r.at
		if from < 0 || from > int(part.size)-r.n {
			return t, fail(a.name(i+1), errRMARange, "bytes %d to %d are not within the %d bytes of rank %d",
				from, from+r.n, part.size, t.rank)
		}
		t.runs[k] = run{from + int(part.shift), r.n}
	}
	return t, nil
}

// origin is what three arguments from i on say: memory of the program, which has as many bytes as the target.
func (e *Env) origin(a *arguments, i int, t *target) (items, error) {
	it, err := e.items(a, i)
	if err != nil {
		return it, err
	}
	if n := it.n * it.d.size; t.rank != procNull && n != t.size {
		return it, fail(a.name(i+1), errTruncate, "there are %d bytes here and %d at the target", n, t.size)
	}
	return it, nil
}

// each calls f for each run of the target, and for the packed bytes that belong there. It goes on after errors.
func (t *target) each(b []byte, f func(b []byte, at int) error) error {
	var errs []error
	for _, r := range t.runs {
		errs = append(errs, f(b[:r.n], r.at))
		b = b[r.n:]
	}
	return errors.Join(errs...)
}

// requestOf has the request of each run made, and stores that of all of them where argument i points to.
func (e *Env) requestOf(
	a *arguments, w *window, i int, t *target, b []byte,
	begin func(b []byte, at int) (*mpi.Request, error), done func(mpi.Status) error,
) error {
	if err := a.setHandle(i, requestNull); err != nil {
		return err
	}
	parts := []*mpi.Request{}
	err := t.each(b, func(b []byte, at int) error {
		r, err := begin(b, at)
		if err == nil {
			parts = append(parts, r)
		}
		return err
	})
	if err != nil {
		_, waited := mpi.Waitall(a.ctx, parts...)
		return errors.Join(err, waited)
	}
	return e.addRequest(a, i, w, done, parts...)
}

// put is MPI_Put, and MPI_Rput if argument request is where its handle goes.
func (e *Env) put(a *arguments, w *window, request int) error {
	t, err := e.target(a, w, 3, 5, 6)
	if err != nil {
		return err
	}
	it, err := e.origin(a, 0, &t)
	if err != nil {
		return err
	}
	b, err := it.packed()
	if err != nil {
		return err
	}
	if request >= 0 {
		return e.requestOf(a, w, request, &t, b, func(b []byte, at int) (*mpi.Request, error) {
			return w.w.Rput(b, t.rank, at)
		}, nil)
	}
	return t.each(b, func(b []byte, at int) error { return w.w.Put(a.ctx, b, t.rank, at) })
}

// get is MPI_Get, and MPI_Rget if argument request is where its handle goes.
func (e *Env) get(a *arguments, w *window, request int) error {
	t, err := e.target(a, w, 3, 5, 6)
	if err != nil {
		return err
	}
	it, err := e.origin(a, 0, &t)
	if err != nil {
		return err
	}
	b := it.bytes
	if !it.contiguous() {
		b = make([]byte, t.size)
	}
	store := func() error {
		if it.contiguous() || t.rank == procNull {
			return nil
		}
		return it.unpack(b)
	}
	if request >= 0 {
		return e.requestOf(a, w, request, &t, b, func(b []byte, at int) (*mpi.Request, error) {
			return w.w.Rget(b, t.rank, at)
		}, func(mpi.Status) error { return store() })
	}
	if err := t.each(b, func(b []byte, at int) error { return w.w.Get(a.ctx, b, t.rank, at) }); err != nil {
		return err
	}
	return store()
}

// one is the address of an item of a datatype, whose bytes follow one another.
func (e *Env) one(a *arguments, i int, d *datatype) ([]byte, error) {
	it, err := a.itemsAt(i, i, a.Addr(i), 1, d)
	return it.bytes, err
}

// compareAndSwap is an accumulate whose operation compares: package mpi's windows are of bytes here.
func compareAndSwap(e *Env, a *arguments, w *window) error {
	t, err := e.target(a, w, 4, -1, 3)
	if err != nil {
		return err
	}
	d, err := e.datatype(a, 3)
	if err != nil {
		return err
	}
	if d.gaps || d.size > 16 {
		return fail(a.name(3), errType, "it is %s, want a type of integers, of logical values, or MPI_BYTE", d.describe())
	}
	origin, err := e.one(a, 0, d)
	if err != nil {
		return err
	}
	compare, err := e.one(a, 1, d)
	if err != nil {
		return err
	}
	result, err := e.one(a, 2, d)
	if err != nil || t.rank == procNull {
		return err
	}
	swap := mpi.OpOf(func(in, inout []byte) {
		if bytes.Equal(inout, compare) {
			copy(inout, in)
		}
	}, false)
	return w.w.GetAccumulate(a.ctx, origin, result, t.rank, t.runs[0].at, swap)
}

func init() {
	register("MPI_Accumulate", winCall(8, func(e *Env, a *arguments, w *window) error {
		return e.accumulate(a, w, accumulate{result: -1, target: 3, request: -1})
	}))
	register("MPI_Raccumulate", winCall(8, func(e *Env, a *arguments, w *window) error {
		return e.accumulate(a, w, accumulate{result: -1, target: 3, request: 9})
	}))
	register("MPI_Get_accumulate", winCall(11, func(e *Env, a *arguments, w *window) error {
		return e.accumulate(a, w, accumulate{result: 3, target: 6, request: -1})
	}))
	register("MPI_Rget_accumulate", winCall(11, func(e *Env, a *arguments, w *window) error {
		return e.accumulate(a, w, accumulate{result: 3, target: 6, request: 12})
	}))
	register("MPI_Fetch_and_op", winCall(6, fetchAndOp))
}

// accumulate says where the arguments of an accumulate are: result, target and request, or -1. The origin
// is the first one. An operation follows the four arguments of the target.
type accumulate struct{ result, target, request int }

// winOp is the operation of argument i on packed values of a datatype. Those of the program are none of
// accumulates.
func (e *Env) winOp(a *arguments, i int, d *datatype) (mpi.Op[byte], error) {
	switch h := a.Handle(i); h {
	case opReplace:
		return mpi.Replace[byte](), nil
	case opNoOp:
		return mpi.NoOp[byte](), nil
	default:
		if _, ok := opNames[h]; !ok {
			return mpi.Op[byte]{}, fail(a.name(i), errOp, "%#x is no operation that the standard has named", uint64(h))
		}
	}
	r, err := e.reducer(a, i, d.element())
	if err != nil {
		return mpi.Op[byte]{}, err
	}
	return mpi.OpOf(r.local, false), nil
}

// element is the named datatype that a datatype is made of, or the first one of several.
func (d *datatype) element() *datatype {
	for d.made != nil && len(d.made.types) > 0 {
		d = d.made.types[0]
	}
	return d
}

func (e *Env) accumulate(a *arguments, w *window, at accumulate) error {
	t, err := e.target(a, w, at.target, at.target+2, at.target+3)
	if err != nil {
		return err
	}
	d, err := e.datatype(a, at.target+3)
	if err != nil {
		return err
	}
	op, err := e.winOp(a, at.target+4, d)
	if err != nil {
		return err
	}
	src := make([]byte, t.size) // MPI_NO_OP has no origin.
	if a.Handle(at.target+4) != opNoOp {
		it, err := e.origin(a, 0, &t)
		if err != nil {
			return err
		}
		if src, err = it.packed(); err != nil {
			return err
		}
	}
	var was []byte
	var done func(mpi.Status) error
	if at.result >= 0 {
		it, err := e.origin(a, at.result, &t)
		if err != nil {
			return err
		}
		if was = it.bytes; !it.contiguous() {
			all := make([]byte, t.size)
			was, done = all, func(mpi.Status) error { return it.unpack(all) }
		}
	}
	if t.rank == procNull {
		done = nil
	}
	next := func(n int) (part []byte) { // of the result
		if was != nil {
			part, was = was[:n], was[n:]
		}
		return part
	}
	if at.request >= 0 {
		return e.requestOf(a, w, at.request, &t, src, func(b []byte, disp int) (*mpi.Request, error) {
			if at.result < 0 {
				return w.w.Raccumulate(b, t.rank, disp, op)
			}
			return w.w.RgetAccumulate(b, next(len(b)), t.rank, disp, op)
		}, done)
	}
	err = t.each(src, func(b []byte, disp int) error {
		if at.result < 0 {
			return w.w.Accumulate(a.ctx, b, t.rank, disp, op)
		}
		return w.w.GetAccumulate(a.ctx, b, next(len(b)), t.rank, disp, op)
	})
	if err != nil || done == nil {
		return err
	}
	return done(mpi.Status{})
}

func fetchAndOp(e *Env, a *arguments, w *window) error {
	t, err := e.target(a, w, 3, -1, 2)
	if err != nil {
		return err
	}
	d, err := e.datatype(a, 2)
	if err != nil {
		return err
	}
	if len(t.runs) > 1 {
		return fail(a.name(2), errType, "it is %s, want one that the standard has named", d.describe())
	}
	op, err := e.winOp(a, 5, d)
	if err != nil {
		return err
	}
	src := make([]byte, t.size)
	if a.Handle(5) != opNoOp {
		it, err := a.itemsAt(0, 0, a.Addr(0), 1, d)
		if err != nil {
			return err
		}
		if src, err = it.packed(); err != nil {
			return err
		}
	}
	it, err := a.itemsAt(1, 1, a.Addr(1), 1, d)
	if err != nil || t.rank == procNull || len(t.runs) == 0 {
		return err
	}
	was := make([]byte, t.size)
	if err := w.w.GetAccumulate(a.ctx, src, was, t.rank, t.runs[0].at, op); err != nil {
		return err
	}
	return it.unpack(was)
}
