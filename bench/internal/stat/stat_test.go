package stat_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/bench/internal/stat"
)

func TestMedian(t *testing.T) {
	if m := stat.Median(nil); !math.IsNaN(m) {
		t.Errorf("the median of nothing is %v", m)
	}
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 4}, 4},
		{[]float64{4, 1, 2, 100}, 3},
	} {
		before := append([]float64(nil), c.values...)
		if got := stat.Median(c.values); got != c.want {
			t.Errorf("the median of %v is %v, not %v", c.values, got, c.want)
		}
		if d := cmp.Diff(before, c.values); d != "" {
			t.Errorf("the values were changed: %s", d)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{10, 20, 30, 40, 50}
	for q, want := range map[float64]float64{0: 10, 1: 50, 0.25: 20, 0.9: 46, 2: 50, -1: 10} {
		if got := stat.Quantile(values, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v is %v, not %v", q, got, want)
		}
	}
}

// A ratio is of one round: medians of each side would hide that a slow round was slow for both.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	ours := map[int]float64{1: 10, 2: 20, 4: 5, 5: 1}
	theirs := map[int]float64{1: 5, 2: 10, 3: 100, 5: 0}
	if d := cmp.Diff([]float64{2, 2}, stat.Ratios(ours, theirs)); d != "" {
		t.Error(d)
	}
}
