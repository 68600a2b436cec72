package members

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
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Journal is an append-only file beside the socket that records the processes that joined the
// node. The next daemon reads from it which processes may rejoin, and asks the kernel which of them
// have ended.
//
// The zero Journal has no members, and no process is absent.
type Journal struct {
	cfg  Config
	path string // "": an abstract socket; the node ends with its program and no process rejoins

	mu     sync.Mutex // before departed.mu
	f      *os.File
	lines  int // number of lines in the file
	live   map[nodeproto.ProcessID]*membership
	absent map[uint32]*membership // by pid: those of live that are expected or returning
	failed bool                   // the last write failed, and that was logged

	absences uint64 // how often a process has become absent. Guarded by mu.

	departed departed
}

// Config is what a Journal needs of its node.
type Config struct {
	Node   string                // its name
	OwnPID func(pid uint32) bool // reports whether the node gives out pid
	Log    *slog.Logger
	Ended  <-chan struct{} // closed when the node ends
	Go     func(func())    // starts a goroutine, which ends soon after Ended
}

// membership is a process's place on its node. Guarded by Journal.mu.
type membership struct {
	Record
	state memberState
	// In expected and returning: closed when the process is in neither any more.
	present chan struct{}
	conn    *nodeproto.Conn // in returning: by which it returns
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
func (j *Journal) setState(m *membership, to memberState) {
	memberTransitions.Check(m.state, to)
	from := m.state
	m.state, m.conn = to, nil
	switch pid := m.Process.PID; {
	case to.absent() && !from.absent():
		present := make(chan struct{})
		j.absences++
		m.present, j.absent[pid] = present, m
		j.cfg.Go(func() { j.watch(m, present) })
	case from.absent() && !to.absent():
		if j.absent[pid] == m {
			delete(j.absent, pid)
		}
		close(m.present)
	}
	if to == memberEnded || to == memberDropped {
		delete(j.live, m.Process)
		e := Record{Process: m.Process, Dropped: to == memberDropped}
		if to == memberEnded {
			e.Ended, e.At = true, time.Now().Unix()
		}
		j.append(e)
	}
}

// Record is a line of the file: a process that joined, or the end of one.
type Record struct {
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
	// Nameless: the process has claimed no name. A journal of an older daemon does not say.
	Nameless bool `json:",omitempty"`
}

// MaxSession bounds the name of a session, in bytes. A line may have six for each.
const MaxSession = 8 << 10

// Limits on what is read from a file that may be damaged, and kept in it.
const (
	maxJournal = 64 << 20
	maxLine    = 64 << 10
	maxEnded   = 1024 // ended processes that the file keeps for the next daemon
)

// Open reads the file beside a socket. The socket's lock is held, so it is this daemon's alone.
func (j *Journal) Open(cfg Config, socket string) error {
	j.cfg, j.live, j.absent = cfg, map[nodeproto.ProcessID]*membership{}, map[uint32]*membership{}
	if strings.HasPrefix(socket, "@") {
		return nil
	}
	path := socket + ".roll"
	ended := j.read(path)
	var lost []departure
	for id, e := range j.live {
		switch {
		case id.Node != cfg.Node || !cfg.OwnPID(id.PID):
			delete(j.live, id) // recorded when the node had another name or place
		case e.dead():
			delete(j.live, id)
			lost = append(lost, departure{id, time.Now().Unix()})
		}
	}
	for _, e := range append(ended, lost...) {
		j.departed.addAt(e)
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
func (j *Journal) read(path string) (ended []departure) {
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
		j.cfg.Log.Warn("the members of the daemon before this one are not known: those processes cannot "+
			"rejoin", "file", path, "err", err)
		return nil
	}
	whole := &io.LimitedReader{R: f, N: maxJournal}
	lines := bufio.NewScanner(whole)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e Record
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
			j.live[e.Process] = &membership{Record: e}
		}
	}
	if err := lines.Err(); err != nil || whole.N == 0 {
		j.cfg.Log.Warn("not all members of the daemon before this one are known: some processes cannot "+
			"rejoin", "file", path, "err", err)
	}
	return ended[max(0, len(ended)-maxEnded):]
}

