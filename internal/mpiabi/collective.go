package mpiabi

import (
	"context"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Collective Communication": reductions and broadcasts.

// mpiRoot is the root of an intercommunicator's collective at the root (MPI_ROOT).
const mpiRoot = -4

func init() {
	register("MPI_Bcast", bcast)
	register("MPI_Reduce", reduce)
	register("MPI_Allreduce", allRanks(reducer.allreduce))
	register("MPI_Scan", allRanks(reducer.scan))
	register("MPI_Exscan", allRanks(reducer.exscan))
	register("MPI_Reduce_scatter_block", reduceScatterBlock)
	register("MPI_Reduce_scatter", reduceScatter)
}

func bcast(e *Env, a *arguments) error {
	c, err := e.comm(a, 4)
	if err != nil {
		return err
	}
	root := a.Int(3)
	if c.c.Inter() && root == procNull { // The buffer has no meaning.
		return mpi.Bcast[byte](a.ctx, c.c, nil, root)
	}
	it, err := e.items(a, 0)
	if err != nil {
		return err
	}
	sends := root == mpiRoot || !c.c.Inter() && root == c.c.Rank()
	if !sends {
		if err := a.access(0, func() { touch(it.bytes, true) }); err != nil {
			return err
		}
	}
	b, err := a.room(0, &it, sends)
	if err != nil {
		return err
	}
	if err := mpi.Bcast(a.ctx, c.c, b, root); err != nil || sends {
		return err
	}
	return a.store(0, &it, b)
}

// room is memory for packed items: with the items if they are to be sent, otherwise any.
func (a *arguments) room(buf int, it *items, full bool) ([]byte, error) {
	if full || it.contiguous() {
		return a.pack(buf, it)
	}
	return make([]byte, it.n*it.d.size), nil
}

// inPlaceAt reports whether an argument is MPI_IN_PLACE.
func (a *arguments) inPlaceAt(i int) bool { return a.Addr(i) == inPlace }

func reduce(e *Env, a *arguments) error {
	c, err := e.comm(a, 6)
	if err != nil {
		return err
	}
	root := a.Int(5)
	isRoot := root == c.c.Rank() && !c.c.Inter()
	from := 0
	if isRoot && a.inPlaceAt(0) {
		from = 1
	}
	in, err := e.operands(a, from, 2)
	if err != nil {
		return err
	}
	r, err := e.reducer(a, 4, in.d)
	if err != nil {
		return err
	}
	send, err := a.pack(from, &in)
	if err != nil || !isRoot {
		if err != nil {
			return err
		}
		return r.reduce(a.ctx, c.c, send, nil, root)
	}
	out, err := e.operands(a, 1, 2)
	if err != nil {
		return err
	}
	recv, err := a.room(1, &out, false)
	if err != nil {
		return err
	}
	if err := r.reduce(a.ctx, c.c, send, recv, root); err != nil {
		return err
	}
	return a.store(1, &out, recv)
}

// allRanks is a reduction in which all ranks get a result.
func allRanks(f func(r reducer, ctx context.Context, c *mpi.Comm, send, recv []byte) error) call {
	return func(e *Env, a *arguments) error {
		c, err := e.comm(a, 5)
		if err != nil {
			return err
		}
		from := 0
		if a.inPlaceAt(0) {
			from = 1
		}
		in, err := e.operands(a, from, 2)
		if err != nil {
			return err
		}
		out, err := e.operands(a, 1, 2)
		if err != nil {
			return err
		}
		r, err := e.reducer(a, 4, in.d)
		if err != nil {
			return err
		}
		send, err := a.pack(from, &in)
		if err != nil {
			return err
		}
		recv, err := a.room(1, &out, true) // Of MPI_Exscan rank 0 keeps what it has.
		if err != nil {
			return err
		}
		if err := f(r, a.ctx, c.c, send, recv); err != nil {
			return err
		}
		return a.store(1, &out, recv)
	}
}

func reduceScatterBlock(e *Env, a *arguments) error {
	c, err := e.comm(a, 5)
	if err != nil {
		return err
	}
	n, err := a.count(2)
	if err != nil {
		return err
	}
	counts := make([]int, c.c.Size())
	for i := range counts {
		counts[i] = n
	}
	return e.scatterReduced(a, c, counts, 2)
}

func reduceScatter(e *Env, a *arguments) error {
	c, err := e.comm(a, 5)
	if err != nil {
		return err
	}
	counts, err := a.counts(2, c.c.Size())
	if err != nil {
		return err
	}
	return e.scatterReduced(a, c, counts, 2)
}

// counts are numbers of items of n ranks.
func (a *arguments) counts(i, n int) ([]int, error) {
	list, err := a.ints(i, n)
	if err != nil {
		return nil, err
	}
	for rank, v := range list {
		if v < 0 || v > maxBytes {
			return nil, fail(a.name(i), errCount, "rank %d has %d items, want 0 or more", rank, v)
		}
	}
	return list, nil
}

// scatterReduced combines the items of all ranks, and gives each its part. If all parts are as long
// package mpi does it in one step.
func (e *Env) scatterReduced(a *arguments, c *comm, counts []int, count int) error {
	d, err := e.committed(a, 3)
	if err != nil {
		return err
	}
	r, err := e.reducer(a, 4, d)
	if err != nil {
		return err
	}
	total, equal := 0, true
	for _, n := range counts {
		total += n
		equal = equal && n == counts[0]
	}
	from := 0
	if a.inPlaceAt(0) {
		from = 1
	}
	in, err := a.itemsAt(from, count, a.Addr(from), total, d)
	if err != nil {
		return err
	}
	out, err := a.itemsAt(1, count, a.Addr(1), counts[c.c.Rank()], d)
	if err != nil {
		return err
	}
	send, err := a.pack(from, &in)
	if err != nil {
		return err
	}
	recv, err := a.room(1, &out, false)
	if err != nil {
		return err
	}
	if equal {
		err = r.scatterBlock(a.ctx, c.c, send, recv)
	} else {
		err = reduceAndScatter(a.ctx, c, r, send, recv, counts, d.size)
	}
	if err != nil {
		return err
	}
	return a.store(1, &out, recv)
}

// reduceAndScatter is MPI_Reduce_scatter of parts of different lengths.
func reduceAndScatter(ctx context.Context, c *comm, r reducer, send, recv []byte, counts []int, size int) error {
	var all []byte
	if c.c.Rank() == 0 {
		all = make([]byte, len(send))
	}
	if err := r.reduce(ctx, c.c, send, all, 0); err != nil {
		return err
	}
	parts := mpi.Parts{Counts: make([]int, len(counts))}
	for i, n := range counts {
		parts.Counts[i] = n * size
	}
	return mpi.Scatterv(ctx, c.c, all, parts, recv, 0)
}
