package unix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// null is a program's standard descriptors.
func null(t *testing.T) [3]*os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return [3]*os.File{f, f, f}
}

// However many programs are started whose files do not open, this process goes on.
func TestFilesThatDoNotOpen(t *testing.T) {
	testutil.Require(t, canHelp, "this architecture has no spawn helper")
	dir := t.TempDir()
	program := testutil.CopyProgram(t, "/bin/sleep", dir)
	shell := testutil.CopyProgram(t, "/bin/sh", dir)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!"+shell+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"program": program, "interpreter": script} {
		t.Run(name, func(t *testing.T) {
			leased := program
			if path == script {
				leased = shell
			}
			testutil.Lease(t, leased)
			files := null(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			n := 2*runtime.GOMAXPROCS(0) + cap(starting)
			over := make(chan error, n)
			begun := time.Now()
			for range n {
				go func() {
					_, err := Start(ctx, Program{Path: path, Args: []string{"sleep", "1000"}, Files: files})
					over <- err
				}()
			}
			c, err := Start(t.Context(), Program{Path: "/bin/true", Args: []string{"true"}, Files: files})
			if err != nil {
				t.Fatal(err)
			}
			if how := c.Reap(); how != "exit status 0" {
				t.Errorf("another program: %s", how)
			}
			runtime.GC() // which needs each P
			select {
			case err := <-over:
				t.Fatalf("nothing held it up: %v", err)
			default:
			}
			stop()
			for range n {
				if err := <-over; !errors.Is(err, context.Canceled) {
					t.Errorf("given up: %v", err)
				}
			}
			if d := time.Since(begun); d > 30*time.Second { // a lease ends after 45 s
				t.Errorf("all of that took %v", d)
			}
		})
	}
}

// A program that is killed before its file opens ends as killed.
func TestKilledBeforeExec(t *testing.T) {
	testutil.Require(t, canHelp, "this architecture has no spawn helper")
	path := testutil.CopyProgram(t, "/bin/sleep", t.TempDir())
	testutil.Lease(t, path)
	c, err := Begin(Program{Path: path, Args: []string{"sleep", "1000"}, Files: null(t)})
	if err != nil {
		t.Fatal(err)
	}
	c.Signal(syscall.SIGTERM)
	if err := c.Begun(t.Context()); err != nil {
		t.Error(err)
	}
	if how := c.Reap(); how != "signal: terminated" {
		t.Error(how)
	}
}

// Errors say which step failed, and are those of the kernel.
func TestErrorsOfASpawn(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	orphan := filepath.Join(dir, "orphan")
	if err := os.WriteFile(orphan, []byte("#!"+dir+"/none\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 200<<10) // more than the kernel takes for one argument
	for _, c := range []struct {
		p         Program
		want      syscall.Errno
		directory bool
	}{
		{Program{Path: "/bin/true", Dir: dir + "/none"}, syscall.ENOENT, true},
		{Program{Path: "/bin/true", Dir: garbage}, syscall.ENOTDIR, true},
		{Program{Path: "none", Dir: dir}, syscall.ENOENT, false},
		{Program{Path: "garbage", Dir: dir}, syscall.ENOEXEC, false},
		{Program{Path: "orphan", Dir: dir}, syscall.ENOENT, false},
		{Program{Path: dir}, syscall.EACCES, false},
		{Program{Path: "/bin/true", Args: []string{"true", long}}, syscall.E2BIG, false},
	} {
		c.p.Files = null(t)
		child, err := Start(t.Context(), c.p)
		if !errors.Is(err, c.want) || EntersDirectory(err) != c.directory && canHelp {
			t.Errorf("%.80q in %q: %v, %v, want %v", c.p.Path, c.p.Dir, child, err, c.want)
		}
	}
}
