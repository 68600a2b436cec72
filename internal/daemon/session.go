package daemon

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/statedir"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/supervise"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// session is a session of this node. Its supervisor runs as the session's user and is the parent of
// its programs.
type session struct {
	n *Node
	statedir.Record

	connectLock chan struct{} // a lock: held to reach the supervisor or to end it
	deletedCh   chan struct{} // closed in state deleted

	mu     sync.Mutex
	state  sessionState      // guarded by mu
	client *supervise.Client // guarded by mu; nil: not connected
	query  *nodesQuery       // guarded by mu; the query in progress; nil: none
}

// sessionState is how far a session has come.
//
//	        made, recovered               supervisor connected
//	making ----------------> unsupervised <------------------> supervised
//	   |                       |  ^                lost            |
//	   |            deletion   |  | failed             deletion    |
//	   |            begun      v  |                    begun       |
//	   |                       deleting <--------------------------'
//	   |  making failed          |
//	   `-----------> deleted <---'
//
// Only the table of sessions knows a session that is being made. A session that is being made or
// deleted may have a supervisor, too.
type sessionState uint8

const (
	sessionMaking sessionState = iota
	sessionUnsupervised
	sessionSupervised
	sessionDeleting
	sessionDeleted
)

func (s sessionState) String() string {
	return [...]string{"making", "unsupervised", "supervised", "deleting", "deleted"}[s]
}

var sessionTransitions = state.Table[sessionState]{
	sessionMaking:       {sessionUnsupervised, sessionDeleted},
	sessionUnsupervised: {sessionSupervised, sessionDeleting},
	sessionSupervised:   {sessionUnsupervised, sessionDeleting},
	sessionDeleting:     {sessionUnsupervised, sessionDeleted},
}

// setState is the only writer of the state. mu is held.
func (s *session) setState(to sessionState) {
	sessionTransitions.Check(s.state, to)
	s.state = to
	if to == sessionDeleted {
		close(s.deletedCh)
	}
}

// changeState is setState for a caller that does not hold mu.
func (s *session) changeState(to sessionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setState(to)
}

// currentState returns the state.
func (s *session) currentState() sessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// keep ends the making of a session, or a deletion that has failed.
func (s *session) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setState(sessionUnsupervised)
	s.followConnection()
}

// followConnection changes the state of a session that is neither being made nor deleted when its
// connection has changed. mu is held.
func (s *session) followConnection() {
	switch alive := s.aliveClient() != nil; {
	case s.state == sessionUnsupervised && alive:
		s.setState(sessionSupervised)
	case s.state == sessionSupervised && !alive:
		s.setState(sessionUnsupervised)
	}
}

func (t *sessions) newSession(r statedir.Record) *session {
	return &session{
		n: t.n, Record: r, connectLock: make(chan struct{}, 1), deletedCh: make(chan struct{}),
	}
}

// account is the account that the session's programs run as.
func (s *session) account() users.Account {
	a := users.Account{UID: s.UID, Name: s.User, Home: s.Home}
	if int(s.UID) != os.Getuid() {
		a.As = &unix.Identity{UID: s.UID, GID: s.GID, Groups: s.Groups}
	}
	return a
}

// token is what a program of the session with this logical pid joins by. A daemon
// that starts again knows by it that one before it has given out the pid: the
// supervisor is the user's, and may claim anything.
func (s *session) token(pid uint32) string {
	h := hmac.New(sha256.New, []byte(s.Key))
	_ = binary.Write(h, binary.LittleEndian, pid)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (s *session) greeting() supervise.Greeting {
	return supervise.Greeting{Session: s.Name, Marker: s.Marker}
}

func (s *session) spec() supervise.Spec {
	return supervise.Spec{
		Session: s.Name, Node: s.n.cfg.Name, User: s.As, Base: s.Base, Output: s.Output,
		Daemon: uint32(os.Getuid()), Marker: s.Marker, New: s.currentState() == sessionMaking,
	}
}

// connected is the supervisor, if there is a connection to it.
func (s *session) connected() *supervise.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aliveClient()
}

// aliveClient is the connection unless it has ended. mu is held.
func (s *session) aliveClient() *supervise.Client {
	if s.client != nil {
		select {
		case <-s.client.Done():
		default:
			return s.client
		}
	}
	return nil
}

// reach gives the supervisor. One that has died is replaced: the next one ends
// what it left, and knows what there was.
func (s *session) reach(ctx context.Context) (*supervise.Client, error) {
	if c := s.connected(); c != nil {
		return c, nil
	}
	select {
	case s.connectLock <- struct{}{}:
		defer func() { <-s.connectLock }()
	case <-s.deletedCh:
		return nil, s.deleted()
	case <-ctx.Done():
		return nil, ctxCause(ctx, "reach the supervisor of session %q on node %q", s.Name, s.n.cfg.Name)
	}
	if c := s.connected(); c != nil {
		return c, nil
	}
	return s.connect(ctx)
}

