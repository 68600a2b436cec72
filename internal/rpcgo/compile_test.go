package rpcgo_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/rpcgo"
	"github.com/vmmc-go/vmmc/internal/rpcl"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// generate makes Go of a file.
func generate(t *testing.T, path, pkg string) []byte {
	t.Helper()
	f, err := rpcl.Load(path, rpcl.Options{Open: os.ReadFile})
	if err != nil {
		t.Fatal(err)
	}
	code, err := rpcgo.Write(f, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// The Go that is made of the protocols that are used most, and of everything hard that we could
// think of, compiles and is right by vet.
func TestWhatIsMadeCompiles(t *testing.T) {
	compile(t, "testdata/*.x", 4)
}

// So is that of every file that a package of the system has brought and rpcgen takes.
func TestSystemFilesCompile(t *testing.T) {
	rpcgen, err := exec.LookPath("rpcgen")
	testutil.Require(t, err == nil, "there is no rpcgen: install rpcsvc-proto")
	var files []string
	for _, dir := range []string{"/usr/include", "/usr/share", "/usr/lib", "/opt"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".x" {
				return nil //nolint:nilerr // what cannot be read brings no files
			}
			// Linker scripts and others have that suffix too. rpcgen refuses nis.x, and we do not.
			if path == "/usr/include/rpcsvc/nis.x" || exec.CommandContext(t.Context(), rpcgen, "-N", "-h", "-o", filepath.Join(t.TempDir(), "made.h"), path).Run() == nil {
				files = append(files, path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	t.Logf("%d files: %q", len(files), files)
	has := func(dir string, least int) bool {
		n := 0
		for _, path := range files {
			if strings.HasPrefix(path, dir) {
				n++
			}
		}
		return n >= least
	}
	testutil.Require(t, has("/usr/include/rpcsvc/", 10), "there are no .x files in /usr/include/rpcsvc: install rpcsvc-proto")
	testutil.Require(t, has("/usr/include/tirpc/", 2), "there are no .x files in /usr/include/tirpc: install libtirpc-dev")
	compileFiles(t, files)
}

// compile makes Go of files, at least so many, and has it compiled and looked at.
func compile(t *testing.T, pattern string, least int) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%s are %v, %v", pattern, files, err)
	}
	compileFiles(t, files)
}

func compileFiles(t *testing.T, files []string) {
	t.Helper()
	golang, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "there is no go command")
	// In this module, so that its packages are found; the go command leaves testdata alone.
	dir, err := os.MkdirTemp("testdata", "made-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	args := []string{"vet"}
	add := func(pkg, path string) {
		base := strings.TrimSuffix(filepath.Base(path), ".x")
		if err := os.MkdirAll(filepath.Join(dir, pkg), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, pkg, base+"_made.go"), generate(t, path, "made"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "./"+filepath.ToSlash(filepath.Join(dir, pkg)))
	}
	for i, path := range files {
		base := strings.TrimSuffix(filepath.Base(path), ".x")
		switch base {
		case "nis_callback":
			add("nis", path) // which it is to be in the same package with
		case "nis":
			add(base, path)
		default:
			add(fmt.Sprint(base, i), path)
		}
	}
	c := exec.CommandContext(t.Context(), golang, args...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("go vet: %v\n%s", err, out)
	}
	t.Logf("%d packages", len(args)-1)
}

// The same file is the same Go, each time.
func TestDeterministic(t *testing.T) {
	for _, name := range []string{"nfs3", "dialect"} {
		path := fmt.Sprintf("testdata/%s.x", name)
		first := generate(t, path, "p")
		for range 5 {
			if string(generate(t, path, "p")) != string(first) {
				t.Fatalf("%s differs from time to time", path)
			}
		}
	}
}
