package shm

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Spans are what a list that is looked through from one end to the other says.
func TestSpans(t *testing.T) {
	mem := make([]byte, 256)
	piece := rapid.Custom(func(t *rapid.T) []byte {
		off := rapid.IntRange(0, len(mem)-1).Draw(t, "offset")
		return mem[off : off+rapid.IntRange(1, min(24, len(mem)-off)).Draw(t, "bytes")]
	})
	rapid.Check(t, func(t *rapid.T) {
		var s Spans[*[]byte]
		var all []*[]byte
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				b := piece.Draw(t, "piece")
				if slices.ContainsFunc(all, func(o *[]byte) bool { return Overlap(*o, b) }) {
					t.Skip("nothing lies over another")
				}
				all = append(all, &b)
				s.Add(b, &b)
			},
			"remove": func(t *rapid.T) {
				b := piece.Draw(t, "piece")
				s.Remove(b)
				all = slices.DeleteFunc(all, func(o *[]byte) bool { return Addr(*o, 0) == Addr(b, 0) })
			},
			"": func(t *rapid.T) {
				slices.SortFunc(all, func(a, b *[]byte) int { return int(Addr(*a, 0)) - int(Addr(*b, 0)) })
				if got := slices.Collect(s.All()); !slices.Equal(got, all) || s.Len() != len(all) {
					t.Fatalf("it has %d of %d", len(got), len(all))
				}
				b := piece.Draw(t, "looked for")
				var over []*[]byte
				for _, o := range all {
					if Overlap(*o, b) {
						over = append(over, o)
					}
				}
				if got := slices.Collect(s.Overlapping(b)); !slices.Equal(got, over) {
					t.Fatalf("%d lie over it, there are %d", len(got), len(over))
				}
				if got := s.First(b); len(over) == 0 && got != nil || len(over) > 0 && got != over[0] {
					t.Fatalf("the first is %v, of %v", got, over)
				}
				if got := slices.Collect(s.Overlapping(b[:0])); len(got) != 0 {
					t.Fatalf("%d lie over nothing", len(got))
				}
			},
		})
	})
}
