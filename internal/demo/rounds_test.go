package demo

import (
	"errors"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// What is measured without vmmc, and was slower than with it, is measured again, and not for ever.
// One that was faster is left as it is.
func TestSlowerLimitsAreMeasuredAgain(t *testing.T) {
	type figures struct{ p50, bandwidth float64 }
	for _, c := range []struct {
		what   string
		first  figures // in ns and MB/s; ours are 100 and 1000
		next   []figures
		want   figures
		rounds int
	}{
		{"faster", figures{90, 1100}, nil, figures{90, 1100}, roundCount},
		{"the same", figures{100, 1000}, nil, figures{100, 1000}, roundCount},
		{"disturbed once", figures{2151, 1100}, []figures{{95, 900}}, figures{95, 1100}, roundCount + 1},
		{"slow copies", figures{90, 700}, []figures{{500, 800}, {500, 1200}}, figures{90, 1200}, roundCount + 2},
		{"slower for good", figures{2000, 1100}, []figures{{3000, 1}, {1500, 1}, {1800, 1}, {1600, 1}, {1700, 1}}, figures{1500, 1100}, 2 * roundCount},
		{"each in its time", figures{200, 500}, []figures{{90, 600}, {80, 1500}}, figures{90, 1500}, roundCount + 2},
	} {
		p := Path{LatencyP50NS: 100, BandwidthMBps: 1000, LimitLatencyP50NS: c.first.p50, LimitBandwidthMBps: c.first.bandwidth, LimitRounds: roundCount}
		at := 0
		if err := p.remeasure(func() (p50, bandwidth float64, err error) {
			f := c.next[at]
			at++
			return f.p50, f.bandwidth * 1e6, nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := (figures{p.LimitLatencyP50NS, p.LimitBandwidthMBps}); got != c.want || p.LimitRounds != c.rounds || at != len(c.next) {
			t.Errorf("%s: %v in %d rounds, want %v in %d", c.what, got, p.LimitRounds, c.want, c.rounds)
		}
	}
	p, lost := Path{LatencyP50NS: 1, LimitLatencyP50NS: 2, LimitRounds: roundCount}, errors.New("lost")
	if err := p.remeasure(func() (float64, float64, error) { return 0, 0, lost }); !errors.Is(err, lost) {
		t.Errorf("a measurement that fails: %v", err)
	}
}

func TestMain(m *testing.M) { testutil.Main(m) }
