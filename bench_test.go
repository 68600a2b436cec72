package vmmc_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// One operation after another, with the peer in this process: what a call itself
// costs. The demo measures latencies between processes.
func BenchmarkCalls(b *testing.B) {
	for _, way := range ways {
		s := exportedSize(b, way, 1<<20)
		ctx := b.Context()
		buf := make([]byte, 1<<20)
		space, addr := inDestSpace(b, s.im)
		for _, n := range []int{8, 4096, 1 << 20} {
			for name, call := range map[string]func() error{
				"Send":        func() error { return s.im.Send(ctx, buf[:n], 0) },
				"SendAddress": func() error { return space.Send(ctx, buf[:n], addr) },
				"Get":         func() error { return s.im.Get(ctx, buf[:n], 0) },
			} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, way, n), func(b *testing.B) {
					b.SetBytes(int64(n))
					for b.Loop() {
						if err := call(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			b.Run(fmt.Sprintf("SendAsync/%s/%d", way, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				var r vmmc.Request
				var err error
				for b.Loop() {
					if r, err = s.im.SendAsync(ctx, buf[:n], 0); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Wait(ctx); err != nil {
					b.Fatal(err)
				}
			})
		}
		b.Run("FetchAdd64/"+way, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.im.FetchAdd64(ctx, 0, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("SendNotify/"+way, func(b *testing.B) {
			for b.Loop() {
				if err := s.im.SendNotify(ctx, word, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An export and its end, and its memory's, beside few and beside many others: what a call costs
// must not grow with their number.
func BenchmarkExport(b *testing.B) {
	s := exported(b, "mapped")
	export := func(b *testing.B, id int) (*vmmc.Memory, *vmmc.Export) {
		m, err := s.a.Alloc(4096)
		if errors.Is(err, vmmc.ErrNoMem) {
			b.Skipf("no descriptor is left for export %d: %v", id, err)
		}
		if err != nil {
			b.Fatal(err)
		}
		e, err := s.a.Export(uint32(id), m.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		return m, e
	}
	const first = 1000
	there := 0
	for _, n := range []int{1, 100, 10_000} {
		for ; there < n; there++ {
			export(b, first+1+there)
		}
		b.Run(fmt.Sprintf("beside %d", n), func(b *testing.B) {
			for b.Loop() {
				m, e := export(b, first)
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
				if err := m.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
