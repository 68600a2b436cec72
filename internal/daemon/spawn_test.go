//go:build linux

package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

func init() {
	testutil.RegisterRole("child", childRole)
	testutil.RegisterRole("grandchild", grandchildRole)
}

// report is what a spawned child tells of itself in its buffer 1.
type report struct {
	ID, Parent vmmc.ProcessID
	Real       int
	Args, Env  []string
	Dir, Stdin string
	Hosts      []vmmc.NodeID
	Second     vmmc.ProcessID // another Open of the same program
	SecondUp   vmmc.ProcessID
	Below      string // of a program that it started by itself
}

const (
	reportSize = 64 << 10
	byeAt      = reportSize - 4 // the child ends when this word is not 0
)

// childRole is a spawned program: it joins, tells of itself and waits for its end.
func childRole() int {
	ctx, stop := context.WithTimeout(context.Background(), 2*bound) // no other test may end it
	defer stop()
	if f := testutil.Args()[0]; f != "" { // it may join when there is this file
		for exists := false; !exists && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			_, err := os.Stat(f)
			exists = err == nil
		}
	}
	p, err := vmmc.Open(ctx)
	if err != nil {
		return 1
	}
	defer p.Close()
	m, err := p.Alloc(reportSize)
	if err != nil {
		return 1
	}
	r := report{ID: p.ID(), Real: os.Getpid(), Args: os.Args, Env: os.Environ()}
	r.Parent, err = p.Parent()
	if err == nil {
		r.Dir, err = os.Getwd()
	}
	if err == nil {
		r.Hosts, err = p.SessionHosts()
	}
	if err != nil {
		r.Stdin = err.Error()
	} else if in, err := io.ReadAll(os.Stdin); err != nil || len(in) > 0 {
		r.Stdin = fmt.Sprintf("%q %v", in, err)
	}
	if q, err := vmmc.Open(ctx); err == nil {
		defer q.Close()
		r.Second = q.ID()
		r.SecondUp, _ = q.Parent()
	}
	if len(testutil.Args()) > 1 {
		argv := testutil.Args()[1:]
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		r.Below = fmt.Sprint(string(out), err)
	}
	b, err := json.Marshal(r)
	if err != nil || copy(m.Bytes(), b) < len(b) {
		return 1
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		return 1
	}
	w, err := e.Word(byeAt)
	if err != nil {
		return 1
	}
	_, err = w.Wait(ctx, 0)
	if err != nil {
		return 1
	}
	return 0
}

// grandchildRole joins and says whether it was spawned.
func grandchildRole() int {
	p, err := vmmc.Open(context.Background())
	if err != nil {
		fmt.Print(err)
		return 1
	}
	defer p.Close()
	_, err = p.Parent()
	fmt.Print(errors.Is(err, vmmc.ErrNoParent))
	return 0
}

// newSpawnCluster is a cluster on whose nodes also root may spawn, since the
// tests may be root's.
func newSpawnCluster(t testing.TB) *cluster {
	t.Helper()
	c := newCluster(t)
	c.a.Close()
	c.b.Close()
	for _, n := range []struct {
		at   **daemon.Node
		name string
	}{{&c.a, "a"}, {&c.b, "b"}} {
		*n.at = startNode(t, daemon.Config{
			Name: n.name, Socket: anonymous(), Hosts: c.hosts, Identity: c.ids[n.name], SpawnRoot: true,
		})
	}
	return c
}

