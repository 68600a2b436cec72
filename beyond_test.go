package vmmc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Atomics of several importers, by all ways, and of the exporter itself are one
// step each: no count is lost, no ticket given out twice.
func TestAtomicsCountEverything(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			b := join(t, far)
			ctx := within(t)
			mem := alloc(t, b, size)
			var opts []vmmc.ExportOption
			if way != "mapped" {
				opts = append(opts, vmmc.Unmapped())
			}
			exp, err := b.Export(7, mem, opts...)
			if err != nil {
				t.Fatal(err)
			}
			const workers, each = 4, 300
			var wg sync.WaitGroup
			var mu sync.Mutex
			tickets := map[uint64]bool{}
			for range workers {
				im, err := join(t, near).Import(ctx, b.Node(), b.PID(), 7)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					for range each {
						if _, err := im.FetchAdd32(ctx, 0, 3); err != nil {
							t.Error(err)
						}
						n, err := im.FetchAdd64(ctx, 8, 1<<33+1)
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						if tickets[n] {
							t.Errorf("ticket %d was given out twice", n)
						}
						tickets[n] = true
						mu.Unlock()
						for { // a lock, and what it protects
							if _, ok, err := im.CompareAndSwap32(ctx, 16, 0, 1); err != nil || ok {
								break
							}
						}
						var v [4]byte
						if err := im.Get(ctx, v[:], 20); err != nil {
							t.Error(err)
						}
						if err := im.Send(ctx, w32(binary.LittleEndian.Uint32(v[:])+1), 20); err != nil {
							t.Error(err)
						}
						if old, err := im.Swap32(ctx, 16, 0); old != 1 || err != nil {
							t.Errorf("the lock was %d, %v", old, err)
						}
					}
				})
			}
			w, _ := exp.Word(0)
			for range each {
				w.Add(3)
			}
			wg.Wait()
			w64, err := exp.Word64(8)
			if err != nil {
				t.Fatal(err)
			}
			if n := w.Load(); n != (workers+1)*each*3 {
				t.Errorf("32 bits: %d", n)
			}
			if n := w64.Load(); n != workers*each*(1<<33+1) {
				t.Errorf("64 bits: %d", n)
			}
			if n := binary.LittleEndian.Uint32(mem[20:]); n != workers*each {
				t.Errorf("under the lock: %d", n)
			}
		})
	}
}

