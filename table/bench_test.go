package table_test

import (
	"context"
	"testing"

	"github.com/vmmc-go/vmmc/table"
)

// BenchmarkGet is a look-up, and beside it one get of as many bytes as a bucket has.
func BenchmarkGet(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			const n = 10_000
			o, r := start[record](b, w, n)
			for k := range n {
				put(b, o, k, 1)
			}
			ctx := context.Background()
			b.Run("table", func(b *testing.B) {
				k := 0
				for b.Loop() {
					if k += 7; k >= n {
						k -= n
					}
					if _, ok, err := r.Get(ctx, newKey(k)); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
			})
			b.Run("raw", func(b *testing.B) {
				im, dst, at := r.Import(), make([]byte, table.BucketSize[key, record](r)), 0
				for b.Loop() {
					if at += 7 * len(dst); at > im.Size()-len(dst) {
						at = 0
					}
					if err := im.Get(ctx, dst, at); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkOwner is what the owner's calls cost.
func BenchmarkOwner(b *testing.B) {
	const n = 10_000
	o, _ := start[record](b, ways[0], n)
	for k := range n {
		put(b, o, k, 1)
	}
	ctx, v := context.Background(), newRecord(1, 1)
	b.Run("Put", func(b *testing.B) {
		k := 0
		for b.Loop() {
			if k += 7; k >= n {
				k -= n
			}
			if err := o.Put(ctx, newKey(k), v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Get", func(b *testing.B) {
		k := 0
		for b.Loop() {
			if k += 7; k >= n {
				k -= n
			}
			if _, ok, err := o.Get(ctx, newKey(k)); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}
