package unix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"

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

// Programs have the descriptors that they are given, also without close_range(2), and without a
// starter, whose own are few.
func TestDescriptorsOfPrograms(t *testing.T) {
	testutil.Require(t, canHelp, "this architecture has no spawn helper")
	kept := programStarter.Load()
	defer programStarter.Store(kept)
	for _, s := range []*starter{nil, kept} {
		programStarter.Store(s)
		t.Run(fmt.Sprintf("starter %t", s != nil), descriptorsOfPrograms)
	}
}

func descriptorsOfPrograms(t *testing.T) {
	open := make([]int, 40) // more than the helper has calls
	for i := range open {
		fd, err := sys.Open(os.DevNull, sys.O_RDONLY, 0) // not closed on exec
		if err != nil {
			t.Fatal(err)
		}
		open[i] = fd
		t.Cleanup(func() { _ = sys.Close(fd) })
	}
	far := 200 // where a shell's user may have put it
	if err := sys.Dup2(open[0], far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sys.Close(far) })
	base, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	has := closeRange
	t.Cleanup(func() { closeRange = has })
	for _, kernel := range []bool{true, false} {
		if kernel && !has() {
			continue
		}
		closeRange = func() bool { return kernel }
		for extra := range 3 {
			for _, in := range []*os.File{nil, base} {
				for _, path := range []string{"/bin/sh", ownProgram} {
					want := []string{"0", "1", "2"}
					p := Program{Path: path, Args: []string{"sh", "-c", "ls /proc/$$/fd; exit 7"}, In: in}
					if path == ownProgram {
						p.Args, p.Env = []string{"x"}, []string{fdsEnv + "=1"}
					}
					for i := range extra {
						p.Extra = append(p.Extra, base)
						want = append(want, fmt.Sprint(3+i))
					}
					r, w, err := os.Pipe()
					if err != nil {
						t.Fatal(err)
					}
					p.Files = [3]*os.File{null(t)[0], w, w}
					c, err := Start(t.Context(), p)
					_ = w.Close()
					if err != nil {
						t.Fatal(err)
					}
					b, err := io.ReadAll(r)
					_ = r.Close()
					how := c.Reap()
					got := strings.Fields(string(b))
					if path == "/bin/sh" { // dash keeps none of its own
						slices.Sort(got)
					}
					if err != nil || how != "exit status 7" || !slices.Equal(got, want) {
						t.Errorf("close_range %t, %s, %d extra, directory %v: %q (%v, %s), want %q", kernel, path, extra, in != nil, got, err, how, want)
					}
				}
			}
		}
	}
}

// fdsEnv has the test's own binary print its descriptors: those that it began with.
const fdsEnv = "VMMC_TEST_FDS"

func init() {
	if os.Getenv(fdsEnv) == "" {
		return
	}
	for fd := range 1024 {
		// What the runtime has opened since is closed on exec.
		if flags, err := sys.FcntlInt(uintptr(fd), sys.F_GETFD, 0); err == nil && flags&sys.FD_CLOEXEC == 0 {
			fmt.Println(fd)
		}
	}
	os.Exit(7)
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
