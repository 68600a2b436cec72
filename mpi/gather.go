package mpi

import (
	"cmp"
	"context"
	"slices"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Gather gives one rank the values of all, by their ranks (MPI_Gather, chapter Collective
// Communication), by a binomial tree. All give as many. recv is used at root alone, and has room
// for all.
//
// Experimental: it may change in any release.
func Gather[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	return gatherPlan(c, "MPI_Gather", send, recv, root).do(ctx)
}

func gatherPlan[T any](c *Comm, call string, send, recv []T, root int) plan {
	if c.Inter() {
		return interGather(c, call, send, recv, root)
	}
	if err := c.checkRoot(call, root); err != nil {
		return plan{c: c, err: err}
	}
	n, k := len(c.ranks), len(send)
	if c.rank == root && len(recv) != n*k {
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values, want %d", len(recv), n*k)}
	}
	if _, err := bytesOf(call, send); err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		t := c.rotated(root)
		all, part := branchValues[T](call, &t, k)
		copy(all, send)
		if err := t.up(ctx, r, part, kept); err != nil || c.rank != root {
			return err
		}
		copy(recv[root*k:], all[:(n-root)*k])
		copy(recv, all[(n-root)*k:])
		return nil
	}}
}

// branchValues makes room for k values of each rank of this rank's branch. part is that of a
// branch.
func branchValues[T any](call string, t *tree, k int) (all []T, part func(branch) []byte) {
	all = make([]T, t.own.end*k)
	b, _ := bytesOf(call, all) // checked by the plan
	size := len(b) / t.own.end
	return all, func(x branch) []byte { return b[x.first*size : x.end*size] }
}

// Scatter gives each rank its part of one rank's values (MPI_Scatter, chapter Collective
// Communication), by a binomial tree. send is used at root alone, and has as many for each rank as
// recv.
//
// Experimental: it may change in any release.
func Scatter[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	return scatterPlan(c, "MPI_Scatter", send, recv, root).do(ctx)
}

func scatterPlan[T any](c *Comm, call string, send, recv []T, root int) plan {
	if c.Inter() {
		return interScatter(c, call, send, recv, root)
	}
	if err := c.checkRoot(call, root); err != nil {
		return plan{c: c, err: err}
	}
	n, k := len(c.ranks), len(recv)
	if c.rank == root && len(send) != n*k {
		return plan{c: c, err: fail(call, "send", ErrCount, "it has %d values, want %d", len(send), n*k)}
	}
	if _, err := bytesOf(call, recv); err != nil {
		return plan{c: c, err: err}
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		t := c.rotated(root)
		all, part := branchValues[T](call, &t, k)
		if c.rank == root {
			copy(all, send[root*k:])
			copy(all[(n-root)*k:], send[:root*k])
		}
		if err := t.down(ctx, r, part); err != nil {
			return err
		}
		copy(recv, all[:k])
		return nil
	}}
}

// Parts says where each rank's values lie in a buffer: Counts[i] values of rank i, from Displs[i]
// on. If Displs is nil they follow one another.
//
// Experimental: it may change in any release.
type Parts struct{ Counts, Displs []int }

// parts are Parts that were checked: the memory of each rank's values.
type parts struct{ first, end []int }

// check checks that the parts of n ranks lie in a buffer of so many values. Parts that are received do
// not overlap.
func (p Parts) check(c *Comm, n int, call, arg string, values int, apart bool) (parts, error) {
	if len(p.Counts) != n || p.Displs != nil && len(p.Displs) != n {
		return parts{}, fail(call, arg, ErrCount, "there are %d counts and %d displacements for the %d ranks of %s",
			len(p.Counts), len(p.Displs), n, c.Name())
	}
	x, at := parts{make([]int, n), make([]int, n)}, 0
	for i, k := range p.Counts {
		if p.Displs != nil {
			at = p.Displs[i]
		}
		if k < 0 || at < 0 || k > values || at > values-k {
			return parts{}, fail(call, arg, ErrCount, "rank %d has %d values from %d on, and the buffer has %d",
				i, k, at, values)
		}
		x.first[i], x.end[i] = at, at+k
		at += k
	}
	if apart && p.Displs != nil {
		order := ranksTo(n)
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(x.first[a], x.first[b]) })
		last := -1
		for _, i := range order {
			if x.first[i] == x.end[i] {
				continue
			}
			if last >= 0 && x.first[i] < x.end[last] {
				return parts{}, fail(call, arg, ErrArg, "the values of ranks %d and %d overlap", last, i)
			}
			last = i
		}
	}
	return x, nil
}

