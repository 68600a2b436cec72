package mpi

import (
	"context"
	"errors"
	"math"

	"github.com/vmmc-go/vmmc"
)

// The memory of a shared window is rank 0's. The others map it, so each rank has all parts in its address space.

// ErrRMAShared says that memory of the ranks cannot be shared (MPI_ERR_RMA_SHARED).
//
// Experimental: it may change in any release.
const ErrRMAShared Class = 301

// sharedMemory is a rank's part of a shared window.
type sharedMemory struct {
	ownMemory
	im *vmmc.Import // of rank 0's memory, at other ranks; nil for other parts
}

func (m sharedMemory) close() error {
	if m.im == nil {
		return nil
	}
	return m.im.Close()
}

// WinAllocateShared is WinAllocate of memory that each rank reads and writes itself (MPI_Win_allocate_shared,
// chapter One-Sided Communications): see [Win.Shared]. All ranks are on one node. Their parts follow one
// another in the order of the ranks. Errors: those of WinAllocate; [ErrRMAShared]: a rank is on another
// node, or the ranks use a module that maps no memory.
//
// Experimental: it may change in any release.
func WinAllocateShared[T any](ctx context.Context, c *Comm, n int) (*Win[T], error) {
	return makeWin[T](ctx, c, "MPI_Win_allocate_shared", nil, n, true)
}

// Shared is the memory of a rank of a window that WinAllocateShared has made (MPI_Win_shared_query), until Free.
// Ranks that read and write it at the same time use atomic operations, or wait for each other by calls such
// as Fence and Barrier. [ErrRMAShared]: it is another kind of window, and not this rank's own memory.
//
// Experimental: it may change in any release.
func (w *Win[T]) Shared(rank int) ([]T, error) {
	const call = "MPI_Win_shared_query"
	if err := w.live(call, context.Background()); err != nil {
		return nil, err
	}
	switch {
	case rank < 0 || rank >= len(w.c.ranks):
		return nil, w.c.badRank(call, "rank", rank)
	case rank == w.c.rank:
		return w.own, nil
	}
	m, ok := w.ranks[rank].data.(sharedMemory)
	if !ok {
		return nil, fail(call, "win", ErrRMAShared, "%s is no shared window: WinAllocateShared makes one", w.Name())
	}
	return valuesOf[T](call, m.ownMemory)
}

// canShare is an error if this rank does not map memory of all others.
func (c *Comm) canShare(call string) error {
	for rank, process := range c.ranks {
		if module := c.j.e.Module(process); module != "shm" && rank != c.rank {
			return fail(call, "comm", ErrRMAShared,
				"rank %d is reached by module %s, which maps no memory: give a communicator of ranks on one node", rank, module)
		}
	}
	return nil
}

// shares are how many values each rank has, and how many rank 0's memory has for all.
func (c *Comm) shares(ctx context.Context, call string, n int) (each []int64, all int, err error) {
	each = make([]int64, len(c.ranks))
	if err := allgatherPlan(c, call, []int64{int64(n)}, each).do(ctx); err != nil {
		return nil, 0, err
	}
	for _, k := range each {
		if int64(all) > math.MaxInt64/16-k {
			return nil, 0, fail(call, "n", ErrArg, "the parts of all ranks are more than a program has memory for")
		}
		all += int(k)
	}
	return each, all, nil
}

// share divides rank 0's memory.
func (w *Win[T]) share(call string, each []int64) error {
	var base []byte
	var im *vmmc.Import
	switch m := w.ranks[0].data.(type) {
	case ownMemory:
		base = m
	case farMemory:
		if im = m.im; im.Mapped() == nil {
			return &Error{Call: call, Arg: "comm", Class: ErrRMAShared, Err: errors.New("rank 0's memory cannot be mapped")}
		}
		base = im.Mapped()
	}
	at := 0
	for rank, k := range each {
		part := sharedMemory{ownMemory: base[at:][: int(k)*w.size : int(k)*w.size]}
		at += int(k) * w.size
		if rank == 0 {
			part.im = im
		}
		w.ranks[rank].data, w.ranks[rank].values = part, int(k)
		if rank == w.c.rank {
			own, err := valuesOf[T](call, part.ownMemory)
			if err != nil {
				return err
			}
			w.own = own
		}
	}
	return nil
}
