package bench

import (
	"context"
	"encoding/binary"
	"time"
)

// completion is how long an asynchronous send takes to arrive when its sender makes
// no other call of the library: it looks at raw memory, into which the far end
// stores when it has found the message. That is one raw flag's time too much.
func completion(ctx context.Context, e *end, size int) error {
	n := e.count(size, 500, 256<<20)
	probe := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "confirm", Size: size, N: n, First: e.next(n)}
		_, err := e.with(ctx, j, func() error {
			src := make([]byte, size)
			for v := j.First; v != j.First+uint32(n); v++ {
				binary.LittleEndian.PutUint32(src[size-4:], v)
				var start time.Time
				for range burst {
					start = time.Now() // that of the last one counts
					if _, err := e.out.SendAsync(ctx, src, 0); err != nil {
						return err
					}
				}
				if err := e.raw.Await(ctx, 4, v); err != nil {
					return err
				}
				h.add(time.Since(start))
				if err := e.out.Fence(ctx); err != nil { // src is theirs until then
					return err
				}
			}
			return nil
		})
		return 0, err
	}
	r := Result{What: "overhead", Variant: "completion", Size: size, Unit: Nanos, Count: n}
	return e.compare(ctx, r, probe, nil)
}

// confirm is the far end of completion.
func confirm(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	word := make([]byte, 4)
	for v := j.First; v != j.First+uint32(j.N); v++ {
		if err := e.look(ctx, j.Size, v); err != nil {
			return nil, err
		}
		e.raw.Put(word, 0, v)
	}
	return nil, nil
}