// rewrite writes a new file with the live members and the latest ends, and renames it into place.
func (j *Journal) rewrite(ended []departure) error {
	_ = os.Remove(j.path + ".new") // left by a daemon that died while it wrote
	f, err := os.OpenFile(j.path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, e := range j.live {
		_ = enc.Encode(e.Record) // Flush returns the error
	}
	for _, e := range ended[max(0, len(ended)-maxEnded):] {
		_ = enc.Encode(Record{Process: e.ProcessID, Ended: true, At: e.at})
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
func (j *Journal) append(e Record) {
	if j.path == "" {
		return
	}
	b, err := json.Marshal(e)
	if err == nil && j.failed { // the last line may be torn and others may be missing
		err = j.rewrite(j.departed.latest(maxEnded))
	} else if err == nil {
		_, err = j.f.Write(append(b, '\n'))
	}
	if j.lines++; err == nil && j.lines > 4*len(j.live)+4*maxEnded {
		err = j.rewrite(j.departed.latest(maxEnded))
	}
	if err != nil && !j.failed {
		j.cfg.Log.Warn("members cannot be recorded: processes that joined since cannot rejoin at the "+
			"next daemon", "file", j.path, "err", err)
	}
	j.failed = err != nil
}

// Join records a process, of which r says all but hash and start time, and returns its rejoin
// token.
func (j *Journal) Join(r Record) (token string) {
	born, err := unix.Born(r.Real) // without mu: the process can make the kernel delay this
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.path == "" {
		return ""
	}
	token = rand.Text()
	if errors.Is(err, fs.ErrNotExist) {
		return "" // it has ended
	}
	r.Hash, r.Born, r.Nameless = tokenHash(token), born, true
	j.live[r.Process] = &membership{Record: r}
	j.append(r)
	return token
}

// NoteName records that a process has a name, before it has the first one.
func (j *Journal) NoteName(id nodeproto.ProcessID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.live[id]
	if m == nil || !m.Nameless {
		return nil
	}
	m.Nameless = false
	if j.append(m.Record); j.failed {
		m.Nameless = true
		return code.New(code.NoMem, "node %q cannot record that the process has a name, see its log",
			j.cfg.Node)
	}
	return nil
}

// NoteDeparture classifies the end of a process's connection by its error. A connection that this
// daemon ended, or that broke by a malformed packet, says nothing about the process, whose links go
// on. A process that did not read its connection may rejoin, and so may one that was just
// rejoining.
func (j *Journal) NoteDeparture(id nodeproto.ProcessID, err error) {
	ended := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
	switch {
	case j.change(id, memberExpected, memberReturning):
	case errors.Is(err, os.ErrDeadlineExceeded):
		j.change(id, memberExpected, memberJoined)
	case ended:
		if !j.departed.has(id) { // unless the journal has seen it first
			j.departed.add(id)
		}
		j.change(id, memberEnded, memberJoined)
	default: // it sent a malformed packet: it cannot rejoin, and may live on with its links
		j.change(id, memberDropped, memberJoined)
	}
}

// HasDeparted reports whether the process is known to have ended.
func (j *Journal) HasDeparted(id nodeproto.ProcessID) bool { return j.departed.has(id) }

// change changes the state of a live membership that is in one of the states from. It reports
// whether it has.
func (j *Journal) change(id nodeproto.ProcessID, to memberState, from ...memberState) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.live[id]
	if m == nil || !slices.Contains(from, m.state) {
		return false
	}
	j.setState(m, to)
	return true
}

// returning returns the membership of a process that returns by c, or nil. mu is held.
func (j *Journal) returning(id nodeproto.ProcessID, c *nodeproto.Conn) *membership {
	if m := j.live[id]; m != nil && m.state == memberReturning && m.conn == c {
		return m
	}
	return nil
}

// IsReturning reports whether a process returns by c.
func (j *Journal) IsReturning(id nodeproto.ProcessID, c *nodeproto.Conn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.returning(id, c) != nil
}

// EndReturn records that a process has announced everything. It reports whether the process was
// returning by c.
func (j *Journal) EndReturn(id nodeproto.ProcessID, c *nodeproto.Conn) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.returning(id, c)
	if m != nil {
		j.setState(m, memberJoined)
	}
	return m != nil
}

// Session returns the session of a process that may rejoin, or "".
func (j *Journal) Session(id nodeproto.ProcessID) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.live[id]; m != nil {
		return m.Session
	}
	return ""
}

// Intervals between checks whether an expected process has ended.
const (
	minProbeInterval = 20 * time.Millisecond
	maxProbeInterval = time.Second
)

// watch polls until an absent process is present or has ended.
func (j *Journal) watch(m *membership, present <-chan struct{}) {
	t := time.NewTimer(minProbeInterval)
	defer t.Stop()
	for pause := minProbeInterval; ; {
		select {
		case <-present:
			return
		case <-j.cfg.Ended:
			return
		case <-t.C:
		}
		select {
		case <-j.cfg.Ended: // both were, and what follows is for a daemon that goes on
			return
		default:
		}
		if m.dead() {
			j.departed.add(m.Process)
			j.change(m.Process, memberEnded, memberJoined, memberExpected, memberReturning)
			j.cfg.Log.Info("a process has ended before it rejoined", "pid", m.Process.PID, "realpid",
				m.Real)
			return
		}
		pause = min(2*pause, maxProbeInterval)
		t.Reset(pause)
	}
}

// dead reports whether the kernel says that the process has ended.
func (e *Record) dead() bool {
	born, err := unix.Born(e.Real)
	return errors.Is(err, fs.ErrNotExist) || err == nil && born != 0 && e.Born != 0 && born != e.Born
}

// AnyAbsent reports whether a process is absent, whose links are not known yet.
func (j *Journal) AnyAbsent() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.absent) > 0
}

// IsAbsent reports whether pid belongs to a process that may rejoin.
func (j *Journal) IsAbsent(pid uint32) bool { return j.Presence(pid) != nil }

