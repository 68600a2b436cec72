package mpiabi

import (
	"context"
	"runtime"
	"strings"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Collective Communication": operations of reductions.

// The operations that the standard has named.
const (
	opNull    Handle = 0x20
	opSum     Handle = 0x21
	opMin     Handle = 0x22
	opMax     Handle = 0x23
	opProd    Handle = 0x24
	opBAnd    Handle = 0x28
	opBOr     Handle = 0x29
	opBXor    Handle = 0x2a
	opLAnd    Handle = 0x30
	opLOr     Handle = 0x31
	opLXor    Handle = 0x32
	opMinLoc  Handle = 0x38
	opMaxLoc  Handle = 0x39
	opReplace Handle = 0x3c
	opNoOp    Handle = 0x3d
)

var opNames = map[Handle]string{
	opSum: "MPI_SUM", opMin: "MPI_MIN", opMax: "MPI_MAX", opProd: "MPI_PROD", opBAnd: "MPI_BAND", opBOr: "MPI_BOR",
	opBXor: "MPI_BXOR", opLAnd: "MPI_LAND", opLOr: "MPI_LOR", opLXor: "MPI_LXOR", opMinLoc: "MPI_MINLOC",
	opMaxLoc: "MPI_MAXLOC", opReplace: "MPI_REPLACE", opNoOp: "MPI_NO_OP",
}

// userOp is an operation of the program.
type userOp struct {
	function uint64
	large    bool // The function takes the number of items as MPI_Count.
	commutes bool
}

func init() {
	register("MPI_Op_create", func(e *Env, a *arguments) error {
		if a.Addr(0) == 0 {
			return fail(a.name(0), errArg, "it is NULL, want a function")
		}
		h := e.handles.add(&userOp{a.Addr(0), strings.HasSuffix(a.p.name, "_c"), a.Int(1) != 0})
		err := a.setHandle(2, h)
		if err != nil {
			remove[*userOp](&e.handles, h)
		}
		return err
	})
	register("MPI_Op_free", func(e *Env, a *arguments) error {
		h, err := a.handleAt(0)
		if err != nil {
			return err
		}
		if name, ok := opNames[h]; ok {
			return fail(a.name(0), errOp, "it is %s, which is not freed", name)
		}
		if _, ok := remove[*userOp](&e.handles, h); !ok {
			return fail(a.name(0), errOp, "%#x is no operation, or one that is freed", uint64(h))
		}
		return a.setHandle(0, opNull)
	})
	register("MPI_Op_commutative", func(e *Env, a *arguments) error {
		h := a.Handle(0)
		if _, ok := opNames[h]; ok {
			return a.setFlag(1, h != opReplace && h != opNoOp)
		}
		op, err := e.userOp(a, 0)
		if err != nil {
			return err
		}
		return a.setFlag(1, op.commutes)
	})
	register("MPI_Reduce_local", reduceLocal)
}

func reduceLocal(e *Env, a *arguments) error {
	in, err := e.operands(a, 0, 2)
	if err != nil {
		return err
	}
	inout, err := e.operands(a, 1, 2)
	if err != nil {
		return err
	}
	r, err := e.reducer(a, 4, in.d)
	if err != nil {
		return err
	}
	from, err := a.pack(0, &in)
	if err != nil {
		return err
	}
	to, err := a.pack(1, &inout)
	if err != nil {
		return err
	}
	r.local(from, to)
	return a.store(1, &inout, to)
}

// operands are items of a reduction: the buffer is argument buf, and their number argument count. Their
// datatype follows it.
func (e *Env) operands(a *arguments, buf, count int) (items, error) {
	n, err := a.count(count)
	if err != nil {
		return items{}, err
	}
	d, err := e.committed(a, count+1)
	if err != nil {
		return items{}, err
	}
	return a.itemsAt(buf, count, a.Addr(buf), n, d)
}

// userOp is the operation of the program that an argument is the handle of.
func (e *Env) userOp(a *arguments, i int) (*userOp, error) {
	h := a.Handle(i)
	if h == opNull {
		return nil, fail(a.name(i), errOp, "it is MPI_OP_NULL")
	}
	if op, ok := lookup[*userOp](&e.handles, h); ok {
		return op, nil
	}
	return nil, fail(a.name(i), errOp, "%#x is no operation, or one that is freed", uint64(h))
}

// reducer combines packed items.
type reducer interface {
	local(in, inout []byte)
	reduce(ctx context.Context, c *mpi.Comm, send, recv []byte, root int) error
	allreduce(ctx context.Context, c *mpi.Comm, send, recv []byte) error
	scan(ctx context.Context, c *mpi.Comm, send, recv []byte) error
	exscan(ctx context.Context, c *mpi.Comm, send, recv []byte) error
	scatterBlock(ctx context.Context, c *mpi.Comm, send, recv []byte) error
}

// typed combines values of a Go type: package mpi never cuts one.
type typed[T any] struct {
	f        func(in, inout []T)
	commutes bool
}

// oneByOne combines values one by one. The order of ranks does not matter.
func oneByOne[T any](f func(a, b T) T) reducer {
	return typed[T]{func(in, inout []T) {
		for i, v := range in {
			inout[i] = f(v, inout[i])
		}
	}, true}
}

func (r typed[T]) op() mpi.Op[T] { return mpi.OpOf(r.f, r.commutes) }

func (r typed[T]) local(in, inout []byte) { r.f(as[T](in), as[T](inout)) }

func (r typed[T]) reduce(ctx context.Context, c *mpi.Comm, send, recv []byte, root int) error {
	return mpi.Reduce(ctx, c, as[T](send), as[T](recv), r.op(), root)
}

func (r typed[T]) allreduce(ctx context.Context, c *mpi.Comm, send, recv []byte) error {
	return mpi.Allreduce(ctx, c, as[T](send), as[T](recv), r.op())
}

func (r typed[T]) scan(ctx context.Context, c *mpi.Comm, send, recv []byte) error {
	return mpi.Scan(ctx, c, as[T](send), as[T](recv), r.op())
}

func (r typed[T]) exscan(ctx context.Context, c *mpi.Comm, send, recv []byte) error {
	return mpi.Exscan(ctx, c, as[T](send), as[T](recv), r.op())
}

func (r typed[T]) scatterBlock(ctx context.Context, c *mpi.Comm, send, recv []byte) error {
	return mpi.ReduceScatterBlock(ctx, c, as[T](send), as[T](recv), r.op())
}

// ofUser is a user's operation on packed items of any size.
type ofUser struct{ typed[byte] }

// allreduce has two steps, as package mpi cuts long messages of bytes within items.
func (r ofUser) allreduce(ctx context.Context, c *mpi.Comm, send, recv []byte) error {
	if c.Inter() { // Package mpi does not cut there.
		return r.typed.allreduce(ctx, c, send, recv)
	}
	if err := r.reduce(ctx, c, send, recv, 0); err != nil {
		return err
	}
	return mpi.Bcast(ctx, c, recv, 0)
}

// reducer is the operation of an argument on items of a datatype.
func (e *Env) reducer(a *arguments, i int, d *datatype) (reducer, error) {
	h := a.Handle(i)
	name, ok := opNames[h]
	if !ok {
		op, err := e.userOp(a, i)
		if err != nil {
			return nil, err
		}
		return e.ofUser(a, i, op, d)
	}
	if d.reduce != nil {
		if r := d.reduce(h); r != nil {
			return r, nil
		}
	}
	return nil, fail(a.name(i), errOp, "%s is not defined for %s", name, d.describe())
}

// ofUser is an operation of the program on items of a datatype.
func (e *Env) ofUser(a *arguments, i int, op *userOp, d *datatype) (reducer, error) {
	if e.config.Callback == nil {
		return nil, errNoCallback
	}
	if d.extent < 0 {
		return nil, fail(a.name(i), errUnsupp, "items of negative extent are not combined by operations of the program")
	}
	h := a.Handle(a.p.handleParam("MPI_Datatype"))
	return ofUser{typed[byte]{func(in, inout []byte) {
		if len(inout) == 0 {
			return
		}
		n := len(inout) / d.size
		if !d.gaps {
			e.callOp(op, in, inout, d.trueLB, n, h)
			return
		}
		// The function gets items as they are in C. Their memory has room for all, so nothing fails.
		span := (n-1)*d.extent + d.trueExtent
		from, to := make([]byte, span), make([]byte, span)
		_, _ = mpi.Unpack(in, from, n, d.d)
		_, _ = mpi.Unpack(inout, to, n, d.d)
		e.callOp(op, from, to, d.trueLB, n, h)
		_, _ = mpi.Pack(inout[:0], to, n, d.d)
	}, op.commutes}}, nil
}

// callOp calls a function of the program. The first byte of an item is lb bytes from its beginning.
func (e *Env) callOp(op *userOp, in, inout []byte, lb, count int, datatype Handle) {
	n, large := int32(count), int64(count)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&n)
	pin.Pin(&large)
	pin.Pin(&datatype)
	pin.Pin(&in[0])
	pin.Pin(&inout[0])
	number := address(&n)
	if op.large {
		number = address(&large)
	}
	e.config.Callback(op.function, address(&in[0])-uint64(lb), address(&inout[0])-uint64(lb), number, address(&datatype))
}
