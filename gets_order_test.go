package vmmc_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// A get that is made when others are over reads after them, over all imports and both paths. Among
// those that are under way together there is no order. The exporter counts in the first and last
// words of all its buffers, one after the other: so what is read later has a count that is at most
// one less.
func TestGetsAfterOthers(t *testing.T) {
	for _, way := range []string{"one node", "between nodes", "between nodes, with reconnects"} {
		t.Run(way, func(t *testing.T) {
			const long = 300 << 10
			var a, b *vmmc.Process
			var s *shaky
			if way == "between nodes, with reconnects" {
				a, b, s, _ = surviving(t, time.Minute)
			} else {
				near, far := nodes(t, way)
				a, b = join(t, near), join(t, far)
			}
			var words []vmmc.Word
			var ims []*vmmc.Import
			for id := range uint32(3) {
				var opts []vmmc.ExportOption
				if id == 1 {
					opts = append(opts, vmmc.Unmapped())
				}
				exp, err := b.Export(id, alloc(t, b, long), opts...)
				if err != nil {
					t.Fatal(err)
				}
				for _, off := range []int{0, long - 4} {
					w, err := exp.Word(off)
					if err != nil {
						t.Fatal(err)
					}
					words = append(words, w)
				}
				im, err := a.Import(within(t), b.Node(), b.PID(), id)
				if err != nil {
					t.Fatal(err)
				}
				ims = append(ims, im)
			}
			var stop atomic.Bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for n := uint32(1); !stop.Load(); n++ {
					for _, w := range words {
						w.Store(n)
					}
				}
			}()
			defer func() {
				stop.Store(true)
				<-ended
			}()
			type get struct {
				what string
				dst  []byte
				r    vmmc.Request
			}
			rounds := 16
			if testing.Short() {
				rounds = 4
			}
			newest, of := uint32(0), "" // of the gets that were over
			for round := range rounds {
				check := func(gets ...get) { // which were made after those, and are over
					t.Helper()
					was, ofWas := newest, of
					for _, g := range gets {
						first, last := binary.LittleEndian.Uint32(g.dst), binary.LittleEndian.Uint32(g.dst[len(g.dst)-4:])
						if oldest := min(first, last); oldest+1 < was {
							t.Fatalf("round %d: a %s found %d, and one before it, a %s, %d", round, g.what, oldest, ofWas, was)
						}
						if n := max(first, last); n > newest {
							newest, of = n, g.what
						}
					}
				}
				var gets []get
				for range 12 {
					im := ims[rand.N(len(ims))]
					off, n := 0, 4
					switch rand.N(3) {
					case 0:
						off = long - 4
					case 1:
						n = long
					}
					g := get{fmt.Sprintf("%v get of %d at %d", im.Path(), n, off), make([]byte, n), vmmc.Request{}}
					var err error
					if g.r, err = im.GetAsync(within(t), g.dst, off); err != nil {
						t.Fatal(err)
					}
					gets = append(gets, g)
				}
				if s != nil && round%4 == 0 {
					s.cut(true)
				}
				for _, g := range gets {
					if err := g.r.Wait(within(t)); err != nil {
						t.Fatal(err)
					}
				}
				check(gets...)
				for range 3 {
					im := ims[rand.N(len(ims))]
					g := get{fmt.Sprintf("synchronous %v get", im.Path()), make([]byte, 4), vmmc.Request{}}
					if err := im.Get(within(t), g.dst, 0); err != nil {
						t.Fatal(err)
					}
					check(g)
				}
			}
		})
	}
}
