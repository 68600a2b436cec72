package bench

import (
	"context"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
)

func (r *AU) idle(ctx context.Context, size int) error {
	for _, mode := range []string{"watch", "compare"} {
		b, err := newBound(ctx, Mapped, size, modes()[mode]...)
		if err != nil {
			return err
		}
		row, err := b.idle(ctx)
		b.end()
		if err != nil {
			return err
		}
		r.Idle = append(r.Idle, row)
	}
	return nil
}

func (b *bound) idle(ctx context.Context) (Idle, error) {
	row := Idle{Mode: b.b.Stats().Mode.String(), Bytes: len(b.mem)}
	for off := 0; off < len(b.mem); off += 4096 {
		shm.Word(b.mem, off).Store(1) // pages of zeros are compared without reading memory
	}
	for range 2 { // the second one finds pages that may be protected, and does so
		if err := b.b.Flush(ctx); err != nil {
			return row, err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return row, err
		}
	}
	flushes, err := sample(11, func(int) error { return b.b.Flush(ctx) })
	if err != nil {
		return row, err
	}
	row.CleanUS = at(flushes, 50) / 1e3
	// The longer a look takes, the longer are the naps, and the longer until they are so.
	look := time.Duration(at(flushes, 50))
	settle, span, stores := max(time.Second, 20*look), max(3*time.Second, 250*look), 8
	if span > 10*time.Second {
		stores = 1 // it may take as long
	}
	if err := pause(ctx, settle); err != nil {
		return row, err
	}
	start := unix.CPUTime()
	if err := pause(ctx, span); err != nil {
		return row, err
	}
	row.CPU = 100 * float64(unix.CPUTime()-start) / float64(span)
	v := uint32(1)
	var firsts []time.Duration
	for i := range stores {
		v++
		off := len(b.mem) / stores / 4 * 4 * i
		begin := time.Now()
		shm.Word(b.mem, off).Store(v)
		if err := b.far.WaitUntil(ctx, func() bool { return shm.Word(b.there, off).Load() == v }); err != nil {
			return row, err
		}
		firsts = append(firsts, time.Since(begin))
		if err := pause(ctx, settle); err != nil {
			return row, err
		}
	}
	slices.Sort(firsts)
	row.FirstUS, row.FirstMost = at(firsts, 50)/1e3, at(firsts, 100)/1e3
	return row, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
