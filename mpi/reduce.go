package mpi

import (
	"context"
	"slices"
)

// longRing is from how many bytes on a ring of ranks is better than a number of ranks that is no
// power of two made one: that costs some ranks a message of all values.
const longRing = 256 << 10

// checkReduce checks the arguments of reductions.
func checkReduce[T any](call string, send, recv []T, op Op[T], needs bool) error {
	switch {
	case op.f == nil:
		return fail(call, "op", ErrOp, "it is the zero Op")
	case needs && len(send) != len(recv):
		return fail(call, "recv", ErrCount, "it has %d values, and send %d", len(recv), len(send))
	}
	_, err := bytesOf(call, send)
	return err
}

// Reduce gives one rank the combination of all ranks' values (MPI_Reduce, chapter Collective
// Communication): by a binomial tree of the nodes and one in each of them, or, where the order of
// ranks matters, by one of all ranks. All give as many. recv is used at root alone.
//
// Experimental: it may change in any release.
func Reduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T], root int) error {
	return reducePlan(c, "MPI_Reduce", send, recv, op, root).do(ctx)
}

func reducePlan[T any](c *Comm, call string, send, recv []T, op Op[T], root int) plan {
	if c.Inter() {
		return interReduce(c, call, send, recv, op, root)
	}
	if err := c.checkRoot(call, root); err != nil {
		return plan{c: c, err: err}
	}
	if err := checkReduce(call, send, recv, op, c.rank == root); err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		t, first := c.layout().tree(root, c.rank), root
		if !op.commutes {
			t, first = c.rotated(0), 0
		}
		acc := slices.Clone(send)
		if err := reduceUp(ctx, r, &t, acc, op); err != nil {
			return err
		}
		if first != root {
			switch c.rank {
			case first:
				b, _ := bytesOf(call, acc)
				return r.send(ctx, b, root)
			case root:
				b, _ := bytesOf(call, recv)
				return r.recv(ctx, b, first)
			}
			return nil
		}
		if c.rank == root {
			copy(recv, acc)
		}
		return nil
	}}
}

// reduceUp combines the values of a rank's branch in acc. Branches of the tree are of higher ranks
// than the rank itself, unless the order of ranks does not matter.
func reduceUp[T any](ctx context.Context, r *round, t *tree, acc []T, op Op[T]) error {
	in := make([]T, len(acc))
	accBytes, err := bytesOf(r.call, acc)
	if err != nil {
		return err
	}
	inBytes, _ := bytesOf(r.call, in)
	part := func(b branch) []byte {
		if b == t.own {
			return accBytes
		}
		return inBytes
	}
	return t.up(ctx, r, part, func(branch) {
		op.f(acc, in)
		copy(acc, in)
	})
}

// Allreduce gives all ranks the combination of all ranks' values (MPI_Allreduce, chapter Collective
// Communication). Short ones are combined in each node by a tree, and between nodes by recursive
// doubling. Long ones are combined by Rabenseifner's algorithm, and very long ones of a number of
// ranks that is no power of two by a ring. All ranks get the same bits.
//
// Experimental: it may change in any release.
func Allreduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	return allreducePlan(c, "MPI_Allreduce", send, recv, op).do(ctx)
}