// spawn starts a child of p on a node.
func spawn(t testing.TB, p *vmmc.Process, node vmmc.NodeID, argv []string) vmmc.PID {
	t.Helper()
	pid, err := p.Spawn(t.Context(), node, argv[0], argv[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// hear gives a child's report, and what to send its end with.
func hear(
	t testing.TB, p *vmmc.Process, node vmmc.NodeID, pid vmmc.PID,
) (r report, im *vmmc.Import) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	im, err := p.Import(ctx, node, pid, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, reportSize)
	if err := im.Get(ctx, b, 0); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(strings.TrimRight(string(b), "\x00")), &r); err != nil {
		t.Fatal(err)
	}
	return r, im
}

// bye ends a child and waits until nothing is left of it, not even a zombie.
func bye(t testing.TB, r report, im *vmmc.Import) {
	t.Helper()
	if err := im.Send(t.Context(), []byte{1, 0, 0, 0}, byeAt); err != nil {
		t.Fatal(err)
	}
	reaped(t, r.Real)
}

func reaped(t testing.TB, real int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is still there", real),
		func() bool { return !unix.Alive(real) })
}

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func nodeOf(t testing.TB, p *vmmc.Process, name string) vmmc.NodeID {
	t.Helper()
	n, err := p.NameToNode(name)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSpawn(t *testing.T) {
	c := newSpawnCluster(t)
	t.Setenv("VMMCHOSTS", " b,a")
	t.Setenv("SECRET_OF_THE_CALLER", "1")
	p := open(t, c.a, vmmc.WithSession("mine"))
	argv := append(testutil.Argv(t, "child", ""), testutil.Argv(t, "grandchild")...)
	dir := t.TempDir()
	t.Chdir(dir)
	for name, n := range map[string]*daemon.Node{"a": c.a, "b": c.b} {
		node := nodeOf(t, p, name)
		pid := spawn(t, p, node, argv)
		r, im := hear(t, p, node, pid)
		if want := (vmmc.ProcessID{Node: node, PID: pid}); r.ID != want || r.Parent != p.ID() {
			t.Errorf("%v says that it is %v, a child of %v; want %v", want, r.ID, r.Parent, p.ID())
		}
		if r.Dir != dir || r.Stdin != "" {
			t.Errorf("on node %s: directory %s, want %s; standard input has %q", name, r.Dir, dir, r.Stdin)
		}
		if fmt.Sprint(r.Hosts) != "[b a]" {
			t.Errorf("on node %s: hosts of the session %v", name, r.Hosts)
		}
		if r.Second.PID == pid || r.Second.PID == 0 || r.SecondUp != p.ID() {
			t.Errorf("on node %s: its second process is %v, child of %v", name, r.Second, r.SecondUp)
		}
		if r.Below != "true<nil>" {
			t.Errorf("on node %s: a program that the child started has a parent: %s", name, r.Below)
		}
		for _, v := range []string{
			"VMMCSESSION=mine", "VMMCHOSTS= b,a", "VMMC_SOCKET=" + n.Socket(), "PWD=" + dir,
		} {
			if !slices.Contains(r.Env, v) {
				t.Errorf("on node %s: no %s in its environment %v", name, v, r.Env)
			}
		}
		for _, v := range r.Env {
			if strings.Contains(v, "SECRET") {
				t.Errorf("on node %s: it has %s in its environment", name, v)
			}
		}
		bye(t, r, im)
		_, err := p.Import(t.Context(), node, pid, 1)
		check(t, "import from a child that has ended", err, vmmc.ErrNoSuchProcess)
	}
	_, err := p.Parent()
	check(t, "parent of a process that was not spawned", err, vmmc.ErrNoParent)
}

// Arguments come as they were given, and a path is looked up in the directory,
// never in $PATH.
func TestSpawnRelativePath(t *testing.T) {
	p := open(t, alone(t))
	dir := t.TempDir()
	t.Chdir(dir)
	if err := errors.Join(os.Mkdir("sub", 0o700), os.Symlink("/bin/sh", "prog"), os.Symlink("../prog",
		"sub/other")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"prog", "./prog", "sub/other", "sub/../prog", filepath.Join(dir, "prog"),
	} {
		pid := spawn(t, p, p.Node(), []string{
			path, "-c", `printf "%s|" "$0" "$PWD" "$@" >out.tmp; exit 7`, "", "x y", "", "\xff",
		})
		ends(t, p, pid)
		want := strings.Join([]string{"", dir, "x y", "", "\xff", ""}, "|")
		if b, err := os.ReadFile("out.tmp"); err != nil || string(b) != want {
			t.Errorf("%s printed %q, want %q (%v)", path, b, want, err)
		}
		_ = os.Remove("out.tmp")
	}
	_, err := p.Spawn(t.Context(), p.Node(), "sh")
	check(t, "a program that is in $PATH only", err, vmmc.ErrBadArg, "no such program", dir, `"one"`)
	argv0 := "sub/other"
	pid := spawn(t, p, p.Node(), []string{argv0, "-c", `tr "\0" " " </proc/$$/cmdline >out.tmp`})
	ends(t, p, pid)
	if b, err := os.ReadFile("out.tmp"); err != nil || !strings.HasPrefix(string(b), argv0+" -c ") {
		t.Errorf("argument 0: %q, want %q (%v)", b, argv0, err)
	}
}

// ends waits for the end of a program that never joins.
func ends(t testing.TB, p *vmmc.Process, pid vmmc.PID) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	_, err := p.Import(ctx, p.Node(), pid, 1)
	check(t, "import from a program that never joins", err, vmmc.ErrNoSuchProcess)
}

