package serve

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// node is a vmmcd that runs.
type node struct {
	cmd *exec.Cmd
	log *bufio.Scanner
}

// startNode runs vmmcd with a JSON log and waits until it says that it is up.
// Its descriptor 3 is extra.
func startNode(t *testing.T, extra *os.File, args ...string) *node {
	t.Helper()
	testutil.Require(t, runtime.GOOS == "linux", "nodes need Linux")
	args = append(args, "--name", "n1", "--socket", filepath.Join(t.TempDir(), "s"), "--log-format", "json")
	n := &node{cmd: testutil.Command(t, "vmmcd", args...)}
	if extra != nil {
		n.cmd.ExtraFiles = []*os.File{extra}
	}
	out, err := n.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.log = bufio.NewScanner(out)
	for n.log.Scan() {
		var line struct{ Msg, Node string }
		if err := json.Unmarshal(n.log.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", n.log.Text(), err)
		}
		if line.Msg == "node is up" && line.Node == "n1" {
			return n
		}
	}
	t.Fatalf("vmmcd ended before it was up: %v", n.cmd.Wait())
	return nil
}

// ends waits for the orderly end of the node, for the reason that it gives.
func (n *node) ends(t *testing.T, why string) {
	t.Helper()
	said := ""
	for n.log.Scan() { // to its end: Wait closes the pipe
		t.Log(n.log.Text())
		var line struct{ Why string }
		if err := json.Unmarshal(n.log.Bytes(), &line); err != nil {
			t.Errorf("log line: %v", err)
		}
		said += line.Why
	}
	if said != why {
		t.Errorf("vmmcd ended because of %q, wanted %q", said, why)
	}
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("vmmcd ended with %v, wanted status 0", err)
	}
}

func TestSignalsEndIt(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			n := startNode(t, nil)
			if err := n.cmd.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			n.ends(t, s.String()+" signal received")
		})
	}
}

// TestSIGHUPWhileItStarts: it reads the list again later, and does not end.
func TestSIGHUPWhileItStarts(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "nodes need Linux")
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts")
	if out, err := exec.CommandContext(t.Context(), "mkfifo", hosts).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n := &node{cmd: testutil.Command(t, "vmmcd", "--hosts", hosts, "--name", "n1", "--socket", filepath.Join(dir, "s"), "--state", filepath.Join(dir, "state"), "--log-format", "json")}
	out, err := n.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.log = bufio.NewScanner(out)
	w, err := os.OpenFile(hosts, os.O_WRONLY, 0) // returns when the node reads
	if err != nil {
		t.Fatal(err)
	}
	if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("n1 127.0.0.1:1\n"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for n.log.Scan() {
		var line struct{ Msg, Err string }
		if err := json.Unmarshal(n.log.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", n.log.Text(), err)
		}
		if line.Msg == "the hosts file cannot be read, the node list stays as it was" && line.Err == "it is no plain file" {
			break // it is up, and has the signal
		}
	}
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.ends(t, "terminated signal received")
}

func TestEndsWithItsParent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n := startNode(t, r, "--parent-pipe", "3")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	n.ends(t, errParentGone.Error())
}

func TestOutlivesAParentThatLetsGo(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	n := startNode(t, r, "--parent-pipe", "3")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	// The node closes its end once it has read the byte; then a write fails, and
	// the end of the parent can tell it nothing any more.
	for err == nil {
		_, err = w.Write([]byte{1})
	}
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.ends(t, "terminated signal received")
}

func TestParentPipeMustBeThere(t *testing.T) {
	out, err := testutil.Command(t, "vmmcd", "--parent-pipe", "99", "--socket", filepath.Join(t.TempDir(), "s")).CombinedOutput()
	if e, ok := err.(*exec.ExitError); !ok || e.ExitCode() != Misused { //nolint:errorlint // as Wait returns it
		t.Fatalf("ended with %v, wanted status %d; it said:\n%s", err, Misused, out)
	}
}
