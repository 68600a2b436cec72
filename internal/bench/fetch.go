package bench

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// request is what raw TCP sends to be answered: an offset and a length.
const request = 8

// fetch is the round trip of a get, with an exporter that waits as raw TCP's end
// does, one that computes and makes no call of the library, and one that sleeps.
func fetch(ctx context.Context, e *end, size int) error {
	n := e.count(size, e.often(20000, 3000), 128<<20)
	skip := n / 10
	clock := baseline.NewClock()
	modes := []string{"waiting", "computing", "sleeping"}
	if e.Path == Local {
		modes = []string{"mapped"} // the exporter has no part in it
	}
	for _, variant := range modes {
		group := time.Duration(1)
		if e.Path == Local && size <= 4096 {
			group = burst // one is too short for the clock
		}
		ours := func(ctx context.Context, h *hist) (float64, error) {
			j := job{Do: "provide", Mode: variant, Size: size, N: n + skip, First: e.next(1)}
			_, err := e.with(ctx, j, func() error {
				each, dst := h.skipping(skip), make([]byte, size)
				for range j.N {
					start := clock.Now()
					for range group {
						if err := e.out.Get(ctx, dst, 0); err != nil {
							return err
						}
					}
					each(clock.Since(start) / group)
				}
				// it is over
				return e.out.Send(ctx, binary.LittleEndian.AppendUint32(nil, j.First), e.inbox()-4)
			})
			return 0, err
		}
		floor := func(ctx context.Context, h *hist) (float64, error) {
			each := h.skipping(skip)
			if e.Path == Remote {
				j := job{Do: "provide", Raw: true, Size: size, N: n + skip}
				_, err := e.with(ctx, j, func() error { return e.tcp.Ping(ctx, request, size, j.N, each) })
				return 0, err
			}
			dst := make([]byte, size)
			for range n + skip {
				start := clock.Now()
				for range group {
					e.raw.Take(dst)
				}
				each(clock.Since(start) / group)
			}
			return 0, nil
		}
		r := Result{What: "fetch", Variant: variant, Size: size, Unit: Nanos, Count: n, LimitIs: e.limitIs("a load and memmove", "raw TCP's round trip")}
		if err := e.compare(ctx, r, ours, floor); err != nil {
			return err
		}
	}
	return nil
}

// provide is the far end of fetch.
func provide(ctx context.Context, e *end, j job) ([]float64, error) {
	over, err := e.in.Word(e.inbox() - 4)
	if err != nil {
		return nil, err
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	if j.Raw {
		return nil, e.tcp.Pong(ctx, request, j.Size, j.N)
	}
	work := 0
	for ctx.Err() == nil && over.Load() != j.First {
		switch j.Mode {
		case "waiting":
			if err := e.waitBriefly(ctx, func() bool { return over.Load() == j.First }); err != nil {
				return nil, err
			}
		case "computing":
			for range 1 << 14 { // some 10 µs without a call
				work++
			}
		default:
			unix.Nap(time.Millisecond)
		}
	}
	return []float64{float64(work)}, context.Cause(ctx)
}
