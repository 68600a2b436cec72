package unix

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

const besideSlowFile = "start programs beside a file that does not close"

func init() { testutil.RegisterRole(besideSlowFile, startBesideSlowFile) }

// startBesideSlowFile opens a file, waits for a line, and starts the first programs of its life.
func startBesideSlowFile() int {
	if err := KeepStarter(); err != nil {
		fmt.Println(err)
		return 1
	}
	slow, err := os.OpenFile(testutil.Args()[0], os.O_RDWR, 0)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer slow.Close()
	fmt.Println("open")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 1
	}
	for range 3 {
		c, err := Begin(Program{Path: "/bin/echo", Args: []string{"echo", "there"}, Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_ = c.report.Close()
		c.Reap()
	}
	return 0
}

// A descriptor of which closing takes long, in this process's table, delays no program, not even
// the first one.
func TestStartBesideAFileThatDoesNotClose(t *testing.T) {
	testutil.Require(t, canHelp, "this architecture has no spawn helper")
	files := testutil.NewFUSE(t, false, testutil.FUSEFile{Name: "slow", Mode: 0o666})
	cmd := testutil.Command(t, besideSlowFile, filepath.Join(files.Dir, "slow"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	says := func(want string) {
		if line, err := out.ReadString('\n'); line != want+"\n" {
			t.Errorf("it says %q (%v), want %q", line, err, want)
		}
	}
	says("open")
	files.Hang("flush")
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(20*time.Second, func() {
		files.Answer() // or what has the test's pipe could not end
		_ = cmd.Process.Kill()
	})
	for range 3 {
		says("there")
	}
	if !hung.Stop() {
		t.Fatal("the programs were not started before the file's server answered")
	}
	files.Answer() // its end closes the file
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// starterTask is the thread of this process that starts programs: the one that lacks a descriptor
// which the others have.
func starterTask(t *testing.T) (fds string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		of := filepath.Join("/proc/self/task", e.Name(), "fd")
		if _, err := os.Readlink(filepath.Join(of, strconv.Itoa(int(w.Fd())))); err == nil {
			continue
		}
		if _, err := os.Readlink(filepath.Join(of, "1")); err != nil {
			continue // the thread has ended
		}
		if fds != "" || e.Name() == strconv.Itoa(os.Getpid()) {
			t.Fatalf("thread %s has a table of its own, and so has %q; the process's own is %d", e.Name(), fds, os.Getpid())
		}
		fds = of
	}
	if fds == "" {
		t.Fatal("no thread has a table of its own")
	}
	return fds
}

// The starter has the standard descriptors, the runtime's poller and its socket, before and after
// many programs, which begin at a time and have no descriptors but theirs.
func TestStarterStartsForMany(t *testing.T) {
	testutil.Require(t, programStarter.Load() != nil, "the kernel gives no thread a table of descriptors of its own")
	own := func() (all []string) {
		fds := starterTask(t)
		list, err := os.ReadDir(fds)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if fd, _ := strconv.Atoi(e.Name()); fd <= 2 {
				continue
			}
			what, err := os.Readlink(filepath.Join(fds, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, what)
		}
		slices.Sort(all)
		return all
	}
	before := own()
	if len(before) != 3 {
		t.Errorf("the starter has %q, want the poller's two, and a pidfd or a socket", before)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				c, out := run(t, "ls /proc/self/fd | wc -l", nil)
				line, err := out.ReadString('\n')
				if n := strings.TrimSpace(line); err != nil || n != "4" { // the standard ones, and ls's own
					t.Errorf("it has %s descriptors (%v)", n, err)
				}
				if c.watch == nil {
					t.Error("it has no pidfd")
				}
				if how := c.Reap(); how != "exit status 0" {
					t.Errorf("it ended with %s", how)
				}
			}
		})
	}
	wg.Wait()
	if after := own(); !slices.Equal(after, before) {
		t.Errorf("the starter has %q, before %q", after, before)
	}
}

