package facetest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// manualText is the manual's text, which is not part of the module.
var manualText = filepath.Join(root, "..", "shared", "reference", "vmmc-2.0-manual.txt")

var (
	page       = regexp.MustCompile(`(?m)^#+ \**(vmmc\\?_\w+)\(\)\**\n`)
	synopsis   = regexp.MustCompile("(?s)## \\**Synopsis:\\**\n\n```\n(.*?)\n```")
	statement  = regexp.MustCompile(`(?s)^\((\w+ ?\**)\) *(?:\w+ *= *)?(\w+) *\((.*)\)$`)
	manualCall = regexp.MustCompile("(?m)^\\| `(vmmc_\\w+)`")
)

// differences are the synopses whose text is not what the header declares. The numbers are those of
// the table of differences in docs/manual-map.md.
var differences = map[string]struct {
	row      int
	synopsis string // the name in the manual's synopsis
}{
	"vmmc_GetDataAsync":   {13, "vmmc_GetData"},
	"vmmc_SendDataNotify": {13, "vmmc_SendData"},
}

// Each call of the manual is declared as its synopsis has it.
func TestSynopses(t *testing.T) {
	_, err := os.Stat(manualText)
	testutil.Require(t, err == nil, "needs the text of the VMMC 2.0 manual beside the checkout")
	text := read(t, manualText)
	declared := prototypes(t, header("vmmc.h"))
	starts := page.FindAllStringSubmatchIndex(text, -1)
	found := map[string]bool{}
	for i, s := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		name := strings.ReplaceAll(text[s[2]:s[3]], `\`, "")
		found[name] = true
		syn := synopsis.FindStringSubmatch(text[s[1]:end])
		if syn == nil {
			t.Errorf("%s: no synopsis", name)
			continue
		}
		m := statement.FindStringSubmatch(strings.TrimSpace(syn[1]))
		if m == nil {
			t.Errorf("%s: a synopsis that is not understood: %s", name, syn[1])
			continue
		}
		if d, differs := differences[name]; m[2] != name && (!differs || m[2] != d.synopsis) {
			t.Errorf("%s: the synopsis is of %s", name, m[2])
		} else if differs && m[2] == name {
			t.Errorf("%s: listed as different, and is not", name)
		}
		want := prototype{typeOf(m[1]), params(m[3])}
		got, ok := declared[name]
		switch {
		case !ok:
			t.Errorf("%s is not declared", name)
		case !got.types(want) || got.String() != want.String():
			t.Errorf("%s is declared as %v, the manual has %v", name, got, want)
		}
	}
	if len(found) != 34 {
		t.Errorf("%d pages were found, the manual has 34", len(found))
	}
	for name, d := range differences {
		if !found[name] {
			t.Errorf("%s: listed as different (row %d), and has no page", name, d.row)
		}
	}
	for name := range declared {
		// The manual uses vmmc_Error and has no page for it (row 5).
		if !found[name] && name != "vmmc_Error" {
			t.Errorf("%s is declared and is not in the manual", name)
		}
	}
}

// The header declares the calls of docs/manual-map.md and no others.
func TestCallsOfTheMap(t *testing.T) {
	t.Parallel()
	_, calls, _ := strings.Cut(read(t, filepath.Join(root, "docs", "manual-map.md")), "\n## The calls\n")
	calls, _, _ = strings.Cut(calls, "\n## ")
	var want []string
	for _, m := range manualCall.FindAllStringSubmatch(calls, -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	got := slices.Sorted(maps.Keys(prototypes(t, header("vmmc.h"))))
	if len(want) != 35 || !slices.Equal(got, want) {
		t.Errorf("declared are\n%v\nthe map has\n%v", got, want)
	}
}
