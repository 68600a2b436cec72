package figure

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/internal/bench"
)

// Figures that are drawn later stand beside those that are there.
func TestFiguresStay(t *testing.T) {
	dir := t.TempDir()
	rs := []bench.Result{
		{What: "bandwidth", Variant: "sync", Path: bench.Local, Size: 4, Value: 1, Limit: 2},
		{What: "bandwidth", Variant: "sync", Path: bench.Local, Size: 8, Value: 3, Limit: 4},
	}
	seen := map[string]string{}
	for range 3 {
		files, err := Draw(dir, rs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 {
			t.Fatal("nothing is drawn")
		}
		for _, f := range files {
			if _, ok := seen[f]; ok || filepath.Dir(f) != dir {
				t.Errorf("%s is drawn again", f)
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			seen[f] = string(b)
		}
		rs[0].Value++
	}
	for f, was := range seen {
		b, err := os.ReadFile(f)
		if err != nil || string(b) != was {
			t.Errorf("%s is not what it was: %v", f, err)
		}
	}
	all, err := filepath.Glob(filepath.Join(dir, "*-3.svg"))
	if err != nil || len(all) == 0 || !slices.ContainsFunc(all, func(f string) bool { return seen[f] != "" }) {
		t.Errorf("the third figures are %q, %v", all, err)
	}
}