// of is the memory of a rank's values, of size bytes each.
func (x *parts) of(b []byte, size, rank int) []byte { return b[x.first[rank]*size : x.end[rank]*size] }

// sizeOf is how many bytes a value takes.
func sizeOf[T any](call string) (int, error) {
	b, err := bytesOf(call, make([]T, 1))
	return len(b), err
}

// Gatherv gives one rank the values of all, of which each rank may give another number
// (MPI_Gatherv, chapter Collective Communication). The root receives all at once, in place. recv
// and its parts are used at root alone.
//
// Experimental: it may change in any release.
func Gatherv[T any](ctx context.Context, c *Comm, send, recv []T, at Parts, root int) error {
	return gathervPlan(c, "MPI_Gatherv", send, recv, at, root).do(ctx)
}

func gathervPlan[T any](c *Comm, call string, send, recv []T, at Parts, root int) plan {
	size, err := sizeOf[T](call)
	if err != nil {
		return plan{c: c, err: err}
	}
	side, err := c.sideOf(call, root)
	if err != nil {
		return plan{c: c, err: err}
	}
	out, _ := bytesOf(call, send)
	if side != rootSide {
		return gatherParts(c, call, out, nil, root, side)
	}
	x, err := at.check(c, len(c.peers), call, "recv", len(recv), true)
	if err != nil {
		return plan{c: c, err: err}
	}
	if !c.Inter() && x.end[root]-x.first[root] != len(send) {
		return plan{c: c, err: fail(call, "send", ErrCount, "it has %d values, and the root's part %d", len(send), x.end[root]-x.first[root])}
	}
	in, _ := bytesOf(call, recv)
	return gatherParts(c, call, out, x.in(in, size), root, side)
}

// side is what a rank has to do with the root of a collective.
type side int

const (
	rootSide  side = iota
	otherSide      // it sends to the root, or receives from it
	noSide         // of an intercommunicator: its group has the root
)

// sideOf checks a root, and says which side of it this rank is on.
func (c *Comm) sideOf(call string, root int) (side, error) {
	switch {
	case !c.Inter():
		if err := c.checkRoot(call, root); err != nil || root != c.rank {
			return otherSide, err
		}
		return rootSide, nil
	case root == Root:
		return rootSide, nil
	case root == ProcNull:
		return noSide, nil
	}
	return otherSide, c.checkInterRoot(call, root)
}

// in says where each rank's values lie in b.
func (x *parts) in(b []byte, size int) func(rank int) []byte {
	return func(rank int) []byte { return x.of(b, size, rank) }
}

// gatherParts gives the root what each rank sends, where part says. Each rank sends to the root directly.
func gatherParts(c *Comm, call string, out []byte, part func(rank int) []byte, root int, s side) plan {
	return plan{c: c, call: call, inter: c.Inter(), run: func(ctx context.Context, r *round) error {
		switch s {
		case noSide:
			return nil
		case otherSide:
			return r.send(ctx, out, root)
		}
		m := messages{r: r}
		defer m.abandon()
		for rank := range c.peers {
			if rank == c.rank && !c.Inter() {
				copy(part(rank), out)
			} else if err := m.recv(part(rank), rank); err != nil {
				return err
			}
		}
		return m.wait(ctx)
	}}
}

// Scatterv gives each rank its part of one rank's values, which may have different lengths
// (MPI_Scatterv, chapter Collective Communication). The root sends all at once. send and its parts
// are used at root alone.
//
// Experimental: it may change in any release.
func Scatterv[T any](ctx context.Context, c *Comm, send []T, at Parts, recv []T, root int) error {
	return scattervPlan(c, "MPI_Scatterv", send, at, recv, root).do(ctx)
}

