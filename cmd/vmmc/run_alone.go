package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/node"
)

// aloneRun is a run of programs on this machine without a session. They are this tool's children.
type aloneRun struct {
	node     *node.Node      // of this tool; nil: the machine's
	conn     *nodeproto.Conn // to the node, which expects the members as long as it lasts
	socket   string
	expected []nodeproto.Expected // by rank; none with one program
	group    nodeproto.Group

	// Set for a job of mpirun. started is called for each program, and ended is called when a program has ended, before the rest of its
	// output is printed; signalled is given the tool's signals, and whether the programs need them
	// from the tool.
	started   func()
	ended     func(rank, status int)
	signalled func(s os.Signal, pass bool)

	life *lifeline // of programs that ranks spawn; nil: they have none

	mu sync.Mutex
	// By rank, until they are reaped: no other process has their numbers. Guarded by mu.
	running map[int]*os.Process
}

// checkAlone refuses flags that only a session has a use for, and variables that say where a
// program joins.
func (o *runOptions) checkAlone(where *ask.Flags) error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--detach", o.detach},
		{"--tty (-t)", o.tty},
		{"--interactive (-i)", o.input},
		{"--dir", o.dir != "/"},
		{"--node", len(where.Nodes) > 0},
		{"--certs", where.Certs != ""},
		{"--hosts", where.Hosts != ""},
	} {
		if f.given {
			return serve.Usage("%s without a session: programs run here, in this directory, and one "+
				"has this tool's input; for a session name it before the program", f.name)
		}
	}
	if o.count > nodeproto.MaxSpawned {
		return serve.Usage("--count %d (-n): wanted 1 to %d without a session", o.count,
			nodeproto.MaxSpawned)
	}
	for _, v := range o.env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case nodeproto.Env, nodeproto.SessionEnv, nodeproto.TokenEnv:
			return serve.Usage("--env %s: this tool sets %s, or has it in its own environment", v, name)
		}
	}
	return nil
}

// runAlone runs a program without a session.
func (o *runOptions) runAlone(
	ctx context.Context, socket string, args []string, told <-chan os.Signal, stdout, stderr io.Writer,
) (int, error) {
	a := &aloneRun{}
	defer a.close()
	err := a.join(ctx, socket, o.count, func() {
		fmt.Fprintf(stderr, "vmmc run: no daemon answers at %s: the programs have a node of their own\n",
			socket)
	})
	if err != nil {
		return 0, err
	}
	out := newStreams(stdout, stderr)
	programs := make([]aloneProgram, o.count)
	for rank := range programs {
		p := &programs[rank]
		p.Cmd = exec.Command(args[0], args[1:]...) //nolint:noctx // it ends when it likes
		p.Env = env.All()
		for _, v := range o.request.GetEnv() {
			p.own = append(p.own, string(v))
		}
		if o.count == 1 {
			p.Stdin, p.Stdout, p.Stderr = os.Stdin, os.Stdout, os.Stderr
		} else {
			p.to, p.flush = out.lined(fmt.Sprint(rank), false)
		}
	}
	statuses, err := a.run(programs, told, out)
	return slices.Max(statuses), err
}

// join connects to the node at a socket, which expects the programs if they are several. If there is
// none, it calls alone and starts one.
func (a *aloneRun) join(ctx context.Context, socket string, count int, alone func()) error {
	a.running = map[int]*os.Process{}
	c, err := nodeproto.Dial(ctx, socket)
	if errors.Is(err, code.NoDaemon) {
		alone()
		if a.node, err = node.Start(); err != nil {
			return err
		}
		socket = a.node.Socket()
		c, err = nodeproto.Dial(ctx, socket)
	}
	if err != nil {
		return err
	}
	nodeproto.RefuseDescriptors(c)
	a.conn, a.socket = nodeproto.NewDialledConn(c, ask.RefuseRequests), socket
	if !strings.HasPrefix(socket, "@") {
		if a.socket, err = filepath.Abs(socket); err != nil {
			return err
		}
	}
	if count > 1 {
		return a.expect(ctx, count)
	}
	return nil
}