func TestSpawnErrors(t *testing.T) {
	c := newSpawnCluster(t)
	p := open(t, c.a)
	dir := t.TempDir()
	t.Chdir(dir)
	for name, f := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"plain": {"#!/bin/sh\n", 0o600}, "text": {"no program\n", 0o700},
		"script": {"#!/no/such/interpreter\n", 0o700},
	} {
		if err := os.WriteFile(name, []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range p.AllHosts() {
		for name, s := range map[string]struct {
			path string
			args []string
			want error
			says string
		}{
			"empty":           {"", nil, vmmc.ErrBadArg, "path is empty"},
			"zero in path":    {"a\x00b", nil, vmmc.ErrBadArg, "zero byte"},
			"zero in args":    {"/bin/sh", []string{"\x00"}, vmmc.ErrBadArg, "zero byte"},
			"too long":        {"/bin/sh", []string{strings.Repeat("x", 40_000)}, vmmc.ErrBadArg, "at most 32768"},
			"not there":       {"/no/such/program", nil, vmmc.ErrBadArg, "no such program"},
			"directory":       {"/", nil, vmmc.ErrBadArg, "not execute"},
			"not executable":  {"plain", nil, vmmc.ErrBadArg, "not execute"},
			"no program":      {"text", nil, vmmc.ErrBadArg, "no program for this machine"},
			"no interpreter":  {"script", nil, vmmc.ErrBadArg, "no such interpreter"},
			"not a directory": {"plain/x", nil, vmmc.ErrBadArg, "not a directory"},
		} {
			_, err := p.Spawn(t.Context(), node, s.path, s.args...)
			check(t, name, err, s.want, s.says, fmt.Sprintf("spawn %q on node %q", s.path, node))
		}
	}
	_, err := p.Spawn(t.Context(), vmmc.NodeID{}, "/bin/sh")
	check(t, "no node", err, vmmc.ErrNoSuchNode, "a, b")
	gone, stop := context.WithCancel(t.Context())
	stop()
	_, err = p.Spawn(gone, p.Node(), "/bin/sh")
	check(t, "no time", err, vmmc.ErrCanceled)
	c.b.Close()
	_, err = p.Spawn(t.Context(), nodeOf(t, p, "b"), "/bin/sh")
	check(t, "a node that is down", err, vmmc.ErrUnreachable, `"b"`)
	if errors.Is(err, vmmc.ErrOutcomeUnknown) {
		t.Errorf("%v: it cannot have started", err)
	}
	p.Close()
	_, err = p.Spawn(t.Context(), p.Node(), "/bin/sh")
	check(t, "a closed process", err, vmmc.ErrClosed)
}

// An import waits for a child that takes its time, and for no other.
func TestImportBeforeAChildJoins(t *testing.T) {
	c := newSpawnCluster(t)
	p, q := open(t, c.a), open(t, c.b)
	for _, node := range p.AllHosts() {
		file := filepath.Join(t.TempDir(), "go")
		pid := spawn(t, p, node, testutil.Argv(t, "child", file))
		short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := p.Import(short, node, pid, 1)
		check(t, "import with little time", err, vmmc.ErrTimeout)
		stop()
		others := make(chan error, 1)
		go func() {
			_, err := q.Import(t.Context(), node, pid, 1)
			others <- err
		}()
		_, err = p.Import(t.Context(), node, pid+1, 1)
		check(t, "import from a pid that no process has", err, vmmc.ErrNoSuchProcess)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r, im := hear(t, p, node, pid)
		if err := <-others; err != nil {
			t.Errorf("import by a third process: %v", err)
		}
		bye(t, r, im)
	}
}

func TestChildEndsBeforeItJoins(t *testing.T) {
	c := newSpawnCluster(t)
	p := open(t, c.a)
	for _, node := range p.AllHosts() {
		pid := spawn(t, p, node, []string{"/bin/sh", "-c", "exit 1"})
		for range 2 {
			_, err := p.Import(t.Context(), node, pid, 1)
			check(t, "import from a child that ended", err, vmmc.ErrNoSuchProcess, fmt.Sprint(pid),
				node.String())
		}
	}
}

// The program may be started by a script: the first process that joins is the child.
func TestSpawnByAScript(t *testing.T) {
	c := newSpawnCluster(t)
	p := open(t, c.a)
	for _, node := range p.AllHosts() {
		argv := append([]string{"/bin/sh", "-c", `"$@"; true`, "sh"}, testutil.Argv(t, "child", "")...)
		pid := spawn(t, p, node, argv)
		r, im := hear(t, p, node, pid)
		if r.ID.PID != pid || r.Parent != p.ID() {
			t.Errorf("it is %v, child of %v; want pid %d of %v", r.ID, r.Parent, pid, p.ID())
		}
		bye(t, r, im)
	}
}

// A handler may not spawn (resolutions, row 39).
func TestSpawnInAHandler(t *testing.T) {
	p := open(t, alone(t))
	done := make(chan error, 1)
	argv := testutil.Argv(t, "child", "")
	if _, err := p.Export(1, make([]byte, 64), vmmc.WithHandler(func(vmmc.Notification) {
		_, err := p.Spawn(context.Background(), p.Node(), argv[0], argv[1:]...)
		done <- err
	})); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(t.Context(), p.Node(), p.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.SendNotify(t.Context(), make([]byte, 4), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, vmmc.ErrNotInHandler) {
		t.Errorf("spawned in a handler: %v", err)
	}
}

// What a node has started ends with it: asked first, killed then, with all that
// it started in turn.
func TestNodeEndsItsChildren(t *testing.T) {
	n := alone(t)
	p := open(t, n)
	var reals []int
	for range 2 {
		r, _ := hear(t, p, p.Node(), spawn(t, p, p.Node(), testutil.Argv(t, "child", "")))
		reals = append(reals, r.Real)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	if err := syscall.Mkfifo("all", 0o600); err != nil {
		t.Fatal(err)
	}
	// One that ends when it is asked, and says so; one that does not; one that
	// leaves another behind which does not.
	for _, script := range []string{
		`trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.01; done`,
		`trap '' TERM; echo up; while :; do sleep 1; done`,
		`(trap '' TERM; while :; do sleep 1; done) & echo up; exec sleep 1000`,
	} {
		spawn(t, p, p.Node(), []string{"/bin/sh", "-c", "exec >all; " + script})
	}
	out, err := os.Open("all")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var up int
	for b := make([]byte, 1); up < 3; {
		if _, err := out.Read(b); err != nil {
			t.Fatal(err)
		}
		if b[0] == '\n' {
			up++
		}
	}
	said := make(chan string)
	go func() {
		b, _ := io.ReadAll(out) // ends when no process has the other end any more
		said <- string(b)
	}()
	n.Close()
	if s := <-said; s != "asked\n" {
		t.Errorf("they said %q", s)
	}
	for _, real := range reals {
		if unix.Alive(real) {
			t.Errorf("process %d has outlived its node", real)
		}
	}
}

// A caller that gives up while its program is started leaves none behind; and a node that stops
// starts none.
func TestSpawnWhileTheNodeStops(t *testing.T) {
	n := alone(t)
	p := open(t, n)
	stop := make(chan struct{})
	done := make(chan struct{})
	started := make(chan struct{}, 1)
	go func() {
		defer close(done)
		for {
			_, err := p.Spawn(context.Background(), p.Node(), "/bin/sleep", "1000")
			if err != nil {
				return
			}
			select {
			case started <- struct{}{}:
			case <-stop:
			default:
			}
		}
	}()
	<-started
	n.Close() // waits for all of them
	close(stop)
	<-done
}
