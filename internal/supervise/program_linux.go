package supervise

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// start runs a program as the daemon orders it.
func (s *supervisor) start(ctx context.Context, o Order) (Program, error) {
	if len(o.Path) == 0 {
		return Program{}, code.New(code.BadArg, "the program's path is empty")
	}
	if err := CheckDirectory("working directory", string(o.Directory)); err != nil {
		return Program{}, err
	}
	giveBack, err := s.fileSlots.acquireOrder(ctx, s.ending)
	if errors.Is(err, semaphore.ErrStopped) {
		err = s.deleted()
	}
	if err != nil {
		return Program{}, err
	}
	leave := sync.OnceFunc(giveBack)
	defer leave()
	dir, err := s.root.Open(within(string(o.Directory)))
	if err != nil {
		return Program{}, code.New(code.BadArg, "enter the directory %s of the session's drive, which is %s on node %q: %v", o.Directory, s.base, s.spec.Node, plain(err))
	}
	defer dir.Close()
	file, err := s.program(o)
	if err != nil {
		return Program{}, err
	}
	return s.launch(ctx, o, dir, file, leave)
}

// program finds the file that is to run. A relative path stays in the drive; an
// absolute one is the node's own.
func (s *supervisor) program(o Order) (string, error) {
	file := string(o.Path)
	if filepath.IsAbs(file) {
		return file, nil
	}
	drive := path.Join(string(o.Directory), file)
	if err := CheckDirectory("program", string(o.Directory)+"/"+file); err != nil {
		return "", err
	}
	_, err := s.root.Stat(within(drive))
	if err == nil {
		return file, nil
	}
	if o.Search && errors.Is(err, fs.ErrNotExist) && !strings.Contains(file, "/") {
		for _, e := range o.Env {
			list, is := bytes.CutPrefix(e, []byte("PATH="))
			for _, d := range filepath.SplitList(string(list)) {
				f := filepath.Join(d, file)
				if st, err := os.Stat(f); is && err == nil && filepath.IsAbs(f) && st.Mode().IsRegular() &&
					st.Mode()&0o111 != 0 {
					return f, nil
				}
			}
		}
	}
	return "", code.New(code.BadArg, "find the program %s in directory %s of the session's drive, which is %s on node %q: %v", file, o.Directory, s.base, s.spec.Node, plain(err))
}

// launch starts a program. leave gives back the place at files, which the program's start does not
// need.
func (s *supervisor) launch(
	ctx context.Context, o Order, dir *os.File, file string, leave func(),
) (Program, error) {
	e, err := s.openEnds(o)
	if err != nil {
		return Program{}, err
	}
	p := &program{Program: Program{
		PID: o.PID, Group: o.Group, Parent: o.Parent, Token: o.Token, Reserve: o.Reserve,
		Command: command(o), Begun: time.Now(),
	}}
	if err := s.admit(p, o.Bound); err != nil {
		e.close()
		return Program{}, err
	}
	out := s.openOutput(o.PID, e)
	args := []string{cmp.Or(string(o.Name), string(o.Path))}
	for _, a := range o.Args {
		args = append(args, string(a))
	}
	env := []string{MarkerEnv + "=" + s.spec.Marker, "PWD=" + filepath.Join(s.base, within(string(o.Directory)))}
	for _, v := range o.Env {
		env = append(env, string(v))
	}
	if o.Terminal != nil && o.Terminal.Term != "" {
		env = append(env, "TERM="+o.Terminal.Term)
	}
	leave()
	var c *unix.Child
	err = s.runOnFirstThread(func() (err error) {
		c, err = s.run(ctx, o, p, out, unix.Program{Path: file, Args: args, Env: env, In: dir, Files: e.program, Seat: o.Terminal != nil})
		return err
	})
	var t Program
	if err == nil {
		t, err = s.awaitExec(ctx, o, p, c)
	}
	if err != nil {
		s.withdraw(p)
		out.discard()
		e.close()
		return Program{}, err
	}
	e.closeProgram()
	go func() {
		out.copy()
		s.mu.Lock()
		defer s.mu.Unlock()
		if out.fillStats(&p.Program); s.programs[p.PID] == p {
			s.journal.note(&p.Program, s.each)
		}
	}()
	_ = s.appendControlFile(t)
	return t, nil
}

// run starts the child of a program that was admitted, on the first thread. It depends on no file
// of the user.
func (s *supervisor) run(
	ctx context.Context, o Order, p *program, out *output, what unix.Program,
) (*unix.Child, error) {
	s.forkMu.Lock()
	defer s.forkMu.Unlock()
	if err := s.wanted(ctx, o); err != nil {
		return nil, err
	}
	c, err := beginOn(o, what)
	if err = s.explain(o, err); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.out, p.Real = out, c.PID()
	s.byReal[p.Real] = p
	return c, nil
}

