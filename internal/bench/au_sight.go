package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// turns is how often bound memory and sends are measured, one after the other: the
// machine may become slower or faster in between, for both then.
const turns = 10

func (r *AU) sight(ctx context.Context, c AUConfig, way, mode string, size, hot int) error {
	b, err := newBound(ctx, way, size, modes()[mode]...)
	if err != nil {
		return err
	}
	defer b.end()
	row := Sight{Way: way, Mode: b.b.Stats().Mode.String(), Bytes: size, HotPages: hot}
	see := b.seer(way)
	v, rounds := uint32(0), max(c.Rounds/turns, 1)
	var stores, sends []time.Duration
	for turn := range turns {
		if turn > 0 {
			if b.b, err = b.im.Bind(b.mem, 0, modes()[mode]...); err != nil {
				return err
			}
		}
		times, err := sample(rounds, func(i int) error {
			v++
			off := i % hot * apart
			shm.Word(b.mem, off).Store(v)
			return see(ctx, off, v)
		})
		if err != nil {
			return err
		}
		stores = append(stores, times...)
		if err := b.b.Close(); err != nil {
			return err
		}
		if times, err = b.sent(ctx, see, &v, rounds); err != nil {
			return err
		}
		sends = append(sends, times...)
	}
	slices.Sort(stores)
	slices.Sort(sends)
	row.P50NS, row.P99NS, row.SendNS = at(stores, 50), at(stores, 99), at(sends, 50)
	r.Sights = append(r.Sights, row)
	return nil
}

// sent times a word from a store until it is seen, by way of a goroutine that looks for
// it and sends it.
func (b *bound) sent(
	ctx context.Context, see func(context.Context, int, uint32) error, v *uint32, rounds int,
) ([]time.Duration, error) {
	word, src := make([]byte, 4), make([]byte, 4)
	over := make(chan error, 1)
	first, last := *v+1, *v+uint32(rounds+rounds/10)
	go func() {
		var err error
		for v := first; v <= last && err == nil; v++ {
			if err = look(ctx, shm.Word(word, 0), v); err == nil {
				shm.Word(src, 0).Store(v)
				err = b.im.Send(ctx, src, 0)
			}
		}
		over <- err
	}()
	times, err := sample(rounds, func(int) error {
		*v++
		shm.Word(word, 0).Store(*v)
		return see(ctx, 0, *v)
	})
	return times, errors.Join(err, <-over)
}

// seer waits for a value at the far end. It polls memory where no call has to fetch the value.
func (b *bound) seer(way string) func(ctx context.Context, off int, v uint32) error {
	if way != Mapped {
		return func(ctx context.Context, off int, v uint32) error {
			w := shm.Word(b.there, off)
			return b.far.WaitUntil(ctx, func() bool { return w.Load() == v })
		}
	}
	return func(ctx context.Context, off int, v uint32) error {
		return look(ctx, shm.Word(b.there, off), v)
	}
}

func look(ctx context.Context, w *atomic.Uint32, v uint32) error {
	for i := 1; w.Load() != v; i++ {
		if i%256 == 0 {
			runtime.Gosched()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// sample times f, after a while of getting used to it.
func sample(rounds int, f func(i int) error) ([]time.Duration, error) {
	out := make([]time.Duration, 0, rounds)
	for i := range rounds + rounds/10 {
		start := time.Now()
		if err := f(i); err != nil {
			return nil, err
		}
		if i >= rounds/10 {
			out = append(out, time.Since(start))
		}
	}
	slices.Sort(out)
	return out, nil
}

// at is a percentile of sorted times, in ns.
func at(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, len(sorted)*percent/100)])
}

// flag is a ping-pong between this goroutine and another one.
func (r *AU) flag(ctx context.Context, c AUConfig) error {
	b, err := newBound(ctx, Mapped, 4096, vmmc.AliasPages())
	if err != nil {
		return err
	}
	defer b.end()
	rounds := max(c.Rounds/turns, 1)
	half := func(out, in, there, back *atomic.Uint32) ([]time.Duration, error) {
		over := make(chan error, 1)
		first := out.Load()
		n := uint32(rounds + rounds/10)
		go func() {
			for v := first + 1; v != first+n+1; v++ {
				if err := look(ctx, there, v); err != nil {
					over <- err
					return
				}
				back.Store(v)
			}
			over <- nil
		}()
		v := first
		times, err := sample(rounds, func(int) error {
			v++
			out.Store(v)
			return look(ctx, in, v)
		})
		return times, errors.Join(err, <-over)
	}
	raw := make([]byte, 4096)
	var alias, plain []time.Duration
	for range turns {
		times, err := half(shm.Word(b.mem, 0), shm.Word(b.mem, 2048), shm.Word(b.there, 0), shm.Word(b.there, 2048))
		if err != nil {
			return err
		}
		alias = append(alias, times...)
		if times, err = half(shm.Word(raw, 0), shm.Word(raw, 2048), shm.Word(raw, 0), shm.Word(raw, 2048)); err != nil {
			return err
		}
		plain = append(plain, times...)
	}
	slices.Sort(alias)
	slices.Sort(plain)
	row := Flag{AliasNS: at(alias, 50) / 2, RawNS: at(plain, 50) / 2}
	row.Ratio = row.AliasNS / row.RawNS
	r.Flags = append(r.Flags, row)
	return nil
}