func (a *aloneRun) close() {
	if a.conn != nil {
		a.conn.Close()
	}
	if a.node != nil {
		a.node.Close()
	}
}

// expect has the node expect the members of a group.
func (a *aloneRun) expect(ctx context.Context, count int) (err error) {
	g := nodeproto.Group{ID: newGroupID()}
	for rank := range count {
		r := nodeproto.ExpectRequest{Session: env.Get(nodeproto.SessionEnv), Name: g.MemberName(rank)}
		e, err := askAlone[nodeproto.Expected](ctx, a, nodeproto.Expect, r)
		if err != nil {
			hint := ""
			if errors.Is(err, code.BadArg) {
				hint = "; is it older than this tool? Then upgrade it"
			}
			return fmt.Errorf("the node at %s does not expect the members of a group: %w%s",
				a.socket, err, hint)
		}
		a.expected = append(a.expected, e)
	}
	g.Parts = []nodeproto.Part{{Node: a.expected[0].Process.Node, Count: count}}
	a.group = g
	return nil
}

// askAlone asks the run's node.
func askAlone[T any](ctx context.Context, a *aloneRun, m nodeproto.Method, request any) (T, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	answer, fds, err := nodeproto.Ask[T](ctx, a.conn, m, request, nil)
	foreign.Close(fds...) // an honest daemon sends none
	return answer, err
}

// aloneProgram is a program of a run without a session.
type aloneProgram struct {
	*exec.Cmd
	own        []string   // variables beside Env
	processors []int      // that it may run on; empty: any
	to         ask.Output // nil: the program has this tool's own output
	flush      func() error
	output     [2]*os.File // what it prints, with to
}

// run starts the programs and waits for their ends.
func (a *aloneRun) run(
	programs []aloneProgram, told <-chan os.Signal, out *streams,
) (statuses []int, err error) {
	out.broken = func(_ string, err error) {
		if errors.Is(err, syscall.EPIPE) {
			a.signal(syscall.SIGPIPE)
		}
	}
	for rank := range programs {
		p := &programs[rank]
		p.Env = a.environ(p, rank)
		endWithTool(p.Cmd, len(programs) > 1)
	}
	// The kernel kills them when their starter's thread ends.
	started, over := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		started <- a.start(programs)
		<-over
	}()
	err = <-started
	if err != nil {
		a.signal(syscall.SIGKILL)
	}
	var passing sync.WaitGroup
	passing.Go(func() { a.passOn(told, over) }) // now that none misses a signal
	defer passing.Wait()
	defer close(over)
	statuses = make([]int, len(programs))
	errs := make([]error, len(programs))
	var waiting sync.WaitGroup
	for rank := range programs {
		if p := &programs[rank]; p.Process != nil {
			waiting.Go(func() {
				p.await(func() {
					if a.ended != nil {
						statuses[rank], errs[rank] = a.reap(rank, p)
						a.ended(rank, statuses[rank])
					}
					a.unexpect(rank)
				})
				if a.ended == nil { // its number is its own while its output is printed
					statuses[rank], errs[rank] = a.reap(rank, p)
				}
			})
		}
	}
	waiting.Wait()
	if a.life != nil {
		if err != nil {
			a.life.end()
		}
		a.life.wait()
	}
	return statuses, errors.Join(compact(append(errs, err, out.err()))...)
}

// start starts the programs, or says which cannot be started.
func (a *aloneRun) start(programs []aloneProgram) error {
	for rank := range programs {
		p := &programs[rank]
		a.mu.Lock()
		start := p.start
		if len(p.processors) > 0 {
			start = func() error { return unix.OnCPUs(p.processors, p.start) }
		}
		err := start()
		if err == nil {
			a.running[rank] = p.Process
		}
		a.mu.Unlock()
		if err != nil {
			return err
		}
		if a.started != nil {
			a.started()
		}
	}
	return nil
}

