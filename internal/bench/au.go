package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// AU is what automatic update took, in the form that --json prints.
type AU struct {
	Sights  []Sight  `json:"sights"`
	Flags   []Flag   `json:"flags"`
	Bulk    []Bulk   `json:"bulk"`
	Writers []Writer `json:"writers"`
	Idle    []Idle   `json:"idle"`
}

// Sight is the time from a store until it is seen at the far end.
type Sight struct {
	Way      string  `json:"way"`
	Mode     string  `json:"mode"`
	Bytes    int     `json:"bytes"`
	HotPages int     `json:"hot_pages"`
	P50NS    float64 `json:"p50_ns"`
	P99NS    float64 `json:"p99_ns"`
	SendNS   float64 `json:"send_p50_ns"` // of a goroutine that waits for that word by looking, and sends it
}

// Flag is half the round trip between two goroutines by a flag, in an alias and in
// memory that both have.
type Flag struct {
	AliasNS float64 `json:"alias_p50_ns"`
	RawNS   float64 `json:"raw_p50_ns"`
	Ratio   float64 `json:"ratio"`
}

// Bulk is a region written anew, until all of it has arrived.
type Bulk struct {
	Way       string  `json:"way"`
	Mode      string  `json:"mode"`
	Bytes     int     `json:"bytes"`
	StoreMBps float64 `json:"store_and_flush_MBps"`
	SendMBps  float64 `json:"store_and_send_MBps"`
	Flush     float64 `json:"flush_MBps"` // without the time of the stores
	Send      float64 `json:"send_MBps"`
	Ratio     float64 `json:"ratio"` // of the last two
}

// Writer is what a store costs.
type Writer struct {
	Mode    string  `json:"mode"`
	HotNS   float64 `json:"hot_page_ns"`   // a store to a page that was stored to lately
	FirstNS float64 `json:"cold_page_ns"`  // the first one to a protected page
	PlainNS float64 `json:"not_bound_ns"`  // a store to memory that is not bound
	Each    float64 `json:"cold_plain_ns"` // the same stores to one word a page, not bound
}

// Idle is a region to which nothing is stored.
type Idle struct {
	Mode      string  `json:"mode"`
	Bytes     int     `json:"bytes"`
	CPU       float64 `json:"cpu_percent"`
	CleanUS   float64 `json:"clean_flush_us"`      // a flush of it: one look at all of it
	FirstUS   float64 `json:"first_store_p50_us"`  // from the first store after a second of nothing
	FirstMost float64 `json:"first_store_most_us"` // until it was seen
}

// AUConfig says how much is measured.
type AUConfig struct {
	Ways   []string
	Sizes  []int // bound, for latencies
	Rounds int   // of a latency
	Idle   int64 // bytes that are bound and idle; 0: no measurement of idleness
	Bulk   int
}

// pages of hot memory are this far apart, so that no two are neighbours.
const apart = 8 * 4096

// RunAU measures. A row is left out if the machine cannot have it.
func RunAU(ctx context.Context, c AUConfig) (r AU, err error) {
	for _, way := range c.Ways {
		if err := r.way(ctx, c, way); err != nil {
			return r, fmt.Errorf("%s: %w", way, err)
		}
	}
	if slices.Contains(c.Ways, Mapped) {
		if err := r.flag(ctx, c); err != nil {
			return r, err
		}
		if err := r.writers(ctx); err != nil {
			return r, err
		}
	}
	if c.Idle > 0 {
		return r, r.idle(ctx, int(c.Idle))
	}
	return r, nil
}

// bound is memory that is bound, and what it is bound to.
type bound struct {
	*place
	mem, there []byte
	exp        *vmmc.Export
	im         *vmmc.Import
	b          *vmmc.Binding
}