func allreducePlan[T any](c *Comm, call string, send, recv []T, op Op[T]) plan {
	if c.Inter() {
		return interAllreduce(c, call, send, recv, op)
	}
	if err := checkReduce(call, send, recv, op, true); err != nil {
		return plan{c: c, err: err}
	}
	b, err := bytesOf(call, recv)
	if err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		copy(recv, send)
		l, n := c.layout(), len(c.ranks)
		all := ranksTo(n)
		if op.commutes {
			all = l.byNode()
		}
		switch powerOfTwo := n&(n-1) == 0; {
		case len(b) >= longMessage && len(recv) >= n && op.commutes && !powerOfTwo && len(b) >= longRing:
			return ringReduce(ctx, r, all, recv, b, op)
		case len(b) >= longMessage && len(recv) >= n:
			return foldedReduce(ctx, r, all, recv, b, op, halveReduce[T])
		case len(l.members) > 1 && len(l.members) < n && (op.commutes || l.ordered):
			local := l.local(c.rank)
			if err := reduceUp(ctx, r, &local, recv, op); err != nil {
				return err
			}
			if local.parent < 0 {
				if err := foldedReduce(ctx, r, l.leaders, recv, b, op, doubleReduce[T]); err != nil {
					return err
				}
			}
			return local.down(ctx, r, func(branch) []byte { return b })
		}
		return foldedReduce(ctx, r, all, recv, b, op, doubleReduce[T])
	}}
}

// reduction is a number of ranks that is a power of two, which combine their values.
type reduction[T any] struct {
	r       *round
	at      int   // this rank's position
	ranks   []int // by their positions, which are in the order of ranks if that matters
	acc, in []T
	b, inB  []byte // the memory of acc and in
	op      Op[T]
}

// combine combines what has come from a position with what is in part of acc.
func (x *reduction[T]) combine(from, lo, hi int) {
	in, acc := x.in[lo:hi], x.acc[lo:hi]
	if from < x.at {
		x.op.f(in, acc)
		return
	}
	x.op.f(acc, in)
	copy(acc, in)
}

// foldedReduce combines the values of some ranks, of which this is one. Where their number is no
// power of two, the first ones are joined in pairs of neighbours before, so that the order is kept.
func foldedReduce[T any](
	ctx context.Context, r *round, ranks []int, acc []T, b []byte, op Op[T],
	reduce func(ctx context.Context, x *reduction[T]) error,
) error {
	n, at := len(ranks), slices.Index(ranks, r.c.rank)
	power := 1
	for power*2 <= n {
		power *= 2
	}
	rest := n - power // as many pairs
	x := &reduction[T]{r: r, at: at - rest, acc: acc, in: make([]T, len(acc)), b: b, op: op}
	for i := range power {
		if i < rest {
			x.ranks = append(x.ranks, ranks[2*i+1])
		} else {
			x.ranks = append(x.ranks, ranks[i+rest])
		}
	}
	x.inB, _ = bytesOf(r.call, x.in)
	if at < 2*rest {
		if at%2 == 0 { // its neighbour takes part for it
			if err := r.send(ctx, b, ranks[at+1]); err != nil {
				return err
			}
			return r.recv(ctx, b, ranks[at+1])
		}
		if err := r.recv(ctx, x.inB, ranks[at-1]); err != nil {
			return err
		}
		op.f(x.in, acc)
		x.at = at / 2
	}
	if err := reduce(ctx, x); err != nil {
		return err
	}
	if at < 2*rest {
		return r.send(ctx, b, ranks[at-1])
	}
	return nil
}

// doubleReduce is recursive doubling: each round combines twice as many ranks' values.
func doubleReduce[T any](ctx context.Context, x *reduction[T]) error {
	for d := 1; d < len(x.ranks); d *= 2 {
		other := x.at ^ d
		if err := x.r.exchange(ctx, x.b, x.ranks[other], x.inB, x.ranks[other]); err != nil {
			return err
		}
		x.combine(other, 0, len(x.acc))
	}
	return nil
}

