package members

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
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

// Session returns the session of a process that may rejoin, or "".
func (j *Journal) Session(id nodeproto.ProcessID) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.live[id]; m != nil {
		return m.Session
	}
	return ""
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
