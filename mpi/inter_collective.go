package mpi

import (
	"context"
	"slices"
)

// The collectives of intercommunicators. Where a group's values become one message, the first rank of a
// group is its leader: it exchanges with the other leader, or with the root. Where each rank's values stay
// apart, ranks of both groups exchange directly.

func interPlan(c *Comm, call string, run func(ctx context.Context, r, within *round) error) plan {
	return plan{c: c, call: call, inter: true, run: func(ctx context.Context, r *round) error {
		return run(ctx, r, r.within())
	}}
}

// checkInterRoot checks the root of a collective of an intercommunicator.
func (c *Comm) checkInterRoot(call string, root int) error {
	if root != Root && root != ProcNull && (root < 0 || root >= len(c.peers)) {
		return fail(call, "root", ErrRoot, "it is %d, want Root, ProcNull, or a rank of the other group, 0 to %d",
			root, len(c.peers)-1)
	}
	return nil
}

func interBarrier(c *Comm, call string) plan {
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		local := barrierPlan(c.local, call)
		if err := local.run(ctx, within); err != nil {
			return err
		}
		if c.rank == 0 {
			if err := r.exchange(ctx, nil, 0, nil, 0); err != nil {
				return err
			}
		}
		return local.run(ctx, within)
	})
}

func interBcast[T any](c *Comm, call string, buf []T, root int) plan {
	b, err := bytesOf(call, buf)
	if err == nil {
		err = c.checkInterRoot(call, root)
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		switch {
		case root == ProcNull:
			return nil
		case root == Root:
			return r.send(ctx, b, 0)
		case c.rank == 0:
			if err := r.recv(ctx, b, root); err != nil {
				return err
			}
		}
		return bcastPlan(c.local, call, buf, 0).run(ctx, within)
	})
}

func interAllreduce[T any](c *Comm, call string, send, recv []T, op Op[T]) plan {
	if err := checkReduce(call, send, recv, op, true); err != nil {
		return plan{c: c, err: err}
	}
	in, err := bytesOf(call, recv)
	if err != nil {
		return plan{c: c, err: err}
	}
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		sum := make([]T, len(send))
		if err := reducePlan(c.local, call, send, sum, op, 0).run(ctx, within); err != nil {
			return err
		}
		if c.rank == 0 {
			out, _ := bytesOf(call, sum)
			if err := r.exchange(ctx, out, 0, in, 0); err != nil {
				return err
			}
		}
		return bcastPlan(c.local, call, recv, 0).run(ctx, within)
	})
}

func interReduce[T any](c *Comm, call string, send, recv []T, op Op[T], root int) plan {
	err := checkReduce(call, send, recv, op, false)
	if err == nil {
		err = c.checkInterRoot(call, root)
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	in, _ := bytesOf(call, recv)
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		switch root {
		case ProcNull:
			return nil
		case Root:
			return r.recv(ctx, in, 0)
		}
		sum := make([]T, len(send))
		err := reducePlan(c.local, call, send, sum, op, 0).run(ctx, within)
		if err != nil || c.rank > 0 {
			return err
		}
		out, _ := bytesOf(call, sum)
		return r.send(ctx, out, root)
	})
}

// interReduceScatter has checked arguments: counts are those of this group.
func interReduceScatter[T any](c *Comm, call string, send, recv []T, counts []int, op Op[T]) plan {
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		var ours, theirs []T
		if c.rank == 0 {
			ours, theirs = make([]T, len(send)), make([]T, len(send))
		}
		if err := reducePlan(c.local, call, send, ours, op, 0).run(ctx, within); err != nil {
			return err
		}
		if c.rank == 0 {
			out, _ := bytesOf(call, ours)
			in, _ := bytesOf(call, theirs)
			if err := r.exchange(ctx, out, 0, in, 0); err != nil {
				return err
			}
		}
		return scattervPlan(c.local, call, theirs, Parts{Counts: counts}, recv, 0).run(ctx, within)
	})
}

func interGather[T any](c *Comm, call string, send, recv []T, root int) plan {
	in, err := bytesOf(call, recv)
	if err == nil {
		err = c.checkInterRoot(call, root)
	}
	if err == nil && root == Root && len(recv)%len(c.peers) != 0 {
		err = c.uneven(call, "recv", len(recv))
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		switch root {
		case ProcNull:
			return nil
		case Root:
			return r.recv(ctx, in, 0)
		}
		var all []T
		if c.rank == 0 {
			all = make([]T, len(send)*len(c.ranks))
		}
		err := gatherPlan(c.local, call, send, all, 0).run(ctx, within)
		if err != nil || c.rank > 0 {
			return err
		}
		out, _ := bytesOf(call, all)
		return r.send(ctx, out, root)
	})
}

