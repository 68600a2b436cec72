package vmmc_test

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// Eight processes send numbers to two buffers in turn, one mapped where that can
// be and one not, by all kinds of calls. A reader finds no number without those
// before it, and handlers get each sender's numbers in order.
func TestOrderOfEightSenders(t *testing.T) {
	for _, way := range append(ways[1:], encrypted) {
		t.Run(way, func(t *testing.T) {
			near, far := nodes(t, way)
			b := join(t, far)
			ctx := within(t)
			const senders, each = 8, 400
			var last [senders]atomic.Uint32 // handed to a handler
			var exps [2]*vmmc.Export
			var words [2][senders]vmmc.Word
			handler := func(n vmmc.Notification) {
				i := n.Offset / 64
				if was := last[i].Swap(n.Word); was >= n.Word {
					t.Errorf("sender %d: notification of %d after that of %d", i, n.Word, was)
				}
				if odd, even := words[1][i].Load(), words[0][i].Load(); max(odd, even) < n.Word || min(odd, even)+1 < n.Word {
					t.Errorf("sender %d: notification of %d where %d and %d have arrived", i, n.Word, even, odd)
				}
			}
			for k, opts := range [][]vmmc.ExportOption{{}, {vmmc.Unmapped()}} {
				var err error
				if exps[k], err = b.Export(uint32(k), alloc(t, b, size), append(opts, vmmc.WithHandler(handler))...); err != nil {
					t.Fatal(err)
				}
				for i := range senders {
					if words[k][i], err = exps[k].Word(64 * i); err != nil {
						t.Fatal(err)
					}
				}
			}
			var wg, watch sync.WaitGroup
			var done atomic.Bool
			watch.Go(func() { // each way round: the later one first
				for !done.Load() {
					for i := range senders {
						for k := range 2 {
							late := words[k][i].Load()
							if early := words[1-k][i].Load(); early+1 < late {
								t.Errorf("sender %d: %d is there and not the one before it, but %d", i, late, early)
							}
						}
					}
					runtime.Gosched()
				}
			})
			for i := range senders {
				a := join(t, near)
				var ims [2]*vmmc.Import
				var space manual.DestSpace
				var addrs [2]manual.ProxyAddr
				for k := range ims {
					var err error
					if ims[k], err = a.Import(ctx, b.Node(), b.PID(), uint32(k)); err != nil {
						t.Fatal(err)
					}
					if addrs[k], err = space.Add(ims[k]); err != nil {
						t.Fatal(err)
					}
				}
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(i), 1))
					var r vmmc.Request
					for n := uint32(1); n <= each; n++ {
						im, w, at := ims[n%2], w32(n), 64*i
						long := make([]byte, 0, 64)
						var err error
						switch rng.IntN(7) {
						case 0:
							err = im.Send(ctx, w, at)
						case 1:
							r, err = im.SendAsync(ctx, w, at)
						case 2:
							err = im.SendNotify(ctx, w, at)
						case 3:
							r, err = im.SendNotifyAsync(ctx, w, at)
						case 4:
							_, err = im.Swap32(ctx, at, n)
						case 5:
							r, err = space.SendAsync(ctx, w, addrs[n%2]+manual.ProxyAddr(at))
						case 6: // with a get under way that reads the same word
							if _, err = im.GetAsync(ctx, long[:8], at); err == nil {
								err = im.Send(ctx, w, at)
							}
						}
						if err != nil {
							t.Errorf("sender %d, message %d: %v", i, n, err)
							return
						}
					}
					if err := ims[0].Fence(ctx); err != nil {
						t.Error(err)
					}
					if err := r.Status(); err != nil {
						t.Errorf("after a fence: %v", err)
					}
				})
			}
			wg.Wait()
			done.Store(true)
			watch.Wait()
			for i := range senders {
				if even, odd := words[0][i].Load(), words[1][i].Load(); even != each || odd != each-1 {
					t.Errorf("sender %d: %d and %d have arrived, want %d and %d", i, even, odd, each, each-1)
				}
			}
		})
	}
}
