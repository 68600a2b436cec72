package mpiabi

import "github.com/vmmc-go/vmmc/mpi"

// Chapter "One-Sided Communications": windows whose memory all ranks have in their address spaces.

const flavorShared = 314

func init() {
	register("MPI_Win_allocate_shared", winAllocateShared)
	register("MPI_Win_shared_query", winCall(0, sharedQuery))
}

func winAllocateShared(e *Env, a *arguments) error {
	size, unit, err := a.sized(0)
	if err != nil {
		return err
	}
	if err := e.optionalInfo(a, 2); err != nil {
		return err
	}
	out := a.Addr(4)
	if out == 0 {
		return fail(a.name(4), errArg, "it is NULL, want where to store the address")
	}
	if err := a.access(4, func() { *at[uint64](out) = 0 }); err != nil {
		return err
	}
	return e.newWin(a, 3, windowPart{int64(unit), int64(size), 0}, flavorShared, func(c *mpi.Comm) (*mpi.Win[byte], error) {
		return mpi.WinAllocateShared[byte](a.ctx, c, size)
	}, func(w *mpi.Win[byte]) (base uint64, err error) {
		if size > 0 {
			base = address(&w.Values()[0])
		}
		return base, a.access(4, func() { *at[uint64](out) = base })
	})
}

// sharedQuery stores where a rank's memory is in this rank's address space. MPI_PROC_NULL is the first rank that
// has memory. What this rank cannot reach has no bytes.
func sharedQuery(_ *Env, a *arguments, w *window) error {
	rank := a.Int(1)
	if rank == procNull {
		rank = 0
		for k, p := range w.parts {
			if p.size > 0 {
				rank = k
				break
			}
		}
	}
	if rank < 0 || rank >= len(w.parts) {
		return fail(a.name(1), errRank, "it is %d, and the window has the ranks 0 to %d", rank, len(w.parts)-1)
	}
	if a.Addr(4) == 0 {
		return fail(a.name(4), errArg, "it is NULL, want where to store the address")
	}
	part, base := w.parts[rank], uint64(0)
	switch {
	case rank == w.rank:
		base = w.base
	case w.values.flavor == flavorShared:
		mem, err := w.w.Shared(rank)
		if err != nil {
			return err
		}
		if len(mem) > 0 {
			base = address(&mem[0])
		}
	default:
		part.size = 0
	}
	if err := a.setInt(2, int(part.size)); err != nil {
		return err
	}
	if err := a.setInt(3, int(part.unit)); err != nil {
		return err
	}
	return a.access(4, func() { *at[uint64](a.Addr(4)) = base })
}
