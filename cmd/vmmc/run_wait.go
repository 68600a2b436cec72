package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// runOptions are what "run" is asked for.
type runOptions struct {
	count   int
	alone   bool
	dir     string
	detach  bool
	asJSON  bool
	input   bool
	tty     bool
	screen  *screen // with tty
	env     []string
	group   runGroup // with a count above 1
	request *nodev1.RunRequest

	// Set for a job of mpirun. outlast is how long a node may be away once the programs run. adapt
	// changes the request for process i, output says where its output goes, begun is called when it has
	// been started, and ended when it has ended. grouped is told the run group before a second process
	// is started.
	outlast time.Duration
	adapt   func(i int, r *nodev1.RunRequest)
	output  func(i int) (to ask.Output, flush func() error)
	begun   func(i int, s started)
	ended   func(i, status int)

	grouped func(group uint32)
}

// endUnknown stands for the status of a process of which it is not known how it ended.
const endUnknown = -1

// started is a process that runs.
type started struct {
	n        *ask.Node
	p        *nodev1.Process
	followed bool // its node lets the output be read as it comes
}

// maxStarting is how many starts are under way at a time.
const maxStarting = 16

func (o *runOptions) run(ctx context.Context, where *ask.Flags, told <-chan os.Signal, w, stderr io.Writer) (status int, err error) {
	a, err := where.Open(ctx)
	if err != nil {
		return 0, err
	}
	defer a.Close()
	at, err := o.targetNodes(ctx, a)
	if err != nil {
		return 0, err
	}
	if o.count > 1 {
		if o.group, err = newRunGroup(at, o.count); err != nil {
			return 0, err
		}
	}
	all, err := o.start(ctx, at)
	if err != nil {
		return 0, errors.Join(err, o.undo(ctx, all))
	}
	if o.detach {
		var rows []ask.Process
		for _, s := range all {
			rows = append(rows, s.n.Row(o.request.GetSession(), s.p))
		}
		if o.asJSON {
			return 0, printProcesses(w, 0, rows, true)
		}
		for _, r := range rows {
			fmt.Fprintf(w, "%s %d\n", r.Node, r.PID)
		}
		return 0, nil
	}
	p := &signalForwarder{command: "vmmc run", a: a, session: o.request.GetSession(), group: all[0].p.GetGroup()}
	over := make(chan struct{})
	var passing sync.WaitGroup
	out := newStreams(w, stderr)
	out.broken = func(name string, err error) {
		passing.Go(func() { o.unread(ctx, p, over, name, err) })
	}
	if o.input {
		defer passing.Wait()
		defer close(over)
		at := &inputSession{started: all[0], session: o.request.GetSession(), screen: o.screen, in: os.Stdin, out: out}
		if o.screen != nil {
			out.broken = nil // a terminal that is gone ends this tool, and hangs the program's up
		}
		return at.run(ctx, told, func(s os.Signal) { p.on(ctx, s) })
	}
	passing.Go(func() {
		for {
			select {
			case s := <-told:
				p.on(ctx, s)
			case <-over:
				return
			}
		}
	})
	defer passing.Wait()
	defer close(over)
	return o.wait(ctx, all, out)
}

// unread sends SIGPIPE to programs whose output has no reader any more, as the kernel does to a
// process that writes to a pipe without a reader. It reports programs that go on. The node keeps
// output that cannot be written for another reason, and such output ends no program.
func (o *runOptions) unread(ctx context.Context, p *signalForwarder, over <-chan struct{}, name string, err error) {
	what := err.Error()
	if errors.Is(err, syscall.EPIPE) {
		p.on(ctx, syscall.SIGPIPE)
		late := time.NewTimer(timeout.Terminate)
		defer late.Stop()
		select {
		case <-over:
			return
		case <-late.C:
		}
		what = name + " has no reader any more, and SIGPIPE has not ended all that runs"
	}
	session := o.request.GetSession()
	fmt.Fprintf(os.Stderr, "vmmc run: %s: run group %d goes on, and its output is kept: see \"vmmc logs %s\", end it with \"vmmc kill %s\"\n", what, p.group, session, session)
}

// start starts the first process, and then the others in its run group.
func (o *runOptions) start(ctx context.Context, at []*ask.Node) ([]started, error) {
	ctx, stop := context.WithTimeout(ctx, 2*timeout.Control+time.Duration(o.count)*timeout.Ping)
	defer stop()
	first, err := o.one(ctx, at[0], 0, 0)
	if err != nil {
		return nil, err
	}
	if o.grouped != nil {
		o.grouped(first.p.GetGroup())
	}
	all := make([]started, o.count)
	errs := make([]error, o.count)
	all[0] = first
	turns := make(chan struct{}, maxStarting)
	var starting sync.WaitGroup
	for i := 1; i < o.count; i++ {
		turns <- struct{}{}
		starting.Go(func() {
			all[i], errs[i] = o.one(ctx, at[i%len(at)], i, first.p.GetGroup())
			<-turns
		})
	}
	starting.Wait()
	bad := 0
	for _, err := range errs {
		if err != nil {
			bad++
		}
	}
	if bad == 0 {
		return all, nil
	}
	var some []started
	for _, s := range all {
		if s.p != nil {
			some = append(some, s)
		}
	}
	return some, fmt.Errorf("%d of %d processes cannot be started, the others are ended: %w", bad, o.count, errors.Join(compact(errs)...))
}

