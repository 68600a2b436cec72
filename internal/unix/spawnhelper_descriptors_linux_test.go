//go:build amd64 || arm64

package unix

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	sys "golang.org/x/sys/unix"
)

// Programs have the descriptors that they are given, also without close_range(2), and without a
// starter, whose own are few.
func TestDescriptorsOfPrograms(t *testing.T) {
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
