package unix

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// run starts a shell whose output the test reads.
func run(t *testing.T, script string, as *Identity) (*Child, *bufio.Reader) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	c, err := Start(t.Context(), Program{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"WORD=yes"}, Dir: "/",
		As: as, Files: [3]*os.File{null, w, w},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(r)
}

func TestChild(t *testing.T) {
	c, out := run(t, `echo $WORD $$ $(ps -o pgid= -p $$ 2>/dev/null || cut -d" " -f5 /proc/$$/stat) $(pwd); exit 3`, nil)
	line, err := io.ReadAll(out)
	f := strings.Fields(string(line))
	if err != nil || len(f) != 4 || f[0] != "yes" || f[1] != f[2] || f[3] != "/" {
		t.Errorf("it said %q (%v)", line, err)
	}
	c.Await()
	if !Alive(c.PID()) {
		t.Error("its number was given back before Reap")
	}
	if how := c.Reap(); how != "exit status 3" {
		t.Errorf("it ended with %s", how)
	}
	c.Signal(syscall.SIGKILL) // must not reach the process that has the number now
}

// What a program leaves running is reached after its end, too.
func TestChildGroup(t *testing.T) {
	c, out := run(t, "sleep 1000 & sleep 1000 & echo $WORD", nil)
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	c.Await()
	c.Signal(syscall.SIGKILL)
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 { // its end: both have let go of the pipe
		t.Errorf("%q, %v", rest, err)
	}
	c.Reap()
}

// Children that are waited for cost no threads, of which a program has only so many.
func TestAwaitManyChildren(t *testing.T) {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	before := len(tasks) // of tests before, whose threads may be idle and be used again
	n := 2*before + 64
	var all sync.WaitGroup
	var cs []*Child
	for range n {
		c, out := run(t, "echo; sleep 1000", nil)
		testutil.Require(t, c.watch != nil, "the kernel has no pidfd; Linux 5.4 has")
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
		all.Go(c.Await)
	}
	if tasks, err = os.ReadDir("/proc/self/task"); err != nil || len(tasks) > before+n/4 {
		t.Errorf("%d threads, before %d, wait for %d children (%v)", len(tasks), before, n, err)
	}
	for _, c := range cs {
		c.Signal(syscall.SIGKILL)
	}
	all.Wait()
	for _, c := range cs {
		if how := c.Reap(); how != "signal: killed" {
			t.Errorf("it ended with %s", how)
		}
	}
}

func TestStartErrors(t *testing.T) {
	var files [3]*os.File
	for i := range files {
		files[i] = os.Stdin
	}
	for path, want := range map[string]error{"nothing-here": syscall.ENOENT, "/": syscall.EACCES} {
		c, err := Start(t.Context(), Program{Path: path, Args: []string{path}, Dir: "/", Files: files})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", path, c, err, want)
		}
	}
}

func TestIdentity(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	c, out := run(t, "id -u; id -g; id -G", &Identity{UID: 64_321, GID: 64_322, Groups: []uint32{64_323}})
	got, err := io.ReadAll(out)
	c.Reap()
	if want := "64321\n64322\n64322 64323\n"; err != nil || string(got) != want {
		t.Errorf("it ran as %q (%v), want %q", got, err, want)
	}
}

func TestPeerCred(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("unixpacket", path)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cred, err := PeerCred(c)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, g := range cred.Groups {
		got = append(got, int(g))
	}
	slices.Sort(got)
	slices.Sort(groups)
	if cred.PID != os.Getpid() || int(cred.UID) != os.Getuid() || int(cred.GID) != os.Getgid() || !slices.Equal(got, groups) {
		t.Errorf("%+v, want process %d of user %d and groups %v", cred, os.Getpid(), os.Getuid(), groups)
	}
}