func scattervPlan[T any](c *Comm, call string, send []T, at Parts, recv []T, root int) plan {
	size, err := sizeOf[T](call)
	if err != nil {
		return plan{c: c, err: err}
	}
	side, err := c.sideOf(call, root)
	if err != nil {
		return plan{c: c, err: err}
	}
	in, _ := bytesOf(call, recv)
	if side != rootSide {
		return scatterParts(c, call, nil, in, root, side)
	}
	x, err := at.check(c, len(c.peers), call, "send", len(send), false)
	if err != nil {
		return plan{c: c, err: err}
	}
	if !c.Inter() && x.end[root]-x.first[root] != len(recv) {
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values, and the root's part %d", len(recv), x.end[root]-x.first[root])}
	}
	out, _ := bytesOf(call, send)
	return scatterParts(c, call, x.in(out, size), in, root, side)
}

// scatterParts gives each rank its part of what the root has. The root sends all at once.
func scatterParts(c *Comm, call string, part func(rank int) []byte, in []byte, root int, s side) plan {
	return plan{c: c, call: call, inter: c.Inter(), run: func(ctx context.Context, r *round) error {
		switch s {
		case noSide:
			return nil
		case otherSide:
			return r.recv(ctx, in, root)
		}
		m := messages{r: r}
		defer m.abandon()
		for rank := range c.peers {
			if rank == c.rank && !c.Inter() {
				copy(in, part(rank))
			} else if err := m.send(part(rank), rank); err != nil {
				return err
			}
		}
		return m.wait(ctx)
	}}
}

// Allgather gives all ranks the values of all, by their ranks (MPI_Allgather, chapter Collective
// Communication): short ones by Bruck's algorithm, long ones by a ring. All give as many.
//
// Experimental: it may change in any release.
func Allgather[T any](ctx context.Context, c *Comm, send, recv []T) error {
	return allgatherPlan(c, "MPI_Allgather", send, recv).do(ctx)
}

func allgatherPlan[T any](c *Comm, call string, send, recv []T) plan {
	if c.Inter() {
		return interAllgather(c, call, send, recv)
	}
	n, k := len(c.ranks), len(send)
	if len(recv) != n*k {
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values, want %d", len(recv), n*k)}
	}
	return allgathervPlan(c, call, send, recv, Parts{Counts: slices.Repeat([]int{k}, n)})
}

// Allgatherv gives all ranks the values of all, of which each rank may give another number
// (MPI_Allgatherv, chapter Collective Communication), by the algorithms of Allgather. All ranks
// give the same counts.
//
// Experimental: it may change in any release.
func Allgatherv[T any](ctx context.Context, c *Comm, send, recv []T, at Parts) error {
	return allgathervPlan(c, "MPI_Allgatherv", send, recv, at).do(ctx)
}

func allgathervPlan[T any](c *Comm, call string, send, recv []T, at Parts) plan {
	size, err := sizeOf[T](call)
	if err != nil {
		return plan{c: c, err: err}
	}
	x, err := at.check(c, len(c.peers), call, "recv", len(recv), true)
	if err != nil {
		return plan{c: c, err: err}
	}
	if !c.Inter() && x.end[c.rank]-x.first[c.rank] != len(send) {
		return plan{c: c, err: fail(call, "send", ErrCount, "it has %d values, and this rank's part %d",
			len(send), x.end[c.rank]-x.first[c.rank])}
	}
	out, _ := bytesOf(call, send)
	in, _ := bytesOf(call, recv)
	return allgatherParts(c, call, out, x.in(in, size))
}

// allgatherParts gives all ranks what each rank sends, where part says.
func allgatherParts(c *Comm, call string, out []byte, part func(rank int) []byte) plan {
	if c.Inter() {
		return interAllgatherParts(c, call, out, part)
	}
	n, total := len(c.ranks), 0
	for rank := range n {
		total += len(part(rank))
	}
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		if total < longMessage {
			return bruck(ctx, r, out, part)
		}
		copy(part(c.rank), out)
		next, prev := (c.rank+1)%n, (c.rank-1+n)%n
		for step := range n - 1 {
			mine, theirs := (c.rank-step+n)%n, (c.rank-step-1+n)%n
			if err := r.exchange(ctx, part(mine), next, part(theirs), prev); err != nil {
				return err
			}
		}
		return nil
	}}
}

