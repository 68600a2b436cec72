package supervise

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// viewer attends to a program as a tool does.
type viewer struct {
	*session
	pid   uint32
	leave func() // as if the tool were lost
	sent  int64
	seen  int64
}

func (s *session) attended(o Order) *viewer {
	s.t.Helper()
	s.next++
	o.PID, o.Group, o.Path, o.Directory = s.next, 1, []byte("/bin/sh"), []byte("/")
	o.Env = append(o.Env, []byte("PATH=/usr/bin:/bin"))
	p, err := s.Start(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	v := &viewer{session: s, pid: p.PID}
	ctx, stop := context.WithCancel(context.Background())
	var here sync.WaitGroup
	here.Go(func() { _ = s.Attend(ctx, AttendRequest{PID: v.pid}) })
	v.leave = func() {
		stop()
		here.Wait()
	}
	s.t.Cleanup(v.leave)
	return v
}

func script(s string) [][]byte { return [][]byte{[]byte("-c"), []byte(s)} }

// see reads until the output has what is wanted, or its end if that is empty.
func (v *viewer) see(want string) string {
	v.t.Helper()
	var b bytes.Buffer
	for {
		c, err := v.Read(v.t.Context(), ReadRequest{PID: v.pid, Offset: v.seen, Max: MaxChunk, For: bound, Attended: true})
		if err != nil || len(c.Data) == 0 && !c.Done {
			v.t.Fatalf("%v: it has printed %q, want %q", err, b.Bytes()[max(0, b.Len()-200):], want)
		}
		v.seen += int64(len(c.Data))
		b.Write(c.Data)
		if c.Done && want != "" {
			v.t.Fatalf("it has printed %q, want %q", b.String(), want)
		}
		if c.Done || want != "" && strings.Contains(b.String(), want) {
			return b.String()
		}
	}
}

func (v *viewer) give(b []byte, end bool) {
	v.t.Helper()
	for {
		n := min(len(b), MaxChunk)
		w, err := v.Write(v.t.Context(), WriteRequest{PID: v.pid, Offset: v.sent, Data: b[:n], End: end && n == len(b), For: bound})
		if err != nil {
			v.t.Fatal(err)
		}
		b, v.sent = b[w.Taken-v.sent:], w.Taken
		if len(b) == 0 {
			return
		}
	}
}

func TestTerminal(t *testing.T) {
	s := newSession(t, t.TempDir())
	v := s.attended(Order{
		Args: script(`stty -echo; stty size; echo "$TERM"; tty; read -r w; echo "<$w>"
			while [ "$(stty size)" != "12 34" ]; do sleep 0.01; done; echo resized; trap : INT
			(trap 'echo asked; exit' INT; echo ready; while :; do sleep 0.01; done); cat; echo end; exit 4`),
		Terminal: &Terminal{Size: unix.Size{Rows: 33, Columns: 101}, Term: "vt220"},
	})
	if got := v.see("/dev/pts/"); !strings.HasPrefix(got, "33 101\r\nvt220\r\n") {
		t.Errorf("its terminal is %q", got)
	}
	v.give([]byte("one\n"), false)
	v.see("<one>")
	if err := s.Resize(t.Context(), ResizeRequest{PID: v.pid, Size: unix.Size{Rows: 12, Columns: 34}}); err != nil {
		t.Error(err)
	}
	v.see("ready")
	v.give([]byte{3}, false) // Ctrl-C
	v.see("asked")
	v.give([]byte{4}, false) // Ctrl-D
	v.see("end")
	v.see("")
	if p := s.wait(v.pid); p.Status != 4 {
		t.Errorf("%+v", p)
	}
	// The file has it as any other.
	if got := s.output(v.pid); !strings.Contains(got, "<one>\r\n") || !strings.HasSuffix(got, "end\r\n") {
		t.Errorf("its file has %q", got)
	}
	if err := s.Resize(t.Context(), ResizeRequest{PID: v.pid}); err != nil {
		t.Errorf("a size for a terminal that is gone: %v", err)
	}
}

func TestTerminalIsHungUp(t *testing.T) {
	s := newSession(t, t.TempDir())
	term := &Terminal{Size: unix.Size{Rows: 24, Columns: 80}}
	v := s.attended(Order{Args: script(`echo there; while :; do sleep 0.01; done`), Terminal: term})
	v.see("there")
	v.leave()
	if p := s.wait(v.pid); p.Signal != int(syscall.SIGHUP) {
		t.Errorf("%+v, want that it was hung up", p)
	}
	// Another one hears of it, and goes on without a terminal: from then on its input has
	// an end.
	v = s.attended(Order{Args: script(`trap 'heard=1' HUP; echo there; while read -r x; do :; done; while [ -z "$heard" ]; do sleep 0.01; done; exit 5`), Terminal: term})
	v.see("there")
	v.leave()
	if p := s.wait(v.pid); p.Status != 5 {
		t.Errorf("%+v, want that it has heard", p)
	}
	if _, err := s.Read(t.Context(), ReadRequest{PID: v.pid, Offset: v.seen, Attended: true}); err != nil {
		t.Errorf("read what is over: %v", err)
	}
	if w, err := s.Write(t.Context(), WriteRequest{PID: v.pid, Data: []byte("x")}); err != nil || !w.Closed {
		t.Errorf("%+v, %v: input for one that is gone", w, err)
	}
}

func TestInput(t *testing.T) {
	s := newSession(t, t.TempDir())
	b := make([]byte, 1_000_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(b))
	v := s.attended(Order{Args: script("sha256sum; exit 3"), Input: true})
	// What is repeated does no harm, nor what leaves something out.
	for range 2 {
		w, err := s.Write(t.Context(), WriteRequest{PID: v.pid, Data: b[:1000], For: bound})
		if err != nil || w.Taken != 1000 {
			t.Fatal(w, err)
		}
	}
	if _, err := s.Write(t.Context(), WriteRequest{PID: v.pid, Offset: 1001, Data: b[:1]}); !errors.Is(err, code.BadArg) {
		t.Errorf("input with a hole: %v", err)
	}
	if w, err := s.Write(t.Context(), WriteRequest{PID: v.pid, Offset: 500, Data: b[500:1500], For: bound}); err != nil || w.Taken != 1500 {
		t.Error(w, err)
	}
	for _, r := range []WriteRequest{{PID: v.pid, Offset: -1}, {PID: v.pid, Data: make([]byte, MaxChunk+1)}} {
		if _, err := s.Write(t.Context(), r); !errors.Is(err, code.BadArg) {
			t.Errorf("offset %d, %d bytes: %v", r.Offset, len(r.Data), err)
		}
	}
	v.sent = 1500
	v.give(b[1500:], true)
	if got := v.see(""); got != want {
		t.Errorf("it has got %q, want %q", got, want)
	}
	if p := s.wait(v.pid); p.Status != 3 {
		t.Errorf("%+v", p)
	}

	// Binary output comes back unchanged. A client that is lost leaves an end of input.
	v = s.attended(Order{Args: script("exec cat"), Input: true})
	v.give(b[:4096], false)
	var got string
	for len(got) < 4096 {
		c, err := s.Read(t.Context(), ReadRequest{PID: v.pid, Offset: int64(len(got)), Max: MaxChunk, For: bound, Attended: true})
		if err != nil {
			t.Fatal(err)
		}
		got += string(c.Data)
	}
	if got != string(b[:4096]) {
		t.Error("cat has changed what it was given")
	}
	v.leave()
	if p := s.wait(v.pid); p.Status != 0 || p.Signal != 0 {
		t.Errorf("%+v", p)
	}

	// Without input there is none.
	p := s.sh("cat; sleep 1000")
	if _, err := s.Write(t.Context(), WriteRequest{PID: p.PID, Data: b[:1]}); !errors.Is(err, code.BadArg) {
		t.Errorf("input for one without: %v", err)
	}
	if err := s.Attend(t.Context(), AttendRequest{PID: p.PID}); !errors.Is(err, code.BadArg) {
		t.Errorf("attend to one without input: %v", err)
	}
	if err := s.Resize(t.Context(), ResizeRequest{PID: p.PID}); !errors.Is(err, code.BadArg) {
		t.Errorf("resize no terminal: %v", err)
	}
	if err := s.Attend(t.Context(), AttendRequest{PID: 77}); !errors.Is(err, code.NoSuchProcess) {
		t.Errorf("attend to a process that does not exist: %v", err)
	}
	if _, err := s.Start(t.Context(), Order{PID: 99, Path: []byte("/bin/true"), Directory: []byte("/"), Terminal: &Terminal{Term: "a\nb=c"}}); !errors.Is(err, code.BadArg) {
		t.Errorf("a kind of terminal with a line of its own: %v", err)
	}
}

// A client that shows no output slows its program, and that one alone. A program whose client
// has gone is not slowed.
func TestAttendedFlood(t *testing.T) {
	s := newSession(t, t.TempDir())
	const size = 20_000_000
	flood := Order{Args: script(fmt.Sprintf("head -c %d /dev/zero", size)), Input: true}
	v, lost := s.attended(flood), s.attended(flood)
	s.wait(s.sh("echo quick").PID)
	p, err := s.Await(t.Context(), AwaitRequest{PID: v.pid, For: 1})
	for err == nil && p.Output < maxUnseen {
		p, err = s.Await(t.Context(), AwaitRequest{PID: v.pid, For: 1})
	}
	if err != nil || p.Ended || p.Output > maxUnseen+2*bufferSize {
		t.Errorf("%+v (%v): it has not waited", p, err)
	}
	if n := len(v.see("")); n != size {
		t.Errorf("%d bytes came", n)
	}
	lost.leave()
	if p := s.wait(lost.pid); p.Status != 0 || p.Output != size || p.Missing != 0 {
		t.Errorf("%+v", p)
	}
	stuck := s.attended(flood)
	if _, err := s.Read(t.Context(), ReadRequest{PID: stuck.pid, Max: 1, For: bound, Attended: true}); err != nil {
		t.Fatal(err)
	}
	s.end() // with one that waits
}

// leased starts a program that is bound to its group's lease, and returns when it has printed that it
// is there.
func (s *session) leased(group uint32) uint32 {
	s.t.Helper()
	s.next++
	p, err := s.Start(s.t.Context(), Order{
		PID: s.next, Group: group, Path: []byte("/bin/sh"), Directory: []byte("/"), Bound: true,
		Args: script(`trap "" TERM HUP; sleep 1000 & echo there; wait`), Env: [][]byte{[]byte("PATH=/usr/bin:/bin")},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if c, err := s.Read(s.t.Context(), ReadRequest{PID: p.PID, Max: MaxChunk, For: bound}); string(c.Data) != "there\n" {
		s.t.Fatalf("it has printed %q, %v", c.Data, err)
	}
	return p.PID
}

// hold attends to a group until it is released.
func (s *session) hold(group uint32) (release func()) {
	ctx, stop := context.WithCancel(context.Background())
	var here sync.WaitGroup
	here.Go(func() { _ = s.Attend(ctx, AttendRequest{Group: group}) })
	release = func() {
		stop()
		here.Wait()
	}
	s.t.Cleanup(release)
	return release
}

// A run group is killed when the last client that attends to it has gone, also what its programs have
// started; another group is not.
func TestGroupEndsWithItsClients(t *testing.T) {
	s := newSession(t, t.TempDir())
	release := s.hold(1) // before there is a program
	one, two, other := s.leased(1), s.leased(1), s.leased(2)
	again := s.hold(1)
	s.hold(2)
	release()
	time.Sleep(2 * timeout.Orphaned)
	l, err := s.List(t.Context(), ListRequest{Running: true})
	if err != nil || len(l.Programs) != 3 {
		t.Fatalf("%+v, %v: want all three, a client attends to each group", l.Programs, err)
	}
	again()
	for _, pid := range []uint32{one, two} {
		if p := s.wait(pid); p.Signal != int(syscall.SIGKILL) {
			t.Errorf("%+v, want that it was killed", p)
		}
	}
	l, err = s.List(t.Context(), ListRequest{Running: true})
	if err != nil || len(l.Programs) != 1 || l.Programs[0].PID != other {
		t.Errorf("%+v, %v: want program %d alone", l.Programs, err, other)
	}
	left := 0
	for range 1000 { // their children are reaped too
		if left = len(childrenOf(s.Real())); left == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if left != 1 {
		t.Errorf("the supervisor has %d children, want 1", left)
	}
}

// A run group outlasts the daemon: its clients attend to it again through the next one.
func TestGroupOutlastsTheDaemon(t *testing.T) {
	s := newSession(t, t.TempDir())
	first := s.Client
	s.hold(1)
	pid := s.leased(1)
	first.Close()
	time.Sleep(2 * timeout.Orphaned)
	d, err := unix.OpenPath(s.dir)
	must(t, err)
	defer d.Close()
	s.Client, err = Dial(t.Context(), d, uint32(os.Getuid()), Greeting{s.spec.Session, s.spec.Marker})
	must(t, err)
	release := s.hold(1)
	l, err := s.List(t.Context(), ListRequest{Running: true})
	if err != nil || len(l.Programs) != 1 || l.Programs[0].PID != pid {
		t.Fatalf("%+v, %v: want program %d", l.Programs, err, pid)
	}
	release()
	if p := s.wait(pid); p.Signal != int(syscall.SIGKILL) {
		t.Errorf("%+v, want that it was killed", p)
	}
}
