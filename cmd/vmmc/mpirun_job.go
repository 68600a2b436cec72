package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/vmmc-go/vmmc/cmd/vmmc/internal/mpijob"
	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// failedGrace is how long the ranks of a job have to end after SIGTERM when one has failed.
const failedGrace = 500 * time.Millisecond

// mpiRun is one run of mpirun.
type mpiRun struct {
	*mpijob.Job
	where  *ask.Flags
	told   <-chan os.Signal
	stderr io.Writer
	out    *streams
	ranks  []mpijob.Rank
	// universe is how many ranks the nodes have slots for.
	universe int
	kill     func(s syscall.Signal) // signals all ranks

	mu sync.Mutex
	// Guarded by mu.
	status   int // of the first rank that has failed
	ending   bool
	by       syscall.Signal // the signal of this tool that ends the job
	begun    int
	progress time.Time // when the line was written
	hard     *time.Timer
	deadline time.Time // when hard fires
}

// run runs the job, and returns its exit status.
func (m *mpiRun) run(ctx context.Context) (int, error) {
	hosts, err := m.Hosts()
	if err != nil {
		return 0, &serve.StatusError{Status: serve.Misused, Err: err}
	}
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.hard != nil {
			m.hard.Stop()
		}
	}()
	if m.Session == "" {
		err = m.runHere(ctx, hosts)
	} else {
		err = m.runInSession(ctx, hosts)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.status != 0:
		return m.status, err
	case m.by != 0:
		return 128 + int(m.by), err
	}
	return 0, err
}

// here are the names of this machine for jobs without a session.
var here = []string{"localhost", "127.0.0.1", "::1"}

// runHere runs the job on this machine.
func (m *mpiRun) runHere(ctx context.Context, hosts []mpijob.Host) (err error) {
	if len(hosts) == 0 {
		hosts = []mpijob.Host{{Name: here[0], Slots: 1}}
	}
	if m.ranks, err = m.Place(hosts); err != nil {
		return &serve.StatusError{Status: serve.Misused, Err: err}
	}
	m.universe = m.Universe(hosts, len(m.ranks))
	for _, r := range m.ranks {
		if !slices.Contains(here, r.Host) {
			return serve.Usage("node %q without --session: ranks of other nodes run in a session; make one with \"vmmc session add\", and name it", r.Host)
		}
	}
	if len(m.ranks) > nodeproto.MaxSpawned {
		return serve.Usage("--np (-n): the job has %d ranks, want 1 to %d without a session", len(m.ranks), nodeproto.MaxSpawned)
	}
	processors, err := unix.CPUs()
	if err != nil && !m.Bind.None() {
		return fmt.Errorf("bind ranks: %w", err)
	}
	a := &aloneRun{started: m.noteStart, ended: m.noteEnd, signalled: m.noteSignal}
	defer a.close()
	m.kill = a.signal
	if err := a.join(ctx, m.where.Socket, len(m.ranks), func() {}); err != nil {
		return serve.Flag("socket", m.where.Socket, err)
	}
	if a.life, err = newLifeline(); err != nil {
		return err
	}
	defer a.life.close()
	pipes, err := a.life.variable()
	if err != nil {
		return err
	}
	var feed []*os.File
	defer func() {
		for _, f := range feed {
			_ = f.Close()
		}
	}()
	library, err := m.librariesHere(ctx)
	if err != nil {
		return err
	}
	programs := make([]aloneProgram, len(m.ranks))
	for rank, r := range m.ranks {
		p := &programs[rank]
		p.Cmd = exec.Command(r.Program.Path, r.Program.Args...) //nolint:noctx // it ends when it likes
		if dir := r.Program.Dir; dir != "" {                    // the error of the start names the program alone
			if _, err := os.Stat(dir); err != nil {
				return serve.Flag("wdir", dir, err)
			}
		}
		p.Dir, p.own = r.Program.Dir, slices.Concat(library, m.Env, r.Program.Env, m.rankEnv(rank))
		if pipes != "" {
			p.own, p.ExtraFiles = append(p.own, pipes), a.life.theirs[:]
		}
		if !m.EnvNone {
			p.Env = env.All()
		}
		if !m.Bind.None() {
			p.processors = m.Bind.Of(r.Local, processors)
		}
		if len(m.ranks) > 1 || m.Label {
			p.to, p.flush = m.outputOf(rank)
		} else {
			p.Stdout, p.Stderr = os.Stdout, os.Stderr
		}
		if rank != m.Stdin {
			continue
		}
		p.Stdin = os.Stdin
		if len(m.ranks) > 1 && term.IsTerminal(int(os.Stdin.Fd())) {
			// the kernel stops a process group in the background that reads from a terminal
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			p.Stdin, feed = r, append(feed, r)
			go func() { // ends with the tool
				defer w.Close()
				_, _ = io.Copy(w, os.Stdin)
			}()
		}
	}
	_, err = a.run(programs, m.told, m.out)
	return err
}

