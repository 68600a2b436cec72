package facetest

import (
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

var (
	goCode     = regexp.MustCompile(`(?m)^\t(\w+)\s+Code = (-?\d+)$`)
	headerCode = regexp.MustCompile(`(?m)^#define vmmc(?:Err)?_(\w+) \(?(-?\d+)\)?(?:\s|$)`)
)

// The return values of the header are those of the library, by name and number.
func TestCodes(t *testing.T) {
	t.Parallel()
	got := numbers(t, header("vmmc.h"), headerCode)
	want := numbers(t, filepath.Join(root, "internal", "code", "code.go"), goCode)
	want["UnblockedNotifications"] = want["UnblockedNotifs"] // the manual's name
	delete(want, "UnblockedNotifs")
	if len(got) < 40 || !maps.Equal(got, want) {
		t.Errorf("the header has\n%v\nthe library has\n%v", got, want)
	}
}

func numbers(t *testing.T, file string, e *regexp.Regexp) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, m := range e.FindAllStringSubmatch(read(t, file), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if _, twice := out[m[1]]; twice {
			t.Errorf("%s has %s twice", file, m[1])
		}
		out[m[1]] = n
	}
	return out
}
