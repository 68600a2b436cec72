package samples

import (
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/samples/internal/route"
)

// The curves are pictures with their axes labelled.
func (l *lab) plots(t *testing.T) {
	svg, pic := filepath.Join(t.TempDir(), "a.svg"), filepath.Join(t.TempDir(), "a.png")
	if status, _, errs := l.run(t, "n1 n2", "PPBandwidth", "5", "1", "1024", "--plot", svg); status != 0 {
		t.Fatalf("status %d\n%s", status, errs)
	}
	b, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "message size (bytes)", "bandwidth (MB/s)", "PPBandwidth, n1 to n2", ">4 Ki<"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
	// One point, and no power of two.
	if status, _, errs := l.run(t, "n1 n2", "FetchBandwidth", "5", "5", "5", "--plot", pic); status != 0 {
		t.Fatalf("status %d\n%s", status, errs)
	}
	f, err := os.Open(pic)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}
}

// What is recorded is the manual's pattern, and the seed's.
func (l *lab) patterns(t *testing.T) {
	for name, kind := range map[string]route.Kind{
		"RandomChain": route.Chain, "RandomOne2All": route.One2All, "RandomAll2All": route.All2All,
	} {
		record := func(seed string) []route.Message {
			file := filepath.Join(t.TempDir(), "pattern.json")
			status, _, errs := l.run(t, "", name, "3", "2", "12", "--seed", seed, "--pattern", file)
			if status != 0 {
				t.Fatalf("%s: status %d\n%s", name, status, errs)
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v struct{ Pattern []route.Message }
			if err := json.Unmarshal(b, &v); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return v.Pattern
		}
		first := record("5")
		if err := route.Check(kind, 3, 12, first); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := record("5"); !slices.Equal(first, again) {
			t.Errorf("%s: with the same seed %v and %v", name, first, again)
		}
		if other := record("6"); slices.Equal(first, other) {
			t.Errorf("%s: with two seeds twice %v", name, first)
		}
	}
}
