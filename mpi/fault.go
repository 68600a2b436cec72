package mpi

import (
	"context"
	"slices"
)

// Revoke ends the use of a communicator, at all its ranks (MPI_Comm_revoke). Any rank may call it
// alone. Calls of the communicator that wait, and all later ones, fail with [ErrRevoked] at all ranks
// that live, also if this rank ends at once. Only [Comm.Shrink], [Comm.Agree], [Comm.AckFailed],
// [Comm.GetFailed] and calls that send nothing can be used then. Other communicators of the same ranks
// are not revoked.
//
// A rank that notices a failure revokes the communicator, so that the others, which may wait for a
// rank that lives, come to know of it:
//
//	if err := step(ctx, comm); err != nil {
//		_ = comm.Revoke() // an error: this rank knows already, or MPI is finalized
//		comm, err = comm.Shrink(ctx)
//	}
//
// A window, or a communicator that was made of this one, is not revoked with it.
//
// Experimental: it may change in any release.
func (c *Comm) Revoke() error {
	return c.raise(wrap("MPI_Comm_revoke", c.j.e.Revoke(c.id, c.all)))
}

// Revoked reports whether this rank knows that the communicator is revoked (MPI_Comm_is_revoked).
//
// Experimental: it may change in any release.
func (c *Comm) Revoked() bool { return c.j.e.Revoked(c.id) }

// GetFailed returns the ranks of the communicator that this rank knows to be gone, in the order in
// which it has noticed them (MPI_Comm_get_failed). Other ranks may not have noticed them yet.
//
// Experimental: it may change in any release.
func (c *Comm) GetFailed() Group { return c.Group().with(c.j.e.Failed(c.all)) }

// AckFailed acknowledges the first n ranks of [Comm.GetFailed], all if n is larger, and returns
// how many this rank has acknowledged (MPI_Comm_ack_failed). A receive from AnySource, and a probe, fail
// only if a rank is gone that was not acknowledged. So does [Comm.Agree], if any rank has not
// acknowledged it. [ErrArg]: n is negative.
//
// Experimental: it may change in any release.
func (c *Comm) AckFailed(n int) (_ int, err error) {
	defer func() { err = c.raise(err) }()
	if n < 0 {
		return 0, fail("MPI_Comm_ack_failed", "num_to_ack", ErrArg, "it is %d, want 0 and up", n)
	}
	failed := c.j.e.Failed(c.all)
	failed = failed[:min(n, len(failed))]
	c.mu.Lock()
	defer c.mu.Unlock()
	if acked := c.ackedRanks(); len(acked) >= len(failed) {
		return len(acked), nil
	}
	c.acked.Store(&failed)
	return len(failed), nil
}

// ackedRanks are ranks in the job.
func (c *Comm) ackedRanks() []int {
	if acked := c.acked.Load(); acked != nil {
		return *acked
	}
	return nil
}

// Agree returns the bitwise and of the flags that the ranks give (MPI_Comm_agree). It is a collective,
// which does its work also if ranks end, and if the communicator is revoked: all ranks that return get the
// same flags and the same class of error, whenever a rank ends. What a rank has given that ends during
// the call may count or not. So ranks can find out whether all of them have come through a step of a
// program.
//
// Errors: [ErrProcFailed], at all ranks, if a rank is gone that not all others have acknowledged by
// [Comm.AckFailed]. The flags are those of the ranks that live then too. [ErrCanceled]: the other
// ranks wait for this one.
//
// Experimental: it may change in any release.
func (c *Comm) Agree(ctx context.Context, flags uint64) (_ uint64, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_agree"
	if ctx == nil {
		return 0, fail(call, "ctx", ErrArg, "the context is nil")
	}
	o, err := c.decide(ctx, call, flags)
	if err != nil {
		return 0, err
	}
	for rank := range c.ranks {
		if o.gone.has(rank) && !o.acked.has(rank) {
			return o.flags, fail(call, "", ErrProcFailed,
				"rank %d of %s is gone, and not all ranks have acknowledged that: call AckFailed, or go on with Shrink", rank, c.Name())
		}
	}
	return o.flags, nil
}

// Shrink makes a communicator of the ranks that live, in their order (MPI_Comm_shrink). It is a
// collective of these, also of a communicator that is revoked. All ranks get the same members, whenever
// a rank ends. So a rank that ends during the call may be a member, and is gone then.
//
// Errors: [ErrProcFailed]: the other ranks regard this one as gone, because they cannot reach it;
// [ErrCanceled]: the other ranks wait for this one.
//
// Experimental: it may change in any release.
func (c *Comm) Shrink(ctx context.Context) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_shrink"
	if ctx == nil {
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	}
	o, err := c.decide(ctx, call, 0)
	if err != nil {
		return nil, err
	}
	var members []int
	for rank := range c.ranks {
		if !o.gone.has(rank) {
			members = append(members, rank)
		}
	}
	return c.part(o.context, slices.Index(members, c.rank), members, "shrink"), nil
}

// decide agrees on flags, and on which ranks are gone. It is a collective.
func (c *Comm) decide(ctx context.Context, call string, flags uint64) (opinion, error) {
	if err := c.intra(call); err != nil {
		return opinion{}, err
	}
	a := c.newAgreement(call, flags)
	defer a.done()
	if err := a.await(ctx); err != nil {
		return opinion{}, err
	}
	if err := a.run(ctx); err != nil {
		return opinion{}, err
	}
	var gone []int
	for rank, process := range c.ranks {
		if a.mine.gone.has(rank) {
			gone = append(gone, process)
		}
	}
	if a.mine.gone.has(c.rank) {
		return opinion{}, fail(call, "", ErrProcFailed,
			"the other ranks of %s cannot reach this rank, and go on without it: end the program", c.Name())
	}
	c.j.e.Exclude(gone)
	return a.mine, nil
}