func TestAtomicsOneByOne(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			ctx := within(t)
			clear(s.exp.Bytes())
			w, err := s.exp.Word64(64)
			if err != nil {
				t.Fatal(err)
			}
			w.Store(7)
			if old, err := s.im.Swap64(ctx, 64, 9); old != 7 || err != nil {
				t.Error(old, err)
			}
			if prev, ok, err := s.im.CompareAndSwap64(ctx, 64, 8, 1); prev != 9 || ok || err != nil {
				t.Error(prev, ok, err)
			}
			if prev, ok, err := s.im.CompareAndSwap64(ctx, 64, 9, 1<<40); prev != 9 || !ok || err != nil || w.Load() != 1<<40 {
				t.Error(prev, ok, err)
			}
			if old, err := s.im.FetchAdd32(ctx, size-4, ^uint32(0)); old != 0 || err != nil {
				t.Error(old, err)
			}
			if old, err := s.im.FetchAdd32(ctx, size-4, 1); old != ^uint32(0) || err != nil {
				t.Error(old, err)
			}
			// It comes after what was sent before, and wakes who waits.
			if _, err := s.im.SendAsync(ctx, w32(41), 128); err != nil {
				t.Fatal(err)
			}
			if old, err := s.im.FetchAdd32(ctx, 128, 1); old != 41 || err != nil {
				t.Error(old, err)
			}
			flag, _ := s.exp.Word(132)
			var wg sync.WaitGroup
			wg.Go(func() {
				time.Sleep(5 * time.Millisecond)
				if _, err := s.im.Swap32(ctx, 132, 5); err != nil {
					t.Error(err)
				}
			})
			if v, err := flag.Wait(ctx, 0); v != 5 || err != nil {
				t.Error(v, err)
			}
			wg.Wait()
			for what, c := range map[string]struct {
				off, bits int
				want      error
			}{
				"over the end":      {size, 32, vmmc.ErrBadProxyAddr},
				"half over the end": {size - 4, 64, vmmc.ErrBadProxyAddr},
				"before":            {-4, 32, vmmc.ErrBadProxyAddr},
				"odd":               {2, 32, vmmc.ErrBadAlignment},
				"half odd":          {4, 64, vmmc.ErrBadAlignment},
			} {
				var errs [3]error
				if c.bits == 32 {
					_, errs[0] = s.im.FetchAdd32(ctx, c.off, 1)
					_, errs[1] = s.im.Swap32(ctx, c.off, 1)
					_, _, errs[2] = s.im.CompareAndSwap32(ctx, c.off, 0, 1)
				} else {
					_, errs[0] = s.im.FetchAdd64(ctx, c.off, 1)
					_, errs[1] = s.im.Swap64(ctx, c.off, 1)
					_, _, errs[2] = s.im.CompareAndSwap64(ctx, c.off, 0, 1)
				}
				for _, err := range errs {
					if !errors.Is(err, c.want) {
						t.Errorf("%s: %v, want %v", what, err, c.want)
					}
				}
			}
			for _, rights := range []vmmc.ExportOption{vmmc.ReadOnly(), vmmc.WriteOnly()} {
				e, im := s.another(t, 8, rights)
				if _, err := im.FetchAdd32(ctx, 0, 1); !errors.Is(err, vmmc.ErrNoRights) {
					t.Errorf("an atomic without the rights: %v", err)
				}
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Memory that begins between two 64-bit words has none that an importer's offset
// would name; the exporter says so and the import lives.
func TestWideAtomicOnNarrowMemory(t *testing.T) {
	n := start(t)
	a, b := open(t, n), open(t, n)
	ctx := within(t)
	mem := alloc(t, b, 72)
	if _, err := b.Export(7, mem[4:68], vmmc.Unmapped()); err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := im.FetchAdd64(ctx, 0, 1); !errors.Is(err, vmmc.ErrBadAlignment) {
		t.Error(err)
	}
	if old, err := im.FetchAdd32(ctx, 4, 1); old != 0 || err != nil || mem[8] != 1 {
		t.Error(old, err)
	}
}

func TestSendV(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exportedSize(t, way, 2<<20)
			ctx := within(t)
			all := pattern(2<<20-8, 5)
			for i, cuts := range [][]int{
				{len(all)},
				{0, 4, 4, 8, 400, len(all)},
				{64 << 10, 64<<10 + 4, 300 << 10, 300 << 10, 1 << 20, len(all)},
				{0, 0, 4, 4},
				{4, 400, 444, 448, 4000, 65536},
			} {
				var pieces [][]byte
				from := 0
				for _, c := range cuts {
					pieces = append(pieces, all[from:c])
					from = c
				}
				clear(s.exp.Bytes())
				if err := s.im.SendV(ctx, 8, pieces...); err != nil {
					t.Fatal(err)
				}
				if err := s.im.Fence(ctx); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(s.exp.Bytes()[8:8+from], all[:from]) {
					t.Errorf("%d: contents differ", i)
				}
			}
			for what, c := range map[string]struct {
				err, want error
			}{
				"nothing":       {s.im.SendV(ctx, 0), vmmc.ErrBadSize},
				"empty pieces":  {s.im.SendV(ctx, 0, nil, nil), vmmc.ErrBadSize},
				"odd pieces":    {s.im.SendV(ctx, 0, all[:2], all[:2]), vmmc.ErrBadAlignment},
				"too much":      {s.im.SendV(ctx, 8, all, all[:4]), vmmc.ErrBadProxyAddr},
				"an odd offset": {s.im.SendV(ctx, 2, all[:4]), vmmc.ErrBadAlignment},
			} {
				if !errors.Is(c.err, c.want) {
					t.Errorf("%s: %v, want %v", what, c.err, c.want)
				}
			}
		})
	}
}

// Words of several exports are waited for at once.
func TestWaitAny(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			s := exported(t, way)
			ctx := within(t)
			ims := []*vmmc.Import{s.im}
			var ws []vmmc.Watch
			for i := range 3 {
				e := s.exp
				if i > 0 {
					var im *vmmc.Import
					e, im = s.another(t, uint32(20+i))
					ims = append(ims, im)
				}
				w, err := e.Word(16)
				if err != nil {
					t.Fatal(err)
				}
				w.Store(0)
				ws = append(ws, vmmc.Watch{Word: w})
			}
			for _, i := range []int{2, 0, 1, 1} {
				if err := ims[i].Send(ctx, w32(ws[i].Old+1), 16); err != nil {
					t.Fatal(err)
				}
				got, err := s.b.WaitAny(ctx, ws...)
				if got != i || err != nil {
					t.Fatalf("word %d changed, not %d: %v", got, i, err)
				}
				ws[i].Old++
			}
			if _, err := s.b.WaitAny(ctx); !errors.Is(err, vmmc.ErrBadArg) {
				t.Errorf("nothing to wait for: %v", err)
			}
		})
	}
}