func (p *aloneProgram) start() (err error) {
	if p.to == nil {
		return p.Start()
	}
	defer func() {
		if err != nil {
			_, _ = p.output[0].Close(), p.output[1].Close()
		}
	}()
	for i, end := range []*io.Writer{&p.Stdout, &p.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		defer w.Close()
		p.output[i], *end = r, w
	}
	return p.Start()
}

// await returns when the program has ended and what it has printed is printed. It calls ended in
// between: what the program has started may have its output still.
func (p *aloneProgram) await(ended func()) {
	var copying sync.WaitGroup
	for i, r := range p.output {
		if r != nil {
			copying.Go(func() { p.copyOutput(i == 1, r) })
		}
	}
	unix.AwaitEnd(p.Process.Pid)
	ended()
	for _, r := range p.output {
		// It fails for a nil file, and for one that copyOutput has closed.
		_ = r.SetReadDeadline(time.Now().Add(timeout.Settle))
	}
	copying.Wait()
	if p.to != nil {
		_ = p.flush() // streams.err has the error
	}
}

// pipeSize is what a pipe holds at most, unless root has made it larger.
const pipeSize = 1 << 20

// copyOutput prints what is read, until the end, or until the deadline and what the pipe has then:
// printing may have taken long.
func (p *aloneProgram) copyOutput(toStderr bool, r *os.File) {
	defer r.Close()
	b := make([]byte, 64<<10)
	late, rest := false, pipeSize
	for rest > 0 {
		n, err := r.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) && unix.Readable(r) {
			late, err = true, r.SetReadDeadline(time.Now().Add(timeout.Settle))
		}
		if late {
			rest -= n
		}
		if werr := p.to(toStderr, time.Time{}, b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// reap gives back the number of a program that has ended, and returns its exit status.
func (a *aloneRun) reap(rank int, p *aloneProgram) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.running, rank)
	if err := p.Wait(); p.ProcessState == nil {
		return 0, err
	}
	return statusOfState(p.ProcessState), nil // Wait's error says the same
}

// environ is what the program of a rank finds: its environment, and its place.
func (a *aloneRun) environ(p *aloneProgram, rank int) []string {
	own := slices.DeleteFunc(p.Env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == nodeproto.TokenEnv || slices.Contains(groupVariables, name)
	})
	own = append(own, p.own...)
	own = append(own, nodeproto.Env+"="+a.socket)
	if len(a.expected) > 0 {
		own = append(own, nodeproto.TokenEnv+"="+a.expected[rank].Token)
		own = append(own, groupEnv(a.group, rank)...)
	} else if a.ended != nil {
		own = append(own, oneRankEnv()...)
	}
	return own
}

// unexpect says that the program of a rank has ended.
func (a *aloneRun) unexpect(rank int) {
	if len(a.expected) > 0 { // a node that is gone expects none
		r := nodeproto.UnexpectRequest{PID: a.expected[rank].Process.PID}
		_, _ = askAlone[nodeproto.Empty](context.Background(), a, nodeproto.Unexpect, r)
	}
}

// passOn passes signals on. One program is in this tool's process group: if a terminal signals that
// for a key, a second signal would be one too many.
func (a *aloneRun) passOn(told <-chan os.Signal, over <-chan struct{}) {
	var p signalForwarder
	for {
		select {
		case s := <-told:
			keys := s == syscall.SIGINT || s == syscall.SIGQUIT
			pass := len(a.expected) > 0 || !keys || !unix.InForeground()
			switch {
			case a.signalled != nil:
				a.signalled(s, pass)
			case pass:
				a.signal(p.passedAs(s))
			}
		case <-over:
			return
		}
	}
}

// signal signals what runs: of a group, all in the programs' process groups.
func (a *aloneRun) signal(s syscall.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life != nil && (s == syscall.SIGKILL || !isUserSignal(s) && len(a.running) == 0) {
		a.life.end()
	}
	for _, p := range a.running {
		if len(a.expected) > 0 {
			_ = unix.KillGroup(p.Pid, int(s))
		} else {
			_ = p.Signal(s)
		}
	}
}

// statusOfState is the exit status of a program that has ended, as statusOf has it.
func statusOfState(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
