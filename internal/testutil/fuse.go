package testutil

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// FUSE is a file system in user space, which answers what its test lets it. Its server is a process
// of its own: one that waited for an answer of itself could not even be killed.
type FUSE struct {
	Dir string // where it is mounted

	t    testing.TB
	in   io.Writer
	said chan string // by the server, until it ends
	hung []string    // that Hung has not told of
}

// FUSEFile is a file in the root of a [FUSE].
type FUSEFile struct {
	Name string
	Data []byte
	Mode uint32 // permissions
	UID  uint32
}

// fuseRole is the server.
const fuseRole = "testutil: FUSE server"

// fuseBound is how long the server may take to do what it is told. It is only for a loaded machine.
const fuseBound = time.Minute

// NewFUSE mounts one with files. What is written to it goes nowhere. With writeback the kernel
// keeps what is written until a file is closed. When the test ends all that waits for an answer
// fails, and the file system is unmounted. Where there can be none the test is skipped.
func NewFUSE(t testing.TB, writeback bool, files ...FUSEFile) *FUSE {
	t.Helper()
	reason := noFUSE()
	Require(t, reason == "", reason)
	f := &FUSE{Dir: t.TempDir(), t: t}
	about, err := json.Marshal(fuseOrder{f.Dir, writeback, files})
	if err != nil {
		t.Fatal(err)
	}
	c := Command(t, fuseRole, string(about))
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	f.in, f.said = in, make(chan string, 4096)
	go func() {
		defer close(f.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.said <- lines.Text()
		}
	}()
	t.Cleanup(func() { unmountFUSE(t, f.Dir) })
	if got := f.hear(); got != "mounted" {
		t.Fatalf("testutil: the FUSE server: %s", got)
	}
	return f
}

// fuseOrder tells the server what to serve.
type fuseOrder struct {
	Dir       string
	Writeback bool
	Files     []FUSEFile
}

// Hang leaves requests of these kinds without an answer from now on: access, flush, fsync, getattr,
// lookup, open, read, release, setattr, statfs, write.
func (f *FUSE) Hang(kinds ...string) { f.tell("hang " + strings.Join(kinds, " ")) }

// Answer answers what hangs, and all that comes.
func (f *FUSE) Answer() { f.tell("answer") }

// Hung waits until a request hangs that Hung has not told of, and says of which kind it is.
func (f *FUSE) Hung() string {
	f.t.Helper()
	if len(f.hung) == 0 {
		f.hung = append(f.hung, f.hear())
	}
	first := f.hung[0]
	f.hung = f.hung[1:]
	return strings.TrimPrefix(first, "hung ")
}

func (f *FUSE) tell(what string) {
	f.t.Helper()
	if _, err := io.WriteString(f.in, what+"\n"); err != nil {
		f.t.Fatalf("testutil: tell the FUSE server %q: %v", what, err)
	}
	for got := f.hear(); got != "told"; got = f.hear() {
		if !strings.HasPrefix(got, "hung ") {
			f.t.Fatalf("testutil: the FUSE server was told %q, and said %q", what, got)
		}
		f.hung = append(f.hung, got)
	}
}

func (f *FUSE) hear() string {
	select {
	case s, is := <-f.said:
		if !is {
			return "it has ended"
		}
		return s
	case <-time.After(fuseBound):
		return "nothing"
	}
}
