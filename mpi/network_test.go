package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// All ranks learn the same of the network, and each one answers a ping.
func TestNetwork(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			cs := job(t, w, 3)
			all := make([]mpi.Network, len(cs))
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				for rank := range cs {
					if d, err := c.Ping(ctx, rank); err != nil || (d > 0) != (rank != c.Rank()) {
						return fmt.Errorf("rank %d answers after %v: %w", rank, d, err)
					}
				}
				var err error
				all[c.Rank()], err = c.Network(ctx)
				return err
			})
			if n := all[0]; n.Latency <= 0 || n.Bandwidth <= 0 || n != all[1] || n != all[2] {
				t.Errorf("the ranks have measured %v", all)
			}
			t.Log(all[0])
		})
	}
	c := job(t, ways[0], 1)[0]
	if n, err := c.Network(within(t)); n != (mpi.Network{}) || err != nil {
		t.Errorf("one rank: %v, %v", n, err)
	}
	var none context.Context
	for class, f := range map[mpi.Class]func() error{
		mpi.ErrRank: func() error { _, err := c.Ping(within(t), 1); return err },
		mpi.ErrArg:  func() error { _, err := c.Ping(none, 0); return err },
	} {
		if err := f(); !errors.Is(err, class) {
			t.Errorf("want %v: %v", class, err)
		}
	}
	if _, err := c.Network(none); !errors.Is(err, mpi.ErrArg) {
		t.Errorf("Network without a context: %v", err)
	}
}
