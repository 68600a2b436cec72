package daemon

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// memberJournal is an append-only file beside the socket that records the processes that joined the
// node. The next daemon reads from it which processes may rejoin, and asks the kernel which of them
// have ended.
type memberJournal struct {
	n    *Node
	path string // "": an abstract socket; the node ends with its program and no process rejoins

	mu     sync.Mutex
	f      *os.File
	lines  int // number of lines in the file
	live   map[nodeproto.ProcessID]*membership
	absent map[uint32]*membership // by pid: those of live that are expected or returning
	failed bool                   // the last write failed, and that was logged
}

// membership is a process's place on its node. memberJournal.mu guards it.
type membership struct {
	memberRecord
	state   memberState
	present chan struct{} // in expected and returning: closed when the process is in neither any more
	conn    *process      // in returning: the connection by which it returns
}

// memberState is how far a process's membership of its node has come.
//
//	     connection given up, or daemon restarted
//	joined ----------------------------------> expected <---------------.
//	 |  |  ^                                   |      |  proved itself   | connection
//	 |  |  | all announced                     |      v                  | ended
//	 |  |  `-----------------------------------|--- returning -----------'
//	 |  | process ended                        | process ended |
//	 |  `--------------------------------------+---------------+--> ended
//	 | sent a malformed packet
//	 `----------------------------------------------------------> dropped
//
// An expected process has no connection. No process reaches a returning one. A dropped process may
// still run, and cannot rejoin. The model is docs/models/rejoin.pml.
type memberState uint8

const (
	memberJoined memberState = iota
	memberExpected
	memberReturning
	memberEnded
	memberDropped
)

func (s memberState) String() string {
	return [...]string{"joined", "expected", "returning", "ended", "dropped"}[s]
}

// absent reports whether the process has not announced its exports and links to this daemon.
func (s memberState) absent() bool { return s == memberExpected || s == memberReturning }

var memberTransitions = state.Table[memberState]{
	memberJoined:    {memberExpected, memberEnded, memberDropped},
	memberExpected:  {memberReturning, memberEnded},
	memberReturning: {memberJoined, memberExpected, memberEnded},
}

// setState is the only writer of a membership's state. mu is held, or no other goroutine uses the
// journal yet.
func (j *memberJournal) setState(m *membership, to memberState) {
	memberTransitions.Check(m.state, to)
	from := m.state
	m.state, m.conn = to, nil
	switch pid := m.Process.PID; {
	case to.absent() && !from.absent():
		present := make(chan struct{})
		m.present, j.absent[pid] = present, m
		j.n.wg.Go(func() { j.watch(m, present) })
	case from.absent() && !to.absent():
		if j.absent[pid] == m {
			delete(j.absent, pid)
		}
		close(m.present)
	}
	if to == memberEnded || to == memberDropped {
		delete(j.live, m.Process)
		e := memberRecord{Process: m.Process, Dropped: to == memberDropped}
		if to == memberEnded {
			e.Ended, e.At = true, time.Now().Unix()
		}
		j.append(e)
	}
}

// memberRecord is a line of the file: a process that joined, or the end of one.
type memberRecord struct {
	Process nodeproto.ProcessID
	Ended   bool                `json:",omitempty"`
	At      int64               `json:",omitempty"` // of an end: see departure
	Dropped bool                `json:",omitempty"` // forgotten; it may still run
	Hash    string              `json:",omitempty"` // the SHA-256 of its rejoin token
	UID     uint32              `json:",omitempty"`
	Real    int                 `json:",omitempty"` // the kernel's pid
	Born    uint64              `json:",omitempty"` // see unix.Born
	Parent  nodeproto.ProcessID `json:",omitzero"`
	Session string              `json:",omitempty"`
	Group   uint32              `json:",omitempty"` // its run group, in a session of this node
	Started bool                `json:",omitempty"` // started by that session
}

// Limits on what is read from a file that may be damaged, and kept in it.
const (
	maxJournal = 64 << 20
	// A session's name has maxSession bytes at most, each of which may be written as six.
	maxLine    = 64 << 10
	maxSession = 8 << 10 // bytes
	maxEnded   = 1024    // ended processes that the file keeps for the next daemon
)

// open reads the file. The socket's lock is held, so it is this daemon's alone.
func (j *memberJournal) open(n *Node, socket string) error {
	j.n, j.live, j.absent = n, map[nodeproto.ProcessID]*membership{}, map[uint32]*membership{}
	if strings.HasPrefix(socket, "@") {
		return nil
	}
	path := socket + ".roll"
	ended := j.read(path)
	var lost []departure
	for id, e := range j.live {
		switch {
		case id.Node != n.cfg.Name || !n.cluster.ownPID(id.PID):
			delete(j.live, id) // recorded when the node had another name or place
		case e.dead():
			delete(j.live, id)
			lost = append(lost, departure{id, time.Now().Unix()})
		}
	}
	for _, e := range append(ended, lost...) {
		n.registry.departed.addAt(e)
	}
	j.path = path
	if err := j.rewrite(append(ended, lost...)); err != nil {
		j.path = ""
		return code.New(code.BadConfig, "keep the members: %v", err)
	}
	j.mu.Lock() // each state starts a goroutine that may end it
	defer j.mu.Unlock()
	for _, e := range j.live {
		j.setState(e, memberExpected)
	}
	return nil
}

