package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/vmmc-go/vmmc/mpi"
)

// A buffer is used again after a local flush. Init without a launcher makes one rank.
func ExampleWin_FlushLocal() {
	if err := flushLocally(); err != nil {
		log.Fatal(err)
	}
	// Output: halo of 1: 1 2
}

func flushLocally() error {
	ctx := context.Background()
	c, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	w, err := mpi.WinAllocate[int64](ctx, c, 2)
	if err != nil {
		return err
	}
	w.SetName("halo")
	if err := w.LockAll(ctx); err != nil {
		return err
	}
	buf := []int64{1}
	if _, err := w.Rput(buf, 0, 0); err != nil {
		return err
	}
	if err := w.FlushLocal(ctx, 0); err != nil {
		return err
	}
	buf[0] = 2 // the put no longer needs it
	if _, err := w.Rput(buf, 0, 1); err != nil {
		return err
	}
	if err := errors.Join(w.FlushLocalAll(ctx), w.UnlockAll(ctx)); err != nil {
		return err
	}
	fmt.Printf("%s of %d: %d %d\n", w.Name(), w.Group().Size(), w.Values()[0], w.Values()[1])
	return errors.Join(w.Free(ctx), c.Finalize(ctx))
}
