package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/drives"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/statedir"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/mount"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// How many sessions a node has.
const (
	maxSessions     = 1024
	maxUserSessions = 64
)

// sessions is the table of a node's sessions. The state directory has a record of each, owned by
// the daemon, and a directory, owned by its user.
type sessions struct {
	n       *Node
	drives  *drives.Drives
	cgroups string // the cgroup below which they get theirs; "": they get none

	// Set by restore, before there is a session, and not changed then. mu guards Take, Taken and
	// Close.
	dir *statedir.Dir

	mu     sync.Mutex // before a session's and registry.mu
	byName map[string]*session
	// Supervisors of sessions that are not made, which cannot be killed, of which user.
	stuck map[uint32]int

	restored  atomic.Bool                      // the table has the sessions that there were when the node started
	misplaced atomic.Pointer[misplacedProgram] // keeps the node from starting; nil: none
}

// open takes the state directory, and makes it when make is set. mu is held.
func (t *sessions) open(make bool) error {
	taken, err := t.dir.Take(make)
	if taken != nil {
		t.n.registry.keepPIDs(taken)
	}
	return err
}

func (t *sessions) close() {
	t.hangUp()
	t.dir.Close()
}

// hangUp closes the connections to all supervisors. A node that stops makes no others.
func (t *sessions) hangUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byName {
		s.hangUp()
	}
}

// find returns the session of that name, with an error unless c may use it.
func (t *sessions) find(c users.Caller, name string) (*session, error) {
	if s := t.named(name); s != nil {
		return s, s.authorize(c)
	}
	if !t.restored.Load() {
		return nil, code.New(code.Unreachable, "node %q cannot be reached: it is starting", t.n.cfg.Name)
	}
	return nil, code.New(code.NoSuchSession,
		"node %q has no session %q: make it with \"vmmc session add\"", t.n.cfg.Name, name)
}

// named is nil for one that is not there, or is just being made.
func (t *sessions) named(name string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.byName[name]; s != nil && s.currentState() != sessionMaking {
		return s
	}
	return nil
}

