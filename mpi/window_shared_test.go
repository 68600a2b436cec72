package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// Each rank sees what the others store in a shared window, by itself and by calls.
func TestWindowShared(t *testing.T) {
	cs := job(t, ways[0], 3)
	each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
		w, err := mpi.WinAllocateShared[uint64](ctx, c, 2*c.Rank()) // rank 0 has none
		if err != nil {
			return err
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		for i := range w.Values() {
			w.Values()[i] = uint64(10*c.Rank() + i)
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		for rank := range 3 {
			part, err := w.Shared(rank)
			if err != nil {
				return err
			}
			if len(part) != 2*rank {
				return fmt.Errorf("rank %d has %d values, want %d: %w", rank, len(part), 2*rank, errWrong)
			}
			for i, v := range part {
				if v != uint64(10*rank+i) {
					return fmt.Errorf("value %d of rank %d is %d: %w", i, rank, v, errWrong)
				}
			}
		}
		if err := w.Fence(ctx); err != nil {
			return err
		}
		// Stores by a pointer and by calls are to the same memory.
		last, err := w.Shared(2)
		if err != nil {
			return err
		}
		if err := w.LockAll(ctx); err != nil {
			return err
		}
		for range 100 {
			atomic.AddUint64(&last[3], 1)
			if _, err := w.FetchAndOp(ctx, 1, 2, 3, mpi.Sum[uint64]()); err != nil {
				return err
			}
		}
		if err := w.UnlockAll(ctx); err != nil {
			return err
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if got := atomic.LoadUint64(&last[3]); got != 23+600 {
			return fmt.Errorf("the counter is %d, want 623: %w", got, errWrong)
		}
		if _, err := w.Shared(3); !errors.Is(err, mpi.ErrRank) {
			return fmt.Errorf("of a rank that is not there: %w", err)
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
		if _, err := w.Shared(0); !errors.Is(err, mpi.ErrWin) {
			return fmt.Errorf("after Free: %w", err)
		}
		empty, err := mpi.WinAllocateShared[byte](ctx, c, 0)
		if err != nil {
			return err
		}
		if part, err := empty.Shared((c.Rank() + 1) % 3); err != nil || len(part) != 0 {
			return fmt.Errorf("an empty window has %d values: %w", len(part), err)
		}
		other, err := mpi.WinAllocate[byte](ctx, c, 8)
		if err != nil {
			return err
		}
		if _, err := other.Shared((c.Rank() + 1) % 3); !errors.Is(err, mpi.ErrRMAShared) {
			return fmt.Errorf("another rank of a window that is not shared: %w", err)
		}
		return errors.Join(empty.Free(ctx), other.Free(ctx))
	})
}

// Ranks that map no memory of each other have no shared windows, and go on.
func TestWindowNotShared(t *testing.T) {
	for _, w := range []way{ways[1], ways[2]} {
		t.Run(w.name, func(t *testing.T) {
			each(t, job(t, w, 2), func(ctx context.Context, c *mpi.Comm) error {
				if _, err := mpi.WinAllocateShared[byte](ctx, c, 8); !errors.Is(err, mpi.ErrRMAShared) {
					return fmt.Errorf("a shared window: %w", err)
				}
				own, err := mpi.WinAllocateShared[byte](ctx, c.Self(), 8)
				if err != nil {
					return err
				}
				own.Values()[7] = 1
				return errors.Join(own.Free(ctx), c.Barrier(ctx))
			})
		})
	}
}
