package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vmmc-go/vmmc"
	programs "github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// gather SILENT: a program of a group. The one of rank SILENT ends before it joins. The others print
// the sum of all ranks, or which member is missing.
func gather() int {
	if os.Args[1] == os.Getenv(nodeproto.RankEnv) {
		return 0
	}
	if err := gatherRanks(); err != nil {
		fmt.Println("fails:", err)
		return 1
	}
	return 0
}

func gatherRanks() error {
	ctx, stop := context.WithTimeout(context.Background(), 10*patience)
	defer stop()
	p, err := vmmc.Open(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	g, err := programs.Join(ctx, p)
	if err != nil {
		return err
	}
	ranks, err := programs.Exchange(ctx, g, int32(g.Rank()))
	if missing := (programs.MemberGoneError{}); errors.As(err, &missing) {
		select {
		case dead := <-g.Gone():
			fmt.Printf("%d misses %d, dead is %d\n", g.Rank(), missing.Rank, dead)
			return g.Leave(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err != nil {
		return err
	}
	sum := int32(0)
	for _, rank := range ranks {
		sum += rank
	}
	fmt.Printf("%d of %d, here %d of %d, sum %d\n", g.Rank(), g.Size(), g.LocalRank(), g.LocalSize(), sum)
	return g.Leave(ctx)
}
