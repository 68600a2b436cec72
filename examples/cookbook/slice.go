package cookbook

import (
	"context"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
)

// Gather waits until n others have given their parts of a slice, and returns the sum.
func Gather(ctx context.Context, p *vmmc.Process, n, part int) (sum float64) {
	samples, err := view.Export[float64](p, 1, n*part, vmmc.WithName("samples"))
	check(err)
	given, err := view.Export[uint32](p, 2, 1, vmmc.WithName("given"))
	check(err)
	for have := uint32(0); have < uint32(n); {
		have, err = view.Wait(ctx, given, 0, have)
		check(err)
	}
	for _, v := range samples.Slice() { // plain memory of this process
		sum += v
	}
	return sum
}

// Give puts a part of the slice. The count is in another export of the same process, and arrives
// after the part.
func Give(ctx context.Context, p *vmmc.Process, at int, part []float64) {
	im, err := p.ImportName(ctx, "n1/samples")
	check(err)
	samples, err := view.RemoteOf[float64](im) // refuses another type
	check(err)
	im, err = p.ImportName(ctx, "n1/given")
	check(err)
	given, err := view.RemoteOf[uint32](im)
	check(err)
	check(samples.Put(ctx, at, part)) // one message
	_, err = view.Add(ctx, given, 0, 1)
	check(err)
}