// halveReduce is Rabenseifner's algorithm: recursive halving leaves each rank the combination of a
// piece, and recursive doubling gives the pieces to all. The nearest ranks exchange first, so that
// the order is kept, and the longest messages stay within nodes.
func halveReduce[T any](ctx context.Context, x *reduction[T]) error {
	lo, hi := 0, len(x.acc)
	size := 0
	if hi > 0 {
		size = len(x.b) / hi
	}
	type half struct{ mine, theirs [2]int }
	var halves []half
	for d := 1; d < len(x.ranks); d *= 2 {
		other, mid := x.at^d, (lo+hi)/2
		h := half{[2]int{lo, mid}, [2]int{mid, hi}}
		if x.at&d != 0 {
			h.mine, h.theirs = h.theirs, h.mine
		}
		out := x.b[h.theirs[0]*size : h.theirs[1]*size]
		in := x.inB[h.mine[0]*size : h.mine[1]*size]
		if err := x.r.exchange(ctx, out, x.ranks[other], in, x.ranks[other]); err != nil {
			return err
		}
		lo, hi = h.mine[0], h.mine[1]
		x.combine(other, lo, hi)
		halves = append(halves, h)
	}
	for i, h := range slices.Backward(halves) {
		other := x.ranks[x.at^1<<i]
		out := x.b[h.mine[0]*size : h.mine[1]*size]
		in := x.b[h.theirs[0]*size : h.theirs[1]*size]
		if err := x.r.exchange(ctx, out, other, in, other); err != nil {
			return err
		}
	}
	return nil
}

// ringReduce combines a piece at each rank, in n-1 steps round the ring, and then passes the pieces
// round it.
func ringReduce[T any](ctx context.Context, r *round, ranks []int, acc []T, b []byte, op Op[T]) error {
	n, rank := len(ranks), slices.Index(ranks, r.c.rank)
	size := len(b) / len(acc)
	at := func(i int) int { return (i + 2*n) % n * len(acc) / n } // where piece i begins
	end := func(i int) int { return ((i+2*n)%n + 1) * len(acc) / n }
	in := make([]T, len(acc)/n+1)
	inBytes, err := bytesOf(r.call, in)
	if err != nil {
		return err
	}
	next, prev := ranks[(rank+1)%n], ranks[(rank-1+n)%n]
	for step := range n - 1 {
		out, mine := rank-step, rank-step-1
		k := end(mine) - at(mine)
		if err := r.exchange(ctx, b[at(out)*size:end(out)*size], next, inBytes[:k*size], prev); err != nil {
			return err
		}
		op.f(in[:k], acc[at(mine):end(mine)])
	}
	for step := range n - 1 {
		out, mine := rank+1-step, rank-step
		if err := r.exchange(ctx, b[at(out)*size:end(out)*size], next, b[at(mine)*size:end(mine)*size], prev); err != nil {
			return err
		}
	}
	return nil
}

// Scan gives each rank the combination of the values of all ranks up to it (MPI_Scan, chapter
// Collective Communication), by recursive doubling.
//
// Experimental: it may change in any release.
func Scan[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	return scanPlan(c, "MPI_Scan", send, recv, op).do(ctx)
}

func scanPlan[T any](c *Comm, call string, send, recv []T, op Op[T]) plan {
	if err := checkReduce(call, send, recv, op, true); err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		acc := slices.Clone(send)
		if err := scan(ctx, r, acc, nil, op); err != nil {
			return err
		}
		copy(recv, acc)
		return nil
	}}
}

// Exscan gives each rank the combination of the values of all ranks before it (MPI_Exscan, chapter
// Collective Communication), by recursive doubling. At rank 0 recv is unchanged.
//
// Experimental: it may change in any release.
func Exscan[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	return exscanPlan(c, "MPI_Exscan", send, recv, op).do(ctx)
}

func exscanPlan[T any](c *Comm, call string, send, recv []T, op Op[T]) plan {
	if err := checkReduce(call, send, recv, op, true); err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		before := make([]T, len(send))
		if err := scan(ctx, r, slices.Clone(send), before, op); err != nil {
			return err
		}
		if c.rank > 0 {
			copy(recv, before)
		}
		return nil
	}}
}

