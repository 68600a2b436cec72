package link

import (
	"testing"

	"pgregory.net/rapid"
)

// A fifo is a slice from whose front one takes.
func TestFifo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fifo[int]
		var want []int
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				v := rapid.Int().Draw(t, "v")
				f.push(v)
				want = append(want, v)
			},
			"pop": func(t *rapid.T) {
				if len(want) == 0 {
					t.Skip("empty")
				}
				f.pop()
				want = want[1:]
			},
			"": func(t *rapid.T) {
				if f.len() != len(want) {
					t.Fatalf("%d items, want %d", f.len(), len(want))
				}
				for i, v := range want {
					if *f.at(i) != v {
						t.Fatalf("item %d is %d, want %d", i, *f.at(i), v)
					}
				}
			},
		})
	})
}
