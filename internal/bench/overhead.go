package bench

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/vmmc-go/vmmc"
)

// burst is how many sends follow one another; the overhead is their mean.
const burst = 64

// overhead is the time that a send call takes of its caller: the mean over a burst
// of 64, after which the sender waits until all have arrived.
func overhead(ctx context.Context, e *end, size int) error {
	n := e.count(size, e.often(2000, 300), 256<<20/burst)
	for _, variant := range []string{"sync", "async"} {
		ours := func(ctx context.Context, h *hist) (float64, error) {
			j := job{Do: "bursts", Size: size, N: n, First: e.next(n)}
			_, err := e.with(ctx, j, func() error { return e.bursts(ctx, j, variant == "async", h) })
			return 0, err
		}
		limit := func(ctx context.Context, h *hist) (float64, error) {
			j := job{Do: "bursts", Raw: true, Size: size, N: n, First: e.next(n)}
			_, err := e.with(ctx, j, func() error { return e.rawBursts(ctx, j, h) })
			return 0, err
		}
		r := Result{What: "overhead", Variant: variant, Size: size, Unit: Nanos, Count: n, LimitIs: e.limitIs("memmove and a store", "raw TCP's send call")}
		if err := e.compare(ctx, r, ours, limit); err != nil {
			return err
		}
	}
	return completion(ctx, e, size)
}

func (e *end) bursts(ctx context.Context, j job, async bool, h *hist) error {
	src := make([]byte, j.Size)
	for v := j.First; v != j.First+uint32(j.N); v++ {
		var last vmmc.Request
		binary.LittleEndian.PutUint32(src[j.Size-4:], v)
		start := time.Now()
		for range burst {
			var err error
			if async {
				last, err = e.out.SendAsync(ctx, src, 0)
			} else {
				err = e.out.Send(ctx, src, 0)
			}
			if err != nil {
				return err
			}
		}
		h.add(time.Since(start) / burst)
		if async {
			if err := last.Wait(ctx); err != nil { // they are over in their order
				return err
			}
		}
		if err := e.out.Fence(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) rawBursts(ctx context.Context, j job, h *hist) error {
	src := make([]byte, j.Size)
	for v := j.First; v != j.First+uint32(j.N); v++ {
		start := time.Now()
		for range burst {
			if e.Path != Remote {
				e.raw.Put(src, 0, v)
			} else if err := e.tcp.Send(ctx, src); err != nil {
				return err
			}
		}
		h.add(time.Since(start) / burst)
		if e.Path != Remote {
			continue
		}
		if err := e.tcp.Receive(ctx, src[:1]); err != nil {
			return err
		}
	}
	return nil
}

// takeBursts is the far end of overhead: on the remote path it looks all the time.
func takeBursts(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil || e.Path == Local {
		return nil, err
	}
	if !j.Raw {
		return nil, e.look(ctx, j.Size, j.First+uint32(j.N)-1)
	}
	for range j.N {
		if err := e.tcp.Swallow(ctx, burst*j.Size); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
