package lock_test

import (
	"testing"

	"github.com/vmmc-go/vmmc/lock"
)

// BenchmarkMutex compares a lock that no other process wants, and one that two want by turns, with
// its raw limit: a compare-and-swap to take it and one to give it back.
func BenchmarkMutex(b *testing.B) {
	for _, w := range ways {
		nodes, _ := w.start(b)
		last := nodes[len(nodes)-1]
		p := last.Open(b)
		m, other := open(b, p), open(b, last.Open(b))
		ctx := within(b)
		b.Run("raw/"+w.name, func(b *testing.B) {
			for range b.N {
				if err := m.SwapTwice(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
		pair := func(b *testing.B, m *lock.Mutex) {
			h, err := m.Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		b.Run("alone/"+w.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				pair(b, m)
			}
		})
		b.Run("by turns/"+w.name, func(b *testing.B) {
			for i := range b.N {
				if i%2 == 0 {
					pair(b, m)
				} else {
					pair(b, other)
				}
			}
		})
		b.Run("contended/"+w.name, func(b *testing.B) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range b.N / 2 {
					pair(b, other)
				}
			}()
			for range b.N - b.N/2 {
				pair(b, m)
			}
			<-done
		})
	}
}
