package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
)

func (r *AU) bulk(ctx context.Context, c AUConfig, way, mode string) error {
	b, err := newBound(ctx, way, c.Bulk, modes()[mode]...)
	if err != nil {
		return err
	}
	defer b.end()
	row := Bulk{Way: way, Mode: b.b.Stats().Mode.String(), Bytes: c.Bulk}
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

func (r *AU) writers(ctx context.Context) error {
	const size = 4 << 20
	for _, mode := range []string{"watch", "compare"} {
		b, err := newBound(ctx, Mapped, size, modes()[mode]...)
		if err != nil {
			return err
		}
		row := Writer{Mode: b.b.Stats().Mode.String()}
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