// A start that cannot give its descriptors fails, and the next one does not.
func TestStarterAfterAFailure(t *testing.T) {
	testutil.Require(t, programStarter.Load() != nil, "the kernel gives no thread a table of descriptors of its own")
	f := null(t)
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for range 3 {
		if c, err := Begin(Program{Path: "/bin/true", Args: []string{"true"}, Files: [3]*os.File{f[0], f[1], closed}}); err == nil {
			t.Error("a program starts with a closed descriptor")
			_ = c.Begun(t.Context())
			c.Reap()
		}
		c, err := Start(t.Context(), Program{Path: "/bin/true", Args: []string{"true"}, Files: f})
		if err != nil {
			t.Fatal(err)
		}
		if how := c.Reap(); how != "exit status 0" {
			t.Error(how)
		}
	}
}

// Where filters refuse unshare(2), as those of containers do, close_range(2) gives the thread its
// table; where both are refused KeepStarter says so, and programs start.
func TestStarterInAContainer(t *testing.T) {
	for _, c := range []struct {
		without []uintptr
		want    string
	}{
		{[]uintptr{sys.SYS_UNSHARE}, "kept"},
		{[]uintptr{sys.SYS_PIDFD_GETFD}, "kept"},
		{[]uintptr{sys.SYS_PIDFD_OPEN}, "kept"},
		{[]uintptr{sys.SYS_UNSHARE, sys.SYS_CLOSE_RANGE}, "keep a thread that starts programs: unshare: operation not permitted"},
	} {
		cmd := testutil.Command(t, keepsStarter)
		testutil.Without(t, cmd, c.without...)
		out, err := cmd.CombinedOutput()
		if got := string(out); err != nil || got != c.want+"\nthere\n" {
			t.Errorf("without %v: %q (%v), want %q", c.without, got, err, c.want)
		}
	}
}

const keepsStarter = "keep a starter"

func init() {
	testutil.RegisterRole(keepsStarter, func() int {
		if err := KeepStarter(); err != nil {
			fmt.Println(err)
		} else {
			fmt.Println("kept")
		}
		c, err := Begin(Program{Path: "/bin/echo", Args: []string{"echo", "there"}, Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_ = c.report.Close()
		c.Reap()
		return 0
	})
}

const besideRights = "start programs beside rights that are not received"

func init() {
	testutil.RegisterRole(besideRights, func() int {
		if err := KeepStarter(); err != nil {
			fmt.Println(err)
			return 1
		}
		few := sys.Rlimit{Cur: 64, Max: 64}
		if err := sys.Setrlimit(sys.RLIMIT_NOFILE, &few); err != nil {
			fmt.Println(err)
			return 1
		}
		p, err := sys.Socketpair(sys.AF_UNIX, sys.SOCK_SEQPACKET|sys.SOCK_CLOEXEC|sys.SOCK_NONBLOCK, 0)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		for err == nil {
			err = SendRights(p[0], []byte{0}, []int{1})
		}
		fmt.Println(err)
		c, err := Begin(Program{Path: "/bin/echo", Args: []string{"echo", "there"}, Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_ = c.report.Close()
		c.Reap()
		return 0
	})
}

// A process that has as many descriptors under way to peers as the kernel allows its user starts
// programs.
func TestStartBesideRightsThatAreNotReceived(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming a user whose descriptors under way are counted needs root; run the tests as root")
	testutil.Require(t, programStarter.Load() != nil && programStarter.Load().sock < 0, "the kernel, or a filter, has no pidfd_getfd")
	cmd := testutil.Command(t, besideRights)
	cmd.Path, cmd.Dir = "/proc/self/exe", "/"
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	out, err := cmd.CombinedOutput()
	if got := string(out); err != nil || !strings.HasSuffix(got, "too many references: cannot splice\nthere\n") {
		t.Errorf("%q (%v)", got, err)
	}
}
