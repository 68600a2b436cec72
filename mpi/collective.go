package mpi

import (
	"context"
	"slices"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// longMessage is from how many bytes on a collective uses the algorithm that sends the fewest bytes,
// rather than the one with the fewest rounds.
const longMessage = 16 << 10

// round is a collective that is under way: its messages have a tag of their own.
type round struct {
	c    *Comm
	call string
	tag  int
}

// begin begins a collective.
func (c *Comm) begin(ctx context.Context, call string) (*round, error) {
	if ctx == nil {
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	return &round{c, call, int(c.seq & MaxTag)}, nil
}

func (r *round) isend(buf []byte, to int) (*engine.Request, error) {
	c := r.c
	q, err := c.j.e.Isend(&engine.Target{
		Context: c.id + 1, Rank: c.ranks[to], Source: c.rank, Tag: r.tag, Group: c.ranks, Collective: true,
	}, buf, engine.Standard)
	return q, wrap(r.call, err)
}

func (r *round) send(ctx context.Context, buf []byte, to int) error {
	c := r.c
	return wrap(r.call, c.j.e.Send(ctx, &engine.Target{
		Context: c.id + 1, Rank: c.ranks[to], Source: c.rank, Tag: r.tag, Group: c.ranks, Collective: true,
	}, buf, engine.Standard))
}

func (r *round) recv(ctx context.Context, buf []byte, from int) error {
	c := r.c
	st, err := c.j.e.Recv(ctx, &engine.Source{
		Context: c.id + 1, Rank: c.ranks[from], Source: from, Tag: r.tag, Group: c.ranks, Collective: true,
	}, buf)
	switch {
	case err != nil:
		return wrap(r.call, err)
	case st.Bytes != len(buf):
		return fail(r.call, "buf", ErrCount, "rank %d has given %d bytes, and this rank %d", from, st.Bytes, len(buf))
	}
	return nil
}

// exchange sends to one rank and receives from another one.
func (r *round) exchange(ctx context.Context, out []byte, to int, in []byte, from int) error {
	q, err := r.isend(out, to)
	if err != nil {
		return err
	}
	defer q.Abandon() // out is the caller's after an error too
	if err := r.recv(ctx, in, from); err != nil {
		return err
	}
	_, err = q.Complete(ctx)
	return wrap(r.call, err)
}

// Barrier returns when all ranks have called it (MPI_Barrier), by dissemination: ⌈log2 n⌉ rounds.
//
// A collective whose context ends, or that fails, is over at this rank alone, and does not use its
// buffers any more. The communicator's other collectives have no meaning then. If a rank is gone, all
// collectives of its communicators fail with [ErrProcFailed], at all ranks.
//
// Experimental: it may change in any release.
func (c *Comm) Barrier(ctx context.Context) error {
	r, err := c.begin(ctx, "MPI_Barrier")
	if err != nil {
		return err
	}
	n := len(c.ranks)
	for d := 1; d < n; d *= 2 {
		if err := r.exchange(ctx, nil, (c.rank+d)%n, nil, (c.rank-d+n)%n); err != nil {
			return err
		}
	}
	return nil
}

func (c *Comm) checkRoot(call string, root int) error {
	if root < 0 || root >= len(c.ranks) {
		return fail(call, "root", ErrRoot, "it is %d, and %s has the ranks 0 to %d", root, c.name, len(c.ranks)-1)
	}
	return nil
}

// Bcast gives all ranks the values of one (MPI_Bcast), by a binomial tree. All give as many.
//
// Experimental: it may change in any release.
func Bcast[T any](ctx context.Context, c *Comm, buf []T, root int) error {
	return bcast(ctx, c, "MPI_Bcast", buf, root)
}

func bcast[T any](ctx context.Context, c *Comm, call string, buf []T, root int) error {
	b, err := bytesOf(call, buf)
	if err != nil {
		return err
	}
	if err := c.checkRoot(call, root); err != nil {
		return err
	}
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	n := len(c.ranks)
	at := (c.rank - root + n) % n
	d := 1
	for ; d < n; d *= 2 {
		if at&d != 0 {
			if err := r.recv(ctx, b, (at-d+root)%n); err != nil {
				return err
			}
			break
		}
	}
	for d /= 2; d > 0; d /= 2 {
		if at+d < n {
			if err := r.send(ctx, b, (at+d+root)%n); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkReduce checks the arguments of reductions.
func checkReduce[T any](call string, send, recv []T, op Op[T], needs bool) error {
	switch {
	case op.f == nil:
		return fail(call, "op", ErrOp, "it is the zero Op")
	case needs && len(send) != len(recv):
		return fail(call, "recv", ErrCount, "it has %d values, and send %d", len(recv), len(send))
	}
	return nil
}

// Reduce gives one rank the combination of all ranks' values (MPI_Reduce), by a binomial tree. All
// give as many. recv is used at root alone.
//
// Experimental: it may change in any release.
func Reduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T], root int) error {
	const call = "MPI_Reduce"
	if err := c.checkRoot(call, root); err != nil {
		return err
	}
	if err := checkReduce(call, send, recv, op, c.rank == root); err != nil {
		return err
	}
	first := root // of the tree: where the order of ranks matters it is rank 0
	if !op.commutes {
		first = 0
	}
	acc, in := slices.Clone(send), make([]T, len(send))
	accBytes, err := bytesOf(call, acc)
	if err != nil {
		return err
	}
	inBytes, _ := bytesOf(call, in)
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	n := len(c.ranks)
	at := (c.rank - first + n) % n
	for d := 1; d < n; d *= 2 {
		if at&d != 0 {
			if err := r.send(ctx, accBytes, (at-d+first)%n); err != nil {
				return err
			}
			break
		}
		if at+d < n {
			if err := r.recv(ctx, inBytes, (at+d+first)%n); err != nil {
				return err
			}
			op.f(acc, in) // these are of lower ranks than what has come
			acc, in, accBytes, inBytes = in, acc, inBytes, accBytes
		}
	}
	if first != root {
		switch c.rank {
		case first:
			return r.send(ctx, accBytes, root)
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
}

// Allreduce gives all ranks the combination of all ranks' values (MPI_Allreduce): short ones by
// recursive doubling, long ones of operations that commute by a ring. All ranks get the same bits.
//
// Experimental: it may change in any release.
func Allreduce[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	const call = "MPI_Allreduce"
	if err := checkReduce(call, send, recv, op, true); err != nil {
		return err
	}
	b, err := bytesOf(call, recv)
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	copy(recv, send)
	if n := len(c.ranks); op.commutes && len(b) >= longMessage && len(recv) >= n {
		return ringReduce(ctx, r, recv, b, op)
	}
	return doubleReduce(ctx, r, recv, b, op)
}

// doubleReduce is recursive doubling. Where the number of ranks is no power of two, the first ones
// are joined in pairs of neighbours before, so that the order of ranks is kept.
func doubleReduce[T any](ctx context.Context, r *round, acc []T, b []byte, op Op[T]) error {
	n, rank := len(r.c.ranks), r.c.rank
	power := 1
	for power*2 <= n {
		power *= 2
	}
	rest := n - power // as many pairs
	in := make([]T, len(acc))
	inBytes, err := bytesOf(r.call, in)
	if err != nil {
		return err
	}
	at := rank - rest
	if rank < 2*rest {
		if rank%2 == 0 { // its neighbour takes part for it
			if err := r.send(ctx, b, rank+1); err != nil {
				return err
			}
			return r.recv(ctx, b, rank+1)
		}
		if err := r.recv(ctx, inBytes, rank-1); err != nil {
			return err
		}
		op.f(in, acc)
		at = rank / 2
	}
	for d := 1; d < power; d *= 2 {
		other := at ^ d
		partner := other + rest
		if other < rest {
			partner = 2*other + 1
		}
		if err := r.exchange(ctx, b, partner, inBytes, partner); err != nil {
			return err
		}
		if partner < rank {
			op.f(in, acc)
		} else {
			op.f(acc, in)
			copy(acc, in)
		}
	}
	if rank < 2*rest {
		return r.send(ctx, b, rank-1)
	}
	return nil
}

// ringReduce combines a piece at each rank, in n-1 steps round the ring, and then passes the pieces
// round it.
func ringReduce[T any](ctx context.Context, r *round, acc []T, b []byte, op Op[T]) error {
	n, rank := len(r.c.ranks), r.c.rank
	size := len(b) / len(acc)
	at := func(i int) int { return (i + 2*n) % n * len(acc) / n } // where piece i begins
	end := func(i int) int { return ((i+2*n)%n + 1) * len(acc) / n }
	in := make([]T, len(acc)/n+1)
	inBytes, err := bytesOf(r.call, in)
	if err != nil {
		return err
	}
	next, prev := (rank+1)%n, (rank-1+n)%n
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

// Gather gives one rank the values of all, by their ranks (MPI_Gather), by a binomial tree. All give
// as many. recv is used at root alone, and has room for all.
//
// Experimental: it may change in any release.
func Gather[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	const call = "MPI_Gather"
	if err := c.checkRoot(call, root); err != nil {
		return err
	}
	n, k := len(c.ranks), len(send)
	if c.rank == root && len(recv) != n*k {
		return fail(call, "recv", ErrCount, "it has %d values, want %d", len(recv), n*k)
	}
	at := (c.rank - root + n) % n
	tree := min(subtree(at, n), n-at)
	all := make([]T, tree*k) // of this rank and those behind it
	copy(all, send)
	b, err := bytesOf(call, all)
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	size := len(b) / tree
	for d := 1; d < n; d *= 2 {
		if at&d != 0 {
			return r.send(ctx, b, (at-d+root)%n)
		}
		if at+d < n {
			if err := r.recv(ctx, b[d*size:min(2*d, tree)*size], (at+d+root)%n); err != nil {
				return err
			}
		}
	}
	copy(recv[root*k:], all[:(n-root)*k])
	copy(recv, all[(n-root)*k:])
	return nil
}

// subtree is how many ranks a rank's part of a binomial tree of n has at most.
func subtree(at, n int) int {
	d := 1
	for d < n && at&d == 0 {
		d *= 2
	}
	return d
}

// Scatter gives each rank its part of one rank's values (MPI_Scatter), by a binomial tree. send is
// used at root alone, and has as many for each rank as recv.
//
// Experimental: it may change in any release.
func Scatter[T any](ctx context.Context, c *Comm, send, recv []T, root int) error {
	const call = "MPI_Scatter"
	if err := c.checkRoot(call, root); err != nil {
		return err
	}
	n, k := len(c.ranks), len(recv)
	if c.rank == root && len(send) != n*k {
		return fail(call, "send", ErrCount, "it has %d values, want %d", len(send), n*k)
	}
	at := (c.rank - root + n) % n
	tree := min(subtree(at, n), n-at)
	all := make([]T, tree*k)
	if c.rank == root {
		copy(all, send[root*k:])
		copy(all[(n-root)*k:], send[:root*k])
	}
	b, err := bytesOf(call, all)
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	size := len(b) / tree
	d := subtree(at, n)
	if at != 0 {
		if err := r.recv(ctx, b, (at-d+root)%n); err != nil {
			return err
		}
	}
	for d /= 2; d > 0; d /= 2 {
		if at+d < n {
			if err := r.send(ctx, b[d*size:min(2*d, tree)*size], (at+d+root)%n); err != nil {
				return err
			}
		}
	}
	copy(recv, all[:k])
	return nil
}

// Allgather gives all ranks the values of all, by their ranks (MPI_Allgather): short ones by Bruck's
// algorithm, long ones by a ring. All give as many.
//
// Experimental: it may change in any release.
func Allgather[T any](ctx context.Context, c *Comm, send, recv []T) error {
	return allgather(ctx, c, "MPI_Allgather", send, recv)
}

func allgather[T any](ctx context.Context, c *Comm, call string, send, recv []T) error {
	n, k := len(c.ranks), len(send)
	if len(recv) != n*k {
		return fail(call, "recv", ErrCount, "it has %d values, want %d", len(recv), n*k)
	}
	b, err := bytesOf(call, recv)
	if err != nil {
		return err
	}
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	size := len(b) / n
	if len(b) >= longMessage {
		copy(recv[c.rank*k:], send)
		next, prev := (c.rank+1)%n, (c.rank-1+n)%n
		for step := range n - 1 {
			out, in := (c.rank-step+n)%n, (c.rank-step-1+n)%n
			if err := r.exchange(ctx, b[out*size:][:size], next, b[in*size:][:size], prev); err != nil {
				return err
			}
		}
		return nil
	}
	all := make([]T, n*k) // of this rank and those behind it
	copy(all, send)
	a, _ := bytesOf(call, all)
	for d := 1; d < n; d *= 2 {
		m := min(d, n-d) * size
		if err := r.exchange(ctx, a[:m], (c.rank-d+n)%n, a[d*size:][:m], (c.rank+d)%n); err != nil {
			return err
		}
	}
	copy(recv[c.rank*k:], all[:(n-c.rank)*k])
	copy(recv, all[(n-c.rank)*k:])
	return nil
}

// Alltoall gives each rank its part of each rank's values, by their ranks (MPI_Alltoall), by
// exchanges of pairs.
//
// Experimental: it may change in any release.
func Alltoall[T any](ctx context.Context, c *Comm, send, recv []T) error {
	const call = "MPI_Alltoall"
	n := len(c.ranks)
	switch {
	case len(send)%n != 0:
		return fail(call, "send", ErrCount, "it has %d values for %d ranks", len(send), n)
	case len(recv) != len(send):
		return fail(call, "recv", ErrCount, "it has %d values, and send %d", len(recv), len(send))
	}
	out, err := bytesOf(call, send)
	if err != nil {
		return err
	}
	in, _ := bytesOf(call, recv)
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	size := len(out) / n
	copy(in[c.rank*size:][:size], out[c.rank*size:])
	for d := 1; d < n; d++ {
		to, from := (c.rank+d)%n, (c.rank-d+n)%n
		if err := r.exchange(ctx, out[to*size:][:size], to, in[from*size:][:size], from); err != nil {
			return err
		}
	}
	return nil
}

// Scan gives each rank the combination of the values of all ranks up to it (MPI_Scan), by recursive
// doubling.
//
// Experimental: it may change in any release.
func Scan[T any](ctx context.Context, c *Comm, send, recv []T, op Op[T]) error {
	const call = "MPI_Scan"
	if err := checkReduce(call, send, recv, op, true); err != nil {
		return err
	}
	acc, in := slices.Clone(send), make([]T, len(send)) // of the ranks from some one to this one
	a, err := bytesOf(call, acc)
	if err != nil {
		return err
	}
	b, _ := bytesOf(call, in)
	r, err := c.begin(ctx, call)
	if err != nil {
		return err
	}
	for d := 1; d < len(c.ranks); d *= 2 {
		var q *engine.Request
		if c.rank+d < len(c.ranks) {
			if q, err = r.isend(a, c.rank+d); err != nil {
				return err
			}
		}
		if c.rank-d >= 0 {
			if err := r.recv(ctx, b, c.rank-d); err != nil {
				if q != nil {
					q.Abandon()
				}
				return err
			}
		}
		if q != nil { // before acc changes
			if _, err := q.Complete(ctx); err != nil {
				q.Abandon()
				return wrap(call, err)
			}
		}
		if c.rank-d >= 0 {
			op.f(in, acc)
		}
	}
	copy(recv, acc)
	return nil
}
