package bench

import (
	"context"
	"encoding/binary"
	"sync/atomic"
)

// ring is the memory that small puts to successive addresses go to.
const ring = 64 << 10

// rate is that of small puts by one sender, one call a put, until all have
// arrived: to successive addresses that are not polled, and to one word that the far
// end polls.
func rate(ctx context.Context, e *end, size int) error {
	n := e.count(size, e.often(1<<20, 64<<10), 1<<30)
	for _, variant := range []string{"successive", "polled"} {
		span := max(1, ring/size) * size
		if variant == "polled" {
			span = size
		}
		put := func(raw bool) probe {
			return func(ctx context.Context, _ *hist) (float64, error) {
				j := job{Do: "count", Raw: raw, Mode: variant, Size: size, N: n, First: e.next(2)}
				return e.rate(ctx, j, 1, func(j job) error {
					if raw && e.Path == Remote {
						return e.tcp.Pump(ctx, make([]byte, size), n)
					}
					return e.puts(ctx, j, span)
				})
			}
		}
		r := Result{What: "rate", Variant: variant, Size: size, Unit: Rate, Count: n, LimitIs: e.limitIs("memmove and a store", "raw TCP, a call a put")}
		if err := e.compare(ctx, r, put(false), put(true)); err != nil {
			return err
		}
	}
	return nil
}

// puts are the job's, each behind the one before in span bytes, and again from the
// beginning. The last one has another last word.
func (e *end) puts(ctx context.Context, j job, span int) error {
	src := make([]byte, j.Size)
	binary.LittleEndian.PutUint32(src[j.Size-4:], j.First)
	for i, off := 0, 0; i < j.N-1; i++ {
		if j.Raw {
			e.raw.Put(src, off, j.First)
		} else if err := e.out.Send(ctx, src, off); err != nil {
			return err
		}
		if off += j.Size; off == span {
			off = 0
		}
	}
	if j.Raw {
		e.raw.Put(src, 0, j.First+1)
		return nil
	}
	binary.LittleEndian.PutUint32(src[j.Size-4:], j.First+1)
	if err := e.out.Send(ctx, src, 0); err != nil {
		return err
	}
	return e.out.Fence(ctx)
}

// count is the far end of rate. Each put wakes a process that has a sleeping waiter, and
// polling slows the stores down. So in the variant without polling it does nothing at all.
func count(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	switch {
	case j.Raw && e.Path == Remote:
		return nil, e.tcp.Swallow(ctx, j.Size*j.N)
	case j.Mode != "polled":
		return nil, nil
	case j.Raw:
		return nil, e.raw.Await(ctx, j.Size, j.First+1)
	}
	return nil, e.look(ctx, j.Size, j.First+1)
}

// look is await as raw TCP's end waits: it goes on looking where a wait of the
// library would sleep.
func (e *end) look(ctx context.Context, size int, v uint32) error {
	return e.lookAt(ctx, size-4, v)
}

// lookAt is look for the word at off.
func (e *end) lookAt(ctx context.Context, off int, v uint32) error {
	w, err := e.in.Word(off)
	if err != nil {
		return err
	}
	for w.Load() != v {
		if err := e.waitBriefly(ctx, func() bool { return w.Load() == v }); err != nil {
			return err
		}
	}
	return nil
}

// waitBriefly waits until found, or for some microseconds: less than the time after
// which a wait sleeps. Other goroutines' waits may look, too: looks is atomic.
func (e *end) waitBriefly(ctx context.Context, found func() bool) error {
	var looks atomic.Int64
	most := int64(e.often(1024, 64))
	return e.p.WaitUntil(ctx, func() bool { return found() || looks.Add(1) >= most })
}