// rankEnv is what package mpi tells a rank beside its place in the group.
func (m *mpiRun) rankEnv(rank int) []string {
	return []string{
		nodeproto.AppNumEnv + "=" + strconv.Itoa(m.ranks[rank].App),
		nodeproto.UniverseEnv + "=" + strconv.Itoa(m.universe),
	}
}

// outputOf is where the output of a rank goes.
func (m *mpiRun) outputOf(rank int) (ask.Output, func() error) {
	switch {
	case m.Label:
		return m.out.lined(fmt.Sprint(rank), false)
	case rank == m.Stdin: // what asks for input ends no line
		return m.out.plain(), func() error { return nil }
	}
	return m.out.whole()
}

// noteStart is called when a rank has been started. At a terminal it says how many have been.
func (m *mpiRun) noteStart() {
	const often = 100 * time.Millisecond
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun++
	f, is := m.stderr.(*os.File)
	if !is || !term.IsTerminal(int(f.Fd())) {
		return
	}
	switch {
	case m.begun == len(m.ranks):
		if !m.progress.IsZero() {
			fmt.Fprint(m.stderr, "\r\x1b[K")
		}
	case time.Since(m.progress) > often:
		m.progress = time.Now()
		fmt.Fprintf(m.stderr, "\rstarting: %d of %d ranks", m.begun, len(m.ranks))
	}
}

// noteEnd is called when a rank has ended. The first one that fails ends the job.
func (m *mpiRun) noteEnd(rank, status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if status == 0 || m.ending || m.status != 0 {
		return
	}
	m.status = status
	what := fmt.Sprintf("failed with exit status %d", status)
	switch {
	case status == endUnknown:
		m.status = toolFailed
		what = "has ended, or its node is not reached, and how it ended is not known"
	case status > 128:
		what = "was ended by " + signalName(status-128)
	}
	next := "the others are ended"
	if m.NoKill {
		next = "the others go on"
	}
	if len(m.ranks) == 1 { // the exit status says it
		if !m.NoKill {
			m.end(0, failedGrace) // what it has spawned ends too
		}
		return
	}
	fmt.Fprintf(m.stderr, "vmmc mpirun: rank %d (%s) %s: %s\n", rank, m.ranks[rank].Program.Path, what, next)
	if !m.NoKill {
		m.end(syscall.SIGTERM, failedGrace)
	}
}

// noteSignal is called for a signal of this tool. The ranks need it unless pass is false.
func (m *mpiRun) noteSignal(s os.Signal, pass bool) {
	n, _ := s.(syscall.Signal)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case isUserSignal(n):
		go m.kill(n)
	case m.by == n:
		go m.kill(syscall.SIGKILL)
	default:
		if m.by == 0 {
			m.by = n
		}
		if !pass {
			n = 0
		}
		m.end(n, timeout.Terminate)
	}
}

// end ends the ranks: by a signal if it is not 0, and by SIGKILL later. Called with mu.
func (m *mpiRun) end(s syscall.Signal, grace time.Duration) {
	m.ending = true
	if at := time.Now().Add(grace); m.hard == nil || at.Before(m.deadline) { // more signals put nothing off
		if m.hard != nil {
			m.hard.Stop()
		}
		m.deadline, m.hard = at, time.AfterFunc(grace, func() { m.kill(syscall.SIGKILL) })
	}
	if s != 0 {
		go m.kill(s)
	}
}