func newBound(ctx context.Context, way string, size int, opts ...vmmc.BindOption) (b *bound, err error) {
	p, err := newPlace(ctx, way)
	if err != nil {
		return nil, err
	}
	b = &bound{place: p}
	defer func() {
		if err != nil {
			p.end()
		}
	}()
	near, err := p.near.Alloc(size)
	if err != nil {
		return nil, err
	}
	far, err := p.far.Alloc(size)
	if err != nil {
		return nil, err
	}
	b.mem, b.there = near.Bytes(), far.Bytes()
	var how []vmmc.ExportOption
	if way == Stream {
		how = append(how, vmmc.Unmapped())
	}
	if b.exp, err = p.far.Export(1, b.there, how...); err != nil {
		return nil, err
	}
	if b.im, err = p.near.Import(ctx, p.far.Node(), p.far.PID(), 1); err != nil {
		return nil, err
	}
	b.b, err = b.im.Bind(b.mem, 0, opts...)
	return b, err
}

// modes are the ways to find stores; alias is none of them.
func modes() map[string][]vmmc.BindOption {
	return map[string][]vmmc.BindOption{"watch": nil, "compare": {vmmc.CompareOnly()}}
}

func (r *AU) way(ctx context.Context, c AUConfig, way string) error {
	for _, mode := range []string{"watch", "compare"} {
		for _, size := range c.Sizes {
			for _, hot := range []int{1, 8} {
				if hot*apart > size && hot > 1 {
					continue
				}
				if err := r.sight(ctx, c, way, mode, size, hot); err != nil {
					return err
				}
			}
		}
		if err := r.bulk(ctx, c, way, mode); err != nil {
			return err
		}
	}
	return nil
}

func (r *AU) sight(ctx context.Context, c AUConfig, way, mode string, size, hot int) error {
	b, err := newBound(ctx, way, size, modes()[mode]...)
	if err != nil {
		return err
	}
	defer b.end()
	see := b.seer(way)
	v := uint32(0)
	times, err := sample(c.Rounds, func(i int) error {
		v++
		off := i % hot * apart
		shm.Word(b.mem, off).Store(v)
		return see(ctx, off, v)
	})
	if err != nil {
		return err
	}
	row := Sight{Way: way, Mode: b.b.Stats().Mode, Bytes: size, HotPages: hot, P50NS: at(times, 50), P99NS: at(times, 99)}
	if err := b.b.Close(); err != nil {
		return err
	}
	word, src := make([]byte, 4), make([]byte, 4)
	over := make(chan error, 1)
	first, last := v+1, v+uint32(c.Rounds+c.Rounds/10)
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
	times, err = sample(c.Rounds, func(int) error {
		v++
		shm.Word(word, 0).Store(v)
		return see(ctx, 0, v)
	})
	row.SendNS = at(times, 50)
	r.Sights = append(r.Sights, row)
	return errors.Join(err, <-over)
}

// seer waits for a value at the far end: by looking, where nobody has to fetch it.
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

func (r *AU) bulk(ctx context.Context, c AUConfig, way, mode string) error {
	b, err := newBound(ctx, way, c.Bulk, modes()[mode]...)
	if err != nil {
		return err
	}
	defer b.end()
	row := Bulk{Way: way, Mode: b.b.Stats().Mode, Bytes: c.Bulk}
	v := byte(0)
	fill := func() {
		v++
		for i := range page {
			page[i] = v
		}
		for off := 0; off < len(b.mem); off += len(page) {
			copy(b.mem[off:], page[:])
		}
	}
	carry := func(bring func() error) (all, alone float64, err error) {
		var alls, alones []time.Duration
		for range 11 {
			start := time.Now()
			fill()
			stored := time.Now()
			if err := bring(); err != nil {
				return 0, 0, err
			}
			alls, alones = append(alls, time.Since(start)), append(alones, time.Since(stored))
		}
		slices.Sort(alls)
		slices.Sort(alones)
		mb := float64(c.Bulk) / 1e6
		return mb / (at(alls, 50) / 1e9), mb / (at(alones, 50) / 1e9), nil
	}
	if row.StoreMBps, row.Flush, err = carry(func() error { return b.b.Flush(ctx) }); err != nil {
		return err
	}
	if err := b.b.Close(); err != nil {
		return err
	}
	row.SendMBps, row.Send, err = carry(func() error {
		return errors.Join(b.im.Send(ctx, b.mem, 0), b.im.Fence(ctx))
	})
	row.Ratio = row.Flush / row.Send
	r.Bulk = append(r.Bulk, row)
	return err
}