func (s *session) deleted() error {
	return code.New(code.NoSuchSession, "session %q on node %q was deleted", s.Name, s.n.cfg.Name)
}

// errorOf replaces the error of a call whose connection to the supervisor has ended: by "deleted" if
// the session was deleted meanwhile, and by one that says that the node stops if it does.
func (s *session) errorOf(ctx context.Context, c *supervise.Client, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-c.Done():
	default:
		return err
	}
	if s.n.isStopping() { // it has hung up; the supervisor lives
		return code.New(code.Unreachable, "node %q cannot be reached: it is stopping", s.n.cfg.Name)
	}
	select {
	case s.connectLock <- struct{}{}: // no deletion is in progress
		<-s.connectLock
	case <-s.deletedCh:
		return s.deleted()
	case <-ctx.Done():
	}
	return err
}

// connect connects to the supervisor, and starts one if there is none. connectLock is held.
func (s *session) connect(ctx context.Context) (*supervise.Client, error) {
	dir, err := unix.OpenPath(s.n.sessions.dir.Run(s.Name))
	if err != nil {
		return nil, code.New(code.NoSuchSession,
			"session %q on node %q has lost its state: %v; delete it", s.Name, s.n.cfg.Name, err)
	}
	defer dir.Close()
	c, err := s.dial(ctx, dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) { // no supervisor runs
		if err = s.launch(ctx, dir); err == nil {
			c, err = s.dial(ctx, dir)
		}
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.n.isStopping() { // sessions.hangUp may have passed by this one
		s.mu.Unlock()
		c.Close()
		return nil, code.New(code.Unreachable, "node %q cannot be reached: it is stopping", s.n.cfg.Name)
	}
	s.client = c
	s.followConnection()
	s.mu.Unlock()
	s.adopt(ctx, c)
	s.noteAgain(ctx, c)
	s.n.wg.Go(func() { s.watchSupervisor(c) })
	return c, nil
}

// dial reaches the supervisor that is there. One that is just dying still takes
// connections, and drops them: until it refuses them it is not to be replaced.
func (s *session) dial(ctx context.Context, dir *os.File) (c *supervise.Client, err error) {
	for deadline := time.Now().Add(timeout.Stop); ; time.Sleep(timeout.Stop / 1000) {
		c, err = supervise.Dial(ctx, dir, s.UID, s.greeting())
		if !errors.Is(err, code.NoDaemon) || ctx.Err() != nil || time.Now().After(deadline) {
			return c, err
		}
	}
}

// watchSupervisor replaces a supervisor that dies, so that the programs it left are ended: their
// output is lost and no process reaps them.
func (s *session) watchSupervisor(c *supervise.Client) {
	pause := time.NewTimer(timeout.Replace) // one that dies at once is not replaced at once
	defer pause.Stop()
	for _, over := range []<-chan struct{}{c.Done(), nil} {
		var late <-chan time.Time
		if over == nil {
			late = pause.C
		}
		select {
		case <-over:
			s.mu.Lock()
			s.followConnection()
			s.mu.Unlock()
		case <-late:
		case <-s.deletedCh:
			return
		case <-s.n.ctx.Done():
			return
		}
	}
	ctx, stop := context.WithTimeout(s.n.ctx, timeout.Control)
	defer stop()
	if _, err := s.reach(ctx); err != nil && !errors.Is(err, code.NoSuchSession) &&
		s.n.ctx.Err() == nil {
		s.n.logs.Server.Warn("a session's supervisor has died and cannot be replaced", "session", s.Name,
			"err", err)
	}
}

// launch starts a supervisor, and a goroutine that reaps it while this daemon runs.
func (s *session) launch(ctx context.Context, dir *os.File) error {
	n := s.n
	if len(n.cfg.Supervisor) == 0 {
		return code.New(code.BadConfig,
			"node %q runs in a program that cannot supervise sessions: make them on a node of vmmcd",
			n.cfg.Name)
	}
	if err := s.n.sessions.drives.MountAgain(ctx, &s.Record); err != nil {
		return err
	}
	as := s.account()
	e := environment{}
	if as.As == nil {
		e = env.All()
	} else { // the daemon's environment is private
		e.set("PATH", usualPath)
		e.set("HOME", as.Home)
	}
	c, err := supervise.Launch(ctx, n.cfg.Supervisor, e, as.As, dir, s.spec(), s.confine)
	if err != nil {
		if c != nil {
			n.sessions.reapStuck(c, s.UID)
		}
		var own code.Code
		if !errors.As(err, &own) {
			own = code.BadConfig
		}
		return code.New(own, "session %q on node %q as user %q: %v", s.Name, n.cfg.Name, s.User, err)
	}
	n.logs.Server.Info("supervisor started", "session", s.Name, "user", s.User, "realpid", c.PID())
	n.wg.Go(func() {
		if !c.AwaitOr(n.ctx.Done()) {
			c.Release() // it goes on without this daemon
			return
		}
		n.logs.Server.Info("supervisor ended", "session", s.Name, "realpid", c.PID(), "how", c.Reap())
	})
	return nil
}

// maxSupervised bounds what is heard of one supervisor: its programs, and processes that have
// joined.
const maxSupervised = 1 << 16

// adopt learns of the programs that run already: those that have not joined are
// known by their tokens again, and those that had joined must do so again. Then it learns of those
// that have ended and had a name kept for them.
func (s *session) adopt(ctx context.Context, c *supervise.Client) {
	// The supervisor is the user's, and may go on for ever: it is heard as long as an honest one
	// may have to say.
	heard := 0
	for _, ended := range []bool{false, true} {
		for r := (supervise.ListRequest{Running: true, Reserve: ended}); ; {
			l, err := c.List(ctx, r)
			if err != nil {
				return
			}
			for _, p := range l.Programs {
				if heard++; heard > maxSupervised {
					s.n.logs.Server.Warn("a session's supervisor lists more programs than there can be", "session",
						s.Name)
					return
				}
				r.After = p.PID
				if p.Ended == ended {
					s.adoptListed(ctx, c, p)
				}
			}
			if !l.More || len(l.Programs) == 0 {
				break
			}
		}
	}
}

// adoptListed is adopt of one program.
func (s *session) adoptListed(ctx context.Context, c *supervise.Client, p supervise.Program) {
	s.n.registry.mu.Lock()
	_, here := s.n.registry.processes[p.PID]
	known := s.n.children.byPID[p.PID] != nil
	s.n.registry.mu.Unlock()
	switch {
	case p.Ended && p.Reserve != "":
		s.restoreEnded(p)
	case p.Joined && !here:
		_ = c.Leave(ctx, p.PID)
	case !p.Joined && !s.n.cluster.OwnPID(p.PID):
		s.n.sessions.misplaced.CompareAndSwap(nil, &misplacedProgram{session: s.Name, pid: p.PID})
	case !p.Joined && !known:
		s.n.children.readopt(s, c, p)
	}
}

// hangUp closes the connection to the supervisor, which goes on.
func (s *session) hangUp() {
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.followConnection()
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// authorize returns an error unless c may use the session.
func (s *session) authorize(c users.Caller) error {
	if c.User == s.User || c.Admin() {
		return nil
	}
	return code.New(code.NoRights, "session %q on node %q is of another user than %q", s.Name,
		s.n.cfg.Name, c.User)
}

// makeRun makes the directory that is the user's.
func (s *session) makeRun(ctx context.Context) error {
	dir := s.n.sessions.dir.Run(s.Name)
	if err := unix.RemoveTree(ctx, dir); err != nil { // of a session that a crash left half made
		return code.New(code.BadConfig, "remove what is left of a session %q: %v", s.Name, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return code.New(code.BadConfig, "make the directory of session %q: %v", s.Name, err)
	}
	if int(s.UID) == os.Getuid() {
		return nil
	}
	if err := os.Lchown(dir, int(s.UID), int(s.GID)); err != nil {
		return code.New(code.BadConfig, "give the directory of session %q to user %q: %v", s.Name, s.User,
			err)
	}
	return nil
}

// placeCgroup says which cgroup the session is to have, if it can have one.
func (s *session) placeCgroup() {
	if s.n.sessions.cgroups != "" {
		s.Cgroup = filepath.Join(s.n.sessions.cgroups, "vmmc-"+s.Marker)
	}
}

// confine puts a new supervisor into the session's cgroup, before it starts
// anything. What an earlier one has left there is ended.
func (s *session) confine(pid int) {
	if s.Cgroup == "" {
		return
	}
	err := cgroup.Kill(s.Cgroup, timeout.Stop)
	if err == nil {
		err = cgroup.Enter(s.Cgroup, pid)
	}
	if err != nil {
		s.n.logs.Server.Warn("a session has no cgroup", "session", s.Name, "err", err)
	}
}

// dropCgroup ends all that is left in the session's cgroup, and removes it.
func (s *session) dropCgroup() error {
	if s.Cgroup == "" {
		return nil
	}
	if err := cgroup.Kill(s.Cgroup, timeout.Stop); err != nil {
		return err
	}
	return cgroup.Remove(s.Cgroup)
}
