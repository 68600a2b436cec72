// Package docs_test checks what the pages for readers say against the code.
package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// TestMain checks that the tests leave no goroutine and no descriptor behind.
func TestMain(m *testing.M) { testutil.Main(m) }

var pages = allPages()

// allPages gives the pages at the top, in this directory, and the decision records.
func allPages() []string {
	pages := []string{"../README.md", "../ARCHITECTURE.md", "../CONTRIBUTING.md"}
	for _, pattern := range []string{"*.md", "decisions/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			panic(err)
		}
		pages = append(pages, found...)
	}
	return pages
}

// Each decision record is in the index, under its title.
func TestDecisionsAreListed(t *testing.T) {
	records, err := filepath.Glob("decisions/[0-9]*.md")
	if err != nil || len(records) == 0 {
		t.Fatalf("%d decision records, %v", len(records), err)
	}
	index := read(t, "decisions/README.md")
	for _, file := range records {
		heading, _, _ := strings.Cut(read(t, file), "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(heading, "# "), " ")
		name := filepath.Base(file)
		if row := "| [" + number + "](" + name + ") | " + title + " |\n"; !strings.HasPrefix(name, number+"-") || !strings.Contains(index, row) {
			t.Errorf("decisions/README.md has no row %s", row)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What the README shows first is a piece of a program that is compiled and run.
func TestReadmeShowsTheExample(t *testing.T) {
	_, rest, ok := strings.Cut(read(t, "../README.md"), "```go\n")
	shown, _, ended := strings.Cut(rest, "```\n")
	if !ok || !ended {
		t.Fatal("the README shows no Go")
	}
	if !strings.Contains(read(t, "../examples/hello/main.go"), shown) {
		t.Errorf("the README shows other code than examples/hello/main.go has:\n%s", shown)
	}
}

var goPiece = regexp.MustCompile("(?s)(?:<!-- (\\S+) -->\n)?```go\n(.*?)```\n")

// Pieces of Go on these pages are compiled and run: the file that each names has it.
func TestPagesShowPiecesOfTests(t *testing.T) {
	for _, page := range []string{"concepts.md", "cookbook.md", "testing.md"} {
		pieces := goPiece.FindAllStringSubmatch(read(t, page), -1)
		if len(pieces) == 0 {
			t.Errorf("%s shows no Go", page)
		}
		for _, p := range pieces {
			if p[1] == "" || !strings.Contains(flush(read(t, p[1])), flush(p[2])) {
				t.Errorf("%s: the file %q does not have what the page shows of it:\n%s", page, p[1], p[2])
			}
		}
	}
}

var pythonPiece = regexp.MustCompile("(?s)(?:<!-- (\\S+) -->\n)?```python\n(.*?)```\n")

// Pieces of Python are those of programs that are run.
func TestPagesShowPiecesOfPython(t *testing.T) {
	pieces := 0
	for _, page := range pages {
		for _, p := range pythonPiece.FindAllStringSubmatch(read(t, page), -1) {
			pieces++
			if p[1] == "" || !strings.Contains(read(t, filepath.Join(filepath.Dir(page), p[1])), p[2]) {
				t.Errorf("%s: the file %q does not have what the page shows of it:\n%s", page, p[1], p[2])
			}
		}
	}
	if pieces == 0 {
		t.Error("no page shows Python")
	}
}

// flush takes the tabs away that lines begin with.
func flush(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return b.String()
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(goPiece.ReplaceAllString(read(t, page), ""), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

var test = regexp.MustCompile("`((?:Test|Example|Fuzz|Benchmark)[A-Z]\\w+)`")

func TestNamedTestsExist(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		for _, m := range test.FindAllStringSubmatch(read(t, page), -1) {
			if named++; !strings.Contains(code.String(), "\nfunc "+m[1]+"(") {
				t.Errorf("%s names %s, and there is no such test", page, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("no page names a test")
	}
}

var file = regexp.MustCompile("`((?:[a-z]+/)*[a-z_]+\\.go)`")

// Files are named with their folder, without it those of the root package or of
// the folder that was named last.
func TestNamedFilesExist(t *testing.T) {
	for _, page := range pages {
		folder := ".."
		for _, m := range file.FindAllStringSubmatch(read(t, page), -1) {
			path := filepath.Join("..", m[1])
			if _, err := os.Stat(path); err == nil {
				folder = filepath.Dir(path)
			} else if _, err := os.Stat(filepath.Join(folder, m[1])); err != nil {
				t.Errorf("%s names %s, and there is no such file", page, m[1])
			}
		}
	}
}

var (
	named       = regexp.MustCompile("`([A-Za-z]\\w*(?:\\.[A-Za-z]\\w*)?)`")
	placed      = regexp.MustCompile("`([A-Za-z]\\w*(?:\\.[A-Za-z]\\w*)?)`(?: in |\\s\\()`((?:[a-z]+/)*[a-z_0-9]+\\.go)`")
	namedInPlan = regexp.MustCompile(`(?:^|[\s(])((?:[a-z]+/)*[a-z_]+\.go|[A-Za-z]\w*\.[A-Za-z]\w*)\b`)
)

// What ARCHITECTURE.md names of the code is declared, in the file that it names with it, and so is
// what the comments below the package clause of a doc.go name.
func TestNamedCodeExists(t *testing.T) {
	code := everything(t)
	found := 0
	for _, m := range named.FindAllStringSubmatch(read(t, "../ARCHITECTURE.md"), -1) {
		name := m[1]
		if file.MatchString(m[0]) || strings.HasSuffix(name, ".md") || strings.HasSuffix(name, ".roll") ||
			strings.ToLower(name) == name || strings.ToUpper(name) == name ||
			test.MatchString(m[0]) {
			continue // a file or a test, which have tests of their own, a word or a variable
		}
		if found++; !code[name] {
			t.Errorf("ARCHITECTURE.md names %s, and there is no such declaration", name)
		}
	}
	for _, m := range placed.FindAllStringSubmatch(read(t, "../ARCHITECTURE.md"), -1) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", m[2]), nil, parser.SkipObjectResolution)
		if err != nil {
			continue // a name without its folder, which has a test of its own
		}
		here := declared([]*ast.File{f})
		if _, ok := here[strings.TrimPrefix(m[1], f.Name.Name+".")]; !ok {
			t.Errorf("ARCHITECTURE.md says that %s is in %s, and it is not", m[1], m[2])
		}
	}
	plans := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "doc.go" {
			return err
		}
		_, plan, _ := strings.Cut(read(t, path), "\npackage ")
		if !strings.Contains(plan, "// Where to change what:") {
			return nil
		}
		plans++
		for _, m := range namedInPlan.FindAllStringSubmatch(plan, -1) {
			name := m[1]
			if strings.HasSuffix(name, ".go") {
				_, here := os.Stat(filepath.Join(filepath.Dir(path), name))
				_, top := os.Stat(filepath.Join("..", name))
				if here != nil && top != nil {
					t.Errorf("%s names %s, and there is no such file", path, name)
				}
			} else if !strings.HasSuffix(name, ".md") && !strings.HasSuffix(name, ".pml") && !code[name] {
				t.Errorf("%s names %s, and there is no such declaration", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 || plans == 0 {
		t.Errorf("%d names and %d maps of packages were found", found, plans)
	}
}

// everything gives what the module declares outside of tests: each name alone and after its
// package, methods and fields after their type.
func everything(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir("..", func(folder string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() == "testdata" {
			return err
		}
		if code, _ := filepath.Glob(filepath.Join(folder, "*.go")); len(code) == 0 {
			return nil
		}
		for _, f := range parsed(t, folder) {
			for name := range declared([]*ast.File{f}) {
				names[name], names[f.Name.Name+"."+name] = true, true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var nodeAddress = regexp.MustCompile(`(?m)(?:^\w+ +|--remote |as in "\w+ )(?:\d+\.){3}\d+:(\d+)`)

// Pages, manual pages, and the error of a wrong hosts file show nodes at one port: there is no
// default.
func TestNodesAreAtOnePort(t *testing.T) {
	manual, err := filepath.Glob("../man/*.1")
	if err != nil {
		t.Fatal(err)
	}
	manual = append(manual, "../internal/hosts/hosts.go")
	shown := 0
	for _, page := range append(manual, pages...) {
		for _, m := range nodeAddress.FindAllStringSubmatch(read(t, page), -1) {
			if shown++; m[1] != "7411" {
				t.Errorf("%s: a node is at port %s: %q", page, m[1], m[0])
			}
		}
	}
	if shown < 5 {
		t.Errorf("%d addresses of nodes were found", shown)
	}
}
