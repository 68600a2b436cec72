package vmmc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Seeds of one hostile importer that writes anything to everything that it shares
// and says anything, while the exporter redirects, asks and closes, and an honest
// importer of other buffers finds each of its messages, notifications and atomics
// as it left them.
func TestHostileAtRandom(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newRedirectVictim(t)
			rng := rand.New(rand.NewPCG(seed, 11))
			var stop atomic.Bool
			var wg sync.WaitGroup
			defer wg.Wait()
			defer stop.Store(true)
			h := newHonest(t, c)
			wg.Go(func() { h.run(t, &stop) })
			for round := range 4 {
				o := newOutlaw(t, c.socket, seed<<8+uint64(round)+1, nil)
				l := o.loot(t, c.b, 20)
				raiding := make(chan struct{})
				hostile := rand.New(rand.NewPCG(seed, uint64(round)))
				go func() {
					defer close(raiding)
					for range 1000 {
						l.anything(t, hostile, seed%2 == 1)
					}
				}()
				c.busy(t, rng)
				<-raiding
				h.checked(t)
				c.goesOn(t)
				if err := c.exp.Close(); err != nil {
					t.Fatal(err)
				}
				mine, its := bytes.Clone(c.mem), bytes.Clone(c.target.Bytes())
				for range 200 {
					l.scrawl(hostile)
					l.scribble(hostile)
				}
				if !bytes.Equal(mine, c.mem) || !bytes.Equal(its, c.target.Bytes()) {
					t.Error("an importer that kept its mappings changes the memory after the export's end")
				}
				o.Close() // else it is the one that may import
				c.export(t)
			}
		})
	}
}

// busy is an exporter at work, whatever its importer does.
func (c *redirectVictim) busy(t testing.TB, rng *rand.Rand) {
	t.Helper()
	target := c.target.Bytes()
	for range 40 {
		from := 4 * rng.IntN(size/4)
		to := target[from : from+4+4*rng.IntN((size-from)/4)]
		if err := c.exp.PostRedir(to, 4*rng.IntN((size-len(to))/4+1)); err != nil {
			t.Fatal(err)
		}
		c.data(t)
		if rng.IntN(4) == 0 {
			c.exp.ClearDataEnd()
		}
		for over := false; !over; {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			n, first, err := c.exp.EndRedir(ctx)
			over = ctx.Err() == nil || err == nil
			cancel()
			if n < 0 || first < 0 || first > len(to) || n > len(to)-first || (n|first)%4 != 0 {
				t.Errorf("%d bytes at %d of %d were redirected, it says (%v)", n, first, len(to), err)
			}
		}
	}
}

// anything is one step of a hostile importer; one that says nothing keeps its link.
func (l *loot) anything(t testing.TB, rng *rand.Rand, says bool) {
	kinds := 6
	if says {
		kinds = 7
	}
	switch rng.IntN(kinds) {
	case 0, 1:
		l.scribble(rng)
	case 2, 3:
		l.scrawl(rng)
		l.claim.Finished().Store(l.claim.Claimed().Load())
	case 4: // the ring, but not always its tail: that ends the link
		for i := range l.ring.Size() / 4 {
			if (says || i >= 32) && i >= 16 && rng.IntN(8) == 0 {
				shm.Word(l.ring.Bytes(), 4*i).Store(rng.Uint32N(1 << rng.IntN(32)))
			}
		}
	case 5:
		l.ring.Put(shmlayout.Notification{
			Handle: l.g.Handle, Serial: l.back.Returned().Load() + 1, Off: uint64(rng.Uint32N(2 * size)),
			Word: rng.Uint32(), Redir: l.gen() - rng.Uint32N(3),
		})
	case 6:
		h := wire.Header{
			Type: wire.Type(rng.UintN(16)), Flags: uint8(rng.UintN(32)), Handle: l.g.Handle,
			Seq: uint64(1 + rng.UintN(3)), Off: uint64(4 * rng.UintN(size/2)), Size: uint64(4 + 4*rng.UintN(64)), Chunk: uint32(4 * rng.UintN(8)), Word: uint32(rng.UintN(5)),
		}
		if l.say(t, frame(h, make([]byte, h.Chunk))) != nil {
			return // the link was ended; the pages are still there
		}
	}
}

// scribble writes anything anywhere in the memory that it was given.
func (l *loot) scribble(rng *rand.Rand) {
	for _, r := range append(l.targets, l.mem) {
		binary.LittleEndian.PutUint32(r.Bytes()[4*rng.IntN(r.Size()/4):], rng.Uint32())
	}
}

// honest is a process that imports a mapped buffer and one on the stream of the same
// exporter.
type honest struct {
	ims   []*vmmc.Import
	mem   [][]byte
	notes atomic.Uint64
	sent  atomic.Uint64
	count uint32
}

func newHonest(t *testing.T, c *redirectVictim) *honest {
	t.Helper()
	h := &honest{}
	p := join(t, c.socket)
	for id, opts := range [][]vmmc.ExportOption{nil, {vmmc.Unmapped()}} {
		mem := alloc(t, c.b, size)
		opts = append(opts, vmmc.WithHandler(func(vmmc.Notification) { h.notes.Add(1) }))
		if _, err := c.b.Export(uint32(30+id), mem, opts...); err != nil {
			t.Fatal(err)
		}
		im, err := p.Import(t.Context(), c.b.Node(), c.b.PID(), uint32(30+id))
		if err != nil {
			t.Fatal(err)
		}
		h.ims, h.mem = append(h.ims, im), append(h.mem, mem)
	}
	return h
}

// run sends until it is to stop, and finds what it sent.
func (h *honest) run(t *testing.T, stop *atomic.Bool) {
	ctx := within(t)
	got := make([]byte, size-64)
	for !stop.Load() {
		h.count++
		src := pattern(size-64, h.count)
		for i, im := range h.ims {
			err := im.SendNotify(ctx, src, 64)
			if err == nil {
				h.sent.Add(1)
				err = im.Get(ctx, got, 64)
			}
			if err == nil && !bytes.Equal(got, src) {
				t.Errorf("%s: message %d is not what was sent", im.Path(), h.count)
				return
			}
			var old uint32
			if err == nil {
				old, err = im.FetchAdd32(ctx, 0, 1)
			}
			if err != nil || old != h.count-1 {
				t.Errorf("%s: message %d: the counter was %d, %v", im.Path(), h.count, old, err)
				return
			}
			if !bytes.Equal(h.mem[i][64:], src) {
				t.Errorf("%s: message %d is not in the memory", im.Path(), h.count)
				return
			}
		}
	}
}

// checked waits until the honest one's notifications so far have been run.
func (h *honest) checked(t testing.TB) {
	t.Helper()
	sent := h.sent.Load()
	for end := time.Now().Add(bound); h.notes.Load() < sent; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d notifications were run", h.notes.Load(), sent)
		}
		time.Sleep(time.Millisecond)
	}
}
