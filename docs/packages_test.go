package docs_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

const module = "github.com/vmmc-go/vmmc"

var listed = regexp.MustCompile("`([a-z][a-z0-9/]*)`")

// packages gives the packages of ARCHITECTURE.md's table, from the top down.
func packages(t *testing.T) (order []string) {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, "../ARCHITECTURE.md"), "\n| layer | packages | for |\n")
	table, _, ok := strings.Cut(rest, "\n\n")
	if !ok {
		t.Fatal("ARCHITECTURE.md has no table of packages")
	}
	for row := range strings.Lines(table) {
		if cells := strings.Split(row, "|"); len(cells) > 2 {
			for _, m := range listed.FindAllStringSubmatch(cells[2], -1) {
				order = append(order, m[1])
			}
		}
	}
	return order
}

// ARCHITECTURE.md lists all packages, and each imports only what stands below it.
func TestImportsGoDownwards(t *testing.T) {
	order := packages(t)
	for i, p := range order {
		if slices.Index(order, p) != i {
			t.Errorf("ARCHITECTURE.md lists %s twice", p)
		}
		if _, err := os.Stat("../" + p); err != nil && p != "vmmc" {
			t.Errorf("ARCHITECTURE.md lists %s: %v", p, err)
		}
	}
	line := func(path string) int {
		path = strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		if path == "" {
			path = "vmmc"
		}
		for ; ; path = path[:strings.LastIndexByte(path, '/')] {
			if i := slices.Index(order, path); i >= 0 || !strings.Contains(path, "/") {
				return i
			}
		}
	}
	golang, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "there is no go command")
	c := exec.CommandContext(t.Context(), golang, "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	c.Dir = ".."
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(out)) {
		f := strings.Fields(l)
		at := line(f[0])
		if at < 0 {
			t.Errorf("ARCHITECTURE.md does not list %s", f[0])
			continue
		}
		for _, i := range f[1:] {
			if i == module || strings.HasPrefix(i, module+"/") {
				if line(i) < at {
					t.Errorf("%s imports %s, which ARCHITECTURE.md lists above it", f[0], i)
				}
			}
		}
	}
}