var page [4096]byte

// flag is a ping-pong between this goroutine and another one.
func (r *AU) flag(ctx context.Context, c AUConfig) error {
	b, err := newBound(ctx, Mapped, 4096, vmmc.AliasPages())
	if err != nil {
		return err
	}
	defer b.end()
	turn := func(out, in, there, back *atomic.Uint32) (float64, error) {
		over := make(chan error, 1)
		n := uint32(c.Rounds + c.Rounds/10)
		go func() {
			for v := uint32(1); v <= n; v++ {
				if err := look(ctx, there, v); err != nil {
					over <- err
					return
				}
				back.Store(v)
			}
			over <- nil
		}()
		v := uint32(0)
		times, err := sample(c.Rounds, func(int) error {
			v++
			out.Store(v)
			return look(ctx, in, v)
		})
		return at(times, 50) / 2, errors.Join(err, <-over)
	}
	var row Flag
	if row.AliasNS, err = turn(shm.Word(b.mem, 0), shm.Word(b.mem, 2048), shm.Word(b.there, 0), shm.Word(b.there, 2048)); err != nil {
		return err
	}
	raw := make([]byte, 4096)
	if row.RawNS, err = turn(shm.Word(raw, 0), shm.Word(raw, 2048), shm.Word(raw, 0), shm.Word(raw, 2048)); err != nil {
		return err
	}
	row.Ratio = row.AliasNS / row.RawNS
	r.Flags = append(r.Flags, row)
	return nil
}

func (r *AU) writers(ctx context.Context) error {
	const size = 4 << 20
	for _, mode := range []string{"watch", "compare"} {
		b, err := newBound(ctx, Mapped, size, modes()[mode]...)
		if err != nil {
			return err
		}
		row := Writer{Mode: b.b.Stats().Mode}
		hot := func() float64 {
			w := shm.Word(b.mem, 0)
			start := time.Now()
			for i := range uint32(1_000_000) {
				w.Store(i)
			}
			return float64(time.Since(start)) / 1e6
		}
		cold := func() float64 {
			var ts []time.Duration
			for k := range 8 {
				if pause(ctx, 50*time.Millisecond) != nil { // until it is protected
					return 0
				}
				start := time.Now()
				for off := 0; off < size; off += 4096 {
					shm.Word(b.mem, off+64).Store(uint32(k))
				}
				ts = append(ts, time.Since(start)/(size/4096))
			}
			slices.Sort(ts)
			return at(ts, 50)
		}
		row.HotNS, row.FirstNS = hot(), cold()
		if err := b.b.Close(); err != nil {
			b.end()
			return err
		}
		row.PlainNS, row.Each = hot(), cold()
		r.Writers = append(r.Writers, row)
		b.end()
	}
	return nil
}

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
	row := Idle{Mode: b.b.Stats().Mode, Bytes: len(b.mem)}
	flushes, err := sample(5, func(int) error { return b.b.Flush(ctx) })
	if err != nil {
		return row, err
	}
	row.CleanUS = at(flushes, 50) / 1e3
	const settle, span = time.Second, 3 * time.Second
	if err := pause(ctx, settle); err != nil {
		return row, err
	}
	start := unix.CPUTime()
	if err := pause(ctx, span); err != nil {
		return row, err
	}
	row.CPU = 100 * float64(unix.CPUTime()-start) / float64(span)
	v := uint32(0)
	var firsts []time.Duration
	for i := range 8 {
		v++
		off := len(b.mem) / 8 * i
		begin := time.Now()
		shm.Word(b.mem, off).Store(v)
		if err := b.far.WaitUntil(ctx, func() bool { return shm.Word(b.there, off).Load() == v }); err != nil {
			return row, err
		}
		firsts = append(firsts, time.Since(begin))
		if err := pause(ctx, settle/2); err != nil {
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