// countStates returns the number of sessions in each state. A deleted session is in no table.
func (t *sessions) countStates() map[string]int {
	counts := map[string]int{}
	for s := sessionMaking; s < sessionDeleted; s++ {
		counts[s.String()] = 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byName {
		if state := s.currentState(); state < sessionDeleted {
			counts[state.String()]++
		}
	}
	return counts
}

// after are those with greater names, in order.
func (t *sessions) after(name string) []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*session
	for _, s := range t.byName {
		if s.Name > name && s.currentState() != sessionMaking {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *session) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// reserve adds a session that is being made. remove gives its name up.
func (t *sessions) reserve(s *session) error {
	node, name, uid := s.n.cfg.Name, s.Name, s.UID
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(true); err != nil {
		return err
	}
	same := 0
	for _, s := range t.byName {
		if s.UID == uid {
			same++
		}
	}
	same += t.stuck[uid]
	_, taken := t.byName[name]
	switch {
	case taken:
		return code.New(code.BufAlreadyExists,
			"node %q has a session %q already: delete it, or choose another name", node, name)
	case len(t.byName) >= maxSessions || same >= maxUserSessions:
		return code.New(code.NoMem,
			"node %q has %d sessions, %d of them this user's: at most %d, and %d of one user", node,
			len(t.byName), same, maxSessions, maxUserSessions)
	}
	t.byName[name] = s
	return nil
}

// reapStuck waits for the end of a supervisor that cannot be killed. Until then it counts as a
// session of its user's, so that a user cannot have one after the other.
func (t *sessions) reapStuck(c *unix.Child, uid uint32) {
	t.mu.Lock()
	if t.stuck == nil {
		t.stuck = map[uint32]int{}
	}
	t.stuck[uid]++
	t.mu.Unlock()
	t.n.wg.Go(func() {
		if !c.AwaitOr(t.n.ctx.Done()) {
			c.Release()
			return
		}
		c.Reap()
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.stuck[uid]--; t.stuck[uid] == 0 {
			delete(t.stuck, uid)
		}
	})
}

// add adds a session of an earlier daemon.
func (t *sessions) add(s *session) {
	s.keep()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byName[s.Name] = s
}

// remove removes a session that was deleted, or could not be made.
func (t *sessions) remove(s *session) {
	t.mu.Lock()
	delete(t.byName, s.Name)
	t.mu.Unlock()
	s.changeState(sessionDeleted)
}

// misplacedProgram is a program of a session that has a logical pid which this node does
// not give out: the node had another place in the hosts file when it began.
type misplacedProgram struct {
	session string
	pid     uint32
}

// checkPlace refuses to start in another place while there are such programs: the
// node that has their place now would give out their pids again.
func (t *sessions) checkPlace() error {
	f := t.misplaced.Load()
	if f == nil {
		return nil
	}
	return code.New(code.BadConfig, "node %q is in place %d of the hosts file, and process %d of "+
		"its session %q has run since it was in place %d: put it there again, with lines \"-\" before "+
		"it where others were removed, until the session is deleted",
		t.n.cfg.Name, t.n.cluster.Place()+1, f.pid, f.session, f.pid/peers.PIDBlock+1)
}

// findCgroups looks whether sessions can have cgroups, and says so.
func (t *sessions) findCgroups() {
	home, err := cgroup.Home()
	if err != nil {
		t.n.logs.Server.Info("sessions have no cgroups", "why", err)
		return
	}
	t.cgroups = home
	t.n.logs.Server.Info("sessions have cgroups", "below", home)
}

// newRecord checks what a session is to be.
func (t *sessions) newRecord(
	c users.Caller, name, user, drive, share, output string,
) (r statedir.Record, err error) {
	if err := supervise.CheckSession(name); err != nil {
		return r, err
	}
	if output == "" {
		return r, code.New(code.BadArg,
			"the output directory is empty: name one, absolute within the session's drive")
	}
	if err := supervise.CheckDirectory("output directory", output); err != nil {
		return r, err
	}
	if drive, err = drives.Check(drive, share); err != nil {
		return r, err
	}
	a, err := t.n.accounts.Owner(c, user)
	if err != nil {
		return r, err
	}
	r = statedir.Record{
		Name: name, User: a.Name, As: user, UID: a.UID, Home: a.Home, Drive: drive, Share: share,
		Output: output,
	}
	if a.As != nil {
		r.GID, r.Groups = a.As.GID, a.As.Groups
	}
	return r, nil
}

// create makes a session with a supervisor that runs, or nothing.
func (t *sessions) create(
	ctx context.Context, r statedir.Record, creds mount.Credentials,
) (_ *session, err error) {
	r.Marker, r.Key, r.Account = rand.Text(), rand.Text(), creds != mount.Credentials{}
	s := t.newSession(r)
	if err := t.reserve(s); err != nil {
		return nil, err
	}
	kept := true    // reports whether a session is left, which can be deleted
	locked := false // reports whether connectLock is held
	defer func() {
		if !kept {
			t.remove(s) // as in delete, the lock is kept if it was taken
			return
		}
		s.keep()
		if locked {
			<-s.connectLock
		}
	}()
	s.placeCgroup()
	if err := t.drives.PlaceMount(&s.Record); err != nil {
		kept = false
		return nil, err
	}
	undo := func() {
		s.hangUp()
		_ = s.dropCgroup()
		late, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout.Stop)
		defer stop()
		_ = unix.RemoveTree(late, t.dir.Run(r.Name))
		if derr := t.drives.UndoShare(ctx, &s.Record); derr != nil {
			err = errors.Join(err, derr)
			return
		}
		t.drives.Remove(&s.Record)
		_ = t.dir.Remove(r.Name)
		kept = false
	}
	// A daemon that dies meanwhile leaves a session that the next one deletes.
	err = t.drives.Take(&s.Record, func() error {
		half := s.Record
		half.Ending = true
		return t.dir.Write(half)
	})
	if err == nil {
		err = s.makeRun(ctx)
	}
	if err == nil {
		err = t.drives.Mount(ctx, &s.Record, creds)
	}
	if err != nil {
		undo()
		return nil, err
	}
	c, err := s.reach(ctx) // from here on watchSupervisor replaces it, too
	if err == nil {
		if err = t.dir.Write(s.Record); err == nil && ctx.Err() != nil {
			err = ctxCause(ctx, "make session %q on node %q", r.Name, t.n.cfg.Name)
		}
		if err != nil {
			s.connectLock <- struct{}{} // no supervisor is needed after this
			locked = true
			if c := s.connected(); c != nil { // or the one that has taken its place meanwhile
				_, _ = c.End(context.WithoutCancel(ctx))
			}
		}
	}
	if err != nil {
		undo()
		return nil, err
	}
	t.n.logs.Server.Info("session made", "session", r.Name, "user", r.User, "drive", s.Drive, "base",
		c.Base, "output", r.Output)
	return s, nil
}

// restore finds the sessions of a daemon before this one, with their
// programs.
func (t *sessions) restore() error {
	t.mu.Lock() // other nodes ask already
	t.dir, t.byName = statedir.New(t.n.cfg.State), map[string]*session{}
	if t.n.cfg.State == "" {
		t.restored.Store(true)
		t.mu.Unlock()
		return nil
	}
	err := t.open(false)
	none := !t.dir.Taken()
	if none {
		t.restored.Store(true)
	}
	t.mu.Unlock()
	if err != nil || none {
		return err
	}
	records, err := t.dir.Records(func(file string, err error) {
		t.n.logs.Server.Warn("a session's record cannot be read", "file", file, "err", err)
	})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, r := range records {
		s := t.newSession(r)
		t.add(s)
		if r.Share != "" && !r.Ending {
			t.drives.Claim(r.Drive, r.Name)
		}
		all.Go(func() {
			ctx, stop := context.WithTimeout(t.n.ctx, timeout.Control)
			defer stop()
			if _, err := s.reach(ctx); err != nil {
				t.n.logs.Server.Warn("a session's supervisor cannot be reached", "session", r.Name, "err", err)
			}
		})
	}
	t.restored.Store(true)
	all.Wait()
	for _, s := range t.after("") {
		if s.Ending {
			if s.Share != "" {
				t.drives.Claim(s.Drive, s.Name)
			}
			t.n.wg.Go(func() {
				if _, err := s.delete(t.n.ctx); err != nil {
					t.n.logs.Server.Warn("a session that was being deleted is there", "session", s.Name, "err",
						err)
				}
			})
		}
	}
	return nil
}
