package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/internal/unix"

	"github.com/vmmc-go/vmmc/internal/testutil/script"
)

// played is a command in a terminal of its own, at whose keys a script sits.
type played struct {
	ts     *testscript.TestScript
	child  *unix.Child
	screen *os.File
	own    *os.File // the command's end, so that its settings can be looked at

	mu    sync.Mutex
	shown bytes.Buffer // what no line of the script has waited for yet
}

// terminal FILE STATUS COMMAND...: runs the command in a terminal and plays the
// file, a line of which is one of
//
//	expect TEXT   wait until the text is shown
//	type TEXT     type it
//	resize R C    give the terminal another size
//	signal NAME   to the command
//	await COMMAND the shell's command must succeed at last
//	killnode D N  as the command of that name
//	hangup        take the terminal away
//
// The text is in quotes, as in Go. Then the command must end with the status, and
// the terminal be as it was before; or the status is "killed".
func terminal(ts *testscript.TestScript, _ bool, args []string) {
	exe, err := exec.LookPath(args[2])
	ts.Check(err)
	p := &played{ts: ts}
	p.screen, p.own, err = unix.OpenTerminal(unix.Size{Rows: 24, Columns: 80})
	ts.Check(err)
	defer p.own.Close()
	defer p.screen.Close()
	before, err := term.GetState(int(p.own.Fd()))
	ts.Check(err)
	env := []string{"TERM=vt220"} // of two, the first counts
	for _, k := range []string{"VMMC_SOCKET", "XDG_STATE_HOME", "GORACE", "WORK", leashEnv} {
		env = append(env, k+"="+ts.Getenv(k))
	}
	p.child, err = unix.Start(context.Background(), unix.Program{
		Path: exe, Args: args[2:], Env: append(env, os.Environ()...), Dir: ts.MkAbs("."), Seat: true, Files: [3]*os.File{p.own, p.own, p.own},
	})
	ts.Check(err)
	hung := false
	defer func() { // of a script that fails
		if p.child != nil {
			p.child.Signal(syscall.SIGKILL)
			p.child.Reap()
		}
	}()
	go p.watch()
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		if line = strings.TrimSpace(line); line != "" {
			p.play(line)
			hung = hung || line == "hangup"
		}
	}
	child := p.child
	late := time.AfterFunc(patience, func() { child.Signal(syscall.SIGKILL) })
	how := child.Reap()
	p.child = nil
	late.Stop()
	killed := args[1] == "killed"
	if want := "exit status " + args[1]; how != want && (!killed || how != "signal: killed") {
		ts.Fatalf("it ended with %s, wanted %s; last shown: %q", how, want, p.last())
	}
	if after, err := term.GetState(int(p.own.Fd())); !hung && !killed && (err != nil || !reflect.DeepEqual(after, before)) {
		ts.Fatalf("the terminal is not as it was (%v)", err)
	}
}

func (p *played) watch() {
	b := make([]byte, 64<<10)
	for {
		n, err := p.screen.Read(b)
		p.mu.Lock()
		p.shown.Write(b[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *played) last() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.shown.Bytes()
	return string(b[max(0, len(b)-500):])
}

func (p *played) play(line string) {
	ts := p.ts
	what, rest, _ := strings.Cut(line, " ")
	text := func() []byte {
		s, err := strconv.Unquote(rest)
		ts.Check(err)
		return []byte(s)
	}
	switch what {
	case "expect":
		want := text()
		for deadline := time.Now().Add(patience); !p.has(want); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				ts.Fatalf("%q is not shown: %q", want, p.last())
			}
		}
	case "type":
		_, err := p.screen.Write(text())
		ts.Check(err)
	case "resize":
		var s unix.Size
		_, err := fmt.Sscan(rest, &s.Rows, &s.Columns)
		ts.Check(err)
		ts.Check(unix.Resize(p.screen, s))
	case "signal":
		n, err := parseSignal(rest)
		ts.Check(err)
		p.child.Signal(syscall.Signal(n))
	case "await":
		script.Await(ts, false, []string{"sh", "-c", rest})
	case "killnode":
		killNode(ts, false, strings.Fields(rest))
	case "hangup":
		ts.Check(p.screen.Close())
	default:
		ts.Fatalf("%s: no such line", line)
	}
}

// has reports whether the text was shown, and drops all to its end.
func (p *played) has(want []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := bytes.Index(p.shown.Bytes(), want)
	if i < 0 {
		return false
	}
	p.shown.Next(i + len(want))
	return true
}
