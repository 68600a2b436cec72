package ranks

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		hosts, own string
		n          int
		want       string
	}{
		{"a b c", "a", 3, "a b c"},
		{"a b c", "b", 3, "b c a"},
		{"a b c", "c", 2, "c a"},
		{"a b c", "b", 7, "b c a b c a b"},
		{"a b c", "b", 1, "b"},
		{"a", "a", 3, "a a a"},
		{"a b", "x", 4, "x a b a"},
		{"", "x", 2, "x x"},
	} {
		if got := Choose(strings.Fields(c.hosts), c.own, c.n); !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("%d of %q from %s on: %v, wanted %s", c.n, c.hosts, c.own, got, c.want)
		}
	}
}