// Presence returns a channel that is closed when an absent process is present or has ended. It is
// nil for another one.
func (j *Journal) Presence(pid uint32) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.absent[pid]; m != nil {
		return m.present
	}
	return nil
}

// AwaitReturn waits until an absent process is present or has ended.
func (j *Journal) AwaitReturn(ctx context.Context, pid uint32) error {
	present := j.Presence(pid)
	if present == nil {
		return nil
	}
	late := time.NewTimer(timeout.Control)
	defer late.Stop()
	return j.await(ctx, pid, present, late.C)
}

// await waits for one of them.
func (j *Journal) await(
	ctx context.Context, pid uint32, present <-chan struct{}, late <-chan time.Time,
) error {
	defer fairshare.Leave(ctx)()
	select {
	case <-present:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d has not come back to node %q, whose daemon was restarted: %w", pid,
			j.cfg.Node, context.Cause(ctx))
	case <-late:
		return code.New(code.Timeout, "process %d has not come back to node %q, whose daemon was "+
			"restarted, within %v: it may be stopped", pid, j.cfg.Node, timeout.Control)
	}
}

// AwaitReturnOf waits until each process of a user and session that is absent now and may have
// names is present or has ended.
func (j *Journal) AwaitReturnOf(ctx context.Context, uid uint32, session string) error {
	return j.awaitAll(ctx, j.absentOf(uid, session))
}

func (j *Journal) awaitAll(ctx context.Context, of map[uint32]<-chan struct{}) error {
	var late <-chan time.Time
	for pid, present := range of {
		if late == nil {
			t := time.NewTimer(timeout.Control)
			defer t.Stop()
			late = t.C
		}
		if err := j.await(ctx, pid, present, late); err != nil {
			return err
		}
	}
	return nil
}

// AwaitReturnOfAll waits until each process that is absent now and may have names is present or has
// ended.
func (j *Journal) AwaitReturnOfAll(ctx context.Context) error {
	j.mu.Lock()
	of := map[uint32]<-chan struct{}{}
	for pid, m := range j.absent {
		if !m.Nameless {
			of[pid] = m.present
		}
	}
	j.mu.Unlock()
	return j.awaitAll(ctx, of)
}

// AbsentUsers returns the users with processes that are absent now and may have names. changes is
// how often a process has become absent.
func (j *Journal) AbsentUsers() (uids []uint32, changes uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.absent {
		if !m.Nameless && !slices.Contains(uids, m.UID) {
			uids = append(uids, m.UID)
		}
	}
	slices.Sort(uids)
	return uids, j.absences
}

// absentOf returns the channels of the absent processes of a user and session that may have names,
// see Presence.
func (j *Journal) absentOf(uid uint32, session string) map[uint32]<-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := map[uint32]<-chan struct{}{}
	for pid, m := range j.absent {
		if m.UID == uid && m.Session == session && !m.Nameless {
			of[pid] = m.present
		}
	}
	return of
}

// BeginReturn authenticates a process that rejoins by c: by the kernel's pid and start time of the
// program, its user, and its rejoin token. From then on the process is returning, unless it has
// another connection.
func (j *Journal) BeginReturn(
	r *nodeproto.RejoinRequest, cred unix.Cred, c *nodeproto.Conn, connected bool,
) (Record, error) {
	born, err := unix.Born(cred.PID) // without mu, see Join
	j.mu.Lock()
	defer j.mu.Unlock()
	inProgress := code.New(code.InProgress, "process %d has a connection with node %q still",
		r.Process.PID, j.cfg.Node)
	x := j.absent[r.Process.PID]
	if x == nil {
		if j.live[r.Process] != nil {
			return Record{}, inProgress
		}
		return Record{}, code.New(code.NoSuchProcess, "node %q does not know process %d: the "+
			"daemon that it joined has not recorded it, or took it for ended; open another one",
			j.cfg.Node, r.Process.PID)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Record{}, code.New(code.NoMem,
			"node %q cannot check the process that rejoins as %d: %v", j.cfg.Node, r.Process.PID, err)
	}
	if err != nil || r.Process != x.Process || cred.UID != x.UID || cred.PID != x.Real ||
		x.Born != 0 && born != x.Born ||
		subtle.ConstantTimeCompare([]byte(tokenHash(r.Pass)), []byte(x.Hash)) != 1 {
		return Record{}, code.New(code.NoRights,
			"this program (%d of user %d) is not process %d of node %q", cred.PID, cred.UID, r.Process.PID,
			j.cfg.Node)
	}
	if connected || x.state == memberReturning {
		return Record{}, inProgress
	}
	j.setState(x, memberReturning)
	x.conn = c
	return x.Record, nil
}

// Close ends the writing, with the socket's lock held. It removes the file if the next daemon has
// no use for it, and reports whether a process that has joined lives, which waits for that daemon.
// served reports whether the node listened for other nodes, which may ask about ended processes.
func (j *Journal) Close(served bool) (awaited bool) {
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
	asked := served && (len(j.live) > 0 || j.departed.asked())
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
