//go:build linux

package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("impostor", impostorRole) }

// impostorRole is another program that knows all by which a process could come back.
func impostorRole() int {
	var r nodeproto.RejoinRequest
	if err := json.Unmarshal([]byte(testutil.Args()[1]), &r); err != nil {
		fmt.Println(err)
		return 1
	}
	s, err := nodeproto.Dial(context.Background(), testutil.Args()[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	c := nodeproto.NewConn(s, nil)
	defer c.Close()
	_, err = c.Call(context.Background(), nodeproto.Rejoin, r, nil, nil)
	fmt.Printf("%t: %v", errors.Is(err, code.NoRights), err)
	return 0
}

// joined registers at a node whose socket is a file, and exports buffer 1.
func joined(t *testing.T, n *daemon.Node) (*nodeproto.Conn, nodeproto.RejoinRequest) {
	t.Helper()
	return joinedSession(t, n, "")
}

func joinedSession(
	t *testing.T, n *daemon.Node, session string,
) (*nodeproto.Conn, nodeproto.RejoinRequest) {
	t.Helper()
	c := join(t, n, nil)
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), c, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 5, Session: session}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Pass == "" {
		t.Fatal("a process was given nothing to come back by")
	}
	return c, nodeproto.RejoinRequest{Version: nodeproto.Version, Process: w.Process, Pass: w.Pass}
}

func rejoin(t *testing.T, n *daemon.Node, r nodeproto.RejoinRequest) (*nodeproto.Conn, error) {
	t.Helper()
	c := join(t, n, func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int,
		error,
	) {
		closeAll(fds)
		if m == nodeproto.Offer {
			return nodeproto.Grant{Handle: 1, Size: 64, Rights: nodeproto.MayRead}, nil, nil
		}
		return nodeproto.Empty{}, nil, nil
	})
	_, err := c.Call(t.Context(), nodeproto.Rejoin, r, nil, nil)
	return c, err
}

