package testutil

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// CLibrary returns the folder in which the C library is built, up to date: c/build. Tests of several
// packages may call it at the same time. Where a C compiler is missing the test is skipped.
func CLibrary(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"gcc", "make", "flock", "objcopy"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the C library needs %s: %v", tool, err)
		}
	}
	buildCLibrary.Do(func() {
		clib.dir, clib.err = filepath.Abs(filepath.Join(moduleRoot(t), "c", "build"))
		if clib.err != nil {
			return
		}
		clib.err = os.MkdirAll(clib.dir, 0o755)
		if clib.err != nil {
			return
		}
		c := exec.Command("flock", filepath.Join(clib.dir, "lock"),
			"make", "-s", "-C", filepath.Dir(clib.dir), "CC=gcc")
		clib.out, clib.err = c.CombinedOutput()
	})
	if clib.err != nil {
		t.Fatalf("make -C c: %v\n%s", clib.err, clib.out)
	}
	return clib.dir
}

var (
	buildCLibrary sync.Once
	clib          struct {
		dir string
		out []byte
		err error
	}
)

// moduleRoot is the folder of go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, e := os.Stat(filepath.Join(dir, "go.mod")); e == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	t.Fatal("no folder above the test has a go.mod")
	return ""
}