// scan combines in acc the values of all ranks up to this one, and in before, unless it is nil,
// those of the ranks before.
func scan[T any](ctx context.Context, r *round, acc, before []T, op Op[T]) error {
	in := make([]T, len(acc))
	a, err := bytesOf(r.call, acc)
	if err != nil {
		return err
	}
	b, _ := bytesOf(r.call, in)
	rank := r.c.rank
	for d := 1; d < len(r.c.ranks); d *= 2 {
		m := messages{r: r}
		err := error(nil)
		if rank+d < len(r.c.ranks) {
			err = m.send(a, rank+d)
		}
		if err == nil && rank-d >= 0 {
			err = m.recv(b, rank-d)
		}
		if err == nil { // before acc changes
			err = m.wait(ctx)
		}
		if err != nil {
			m.abandon()
			return err
		}
		if rank-d < 0 {
			continue
		}
		op.f(in, acc)
		switch {
		case before == nil:
		case d == 1:
			copy(before, in)
		default:
			op.f(in, before)
		}
	}
	return nil
}

// ReduceScatterBlock is [ReduceScatter] that gives all ranks as many values (MPI_Reduce_scatter_block,
// chapter Collective Communication): send has as many for each rank as recv.
//
// Experimental: it may change in any release.
func ReduceScatterBlock[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	return reduceScatterBlockPlan(c, "MPI_Reduce_scatter_block", send, recv, op).do(ctx)
}

func reduceScatterBlockPlan[T any](c *Comm, call string, send, recv []T, op Op[T]) plan {
	return reduceScatterPlan(c, call, send, recv, slices.Repeat([]int{len(recv)}, len(c.ranks)), op)
}

// ReduceScatter combines all ranks' values, and gives each rank its part of the result, by their ranks
// (MPI_Reduce_scatter, chapter Collective Communication). counts says how many values each rank gets, and
// is the same at all ranks. An operation that commutes is combined by exchanges of pairs, others by
// Reduce and Scatterv. Between the groups of an intercommunicator counts are those of a group's own
// ranks, and their sum is the same in both.
//
// Experimental: it may change in any release.
func ReduceScatter[T any](ctx context.Context, c *Comm, send, recv []T, counts []int, op Op[T]) error {
	return reduceScatterPlan(c, "MPI_Reduce_scatter", send, recv, counts, op).do(ctx)
}

func reduceScatterPlan[T any](c *Comm, call string, send, recv []T, counts []int, op Op[T]) plan {
	if err := checkReduce(call, send, recv, op, false); err != nil {
		return plan{c: c, err: err}
	}
	n, me := len(c.ranks), c.rank
	x, err := Parts{Counts: counts}.check(c, n, call, "send", len(send), false)
	if err != nil {
		return plan{c: c, err: err}
	}
	switch total, k := x.end[n-1], x.end[me]-x.first[me]; {
	case total != len(send):
		return plan{c: c, err: fail(call, "send", ErrCount, "it has %d values, and the counts say %d", len(send), total)}
	case k != len(recv):
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values, and this rank's count is %d", len(recv), k)}
	}
	if c.Inter() {
		return interReduceScatter(c, call, send, recv, slices.Clone(counts), op)
	}
	size, err := sizeOf[T](call)
	if err != nil {
		return plan{c: c, err: err}
	}
	out, _ := bytesOf(call, send)
	counts = slices.Clone(counts)
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		if !op.commutes {
			var all []T
			if me == 0 {
				all = make([]T, len(send))
			}
			if err := reducePlan(c, call, send, all, op, 0).run(ctx, r); err != nil {
				return err
			}
			return scattervPlan(c, call, all, Parts{Counts: counts}, recv, 0).run(ctx, r)
		}
		acc, in := slices.Clone(send[x.first[me]:x.end[me]]), make([]T, len(recv))
		inBytes, _ := bytesOf(call, in)
		for d := 1; d < n; d++ {
			to, from := (me+d)%n, (me-d+n)%n
			if err := r.exchange(ctx, x.of(out, size, to), to, inBytes, from); err != nil {
				return err
			}
			op.f(in, acc)
		}
		copy(recv, acc)
		return nil
	}}
}
