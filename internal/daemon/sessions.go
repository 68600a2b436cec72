package daemon

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
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

// sessions are those of a node. Of each the state directory has a record, which
// is the daemon's, and a directory, which is its user's.
type sessions struct {
	state   string         // "": none can be
	cgroups string         // the cgroup below which they get theirs; "": they get none
	took    func(*os.File) // is told of the lock

	mu     sync.Mutex
	lock   *os.File // held while this daemon uses the state directory
	byName map[string]*session
	making map[string]uint32 // of which user; in byName they are nil
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
		return code.New(code.BadConfig, "this node keeps no state, and so no sessions: use a node of vmmcd")
	}
	if _, err := os.Stat(filepath.Join(t.state, "sessions")); errors.Is(err, fs.ErrNotExist) && !make {
		return nil
	}
	// Users get through, to what is theirs, and see nothing else.
	for _, d := range []struct {
		name string
		mode os.FileMode
	}{{"", 0o711}, {"sessions", 0o700}, {"run", 0o711}} {
		if err := os.MkdirAll(filepath.Join(t.state, d.name), d.mode); err != nil {
			return code.New(code.BadConfig, "make the state directory: %v", err)
		}
	}
	f, err := unix.LockFile(filepath.Join(t.state, "lock"))
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return code.New(code.BadConfig, "another vmmcd has the state directory %s: give this one another with --state", t.state)
	}
	if err != nil {
		return code.New(code.BadConfig, "take the state directory: %v", err)
	}
	if left, _ := t.files(); make && len(left) > 0 {
		_ = f.Close()
		return code.New(code.BadConfig, "the state directory %s has sessions of another vmmcd, which had it when this one started: start this one again to have them", t.state)
	}
	t.lock = f
	t.took(f)
	return nil
}

// write keeps a record, the old one or the new one whenever this ends.
func (t *sessions) write(r record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f := t.file(r.Name)
	if err := os.WriteFile(f+".new", append(b, '\n'), 0o600); err != nil {
		return code.New(code.NoMem, "keep session %q: %v", r.Name, err)
	}
	if err := os.Rename(f+".new", f); err != nil {
		return code.New(code.NoMem, "keep session %q: %v", r.Name, err)
	}
	return nil
}

// recallSessions finds the sessions of a daemon before this one, with their
// programs.
func (n *Node) recallSessions() error {
	t := &n.sessions
	t.mu.Lock() // other nodes ask already
	t.state, t.byName, t.making, t.took = n.cfg.State, map[string]*session{}, map[string]uint32{}, n.keepPIDs
	if t.state == "" {
		t.mu.Unlock()
		return nil
	}
	err := t.open(false)
	none := t.lock == nil
	t.mu.Unlock()
	if err != nil || none {
		return err
	}
	files, err := t.files()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, f := range files {
		var r record
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil || t.file(r.Name) != f {
			n.log.Warn("a session's record cannot be read", "file", f, "err", err)
			continue
		}
		s := n.newSession(r)
		t.put(r.Name, s)
		all.Go(func() {
			ctx, stop := context.WithTimeout(n.ctx, timeout.Control)
			defer stop()
			if _, err := s.reach(ctx); err != nil {
				n.log.Warn("a session's supervisor cannot be reached", "session", r.Name, "err", err)
			}
		})
	}
	all.Wait()
	for _, s := range n.sessionsAfter("") {
		if s.Ending {
			n.wg.Go(func() {
				if _, err := n.deleteSession(n.ctx, s); err != nil {
					n.log.Warn("a session that was being deleted is there", "session", s.Name, "err", err)
				}
			})
		}
	}
	return nil
}

// files are the records.
func (t *sessions) files() ([]string, error) {
	return filepath.Glob(filepath.Join(escapeGlob(t.state), "sessions", "*.json"))
}

// escapeGlob makes a path mean itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
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

// find is the session of that name, if who asks may use it.
func (n *Node) findSession(c caller, name string) (*session, error) {
	if s := n.sessionNamed(name); s != nil {
		return s, s.may(c)
	}
	return nil, code.New(code.NoSuchSession, "node %q has no session %q: make it with \"vmmc session add\"", n.cfg.Name, name)
}

// sessionNamed is nil for one that is not there, or is just being made.
func (n *Node) sessionNamed(name string) *session {
	n.sessions.mu.Lock()
	defer n.sessions.mu.Unlock()
	return n.sessions.byName[name]
}