// one starts process i, in a run group; 0: a new one.
func (o *runOptions) one(ctx context.Context, n *ask.Node, i int, group uint32) (started, error) {
	env, reserve := o.group.member(i)
	env = slices.Concat(o.request.GetEnv(), env)
	r := &nodev1.RunRequest{
		Session: o.request.GetSession(), Path: o.request.GetPath(), Args: o.request.GetArgs(),
		Directory: o.request.GetDirectory(), Hosts: o.request.GetHosts(), Group: group,
		Input: o.request.GetInput(), Terminal: o.request.GetTerminal(),
		Follow: !o.detach && !o.input, Env: env, Reserve: reserve,
	}
	if o.adapt != nil {
		o.adapt(i, r)
	}
	a, err := n.Client.Run(ctx, connect.NewRequest(r))
	if err = ask.ErrorOf(n, err); err != nil {
		if unknown(err) {
			err = fmt.Errorf("%w; look with \"vmmc ps\"", err)
		}
		return started{}, err
	}
	s := started{n: n, p: a.Msg.GetProcess(), followed: a.Msg.GetFollowed() || o.adapt != nil && r.GetInput()}
	switch {
	case len(o.request.GetEnv()) > 0 && !a.Msg.GetEnvSet():
		err = code.New(code.BadConfig, "node %q is older than --env, and has not set the variables: upgrade its vmmcd", n.Name)
	case (r.GetTurn() > 0 || len(r.GetProcessors()) > 0) && !a.Msg.GetProcessorsSet():
		err = code.New(code.BadConfig, "node %q, or the supervisor of the session there, is older than --bind-to, and has not bound the program: upgrade its vmmcd, and make the session again", n.Name)
	case reserve != "" && !a.Msg.GetReserved():
		err = code.New(code.BadConfig, "node %q is older than groups, and does not keep a member's name: upgrade its vmmcd", n.Name)
	default:
		if o.begun != nil {
			o.begun(i, s)
		}
		return s, nil
	}
	return started{}, errors.Join(err, o.undo(ctx, []started{s}))
}

// undo ends what was started.
func (o *runOptions) undo(ctx context.Context, all []started) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Control)
	defer stop()
	var errs []error
	for _, s := range all {
		_, err := s.n.Client.Kill(ctx, connect.NewRequest(&nodev1.KillRequest{Session: o.request.GetSession(), Pid: s.p.GetPid(), Signal: int32(syscall.SIGKILL)}))
		if err = ask.ErrorOf(s.n, err); err != nil && !ask.IsMissing(err) {
			errs = append(errs, fmt.Errorf("end process %d again: %w", s.p.GetPid(), err))
		}
	}
	return errors.Join(errs...)
}

// wait prints what the processes print, until all have ended.
func (o *runOptions) wait(ctx context.Context, all []started, out *streams) (status int, err error) {
	var mu sync.Mutex
	var errs []error
	var waiting sync.WaitGroup
	for i, s := range all {
		if o.ended != nil { // what it has printed may take longer
			waiting.Go(func() {
				p, err := s.n.Wait(ctx, o.request.GetSession(), s.p.GetPid(), o.outlast)
				if err != nil || p.GetLost() {
					o.ended(i, endUnknown)
					return
				}
				o.ended(i, statusOf(p))
			})
		}
		waiting.Go(func() {
			to, flush := out.plain(), func() error { return nil }
			switch {
			case o.output != nil:
				to, flush = o.output(i)
			case len(all) > 1:
				to, flush = out.lined(fmt.Sprintf("%s.%d", s.n.Name, s.p.GetPid()), false)
			}
			lost, err := s.n.CopyLog(ctx, o.request.GetSession(), s.p.GetPid(), ask.CopyOptions{Follow: true, Attended: s.followed, Tail: -1, Outlast: o.outlast}, to)
			_ = flush() // which has said it
			var p *nodev1.Process
			var werr error
			// it would say the same
			if !errors.Is(err, code.Unreachable) && !errors.Is(err, code.NoSuchSession) {
				p, werr = s.n.Wait(ctx, o.request.GetSession(), s.p.GetPid(), o.outlast)
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, s.meanwhile(err), s.meanwhile(werr), lost.Error(s.n.Name, s.p.GetPid()))
			status = max(status, statusOf(p))
			if p.GetLost() {
				errs = append(errs, fmt.Errorf("process %d on node %q has ended and nobody saw how", p.GetPid(), s.n.Name))
			}
		})
	}
	waiting.Wait()
	return status, errors.Join(compact(append(errs, out.err()))...)
}

// errDeleted is what ends a run whose session was deleted.
type errDeleted struct{ node string }

func (e errDeleted) Error() string {
	return fmt.Sprintf("the session was deleted on node %q, and its processes were killed", e.node)
}

// meanwhile is an error of what was asked of a program that has begun.
func (s *started) meanwhile(err error) error {
	if errors.Is(err, code.NoSuchSession) {
		return errDeleted{s.n.Name}
	}
	return err
}

func statusOf(p *nodev1.Process) int {
	if p.GetSignal() != 0 {
		return 128 + int(p.GetSignal())
	}
	return int(p.GetExitStatus())
}

// compact leaves out what says the same again.
func compact(errs []error) (out []error) {
	seen := map[string]bool{}
	for _, err := range errs {
		if err != nil && !seen[err.Error()] && len(out) < 5 {
			seen[err.Error()] = true
			out = append(out, err)
		}
	}
	return out
}
