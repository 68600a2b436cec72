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

// The Go that is made of every file of the system's packages, of the protocols that are used most, and
// of everything hard that we could think of, compiles and is right by vet.
func TestWhatIsMadeCompiles(t *testing.T) {
	golang, err := exec.LookPath("go")
	testutil.Require(t, err == nil, "there is no go command")
	files, err := filepath.Glob("testdata/*.x")
	if err != nil || len(files) < 4 {
		t.Fatalf("testdata has %v, %v", files, err)
	}
	for _, pattern := range []string{"/usr/include/rpcsvc/*.x", "/usr/include/tirpc/rpc/*.x", "/usr/include/tirpc/rpcsvc/*.x"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
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