// sessionsAfter are those with greater names, in order.
func (n *Node) sessionsAfter(name string) []*session {
	t := &n.sessions
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*session
	for _, s := range t.byName {
		if s != nil && s.Name > name {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *session) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// reserve keeps a name for a session that is being made; release gives it up.
func (t *sessions) reserve(node, name string, uid uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(true); err != nil {
		return err
	}
	same := 0
	for _, s := range t.byName {
		if s != nil && s.UID == uid {
			same++
		}
	}
	for _, u := range t.making {
		if u == uid {
			same++
		}
	}
	_, taken := t.byName[name]
	switch {
	case taken:
		return code.New(code.BufAlreadyExists, "node %q has a session %q already: delete it, or choose another name", node, name)
	case len(t.byName) >= maxSessions || same >= maxUserSessions:
		return code.New(code.NoMem, "node %q has %d sessions, %d of them this user's: at most %d, and %d of one user", node, len(t.byName), same, maxSessions, maxUserSessions)
	}
	t.byName[name], t.making[name] = nil, uid
	return nil
}

func (t *sessions) put(name string, s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.making, name)
	if s == nil {
		delete(t.byName, name)
		return
	}
	t.byName[name] = s
}

// addSession makes a session with a supervisor that runs, or nothing.
func (n *Node) addSession(ctx context.Context, r record, who mount.Credentials) (s *session, err error) {
	t := &n.sessions
	if err := t.reserve(n.cfg.Name, r.Name, r.UID); err != nil {
		return nil, err
	}
	kept := false // what is left of it, for who deletes it
	defer func() {
		if err != nil && !kept {
			t.put(r.Name, nil)
		}
	}()
	r.Marker, r.Key, r.Account = rand.Text(), rand.Text(), who != mount.Credentials{}
	n.placeCgroup(&r)
	if err := n.placeMount(&r); err != nil {
		return nil, err
	}
	if err := n.takeDrive(&r); err != nil {
		return nil, err
	}
	s = n.newSession(r)
	undo := func() {
		s.hangUp()
		_ = s.dropCgroup()
		_ = os.RemoveAll(t.dir(r.Name))
		if derr := n.undoShare(ctx, s); derr != nil {
			err, kept = errors.Join(err, derr), true
			t.put(r.Name, s)
			return
		}
		_ = os.Remove(t.file(r.Name))
		n.giveDrive(&s.record)
		close(s.gone)
	}
	// A daemon that dies meanwhile leaves a session that the next one deletes.
	half := r
	half.Ending = true
	if err = t.write(half); err == nil {
		err = n.makeRun(&r)
	}
	if err == nil {
		err = n.mountShare(ctx, &r, who)
	}
	if err != nil {
		undo()
		return nil, err
	}
	c, err := s.reach(ctx)
	if err == nil {
		if err = t.write(s.record); err != nil {
			_, _ = c.End(context.WithoutCancel(ctx))
		}
	}
	if err != nil {
		undo()
		return nil, err
	}
	t.put(r.Name, s)
	n.log.Info("session made", "session", r.Name, "user", r.User, "drive", r.Drive, "base", c.Base, "output", r.Output)
	return s, nil
}

// makeRun makes the directory that is the user's.
func (n *Node) makeRun(r *record) error {
	dir := n.sessions.dir(r.Name)
	if err := os.RemoveAll(dir); err != nil { // of a session that a crash left half made
		return code.New(code.BadConfig, "remove what is left of a session %q: %v", r.Name, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return code.New(code.BadConfig, "make the directory of session %q: %v", r.Name, err)
	}
	if int(r.UID) == os.Getuid() {
		return nil
	}
	if err := os.Lchown(dir, int(r.UID), int(r.GID)); err != nil {
		return code.New(code.BadConfig, "give the directory of session %q to user %q: %v", r.Name, r.User, err)
	}
	return nil
}

// deleteSession ends a session and all that is in it. What fails can be tried
// again.
//
// The notice says what was not as usual.
func (n *Node) deleteSession(ctx context.Context, s *session) (notice string, err error) {
	select {
	case s.turn <- struct{}{}: // not given back: nobody needs a supervisor after this
	case <-s.gone:
		return "", code.New(code.NoSuchSession, "session %q on node %q is deleted already", s.Name, n.cfg.Name)
	case <-ctx.Done():
		return "", ctxCause(ctx, "delete session %q on node %q", s.Name, n.cfg.Name)
	}
	t := &n.sessions
	again := func(err error) (string, error) {
		<-s.turn
		return "", err
	}
	r := s.record
	r.Ending = true
	if err := t.write(r); err != nil {
		n.log.Warn("a session is deleted all the same", "session", s.Name, "err", err)
	}
	if _, err := os.Lstat(t.dir(s.Name)); err == nil {
		if err := s.endAll(ctx); err != nil {
			return again(err)
		}
	} else if err := s.dropCgroup(); err != nil {
		return again(code.New(code.Timeout, "end session %q on node %q: %v", s.Name, n.cfg.Name, err))
	}
	if err := os.RemoveAll(t.dir(s.Name)); err != nil {
		return again(code.New(code.BadConfig, "remove the directory of session %q: %v", s.Name, err))
	}
	if notice, err = n.dropShare(ctx, &s.record); err != nil {
		return again(err)
	}
	n.giveDrive(&r)
	if err := os.Remove(t.file(s.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return again(code.New(code.BadConfig, "remove the record of session %q: %v", s.Name, err))
	}
	t.put(s.Name, nil)
	close(s.gone)
	n.log.Info("session deleted", "session", s.Name, "user", s.User)
	return notice, nil
}
