package vrpc

import (
	"testing"
	"time"
)

// A host is silent from when it owes an acknowledgement. What was before, as a pause, does not
// count.
func TestSilenceBeginsWithWhatIsSent(t *testing.T) {
	type look struct{ at, ago, want time.Duration } // ago: since the last acknowledgement; 0: none is owed
	const ms = time.Millisecond
	for name, looks := range map[string][]look{
		"after a pause":      {{0, 0, 0}, {100 * ms, time.Hour, 0}, {200 * ms, time.Hour + 100*ms, 100 * ms}},
		"at the first look":  {{0, time.Hour, 0}, {50 * ms, time.Hour + 50*ms, 50 * ms}},
		"one is late":        {{0, time.Hour, 0}, {100 * ms, 0, 0}, {200 * ms, 100 * ms, 0}, {300 * ms, 200 * ms, 100 * ms}},
		"they go on coming":  {{0, time.Hour, 0}, {100 * ms, 3 * ms, 3 * ms}, {200 * ms, 4 * ms, 4 * ms}},
		"they come and stop": {{0, time.Hour, 0}, {100 * ms, 3 * ms, 3 * ms}, {200 * ms, 103 * ms, 103 * ms}},
	} {
		k, begin := &keepAlive{}, time.Now()
		for _, l := range looks {
			if got := k.silent(l.ago, begin.Add(l.at)); got != l.want {
				t.Errorf("%s: at %v the host is silent for %v, want %v", name, l.at, got, l.want)
			}
		}
	}
}