// Only the very process that had joined can rejoin as that, and no process reaches it before it has
// announced everything.
func TestImpostorsDoNotRejoin(t *testing.T) {
	cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
	n := startNode(t, cfg)
	_, r := joined(t, n)
	_, other := joined(t, n)
	_, err := rejoin(t, n, r)
	check(t, "a process that is there", err, code.InProgress)
	n.Close()
	n = startNode(t, cfg)

	for what, change := range map[string]func(*nodeproto.RejoinRequest){
		"another pass":        func(r *nodeproto.RejoinRequest) { r.Pass = "x" },
		"another's pass":      func(r *nodeproto.RejoinRequest) { r.Pass = other.Pass },
		"no pass":             func(r *nodeproto.RejoinRequest) { r.Pass = "" },
		"another incarnation": func(r *nodeproto.RejoinRequest) { r.Process.Incarnation++ },
		"another node":        func(r *nodeproto.RejoinRequest) { r.Process.Node = "two" },
	} {
		bad := r
		change(&bad)
		_, err := rejoin(t, n, bad)
		check(t, what, err, code.NoRights, "is not process")
	}
	bad := r
	bad.Process.PID += 1000
	_, err = rejoin(t, n, bad)
	check(t, "an unknown process", err, code.NoSuchProcess, "open another one")
	bad = r
	bad.Version++
	_, err = rejoin(t, n, bad)
	check(t, "another version", err, code.Protocol)

	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	out, err := testutil.Command(t, "impostor", n.Socket(), string(b)).Output()
	if err != nil || !strings.HasPrefix(string(out), "true: ") {
		t.Errorf("another program with all that is needed: %s (%v)", out, err)
	}

	c, err := rejoin(t, n, r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = rejoin(t, n, r)
	check(t, "a second one", err, code.InProgress)
	importer := join(t, n, nil)
	if _, err := importer.Call(t.Context(), nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 7}, nil, nil); err != nil {
		t.Fatal(err)
	}
	check(t, "Again of one that has not gone", func() error {
		_, err := importer.Call(t.Context(), nodeproto.Again, nodeproto.AgainRequest{Last: true}, nil,
			nil)
		return err
	}(), code.BadArg)
	got := make(chan error, 1)
	go func() {
		_, err := importer.Call(t.Context(), nodeproto.Import,
			nodeproto.ImportRequest{Node: "one", PID: r.Process.PID, ID: 1}, nil, nil)
		got <- err
	}()
	again := func(a nodeproto.AgainRequest) {
		t.Helper()
		if _, err := c.Call(t.Context(), nodeproto.Again, a, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	again(nodeproto.AgainRequest{
		Exports: []nodeproto.ExportRequest{{ID: 1, Size: 64, Rights: nodeproto.MayRead, Serial: 1}},
	})
	select {
	case err := <-got:
		t.Errorf("a process was reached that has not said all: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	// Keys of another length, and too many links.
	again(nodeproto.AgainRequest{
		Links: []nodeproto.LinkAgain{{Link: 7}, {Link: 8, Key: make([]byte, 5)}},
	})
	again(nodeproto.AgainRequest{Last: true})
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// A process that rejoins is told which of its names it cannot have any more, and why.
func TestNamesThatAreNotRestored(t *testing.T) {
	cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
	n := startNode(t, cfg)
	_, r := joined(t, n)
	n.Close()
	n = startNode(t, cfg)
	rival := newRaw(t, n, 6, nil)
	rival.export(t, 1, 1)
	// The first daemon knew of no name of the process: it is not awaited.
	if err := rival.publish(t.Context(), nodeproto.PublishRequest{Name: "taken", ID: 1, Serial: 1}); err != nil {
		t.Fatal(err)
	}
	c, err := rejoin(t, n, r)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := nodeproto.Ask[nodeproto.AgainAnswer](t.Context(), c, nodeproto.Again, nodeproto.AgainRequest{
		Exports: []nodeproto.ExportRequest{{ID: 1, Size: 64, Rights: nodeproto.MayRead, Serial: 1}},
		Names: []nodeproto.PublishRequest{
			{Name: "free", ID: 1, Serial: 1}, {Name: "taken", ID: 1, Serial: 1}, {Name: "ended", ID: 2, Serial: 2},
		},
		Last: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []nodeproto.LostName{
		{At: 1, Taken: &rival.id},
		{At: 2, Code: code.BadRbufState, Why: fmt.Sprintf(`process %d on node "one" has ended the export of buffer 2`, r.Process.PID)},
	}
	if diff := cmp.Diff(want, got.Lost); diff != "" {
		t.Error(diff)
	}
	if _, err := rival.find(t.Context(), "free"); err != nil {
		t.Error(err)
	}
}

// What a daemon that dies has half written, and what others could have written, is not believed.
func TestRollIsNotBelievedBlindly(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"for all": func(path string) error { return os.Chmod(path, 0o644) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"directory": func(path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"a link": func(path string) error {
			return errors.Join(os.Rename(path, path+"2"), os.Symlink(path+"2", path))
		},
		"torn": func(path string) error { return os.Truncate(path, 40) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
			n := startNode(t, cfg)
			_, r := joined(t, n)
			n.Close()
			if err := spoil(cfg.Socket + ".roll"); err != nil {
				t.Fatal(err)
			}
			n, err := daemon.Start(cfg)
			if name == "directory" {
				check(t, "start", err, code.BadConfig, "the members")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			_, err = rejoin(t, n, r)
			check(t, "come back", err, code.NoSuchProcess)
			if _, next := joined(t, n); next.Process.PID == r.Process.PID {
				t.Error("a pid was given twice")
			}
		})
	}
	t.Run("garbage behind it", func(t *testing.T) {
		cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
		n := startNode(t, cfg)
		_, r := joined(t, n)
		n.Close()
		f, err := os.OpenFile(cfg.Socket+".roll", os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteString("{\"Process\":{\"Node\":\"one\",\"PI")
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		n = startNode(t, cfg)
		if _, err = rejoin(t, n, r); err != nil {
			t.Error(err)
		}
	})
}

// Whatever a session is called, its processes and those that join later come back; a name that
// would make the roll unreadable is refused.
func TestLongSessionNamesInTheRoll(t *testing.T) {
	cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
	n := startNode(t, cfg)
	const longest = 8 << 10
	_, named := joinedSession(t, n, strings.Repeat("\x01", longest)) // each is written as six
	for _, size := range []int{longest + 1, 10_900} {
		c := join(t, n, nil)
		_, err := c.Call(t.Context(), nodeproto.Register, nodeproto.Hello{
			Version: nodeproto.Version, Incarnation: 5, Session: strings.Repeat("\x01", size),
		}, nil, nil)
		check(t, fmt.Sprintf("a session's name of %d bytes", size), err, code.BadArg,
			fmt.Sprintf("has %d bytes, at most %d", size, longest))
	}
	_, after := joined(t, n)
	n.Close()
	n = startNode(t, cfg)
	for what, r := range map[string]nodeproto.RejoinRequest{
		"with the long name": named, "that joined after it": after,
	} {
		if _, err := rejoin(t, n, r); err != nil {
			t.Errorf("the process %s: %v", what, err)
		}
	}
}

// A line that was written in part, because there was no room for more, spoils none of those that
// come after it. Its process can rejoin if a line comes after.
func TestTornLineOfTheRoll(t *testing.T) {
	if !inOwnProcess(t) { // the limit is the process's, and the go command has a log in this one
		return
	}
	for _, more := range []bool{true, false} {
		cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
		n := startNode(t, cfg)
		_, before := joined(t, n)
		size := rollSize(t, cfg)
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		const part = 30
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE,
			&syscall.Rlimit{Cur: uint64(size + part), Max: limit.Max}); err != nil {
			t.Fatal(err)
		}
		_, torn := joined(t, n) // in spite of it
		got := rollSize(t, cfg)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		if got != size+part {
			t.Fatalf("%d bytes were written, want %d", got-size, part)
		}
		var after nodeproto.RejoinRequest
		if more {
			_, after = joined(t, n)
		}
		n.Close()
		n = startNode(t, cfg)
		if _, err := rejoin(t, n, before); err != nil {
			t.Errorf("the process before the torn line: %v", err)
		}
		if !more {
			_, err := rejoin(t, n, torn)
			check(t, "the process of a torn line that is the last", err, code.NoSuchProcess)
			continue
		}
		for what, r := range map[string]nodeproto.RejoinRequest{
			"of the torn line": torn, "after it": after,
		} {
			if _, err := rejoin(t, n, r); err != nil {
				t.Errorf("the process %s: %v", what, err)
			}
		}
	}
}

// inOwnProcess reports whether this process runs the test alone. Otherwise a child has run it.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	const marker = "VMMC_TEST_OWN_PROCESS"
	if os.Getenv(marker) == t.Name() {
		return true
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), marker+"="+t.Name())
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func rollSize(t *testing.T, cfg daemon.Config) int64 {
	t.Helper()
	info, err := os.Stat(cfg.Socket + ".roll")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// A process that was cut off for what it said is not expected by the next daemon, which would have
// others wait for it, nor taken for dead, for it may live on with its links.
func TestWhoIsCutOffIsNotExpected(t *testing.T) {
	cfg := daemon.Config{Name: "one", Socket: filepath.Join(t.TempDir(), "s")}
	n := startNode(t, cfg)
	s, err := nodeproto.Dial(t.Context(), n.Socket())
	if err != nil {
		t.Fatal(err)
	}
	c := nodeproto.NewConn(s, nil)
	t.Cleanup(func() { c.Close(); <-c.Done() })
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), c, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 5}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := nodeproto.RejoinRequest{Version: nodeproto.Version, Process: w.Process, Pass: w.Pass}
	if _, err := s.Write([]byte("what makes no sense")); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	gone := func(n *daemon.Node) {
		t.Helper()
		_, err := rejoin(t, n, r)
		for end := time.Now().Add(bound); errors.Is(err, code.InProgress) && time.Now().Before(end); {
			// Until the daemon has done with it.
			time.Sleep(10 * time.Millisecond)
			_, err = rejoin(t, n, r)
		}
		check(t, "one that was cut off", err, code.NoSuchProcess)
		asks := join(t, n, nil)
		if _, err := asks.Call(t.Context(), nodeproto.Register,
			nodeproto.Hello{Version: nodeproto.Version, Incarnation: 7}, nil, nil); err != nil {
			t.Fatal(err)
		}
		d, _, err := nodeproto.Ask[nodeproto.Departure](t.Context(), asks, nodeproto.Departed, r.Process,
			nil)
		if err != nil || d.Departed {
			t.Errorf("it is taken for dead: %v, %v", d.Departed, err)
		}
		begun := time.Now()
		_, err = asks.Call(t.Context(), nodeproto.Import,
			nodeproto.ImportRequest{Node: "one", PID: r.Process.PID, ID: 1}, nil, nil)
		check(t, "an import from it", err, code.NoSuchProcess)
		if d := time.Since(begun); d > 5*time.Second { // twice that where it is expected
			t.Errorf("others wait for it: %v", d)
		}
	}
	gone(n)
	for range 2 { // and what the next one writes says so, too
		n.Close()
		n = startNode(t, cfg)
		gone(n)
	}
}
