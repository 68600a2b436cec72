package env

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// reads are the functions whose answer the environment decides.
var reads = map[string]bool{
	"Getenv": true, "LookupEnv": true, "Environ": true, "ExpandEnv": true, "TempDir": true,
	"UserHomeDir": true, "UserConfigDir": true, "UserCacheDir": true,
}

// elsewhere are programs and tests that no one installs with other rights.
var elsewhere = []string{"bench/", "examples/", "samples/", "internal/testutil/", "internal/env/"}

// The library, the daemon and the tools read the environment here only: what reads it
// elsewhere would believe the caller of a setuid program.
func TestOnePlaceReadsTheEnvironment(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && rel != "." || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		for _, e := range elsewhere {
			if strings.HasPrefix(rel, e) {
				return nil
			}
		}
		files++
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if p, is := n.X.(*ast.Ident); is && p.Name == "os" && reads[n.Sel.Name] {
					t.Errorf("%s: os.%s reads the environment: use package env", set.Position(n.Pos()), n.Sel.Name)
				}
			case *ast.CallExpr:
				s, is := n.Fun.(*ast.SelectorExpr)
				if !is || s.Sel.Name != "MkdirTemp" && s.Sel.Name != "CreateTemp" || len(n.Args) == 0 {
					return true
				}
				if dir, is := n.Args[0].(*ast.BasicLit); is && dir.Value == `""` {
					t.Errorf("%s: os.%s with no directory takes TMPDIR's: use env.TempDir()", set.Position(n.Pos()), s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 {
		t.Fatalf("only %d files were looked at", files)
	}
}
