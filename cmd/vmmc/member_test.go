package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// member SILENT: a program of a group. The one of rank SILENT never joins. Another one publishes
// its name, and when there is a file "look" it prints what becomes of an import of each other
// member. It runs until it is ended.
func member() int {
	rank, err := strconv.Atoi(os.Getenv(nodeproto.RankEnv))
	if err == nil {
		err = lookForMembers(rank)
	}
	fmt.Println(rank, "ends:", err)
	return 1
}

func lookForMembers(rank int) error {
	if os.Args[1] == strconv.Itoa(rank) {
		fmt.Println(rank, "is silent, process", os.Getpid())
		select {}
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*patience)
	defer stop()
	g, err := nodeproto.ParseGroup(os.Getenv(nodeproto.GroupEnv))
	if err != nil {
		return err
	}
	p, err := vmmc.Open(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	mem, err := p.Alloc(4)
	if err != nil {
		return err
	}
	if _, err := p.Publish(ctx, g.MemberName(rank), mem.Bytes()); err != nil {
		return err
	}
	fmt.Println(rank, "is published, process", os.Getpid())
	for _, err := os.Stat("look"); err != nil; _, err = os.Stat("look") {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(10 * time.Millisecond)
	}
	var all sync.WaitGroup
	for other := range g.Size() {
		if other == rank {
			continue
		}
		all.Go(func() {
			_, err := p.ImportName(ctx, g.NodeOf(other)+"/"+g.MemberName(other))
			fmt.Println(rank, "imports", other, err)
		})
	}
	all.Wait()
	select {}
}
