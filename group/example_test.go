package group_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/node"
)

// Each member computes a part, and all know the sum. Then each gives the next one a row.
func Example() {
	program := func(ctx context.Context, g *group.Group) {
		all, err := group.Exchange(ctx, g, float64(g.Rank()+1))
		check(err)
		sum := 0.0
		for _, v := range all {
			sum += v
		}

		rows, err := group.Share[float64](ctx, g, 4)
		check(err)
		next, err := rows.Of(ctx, (g.Rank()+1)%g.Size())
		check(err)
		check(next.Put(ctx, 0, []float64{sum, sum, sum, float64(g.Rank())}))
		check(g.Barrier(ctx)) // all rows are in place
		if g.Rank() == 0 {
			fmt.Println(rows.Local())
		}
		check(g.Barrier(ctx)) // no member needs them any more
		check(rows.Close())
		check(g.Leave(ctx))
	}
	run(3, program)
	// Output: [6 6 6 2]
}

// Members find each other by their ranks, and import what all of them have exported.
func ExampleGroup_ImportAll() {
	run(2, func(ctx context.Context, g *group.Group) {
		p := processes[g.Rank()]
		mem, err := p.Alloc(64)
		check(err)
		_, err = p.Export(1, mem.Bytes())
		check(err)

		ims, err := g.ImportAll(ctx, 1)
		check(err)
		other := 1 - g.Rank()
		im, err := g.Import(ctx, other, 1)
		check(err)
		id, err := g.Member(ctx, other)
		check(err)
		if g.Rank() == 0 {
			fmt.Println(ims[0] == nil, ims[1].Exporter() == id, im.Exporter() == id)
			fmt.Println(g.LocalRank(), "of", g.LocalSize(), "on", g.Node(other))
		}
		check(g.Barrier(ctx))
	})
	// Output:
	// true true true
	// 0 of 2 on n1
}

// A member that dies ends the collectives of the others. They learn its rank.
func ExampleGroup_Gone() {
	run(2, func(ctx context.Context, g *group.Group) {
		check(g.Barrier(ctx))
		if g.Rank() == 1 {
			check(processes[1].Close()) // without Leave
			return
		}
		err := g.Barrier(ctx)
		if gone := (group.MemberGoneError{}); errors.As(err, &gone) {
			fmt.Println(gone.Rank, errors.Is(err, vmmc.ErrPeerGone))
		}
		fmt.Println(<-g.Gone())
	})
	// Output:
	// 1 true
	// 1
}

var processes []*vmmc.Process

// run does what "vmmc run -n" does with a program, with processes of one program.
func run(n int, program func(ctx context.Context, g *group.Group)) {
	ctx := context.Background()
	here, err := node.Start(node.WithName("n1"))
	check(err)
	defer here.Close()
	check(os.Setenv("VMMC_GROUP", fmt.Sprintf("1:00112233445566778899aabbccddeeff:n1*%d", n)))
	check(os.Setenv("VMMC_SIZE", fmt.Sprint(n)))
	processes = nil
	var gs []*group.Group
	for rank := range n {
		check(os.Setenv("VMMC_RANK", fmt.Sprint(rank)))
		p, err := vmmc.Open(ctx, vmmc.WithSocket(here.Socket()))
		check(err)
		defer p.Close()
		g, err := group.Join(ctx, p)
		check(err)
		processes, gs = append(processes, p), append(gs, g)
	}
	for _, name := range []string{"VMMC_GROUP", "VMMC_SIZE", "VMMC_RANK"} {
		check(os.Unsetenv(name))
	}
	var wg sync.WaitGroup
	for _, g := range gs {
		wg.Go(func() { program(ctx, g) })
	}
	wg.Wait()
	for _, g := range gs {
		check(g.Leave(ctx))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Programs that were started apart make a group, once they have agreed on its description.
func ExampleJoinAs() {
	ctx := context.Background()
	p, err := vmmc.Open(ctx)
	check(err)
	defer p.Close()
	g, err := group.JoinAs(ctx, p, "1:0f1e2d3c4b5a69788796a5b4c3d2e1f0:n1*2,n2", 0)
	check(err)
	check(errors.Join(g.Barrier(ctx), g.Leave(ctx)))
}