// beginOn begins a program on the processors that it is ordered to run on.
func beginOn(o Order, what unix.Program) (c *unix.Child, err error) {
	processors := o.Processors
	if o.Turn > 0 {
		have, err := unix.CPUs()
		if err != nil {
			return nil, err
		}
		at := (o.Turn - 1) % len(have)
		processors = have[at : at+1]
	}
	if len(processors) == 0 {
		return unix.Begin(what)
	}
	err = unix.OnCPUs(processors, func() (err error) {
		c, err = unix.Begin(what)
		return err
	})
	return c, err
}

// awaitExec waits until the program's child has executed it. The end of the child is reap's, and a
// signal reaches it meanwhile.
func (s *supervisor) awaitExec(
	ctx context.Context, o Order, p *program, c *unix.Child,
) (Program, error) {
	defer c.Release()
	bounded, stop := context.WithTimeoutCause(ctx, timeout.Exec, ErrSlowExec)
	defer stop()
	err := c.Begun(bounded)
	switch {
	case errors.Is(err, ErrSlowExec):
		err = code.New(code.Timeout,
			"start %s in session %q on node %q: %v", o.Path, s.spec.Session, s.spec.Node, err)
	case err != nil && ctx.Err() != nil:
		err = s.wanted(ctx, o)
	default:
		err = s.explain(o, err)
	}
	if err == nil && s.isEnding() { // the session's end may have killed the child before
		err = s.deleted()
	}
	if err != nil {
		s.forkMu.Lock() // until it is reaped, its number is its own
		defer s.forkMu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.byReal[p.Real] == p {
			_ = unix.KillGroup(p.Real, int(syscall.SIGKILL))
		}
		return Program{}, err
	}
	p.executed = true
	s.journal.note(&p.Program, s.each)
	t := p.snapshot()
	// it had begun, which is what is asked
	t.Ended, t.Status, t.Signal, t.End, t.Swept = false, 0, 0, time.Time{}, false
	return t, nil
}

// admit takes a program's place. The lease of its group bounds it if it is bound.
func (s *supervisor) admit(p *program, bound bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, q := range s.programs {
		if !q.Ended && !q.Joined {
			running++
		}
	}
	for _, q := range s.byReal {
		if s.programs[q.PID] != q { // it was given up before it began, and is still there
			running++
		}
	}
	switch {
	case s.isEnding():
		return s.deleted()
	case s.programs[p.PID] != nil:
		return code.New(code.BadArg,
			"session %q on node %q has a process %d already", s.spec.Session, s.spec.Node, p.PID)
	case running >= MaxRunning:
		return code.New(code.NoMem, "session %q runs %d programs on node %q, which is the most: let some end", s.spec.Session, MaxRunning, s.spec.Node)
	}
	s.programs[p.PID] = p
	if bound {
		s.lease(p.Group, timeout.Control)
	}
	return nil
}

func (s *supervisor) isEnding() bool {
	select {
	case <-s.ending:
		return true
	default:
		return false
	}
}

func (s *supervisor) deleted() error {
	return code.New(code.NoSuchSession,
		"session %q on node %q is being deleted", s.spec.Session, s.spec.Node)
}

// wanted returns an error if a program that was admitted is not to start any more. While
// the caller holds forkMu, the end of the session waits for the start.
func (s *supervisor) wanted(ctx context.Context, o Order) error {
	if s.isEnding() {
		return s.deleted()
	}
	if ctx.Err() != nil {
		return code.New(code.Timeout, "start %s in session %q on node %q: nobody waits for it any more",
			o.Path, s.spec.Session, s.spec.Node)
	}
	return nil
}

// withdraw undoes admit, if it was done.
func (s *supervisor) withdraw(p *program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs[p.PID] == p {
		delete(s.programs, p.PID)
	}
}

// command is a command line for people to read.
func command(o Order) string {
	words := [][]byte{o.Path}
	if len(o.Name) > 0 {
		words[0] = o.Name
	}
	words = append(words, o.Args...)
	b := bytes.Join(words, []byte(" "))
	if len(b) > maxCommand {
		b = append(b[:maxCommand:maxCommand], "…"...)
	}
	return strings.ToValidUTF8(string(b), "�")
}

// explain gives the kernel's reason a code, and says what may be meant by it.
func (s *supervisor) explain(o Order, err error) error {
	if err == nil {
		return nil
	}
	k, hint := code.BadArg, ""
	switch {
	case errors.Is(err, syscall.ENOENT):
		hint = ": there is no such program there; of a script, there may be no such interpreter"
	case errors.Is(err, syscall.EACCES):
		hint = ": the session's user may not enter the directory, or not execute the program"
	case errors.Is(err, syscall.ENOEXEC):
		hint = ": it is no program for this machine; a script begins with #!"
	}
	if h, is := unix.Scarce(err); is {
		k, hint = code.NoMem, h
	}
	if coded := (*code.Error)(nil); errors.As(err, &coded) {
		return err
	}
	return code.New(k, "start %s in directory %s of session %q on node %q: %v%s",
		o.Path, o.Directory, s.spec.Session, s.spec.Node, plain(err), hint)
}

// plain leaves out the path, which the text around it has.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