// uneven is the error of a buffer that has not as many values for each rank of the other group.
func (c *Comm) uneven(call, arg string, values int) error {
	return fail(call, arg, ErrCount, "it has %d values, want as many for each of the other group's %d ranks", values, len(c.peers))
}

func interScatter[T any](c *Comm, call string, send, recv []T, root int) plan {
	out, err := bytesOf(call, send)
	if err == nil {
		err = c.checkInterRoot(call, root)
	}
	if err == nil && root == Root && len(send)%len(c.peers) != 0 {
		err = c.uneven(call, "send", len(send))
	}
	if err != nil {
		return plan{c: c, err: err}
	}
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		switch root {
		case ProcNull:
			return nil
		case Root:
			return r.send(ctx, out, 0)
		}
		var all []T
		if c.rank == 0 {
			all = make([]T, len(recv)*len(c.ranks))
			in, _ := bytesOf(call, all)
			if err := r.recv(ctx, in, root); err != nil {
				return err
			}
		}
		return scatterPlan(c.local, call, all, recv, 0).run(ctx, within)
	})
}

func interAllgather[T any](c *Comm, call string, send, recv []T) plan {
	if len(recv)%len(c.peers) != 0 {
		return plan{c: c, err: c.uneven(call, "recv", len(recv))}
	}
	n := len(c.peers)
	return allgathervPlan(c, call, send, recv, Parts{Counts: slices.Repeat([]int{len(recv) / n}, n)})
}

// interAllgatherParts has the ranks of a group receive what the other one sends by turns, and gather it
// within the group. No rank knows how much each rank of its own group sends.
func interAllgatherParts(c *Comm, call string, out []byte, part func(rank int) []byte) plan {
	n := len(c.ranks)
	counts, total := make([]int, n), 0 // bytes that each rank of this group receives
	for rank := range c.peers {
		k := len(part(rank))
		counts[rank%n] += k
		total += k
	}
	return interPlan(c, call, func(ctx context.Context, r, within *round) error {
		m := messages{r: r}
		defer m.abandon()
		if err := m.send(out, c.rank%len(c.peers)); err != nil {
			return err
		}
		mine, all := make([]byte, counts[c.rank]), make([]byte, total)
		rest := mine
		for rank := c.rank; rank < len(c.peers); rank += n {
			k := len(part(rank))
			if err := m.recv(rest[:k], rank); err != nil {
				return err
			}
			rest = rest[k:]
		}
		if err := m.wait(ctx); err != nil {
			return err
		}
		if err := allgathervPlan(c.local, call, mine, all, Parts{Counts: counts}).run(ctx, within); err != nil {
			return err
		}
		for first := range n {
			for rank := first; rank < len(c.peers); rank += n {
				all = all[copy(part(rank), all):]
			}
		}
		return nil
	})
}

func interAlltoall[T any](c *Comm, call string, send, recv []T) plan {
	n := len(c.peers)
	switch {
	case len(send)%n != 0:
		return plan{c: c, err: c.uneven(call, "send", len(send))}
	case len(recv)%n != 0:
		return plan{c: c, err: c.uneven(call, "recv", len(recv))}
	}
	to, from := slices.Repeat([]int{len(send) / n}, n), slices.Repeat([]int{len(recv) / n}, n)
	return alltoallvPlan(c, call, send, Parts{Counts: to}, recv, Parts{Counts: from})
}

// interAlltoallParts has each rank of a group send to one of the other group and receive from one, in as
// many rounds as the larger group has ranks. In some rounds a rank of the larger group does only one of
// both, or nothing.
func interAlltoallParts(c *Comm, call string, out, in func(rank int) []byte) plan {
	n := len(c.peers)
	return interPlan(c, call, func(ctx context.Context, r, _ *round) error {
		rounds := max(n, len(c.ranks))
		for d := range rounds {
			next, prev := (c.rank+d)%rounds, (c.rank-d+rounds)%rounds
			m := messages{r: r}
			err := error(nil)
			if next < n {
				err = m.send(out(next), next)
			}
			if err == nil && prev < n {
				err = m.recv(in(prev), prev)
			}
			if err == nil {
				err = m.wait(ctx)
			}
			if err != nil {
				m.abandon()
				return err
			}
		}
		return nil
	})
}
