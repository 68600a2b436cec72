package daemon

import (
	"bytes"
	"context"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// member is a process's place in a session that its node has.
type member struct {
	s     *session
	group uint32
	noted chan struct{} // nil: the session has started it, and knows of it
}

// join gives a process that joins its place. One that was not started in
// the session leads a run group of its own. registry.mu is held.
func (s *session) join(p *process, pid uint32, c *child) *member {
	m := &member{s: s, group: pid}
	if c != nil && c.inSession == s {
		m.group = c.group
		return m
	}
	m.note(p, pid)
	return m
}

// note tells the session of a process that it has not started.
func (m *member) note(p *process, pid uint32) {
	s, n := m.s, m.s.n
	m.noted = make(chan struct{})
	note := supervise.Program{PID: pid, Group: m.group, Real: p.cred.PID}
	n.wg.Go(func() {
		defer close(m.noted)
		note.Command = commandOf(note.Real)
		ctx, stop := context.WithTimeout(n.ctx, timeout.Control)
		defer stop()
		sup, err := s.reach(ctx)
		if err == nil {
			err = sup.Note(ctx, note)
		}
		if err != nil {
			n.logs.Server.Warn("a process that joined is not listed in its session", "session", s.Name,
				"pid", pid, "err", err)
		}
	})
}

// noteAgain tells a supervisor of those that have joined: one that has taken the
// place of another does not know them.
func (s *session) noteAgain(ctx context.Context, c *supervise.Client) {
	n := s.n
	var all []*process
	n.registry.mu.Lock()
	for _, p := range n.registry.processes {
		if p.member != nil && p.member.s == s && p.member.noted != nil {
			all = append(all, p)
		}
	}
	n.registry.mu.Unlock()
	for _, p := range all {
		pid := p.id.Load().PID
		if err := c.Note(ctx, supervise.Program{
			PID: pid, Group: pid, Real: p.cred.PID, Command: commandOf(p.cred.PID),
		}); err != nil {
			n.logs.Server.Warn("a process that joined is not listed in its session", "session", s.Name,
				"pid", pid, "err", err)
		}
		n.registry.mu.Lock()
		here := n.registry.processes[pid] == p
		n.registry.mu.Unlock()
		if !here { // it has left meanwhile, perhaps before it was noted
			_ = c.Leave(ctx, pid)
		}
	}
}

// commandOf is the command line of a process of this machine.
func commandOf(real int) string {
	read := make(chan []byte, 1)
	if unix.LookAt(real, time.Second, func() {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(real) + "/cmdline")
		read <- b
	}) != nil {
		return ""
	}
	b := <-read
	s := strings.ToValidUTF8(string(bytes.ReplaceAll(bytes.TrimRight(b, "\x00"), []byte{0},
		[]byte{' '})), "�")
	return s[:min(len(s), 512)]
}

// leave says that the process is gone, if its session does not see that itself.
func (m *member) leave(pid uint32) {
	if m.noted == nil {
		return
	}
	<-m.noted
	if c := m.s.connected(); c != nil {
		ctx, stop := context.WithTimeout(m.s.n.ctx, timeout.Control)
		defer stop()
		_ = c.Leave(ctx, pid)
	}
}

// order makes a spawn of this process one in the session: its paths are those of
// the session's drive, which other nodes have elsewhere.
func (m *member) order(ctx context.Context, o *order) error {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	c, err := m.s.reach(ctx)
	if err != nil {
		return err
	}
	o.inSession, o.group = m.s, m.group
	dir, inside := m.inDrive(c.Base, string(o.Directory))
	if !inside {
		return code.New(code.BadArg,
			"the working directory %s is not in the drive of session %q, which is %s on node %q",
			o.Directory, m.s.Name, c.Base, m.s.n.cfg.Name)
	}
	if file, inside := m.inDrive(c.Base, string(o.Path)); inside && path.IsAbs(string(o.Path)) &&
		o.Node != m.s.n.cfg.Name {
		// Another node has it elsewhere: as the way from the directory it is the same. The program
		// finds its argument 0 as it was given.
		o.name = o.Path
		o.Path = []byte(strings.Repeat("../", strings.Count(strings.TrimRight(dir, "/"), "/")) +
			strings.TrimLeft(file, "/"))
	}
	o.Directory = []byte(dir)
	return nil
}

// inDrive gives a path of this node as one within the drive. The base has three
// names: the kernel's, the one that the session was made with, and the drive's, by
// which a shell enters it.
func (m *member) inDrive(real, p string) (string, bool) {
	p = path.Clean(p)
	for _, base := range []string{real, path.Clean(m.s.Base), m.s.n.sessions.drives.Entry(m.s.Drive)} {
		if p == base || base == "/" {
			return "/" + strings.TrimLeft(p[len(base):], "/"), true
		}
		if rest, ok := strings.CutPrefix(p, base+"/"); ok {
			return "/" + rest, true
		}
	}
	return "", false
}