// read loads the file and returns the processes that have ended, the latest last.
func (j *memberJournal) read(path string) (ended []departure) {
	info, err := os.Lstat(path) // does not follow a symbolic link
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0) {
		err = fmt.Errorf("it is %v, want a file for its owner alone", info.Mode())
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err == nil {
		defer f.Close()
		if uid, _, oerr := unix.OwnerOf(f); oerr != nil || int(uid) != os.Getuid() {
			err = fmt.Errorf("it is user %d's (%w)", uid, errors.Join(oerr, fs.ErrPermission))
		}
	}
	if err != nil {
		j.n.logs.Server.Warn("the members of the daemon before this one are not known: those processes cannot "+
			"rejoin", "file", path, "err", err)
		return nil
	}
	whole := &io.LimitedReader{R: f, N: maxJournal}
	lines := bufio.NewScanner(whole)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e memberRecord
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Process.PID == 0 {
			// The daemon died while it wrote the line.
			continue
		}
		switch {
		case e.Ended:
			delete(j.live, e.Process)
			ended = append(ended, departure{e.Process, cmp.Or(e.At, time.Now().Unix())})
		case e.Dropped:
			delete(j.live, e.Process)
		default:
			j.live[e.Process] = &membership{memberRecord: e}
		}
	}
	if err := lines.Err(); err != nil || whole.N == 0 {
		j.n.logs.Server.Warn("not all members of the daemon before this one are known: some processes cannot "+
			"rejoin", "file", path, "err", err)
	}
	return ended[max(0, len(ended)-maxEnded):]
}

// rewrite writes a new file with the live members and the latest ends, and renames it into place.
func (j *memberJournal) rewrite(ended []departure) error {
	_ = os.Remove(j.path + ".new") // left by a daemon that died while it wrote
	f, err := os.OpenFile(j.path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, e := range j.live {
		_ = enc.Encode(e.memberRecord) // Flush returns the error
	}
	for _, e := range ended[max(0, len(ended)-maxEnded):] {
		_ = enc.Encode(memberRecord{Process: e.ProcessID, Ended: true, At: e.at})
	}
	if err = w.Flush(); err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(j.path + ".new")
		return err
	}
	if j.f != nil {
		_ = j.f.Close()
	}
	j.f, j.lines = f, len(j.live)+min(len(ended), maxEnded)
	return nil
}

// append writes a line. mu is held. The file is not synced: it only has to outlive the daemon,
// since no process outlives the machine.
func (j *memberJournal) append(e memberRecord) {
	if j.path == "" {
		return
	}
	b, err := json.Marshal(e)
	if err == nil && j.failed { // the last line may be torn and others may be missing
		err = j.rewrite(j.n.registry.departed.latest(maxEnded))
	} else if err == nil {
		_, err = j.f.Write(append(b, '\n'))
	}
	if j.lines++; err == nil && j.lines > 4*len(j.live)+4*maxEnded {
		err = j.rewrite(j.n.registry.departed.latest(maxEnded))
	}
	if err != nil && !j.failed {
		j.n.logs.Server.Warn("members cannot be recorded: processes that joined since cannot rejoin at the "+
			"next daemon", "file", j.path, "err", err)
	}
	j.failed = err != nil
}

// join records a process and returns its rejoin token.
func (j *memberJournal) join(p *process, parent nodeproto.ProcessID) (token string) {
	born, err := unix.Born(p.cred.PID) // without mu: the process can make the kernel delay this
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.path == "" {
		return ""
	}
	token = rand.Text()
	if errors.Is(err, fs.ErrNotExist) {
		return "" // it has ended
	}
	e := memberRecord{
		Process: *p.id.Load(), Hash: tokenHash(token), UID: p.cred.UID, Real: p.cred.PID, Born: born,
		Parent: parent, Session: p.session,
	}
	if m := p.member; m != nil {
		e.Group, e.Started = m.group, m.noted == nil
	}
	j.live[e.Process] = &membership{memberRecord: e}
	j.append(e)
	return token
}

// change changes the state of a live membership that is in one of the states from. It reports
// whether it has.
func (j *memberJournal) change(id nodeproto.ProcessID, to memberState, from ...memberState) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.live[id]
	if m == nil || !slices.Contains(from, m.state) {
		return false
	}
	j.setState(m, to)
	return true
}

// returning returns the membership of a process that returns by p, or nil. mu is held.
func (j *memberJournal) returning(p *process) *membership {
	if m := j.live[*p.id.Load()]; m != nil && m.state == memberReturning && m.conn == p {
		return m
	}
	return nil
}

// isReturning reports whether a process returns by p.
func (j *memberJournal) isReturning(p *process) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.returning(p) != nil
}