// bruck is Bruck's algorithm of gathering at all ranks: each round doubles how many ranks' values
// this rank has.
func bruck(ctx context.Context, r *round, mine []byte, part func(rank int) []byte) error {
	n, rank := len(r.c.ranks), r.c.rank
	at := make([]int, n+1) // where the values of the i-th rank from this one on begin
	for i := range n {
		at[i+1] = at[i] + len(part((rank+i)%n))
	}
	all := make([]byte, at[n])
	copy(all, mine)
	for d := 1; d < n; d *= 2 {
		m := min(d, n-d)
		// The rank that receives wants those that are the first m here.
		if err := r.exchange(ctx, all[:at[m]], (rank-d+n)%n, all[at[d]:at[d+m]], (rank+d)%n); err != nil {
			return err
		}
	}
	for i := range n {
		copy(part((rank+i)%n), all[at[i]:at[i+1]])
	}
	return nil
}

// Alltoall gives each rank its part of each rank's values, by their ranks (MPI_Alltoall, chapter
// Collective Communication), by exchanges of pairs. send and recv may be the same memory (MPI_IN_PLACE).
//
// Experimental: it may change in any release.
func Alltoall[T any](ctx context.Context, c *Comm, send, recv []T) error {
	return alltoallPlan(c, "MPI_Alltoall", send, recv).do(ctx)
}

func alltoallPlan[T any](c *Comm, call string, send, recv []T) plan {
	if c.Inter() {
		return interAlltoall(c, call, send, recv)
	}
	n := len(c.ranks)
	switch {
	case len(send)%n != 0:
		return plan{c: c, err: fail(call, "send", ErrCount, "it has %d values for %d ranks", len(send), n)}
	case len(recv) != len(send):
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values, and send %d", len(recv), len(send))}
	}
	counts := slices.Repeat([]int{len(send) / n}, n)
	return alltoallvPlan(c, call, send, Parts{Counts: counts}, recv, Parts{Counts: counts})
}

// Alltoallv gives each rank its part of each rank's values, which may have different lengths
// (MPI_Alltoallv, chapter Collective Communication), by exchanges of pairs. What a rank sends to
// another one is as much as that one receives from it. send and recv may be the same memory.
//
// Experimental: it may change in any release.
func Alltoallv[T any](ctx context.Context, c *Comm, send []T, to Parts, recv []T, from Parts) error {
	return alltoallvPlan(c, "MPI_Alltoallv", send, to, recv, from).do(ctx)
}

func alltoallvPlan[T any](c *Comm, call string, send []T, to Parts, recv []T, from Parts) plan {
	size, err := sizeOf[T](call)
	if err != nil {
		return plan{c: c, err: err}
	}
	n, me := len(c.peers), c.rank
	outs, err := to.check(c, n, call, "send", len(send), false)
	if err != nil {
		return plan{c: c, err: err}
	}
	ins, err := from.check(c, n, call, "recv", len(recv), true)
	if err != nil {
		return plan{c: c, err: err}
	}
	out, _ := bytesOf(call, send)
	in, _ := bytesOf(call, recv)
	if !c.Inter() {
		if mine, theirs := outs.of(out, size, me), ins.of(in, size, me); len(mine) != len(theirs) {
			return plan{c: c, err: fail(call, "recv", ErrCount, "this rank sends itself %d values, and receives %d",
				len(mine)/size, len(theirs)/size)}
		}
	}
	if !shm.Overlap(out, in) {
		return alltoallParts(c, call, outs.in(out, size), ins.in(in, size))
	}
	// Values that come must not replace those that are still to be sent.
	same := slices.Clone(out)
	p := alltoallParts(c, call, outs.in(same, size), ins.in(in, size))
	return p.around(func() { copy(same, out) }, nil)
}

// around is a plan that calls before at the beginning of each run, and after at the end of one that has
// not failed.
func (p plan) around(before, after func()) plan {
	run := p.run
	p.run = func(ctx context.Context, r *round) error {
		if before != nil {
			before()
		}
		err := run(ctx, r)
		if err == nil && after != nil {
			after()
		}
		return err
	}
	return p
}

// alltoallParts sends each rank what out says, and receives from each where in says, by exchanges of pairs.
func alltoallParts(c *Comm, call string, out, in func(rank int) []byte) plan {
	if c.Inter() {
		return interAlltoallParts(c, call, out, in)
	}
	n, me := len(c.ranks), c.rank
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		copy(in(me), out(me))
		for d := 1; d < n; d++ {
			next, prev := (me+d)%n, (me-d+n)%n
			if err := r.exchange(ctx, out(next), next, in(prev), prev); err != nil {
				return err
			}
		}
		return nil
	}}
}
