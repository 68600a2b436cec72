package cookbook

import (
	"context"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/view"
)

// Heat has heat spread along a rod, whose left end is kept at 100. Each member of the group has a
// piece of the rod, and gives its neighbours the cells at the ends. Step s uses half s%2 of what is
// shared: a member that is a step ahead does not overwrite what another one has yet to read.
func Heat(ctx context.Context, p *vmmc.Process, cells, steps int) []float64 {
	g, err := group.Join(ctx, p)
	check(err)
	ends, err := group.Share[float64](ctx, g, 4)
	check(err)
	var left, right *view.Remote[float64]
	if g.Rank() > 0 {
		left, err = ends.Of(ctx, g.Rank()-1)
		check(err)
	}
	if g.Rank() < g.Size()-1 {
		right, err = ends.Of(ctx, g.Rank()+1)
		check(err)
	}
	here, next := make([]float64, cells+2), make([]float64, cells+2)
	for s := range steps {
		half := s % 2 * 2
		if left != nil {
			check(left.Store(ctx, half+1, here[1]))
		}
		if right != nil {
			check(right.Store(ctx, half, here[cells]))
		}
		check(g.Barrier(ctx)) // what all have stored is in place
		here[0], here[cells+1] = ends.Local()[half], ends.Local()[half+1]
		if left == nil {
			here[0] = 100
		}
		for i := 1; i <= cells; i++ {
			next[i] = here[i] + (here[i-1]-2*here[i]+here[i+1])/4
		}
		here, next = next, here
	}
	check(g.Leave(ctx))
	return here[1 : cells+1]
}
