package daemon

import (
	"sync/atomic"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/trust"
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
	n         *Node
	state     string         // "": the node has no sessions
	cgroups   string         // the cgroup below which they get theirs; "": they get none
	lockTaken func(*os.File) // is told of the lock

	mu     sync.Mutex // before a session's
	lock   *os.File   // held while this daemon uses the state directory
	byName map[string]*session
	drives map[string]string // which session each is made for
	// Supervisors of sessions that are not made, which cannot be killed, of which user.
	stuck map[uint32]int

	misplaced atomic.Pointer[misplacedProgram] // keeps the node from starting; nil: none
}

func (t *sessions) file(name string) string {
	return filepath.Join(t.state, "sessions", supervise.FileName(name)+".json")
}

func (t *sessions) dir(name string) string {
	return filepath.Join(t.state, "run", supervise.FileName(name))
}

// open takes the state directory, and makes it when make is set.
func (t *sessions) open(make bool) error {
	if t.lock != nil {
		return nil
	}
	if t.state == "" {
		return code.New(code.BadConfig,
			"this node keeps no state, and so no sessions: use a node of vmmcd")
	}
	if _, err := os.Stat(filepath.Join(t.state, "sessions")); errors.Is(err, fs.ErrNotExist) && !make {
		return nil
	}
	// Users get through, to what is theirs, and see nothing else.
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o711}, {"sessions", 0o700}, {"run", 0o711}} {
		if _, err := trust.Own().Make(filepath.Join(t.state, d.name), d.mode); err != nil {
			return code.New(code.BadConfig, "take the state directory: %v: name another one with --state",
				err)
		}
	}
	f, err := unix.LockFile(filepath.Join(t.state, "lock"))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return code.New(code.BadConfig,
			"another vmmcd has the state directory %s: give this one another with --state", t.state)
	}
	if err != nil {
		return code.New(code.BadConfig, "take the state directory: %v", err)
	}
	if left, _ := t.files(); make && len(left) > 0 {
		_ = f.Close()
		return code.New(code.BadConfig, "the state directory %s has sessions of another vmmcd, which "+
			"had it when this one started: start this one again to have them", t.state)
	}
	t.lock = f
	t.lockTaken(f)
	return nil
}

func (t *sessions) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byName {
		s.hangUp()
	}
	if t.lock != nil {
		_ = t.lock.Close()
	}
}

// find returns the session of that name, with an error unless c may use it.
func (t *sessions) find(c caller, name string) (*session, error) {
	if s := t.named(name); s != nil {
		return s, s.authorize(c)
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
