package rpcgo_test

import (
	"fmt"
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

// The Go that is made of the protocols that are used most, and of everything hard that we could think
// of, compiles and is right by vet.
func TestWhatIsMadeCompiles(t *testing.T) {
	compile(t, "testdata/*.x", 4)
}

// So is that of every file of the system's packages.
func TestSystemFilesCompile(t *testing.T) {
	files, err := filepath.Glob("/usr/include/rpcsvc/*.x")
	testutil.Require(t, err == nil && len(files) > 0, "there are no .x files in /usr/include/rpcsvc: install rpcsvc-proto")
	compile(t, "/usr/include/rpcsvc/*.x", 10)
	_, err = os.Stat("/usr/include/tirpc/rpc")
	testutil.Require(t, err == nil, "there are no .x files in /usr/include/tirpc: install libtirpc-dev")
	compile(t, "/usr/include/tirpc/rpc*/*.x", 2)
}

// compile makes Go of files, at least so many, and has it compiled and looked at.
func compile(t *testing.T, pattern string, least int) {
	t.Helper()
	golang, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "there is no go command")
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%s are %v, %v", pattern, files, err)
	}
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
		if err := os.WriteFile(filepath.Join(dir, pkg, base+".go"), generate(t, path, "made"), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "./"+filepath.ToSlash(filepath.Join(dir, pkg)))
	}
	for _, path := range files {
		base := strings.TrimSuffix(filepath.Base(path), ".x")
		if base == "nis_callback" {
			add("nis", path) // which it is to be in the same package with
		} else {
			add(base, path)
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