// endReturn records that a process has announced everything. It reports whether p was returning.
func (j *memberJournal) endReturn(p *process) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.returning(p)
	if m != nil {
		j.setState(m, memberJoined)
	}
	return m != nil
}

// Intervals between checks whether an expected process has ended.
const (
	minProbeInterval = 20 * time.Millisecond
	maxProbeInterval = time.Second
)

// watch polls until an absent process is present or has ended.
func (j *memberJournal) watch(m *membership, present <-chan struct{}) {
	t := time.NewTimer(minProbeInterval)
	defer t.Stop()
	for pause := minProbeInterval; ; {
		select {
		case <-present:
			return
		case <-j.n.ctx.Done():
			return
		case <-t.C:
		}
		if m.dead() {
			j.n.registry.departed.add(m.Process)
			j.change(m.Process, memberEnded, memberJoined, memberExpected, memberReturning)
			j.n.logs.Server.Info("a process has ended before it rejoined", "pid", m.Process.PID, "realpid", m.Real)
			return
		}
		pause = min(2*pause, maxProbeInterval)
		t.Reset(pause)
	}
}

// dead reports whether the kernel says that the process has ended.
func (e *memberRecord) dead() bool {
	born, err := unix.Born(e.Real)
	return errors.Is(err, fs.ErrNotExist) || err == nil && born != 0 && e.Born != 0 && born != e.Born
}

// anyAbsent reports whether a process is absent, whose links are not known yet.
func (j *memberJournal) anyAbsent() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.absent) > 0
}

// isAbsent reports whether pid belongs to a process that may rejoin.
func (j *memberJournal) isAbsent(pid uint32) bool { return j.presence(pid) != nil }

// presence returns a channel that is closed when an absent process is present or has ended. It is
// nil for another one.
func (j *memberJournal) presence(pid uint32) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.absent[pid]; m != nil {
		return m.present
	}
	return nil
}

// awaitReturn waits until an absent process is present or has ended.
func (j *memberJournal) awaitReturn(ctx context.Context, pid uint32) error {
	present := j.presence(pid)
	if present == nil {
		return nil
	}
	late := time.NewTimer(timeout.Control)
	defer late.Stop()
	select {
	case <-present:
		return nil
	case <-ctx.Done():
		return ctxCause(ctx, "process %d has not come back to node %q, whose daemon was restarted", pid,
			j.n.cfg.Name)
	case <-late.C:
		return code.New(code.Timeout, "process %d has not come back to node %q, whose daemon was "+
			"restarted, within %v: it may be stopped", pid, j.n.cfg.Name, timeout.Control)
	}
}

// beginReturn authenticates a process that rejoins: by the kernel's pid and start time of the
// program, its user, and its rejoin token. From then on the process is returning, unless it has
// another connection.
func (j *memberJournal) beginReturn(
	r *nodeproto.RejoinRequest, p *process, connected bool,
) (memberRecord, error) {
	cred := p.cred
	born, err := unix.Born(cred.PID) // without mu, see join
	j.mu.Lock()
	defer j.mu.Unlock()
	inProgress := code.New(code.InProgress, "process %d has a connection with node %q still",
		r.Process.PID, j.n.cfg.Name)
	x := j.absent[r.Process.PID]
	if x == nil {
		if j.live[r.Process] != nil {
			return memberRecord{}, inProgress
		}
		return memberRecord{}, code.New(code.NoSuchProcess, "node %q does not know process %d: the "+
			"daemon that it joined has not recorded it, or took it for ended; open another one",
			j.n.cfg.Name, r.Process.PID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return memberRecord{}, code.New(code.NoMem,
			"node %q cannot check the process that rejoins as %d: %v", j.n.cfg.Name, r.Process.PID, err)
	}
	if err != nil || r.Process != x.Process || cred.UID != x.UID || cred.PID != x.Real ||
		x.Born != 0 && born != x.Born ||
		subtle.ConstantTimeCompare([]byte(tokenHash(r.Pass)), []byte(x.Hash)) != 1 {
		return memberRecord{}, code.New(code.NoRights,
			"this program (%d of user %d) is not process %d of node %q", cred.PID, cred.UID, r.Process.PID,
			j.n.cfg.Name)
	}
	if connected || x.state == memberReturning {
		return memberRecord{}, inProgress
	}
	j.setState(x, memberReturning)
	x.conn = p
	return x.memberRecord, nil
}

// close ends the writing, with the socket's lock held. It removes the file if the next daemon has
// no use for it, and reports whether a process that has joined lives, which waits for that daemon.
func (j *memberJournal) close() (awaited bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f != nil {
		_ = j.f.Close()
	}
	for _, e := range j.live {
		if awaited = !e.dead(); awaited {
			break
		}
	}
	// A process that the kernel knows to be dead and that is in the list still has ended just now.
	asked := j.n.tcp != nil && (len(j.live) > 0 || j.n.registry.departed.asked())
	if j.path != "" && !awaited && !asked {
		_ = os.Remove(j.path)
	}
	j.path = ""
	return awaited
}

func tokenHash(token string) string {
	h := sha256.Sum256([]byte(token))
	return hex.EncodeToString(h[:])
}
