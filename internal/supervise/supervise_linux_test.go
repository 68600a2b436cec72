package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

const bound = 30 * time.Second

// session is one with its supervisor.
type session struct {
	*Client
	t     *testing.T
	spec  Spec
	dir   string // of its state
	child *unix.Child
	next  uint32
	ended bool
	limit string // what the shell does before the supervisor begins
}

func newSession(t *testing.T, base string) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir(), spec: Spec{Session: "a/b", Node: "n1", User: "alice", Base: base, Output: "/out/deep", Marker: marker(t), New: true}}
	s.launch()
	s.spec.New = false // of the supervisors that take its place
	t.Cleanup(func() {
		if !s.ended {
			s.end()
		}
	})
	return s
}

func marker(t *testing.T) string { return t.Name() + strconv.Itoa(os.Getpid()) }

func (s *session) launch() {
	s.t.Helper()
	if err := s.try(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *session) try() error {
	d, err := unix.OpenPath(s.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	env := append(os.Environ(), supervisorEnv+"=1")
	argv := []string{"/proc/self/exe", os.Args[0]}
	if s.limit != "" {
		argv = []string{"/bin/sh", "sh", "-c", s.limit + `; exec "$0"`, os.Args[0]}
	}
	if s.child, err = Launch(s.t.Context(), argv, env, nil, d, s.spec, nil); err != nil {
		return err
	}
	s.Client, err = Dial(s.t.Context(), d, uint32(os.Getuid()), Greeting{s.spec.Session, s.spec.Marker})
	return err
}

func (s *session) end() {
	s.t.Helper()
	s.ended = true
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	left, err := s.End(ctx)
	if err != nil || len(left.Real) > 0 {
		s.t.Errorf("end: %v, left %v", err, left)
	}
	s.Close()
	s.child.Reap()
	if left := Descendants(-1, s.spec.Marker); len(left) > 0 {
		s.t.Errorf("processes %v are left", left)
	}
	if es, err := os.ReadDir(s.dir); err != nil || len(es) > 0 {
		s.t.Errorf("files %v are left (%v)", es, err)
	}
}

// sh runs a script of the shell.
func (s *session) sh(script string) Program {
	s.t.Helper()
	p, err := s.order("/bin/sh", "/", "-c", script)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *session) order(path, dir string, args ...string) (Program, error) {
	s.next++
	o := Order{PID: s.next, Group: 1, Path: []byte(path), Directory: []byte(dir), Env: [][]byte{[]byte("PATH=/usr/bin:/bin")}}
	for _, a := range args {
		o.Args = append(o.Args, []byte(a))
	}
	return s.Start(s.t.Context(), o)
}

func (s *session) wait(pid uint32) Program {
	s.t.Helper()
	p, err := s.Await(s.t.Context(), AwaitRequest{PID: pid, For: bound})
	if err != nil || !p.Ended {
		s.t.Fatalf("%+v, %v: has not ended", p, err)
	}
	return p
}

// output is all that a program has printed.
func (s *session) output(pid uint32) string {
	s.t.Helper()
	var b bytes.Buffer
	for {
		c, err := s.Read(s.t.Context(), ReadRequest{PID: pid, Offset: int64(b.Len()), Max: MaxChunk, For: bound})
		if err != nil {
			s.t.Fatal(err)
		}
		if b.Write(c.Data); c.Done {
			return b.String()
		}
	}
}

func TestPrograms(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	p := s.sh("printf 'a\\000b'; echo err >&2; exit 7")
	if got := s.wait(p.PID); got.Status != 7 || got.Signal != 0 || got.Output != 7 || got.Missing != 0 {
		t.Errorf("%+v", got)
	}
	if got := s.output(p.PID); got != "a\x00berr\n" {
		t.Errorf("it printed %q", got)
	}
	b, err := os.ReadFile(filepath.Join(base, "out/deep", "VMMC_n1.1"))
	if err != nil || string(b) != "a\x00berr\n" {
		t.Errorf("its file has %q (%v)", b, err)
	}
	q := s.sh("sleep 1000")
	if n, err := s.Signal(t.Context(), SignalRequest{PID: q.PID, Signal: int(syscall.SIGTERM)}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := s.wait(q.PID); got.Signal != int(syscall.SIGTERM) || got.Status != -1 {
		t.Errorf("%+v", got)
	}
	if _, err := s.Signal(t.Context(), SignalRequest{PID: q.PID, Signal: 9}); !errors.Is(err, code.NoSuchProcess) {
		t.Errorf("signal to one that has ended: %v", err)
	}
	if _, err := s.Await(t.Context(), AwaitRequest{PID: 99}); !errors.Is(err, code.NoSuchProcess) {
		t.Errorf("no such process: %v", err)
	}
	b, err = os.ReadFile(filepath.Join(base, "out/deep", "a%2Fb_1"))
	lines := strings.Split(string(b), "\n")
	want := fmt.Sprintf("VMMC_n1 2 # HOST=n1 REALPID=%d TIME=%4d/%2d/", q.Real, q.Begun.Year(), q.Begun.Month())
	if err != nil || len(lines) != 6 || lines[1] != "# VMMC Output Control For Session [a/b] Run #1 User [alice]" || !strings.HasPrefix(lines[4], want) {
		t.Errorf("control file %q (%v)", b, err)
	}
}

// Two that begin a run group's file at once are both in it.
func TestControlFileIsBegunOnce(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	for group := range uint32(40) {
		var both sync.WaitGroup
		for i := range uint32(3) {
			both.Go(func() {
				if _, err := s.Start(t.Context(), Order{PID: 1000 + 3*group + i, Group: group, Path: []byte("/bin/true"), Directory: []byte("/")}); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		b, err := os.ReadFile(filepath.Join(base, "out/deep", fmt.Sprintf("a%%2Fb_%d", group)))
		if got := strings.Count(string(b), "VMMC_n1 "); err != nil || got != 3 {
			t.Errorf("%d of 3 processes are in %q (%v)", got, b, err)
		}
	}
}

func TestControlLine(t *testing.T) {
	got := controlLine("NODE2", Program{PID: 12, Real: 337, Begun: time.Date(1999, 2, 14, 13, 6, 0, 0, time.UTC)})
	if want := "VMMC_NODE2 12 # HOST=NODE2 REALPID=337 TIME=1999/ 2/14-13: 6\n"; got != want { // as the manual prints it
		t.Errorf("%q, want %q", got, want)
	}
}

// What programs leave running, in whatever way, ends with the session.
func TestNothingEscapes(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	p := s.sh(`(setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 &) ; (env -i setsid sleep 1000 &); trap '' TERM; echo ok; sleep 1000 & wait`)
	for !strings.Contains(s.first(p.PID), "ok") {
		continue
	}
	// The shell says "ok" before what it put in the background has started all
	// that it starts.
	const all = 5 // the shell and four sleeps, one of which a shell may wait for
	for give := time.Now().Add(bound); len(Descendants(s.Real(), "")) < all; time.Sleep(time.Millisecond) {
		if time.Now().After(give) {
			t.Fatalf("%v below the supervisor, want %d: the shell and what it started", Descendants(s.Real(), ""), all)
		}
	}
	s.end()
}

func (s *session) first(pid uint32) string {
	c, err := s.Read(s.t.Context(), ReadRequest{PID: pid, Max: 100, For: bound})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(c.Data)
}

// A supervisor that was killed: the next one ends what it left, and knows how
// what had ended before did.
func TestSupervisorDies(t *testing.T) {
	s := newSession(t, t.TempDir())
	p := s.sh("echo one; exit 3")
	s.wait(p.PID)
	q := s.sh("setsid sleep 1000 & exec sleep 1000")
	for len(Descendants(-1, s.spec.Marker)) < 2 {
		time.Sleep(time.Millisecond)
	}
	s.child.Signal(syscall.SIGKILL)
	<-s.Done()
	s.Close()
	s.child.Reap()
	s.launch()
	if left := Descendants(-1, s.spec.Marker); len(left) > 0 {
		t.Errorf("%v are left of the dead supervisor's", left)
	}
	if got := s.wait(p.PID); got.Status != 3 || got.Lost {
		t.Errorf("%+v, want what it ended with", got)
	}
	if got := s.output(p.PID); got != "one\n" {
		t.Errorf("output %q", got)
	}
	if got := s.wait(q.PID); !got.Lost {
		t.Errorf("%+v, want that it was lost", got)
	}
}

// The supervisor of a new session looks at no other process. A session is made as fast as before
// however many processes other users have.
func TestNewSessionSearchesNothing(t *testing.T) {
	c := exec.Command("/bin/sleep", "1000")
	c.Env = []string{MarkerEnv + "=" + marker(t)}
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	s := newSession(t, t.TempDir())
	if left := Descendants(-1, s.spec.Marker); len(left) != 1 {
		t.Errorf("%v have the marker, want process %d: it was searched for", left, c.Process.Pid)
	}
	s.child.Signal(syscall.SIGKILL)
	<-s.Done()
	s.Close()
	s.child.Reap()
	s.launch()
	if left := Descendants(-1, s.spec.Marker); len(left) > 0 {
		t.Errorf("%v are left at the next supervisor", left)
	}
}

func TestManyAreReaped(t *testing.T) {
	s := newSession(t, t.TempDir())
	const n = 120
	var all sync.WaitGroup
	var pids []uint32
	for i := range n {
		p := s.sh(fmt.Sprintf("(sleep 0.0%d &) ; echo %d; exit %d", i%9+1, i, i%5))
		pids = append(pids, p.PID)
	}
	for i, pid := range pids {
		all.Go(func() {
			p, err := s.Await(t.Context(), AwaitRequest{PID: pid, For: bound})
			if err != nil || p.Status != i%5 {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
	all.Wait()
	for i, pid := range pids {
		if got := s.output(pid); got != fmt.Sprintln(i) {
			t.Errorf("process %d printed %q", pid, got)
		}
	}
	for seen, more, after := 0, true, uint32(0); more; {
		l, err := s.List(t.Context(), ListRequest{After: after})
		if err != nil || len(l.Programs) == 0 {
			t.Fatal(l, err)
		}
		seen, more, after = seen+len(l.Programs), l.More, l.Programs[len(l.Programs)-1].PID
		if !more && seen != n {
			t.Errorf("%d are listed, want %d", seen, n)
		}
	}
	for deadline := time.Now().Add(bound); len(zombies(s.Real())) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the supervisor has not reaped %v", zombies(s.Real()))
		}
	}
}

func zombies(of int) (out []int) {
	for _, pid := range childrenOf(of) {
		if p, ok := readProc(pid); ok && p.Dead() {
			out = append(out, pid)
		}
	}
	return out
}

func childrenOf(of int) (out []int) {
	es, _ := os.ReadDir("/proc")
	for _, e := range es {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if p, ok := readProc(pid); ok && p.Parent == of {
				out = append(out, pid)
			}
		}
	}
	return out
}

func TestPathsStayInTheBase(t *testing.T) {
	top := t.TempDir()
	base := filepath.Join(top, "base")
	must(t, os.MkdirAll(filepath.Join(base, "bin"), 0o755))
	must(t, os.WriteFile(filepath.Join(base, "bin", "prog"), []byte("#!/bin/sh\npwd -P\n"), 0o755))
	must(t, os.WriteFile(filepath.Join(top, "outside"), []byte("#!/bin/sh\n"), 0o755))
	must(t, os.Symlink(top, filepath.Join(base, "up")))
	must(t, os.Symlink("..", filepath.Join(base, "up2")))
	must(t, os.Symlink("bin", filepath.Join(base, "in")))
	s := newSession(t, base)
	for _, dir := range []string{"/..", "/bin/../..", "/up", "/up2", "/in/../../", "bin", "", "/nothing"} {
		if _, err := s.order("/bin/true", dir); err == nil {
			t.Errorf("a program runs in %q", dir)
		}
	}
	for _, path := range []string{"../outside", "up/outside", "bin/../../outside", "nothing"} {
		if _, err := s.order(path, "/"); !errors.Is(err, code.BadArg) {
			t.Errorf("%q runs: %v", path, err)
		}
	}
	for dir, path := range map[string]string{"/bin": "prog", "/in": "./prog", "/": "bin/prog", "/bin/..": "in/prog"} {
		p, err := s.order(path, dir)
		if err != nil {
			t.Errorf("%s in %s: %v", path, dir, err)
			continue
		}
		if got, want := s.output(p.PID), filepath.Join(base, filepath.Clean(dir)); !strings.HasPrefix(got, base) {
			t.Errorf("%s in %s ran in %q, want %q", path, dir, got, want)
		}
	}
	for _, out := range []string{"/up/x", "/../x", "x", "", "/up2/x"} {
		o := &session{t: t, dir: t.TempDir(), spec: s.spec}
		if o.spec.Output = out; o.try() == nil {
			o.end()
			t.Errorf("output goes to %q", out)
		}
	}
	if es, err := os.ReadDir(top); err != nil || len(es) != 2 {
		t.Errorf("outside there is %v (%v)", es, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A file that another user has put in the output's place is left alone.
func TestPlantedFiles(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	out := filepath.Join(base, "out/deep")
	must(t, os.WriteFile(filepath.Join(base, "dear"), []byte("dear"), 0o600))
	must(t, os.Symlink("../../dear", filepath.Join(out, "VMMC_n1.1")))
	must(t, os.Link(filepath.Join(base, "dear"), filepath.Join(out, "VMMC_n1.2")))
	must(t, syscall.Mkfifo(filepath.Join(out, "VMMC_n1.3"), 0o600))
	for range 3 {
		p := s.sh("echo evil")
		if got := s.wait(p.PID); got.Status != 0 || got.Missing != 5 || got.Why == "" {
			t.Errorf("%+v, want that its output is missing", got)
		}
	}
	if b, err := os.ReadFile(filepath.Join(base, "dear")); err != nil || string(b) != "dear" {
		t.Errorf("another file has %q (%v)", b, err)
	}
}

func TestRemovedDirectory(t *testing.T) {
	base := t.TempDir()
	s := newSession(t, base)
	go1, go2 := filepath.Join(base, "1"), filepath.Join(base, "2")
	p := s.sh(`echo one; while [ ! -e 1 ]; do sleep 0.01; done; echo two; while [ ! -e 2 ]; do sleep 0.25; echo more; done; echo three`)
	for s.first(p.PID) == "" {
		continue
	}
	must(t, os.RemoveAll(filepath.Join(base, "out")))
	must(t, os.WriteFile(go1, nil, 0o600))
	for deadline := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(base, "out/deep/VMMC_n1.1"))
		if err == nil && strings.Contains(string(b), "more") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the file has %q (%v)", b, err)
		}
	}
	must(t, os.WriteFile(go2, nil, 0o600))
	if got := s.wait(p.PID); got.Status != 0 {
		t.Errorf("%+v", got)
	}
	if got := s.output(p.PID); !strings.HasSuffix(got, "three\n") {
		t.Errorf("output %q", got)
	}
}

func TestFullDisk(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "mounting a small disk needs root; run the tests as root")
	base := t.TempDir()
	if err := syscall.Mount("tmpfs", base, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	defer syscall.Unmount(base, syscall.MNT_DETACH) //nolint:errcheck // of the test
	s := newSession(t, base)
	p := s.sh(`head -c 1000000 /dev/zero; while [ ! -e go ]; do sleep 0.01; done; echo last`)
	for {
		l, err := s.List(t.Context(), ListRequest{})
		must(t, err)
		if q := l.Programs[0]; q.Output == 1_000_000 {
			if q.Missing == 0 || !strings.Contains(q.Why, "space") {
				t.Errorf("%+v: nothing is missing on a full disk", q)
			}
			break
		}
	}
	must(t, os.Truncate(filepath.Join(base, "out/deep/VMMC_n1.1"), 100))
	must(t, os.WriteFile(filepath.Join(base, "go"), nil, 0o600))
	if got := s.wait(p.PID); got.Status != 0 {
		t.Errorf("%+v", got)
	}
	b, err := os.ReadFile(filepath.Join(base, "out/deep/VMMC_n1.1"))
	if err != nil || !strings.Contains(string(b), "bytes of output are missing here: no space") || !strings.HasSuffix(string(b), "last\n") {
		t.Errorf("the file ends with %q (%v)", b[max(0, len(b)-200):], err)
	}
	s.end() // before its disk goes
}

// The limit of a file's size is as a full disk.
func TestFileSizeLimit(t *testing.T) {
	s := &session{t: t, dir: t.TempDir(), limit: "ulimit -f 64", spec: Spec{Session: "a", Node: "n1", Base: t.TempDir(), Output: "/out", Marker: t.Name() + strconv.Itoa(os.Getpid())}}
	s.launch()
	p := s.sh("head -c 1000000 /dev/zero; exit 3")
	if got := s.wait(p.PID); got.Status != 3 || got.Output != 1_000_000 || got.Missing == 0 || !strings.Contains(got.Why, "too large") {
		t.Errorf("%+v", got)
	}
	s.end()
}

// A program that has left its process group is signalled all the same.
// A waiter for a program that is killed with its session either learns that, or is
// cut off: it does not look like a kill of that program.
func TestWaitUntilTheEnd(t *testing.T) {
	s := newSession(t, t.TempDir())
	p, q := s.sh("exec sleep 1000"), s.sh("exec sleep 1000")
	if _, err := s.Signal(t.Context(), SignalRequest{PID: q.PID, Signal: int(syscall.SIGKILL)}); err != nil {
		t.Fatal(err)
	}
	if got := s.wait(q.PID); got.Signal != int(syscall.SIGKILL) || got.Swept {
		t.Errorf("%+v, it was killed alone", got)
	}
	var waits sync.WaitGroup
	for range 8 {
		waits.Go(func() {
			if p, err := s.Await(context.Background(), AwaitRequest{PID: p.PID, For: bound}); err == nil && !p.Swept {
				t.Errorf("%+v, it was killed with the session", p)
			}
		})
	}
	s.end()
	waits.Wait()
}

func TestSignalToAnotherGroup(t *testing.T) {
	_, err := exec.LookPath("perl")
	testutil.Require(t, err == nil, "needs perl, which can go into another process group")
	s := newSession(t, t.TempDir())
	p := s.sh(`exec perl -e '$| = 1; my $q = fork; if (!$q) { setpgrp(0, 0); sleep 1000 } select(undef, undef, undef, 0.01) until setpgrp(0, $q); print "ok"; sleep 1000'`)
	for s.first(p.PID) != "ok" {
		continue
	}
	if n, err := s.Signal(t.Context(), SignalRequest{PID: p.PID, Signal: int(syscall.SIGTERM)}); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if got := s.wait(p.PID); got.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v", got)
	}
}

func TestFloodIsBounded(t *testing.T) {
	size := 1 << 30
	if testing.Short() {
		size = 32 << 20
	}
	s := newSession(t, t.TempDir())
	p := s.sh(fmt.Sprintf("head -c %d /dev/zero", size))
	q := s.sh("echo quick")
	s.wait(q.PID) // the other one does not slow it
	s.wait(p.PID)
	if got := s.wait(p.PID); got.Output != int64(size) || got.Missing != 0 {
		t.Errorf("%+v, want %d bytes", got, size)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Real()))
	must(t, err)
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil || kb > 100<<10 {
		t.Errorf("the supervisor needed %d KiB (%v)", kb, err)
	}
	st, err := os.Stat(filepath.Join(s.spec.Base, "out/deep/VMMC_n1.1"))
	if err != nil || st.Size() != int64(size) {
		t.Errorf("%v, %v", st, err)
	}
}

func TestSessionWithoutDirectoryEnds(t *testing.T) {
	s := newSession(t, t.TempDir())
	s.sh("sleep 1000")
	must(t, os.Remove(filepath.Join(s.dir, socketFile)))
	s.Close()
	s.ended = true
	s.child.Reap()
	if left := Descendants(-1, s.spec.Marker); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func TestAnotherSupervisorIsNotTaken(t *testing.T) {
	s := newSession(t, t.TempDir())
	d, err := unix.OpenPath(s.dir)
	must(t, err)
	defer d.Close()
	for _, g := range []Greeting{{"other", s.spec.Marker}, {s.spec.Session, "other"}} {
		if c, err := Dial(t.Context(), d, uint32(os.Getuid()), g); err == nil {
			c.Close()
			t.Errorf("%+v was greeted", g)
		}
	}
	if c, err := Dial(t.Context(), d, uint32(os.Getuid())+1, Greeting{s.spec.Session, s.spec.Marker}); err == nil {
		c.Close()
		t.Error("a supervisor of another user was taken")
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{"a": "a", "../x": "%2E.%2Fx", "a%b": "a%25b", ".": "%2E", "a b\n": "a b\n", "ä": "ä"} {
		if got := FileName(name); got != want {
			t.Errorf("%q is %q in files, want %q", name, got, want)
		}
		if err := CheckSession(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a\x00", "\xff", strings.Repeat("x", 201), strings.Repeat("/", 67)} {
		if err := CheckSession(name); !errors.Is(err, code.BadArg) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
