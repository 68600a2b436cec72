package samples

import (
	"path/filepath"
	"strings"
	"testing"
)

// Wrong arguments are told at once, with status 2 and how it is done.
func (l *lab) misuse(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"spawn -- -1", "level"},
		{"spawn 1 2", "arg(s)"},
		{"spawn 99999", "level"},
		{"latency", "arg(s)"},
		{"latency 0 1", "numberofwords"},
		{"latency 1 none", "numberofiterations"},
		{"latency 1 1 --timeout 0s", "--timeout"},
		{"all2all ring 3 1 1", "pairwise or random"},
		{"all2all random 1 1 1", "numberofnodes"},
		{"all2all random 64 16777216 1", "a message has at most"},
		{"PPBandwidth 10 8 4", "end_nwords"},
		{"OnewayBandwidth 10 1 99999999", "end_nwords"},
		{"BidirBandwidth 10 1 4 --plot curve.pdf", ".svg or .png"},
		{"FetchBandwidth 10 1", "arg(s)"},
		{"FetchBandwidth 10 1 2 --nonsense", "unknown flag"},
		{"RandomChain 1 1 1", "num_nodes"},
		{"RandomOne2All 3 1 0", "iterations"},
		{"RandomAll2All 64 1 100000", "can be recorded"},
	} {
		name, args := split(c.line)
		status, out, errs := l.run(t, "", name, args...)
		if status != 2 || out != "" || !strings.Contains(errs, c.says) || !strings.Contains(errs, "usage: "+name) {
			t.Errorf("%s: status %d, wanted 2 and %q\n%s%s", c.line, status, c.says, out, errs)
		}
	}
}

// What cannot be done is status 1, and says why.
func (l *lab) failures(t *testing.T) {
	for _, name := range []string{"spawn", "latency 1 1", "RandomChain 2 1 1"} {
		name, args := split(name)
		status, _, errs := l.run(t, "n1 n9", name, args...)
		if status != 1 || !strings.Contains(errs, "n9") || !strings.Contains(errs, "[n1 n2 n3]") {
			t.Errorf("%s with an unknown node: status %d\n%s", name, status, errs)
		}
	}
	alone := lab{bin: l.bin, socket: filepath.Join(t.TempDir(), "none.sock")}
	if status, _, errs := alone.run(t, "", "spawn"); status != 1 || !strings.Contains(errs, "none.sock") {
		t.Errorf("without a node: status %d\n%s", status, errs)
	}
	if status, _, errs := l.run(t, "", "latency", "1", "100000000", "--timeout", "300ms"); status != 1 || !strings.Contains(errs, "not done after 300ms") {
		t.Errorf("without enough time: status %d\n%s", status, errs)
	}
	if status, _, errs := l.run(t, "", "PPBandwidth", "1", "1", "1", "--plot", filepath.Join(t.TempDir(), "no", "a.svg")); status != 1 || !strings.Contains(errs, "a.svg") {
		t.Errorf("with nowhere to draw: status %d\n%s", status, errs)
	}
}
