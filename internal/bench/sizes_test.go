package bench

import (
	"math"
	"slices"
	"testing"
)

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int{
		"4": 4, "64": 64, "1k": 1024, "64K": 64 << 10, "64KiB": 64 << 10, "4M": 4 << 20, "256MiB": MaxSize,
		"": 0, "3": 0, "0": 0, "-4": 0, "6": 0, "K": 0, "4G": 0, "4KM": 0, "4 K": 0, "257M": 0, "9223372036854775807M": 0, "99999999999999999999": 0, "0x40": 0,
	} {
		got, err := ParseSize(s)
		if (err == nil) != (want > 0) || got != want {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

func TestParseSizes(t *testing.T) {
	for s, want := range map[string][]int{
		"4:32": {4, 8, 16, 32}, "64:64": {64}, "12:52": {12, 24, 48}, "64K:256K": {64 << 10, 128 << 10, 256 << 10},
		"64": nil, ":": nil, "4:": nil, ":4": nil, "8:4": nil, "4:8:16": nil, "3:8": nil,
	} {
		got, err := ParseSizes(s)
		if (err == nil) != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", s, got, err, want)
		}
	}
}

func TestRatio(t *testing.T) {
	// A disturbed round, which hit the limit only, must not change the ratio.
	ours, limit := []float64{10, 12, 11, 30, 10}, []float64{10, 10, 10, 25, 100}
	if got := median(ratios(ours, limit)); math.Abs(got-1.1) > 1e-9 {
		t.Errorf("ratio %v, want 1.1", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of four %v, want 2.5", got)
	}
	if got := ratios([]float64{1, 2}, []float64{0, 1}); !slices.Equal(got, []float64{2}) {
		t.Errorf("a round without a limit has a ratio: %v", got)
	}
	if median(nil) != 0 {
		t.Error("nothing has a median")
	}
}

func TestEveryMeasurementIsWhole(t *testing.T) {
	for _, m := range measurements() {
		if m.run == nil || len(m.sizes) == 0 || find(m.name).run == nil {
			t.Errorf("%s: %+v", m.name, m)
		}
		for _, s := range m.sizes {
			if s < 4 || s%4 != 0 || s > MaxSize {
				t.Errorf("%s has a size of %d", m.name, s)
			}
		}
	}
}
