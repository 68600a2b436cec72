package group

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// benchMembers are how many members the groups of the benchmarks have.
var benchMembers = []int{2, 4}

// benchNodes are on how many nodes these are, as many on each.
var benchNodes = []struct {
	name string
	n    int
}{{"one node", 1}, {"two nodes", 2}}

// BenchmarkBarrier compares a barrier with its raw limit: in each of its rounds, of which there are as
// many as the size has binary digits, each member sends a word to another one and awaits one.
func BenchmarkBarrier(b *testing.B) {
	benchmarkCollective(b, func(ctx context.Context, g *Group, _ int) error { return g.Barrier(ctx) })
}

// BenchmarkExchange compares an exchange of a word of each member with the raw limit of a barrier.
func BenchmarkExchange(b *testing.B) {
	benchmarkCollective(b, func(ctx context.Context, g *Group, i int) error {
		vs, err := Exchange(ctx, g, uint64(i)<<8|uint64(g.Rank()))
		for rank, v := range vs {
			if v != uint64(i)<<8|uint64(rank) {
				return fail("exchange", vmmc.ErrProtocol, "a member has another value")
			}
		}
		return err
	})
}

func benchmarkCollective(
	b *testing.B, f func(ctx context.Context, g *Group, i int) error,
) {
	for _, on := range benchNodes {
		for _, n := range benchMembers {
			counts := make([]int, on.n)
			for i := range counts {
				counts[i] = n / on.n
			}
			nodes := vmmctest.Nodes(b, on.n)
			name := func(what string) string { return what + "/" + on.name + "/" + string(rune('0'+n)) }
			b.Run(name("raw"), func(b *testing.B) { rawRounds(b, nodes, counts, n) })
			gs := joined(b, nodes, newGroup(nodes, counts...), n, 0)
			run := func(b *testing.B, count int) {
				each(b, gs, func(ctx context.Context, g *Group) error {
					for i := range count {
						if err := f(ctx, g, i); err != nil {
							return err
						}
					}
					return nil
				})
			}
			run(b, 1) // connects
			b.Run(name("group"), func(b *testing.B) {
				b.ReportAllocs()
				b.ResetTimer()
				run(b, b.N)
			})
			each(b, gs, func(ctx context.Context, g *Group) error { return g.Leave(ctx) })
		}
	}
}

// rawRounds is the raw limit: messages of a word, and waits for them.
func rawRounds(b *testing.B, nodes []*vmmctest.Node, counts []int, n int) {
	ctx := within(b)
	var ps []*vmmc.Process
	for i, count := range counts {
		for range count {
			ps = append(ps, nodes[i].Open(b))
		}
	}
	rounds := 0
	for 1<<rounds < n {
		rounds++
	}
	words, to := make([][]vmmc.Word, n), make([][]*vmmc.Import, n)
	for i, p := range ps {
		mem, err := p.Alloc(64)
		if err != nil {
			b.Fatal(err)
		}
		e, err := p.Export(1, mem.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		for k := range rounds {
			w, err := e.Word(4 * k)
			if err != nil {
				b.Fatal(err)
			}
			words[i] = append(words[i], w)
		}
	}
	for i, p := range ps {
		for k := range rounds {
			q := ps[(i+1<<k)%n]
			im, err := p.Import(ctx, q.Node(), q.PID(), 1)
			if err != nil {
				b.Fatal(err)
			}
			to[i] = append(to[i], im)
		}
	}
	errs := make(chan error, n)
	b.ResetTimer()
	for i := range ps {
		go func() {
			src := make([]byte, 4)
			for v := range uint32(b.N) {
				binary.NativeEndian.PutUint32(src, v+1)
				for k, im := range to[i] {
					if err := im.Send(ctx, src, 4*k); err != nil {
						errs <- err
						return
					}
					for words[i][k].Load() < v+1 {
						if _, err := words[i][k].Wait(ctx, v); err != nil {
							errs <- err
							return
						}
					}
				}
			}
			errs <- nil
		}()
	}
	for range ps {
		if err := <-errs; err != nil {
			b.Error(err)
		}
	}
	b.StopTimer()
	for i, p := range ps {
		if err := p.Close(); err != nil {
			b.Errorf("process %d: %v", i, err)
		}
	}
}
