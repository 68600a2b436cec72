package route

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var kinds = []Kind{Chain, One2All, All2All}

func draw(t *rapid.T) (k Kind, n, iterations int, route []Message) {
	k = rapid.SampledFrom(kinds).Draw(t, "kind")
	n = rapid.IntRange(2, 6).Draw(t, "ranks")
	iterations = rapid.IntRange(1, 12).Draw(t, "iterations")
	return k, n, iterations, Draw(k, rapid.Uint64().Draw(t, "seed"), n, iterations)
}

func TestRoutesAreTheManuals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, n, iterations, route := draw(t)
		if err := Check(k, n, iterations, route); err != nil {
			t.Fatalf("%v: %v", route, err)
		}
		if len(route) > Messages(k, n, iterations) {
			t.Fatalf("%d messages, announced were at most %d", len(route), Messages(k, n, iterations))
		}
	})
}

// A route that lost a message, has one twice, or sent one elsewhere is found out.
func TestOtherRoutesAreNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, n, iterations, route := draw(t)
		i := rapid.IntRange(0, len(route)-1).Draw(t, "message")
		switch rapid.IntRange(0, 4).Draw(t, "change") {
		case 0:
			route = slices.Delete(route, i, i+1)
		case 1:
			route = slices.Insert(route, i, route[i])
		case 2:
			route[i].To = (route[i].To + 1 + rapid.IntRange(0, n-2).Draw(t, "to")) % n
		case 3:
			route[i].From = (route[i].From + 1 + rapid.IntRange(0, n-2).Draw(t, "from")) % n
		case 4:
			iterations += 2
		}
		if Check(k, n, iterations, route) == nil {
			t.Fatalf("%v passes", route)
		}
	})
}

// All ranks are drawn, and no one much more often than the others.
func TestDrawsAllRanks(t *testing.T) {
	const n, iterations = 5, 5000
	got := make([]int, n)
	for _, m := range Draw(Chain, 1, n, iterations) {
		got[m.To]++
	}
	for r, times := range got {
		if times < iterations/n*8/10 || times > iterations/n*12/10 {
			t.Errorf("rank %d was drawn %d times of %d", r, times, iterations)
		}
	}
}

func TestSeedsDiffer(t *testing.T) {
	for _, k := range kinds {
		a, b, c := Draw(k, 1, 4, 20), Draw(k, 1, 4, 20), Draw(k, 2, 4, 20)
		if !slices.Equal(a, b) || slices.Equal(a, c) {
			t.Errorf("%s: a seed does not decide the route", k)
		}
	}
}
