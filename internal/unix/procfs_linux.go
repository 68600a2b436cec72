package unix

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"
)

// ErrExecuting is why a process cannot be looked at.
var ErrExecuting = errors.New("the process is executing a program, and the kernel lets nobody look at it meanwhile")

// maxLooks bounds the looks at processes of one user at a time. Each takes a thread.
const maxLooks = 4

// looks are those at processes that have not returned.
//
// From Linux 6.18 on no process, not even root's, can read /proc/PID/stat, environ, fd/ and others
// while the process executes a program. The process's owner can make that last: exec closes
// descriptors, and closing a file of a FUSE server waits for the server. Earlier kernels block
// reads of environ in the same way.
type looks struct {
	mu    sync.Mutex
	users map[uint32]*userLooks
	stuck map[int]bool // processes
}

type userLooks struct {
	slots chan struct{}
	all   int // looks that have not returned, and those that wait for a slot
	stuck int
}

var looking = looks{users: map[uint32]*userLooks{}, stuck: map[int]bool{}}

// LookAt runs look, which reads files of /proc about a process, and waits for it, but not for long:
// see [ErrExecuting]. look goes on then, and must not use what its caller uses.
func LookAt(pid int, patience time.Duration, look func()) error {
	status, err := Status(pid)
	if err != nil {
		return err
	}
	return looking.at(pid, status.UID, patience, look)
}

func (l *looks) at(pid int, uid uint32, patience time.Duration, look func()) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	l.mu.Lock()
	u := l.users[uid]
	if u == nil {
		u = &userLooks{slots: make(chan struct{}, maxLooks)}
		l.users[uid] = u
	}
	if l.stuck[pid] || u.stuck >= maxLooks {
		l.mu.Unlock()
		return ErrExecuting
	}
	u.all++
	l.mu.Unlock()
	select {
	case u.slots <- struct{}{}:
	case <-late.C:
		l.mu.Lock()
		l.drop(uid, u)
		l.mu.Unlock()
		return ErrExecuting
	}
	over, stuck := make(chan struct{}), false // stuck: guarded by mu
	go func() {
		look()
		<-u.slots
		l.mu.Lock()
		defer l.mu.Unlock()
		if stuck {
			u.stuck--
			delete(l.stuck, pid)
		}
		l.drop(uid, u)
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-late.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-over:
		return nil
	default:
	}
	u.stuck++
	stuck, l.stuck[pid] = true, true
	return ErrExecuting
}

// drop ends a look. The caller holds mu.
func (l *looks) drop(uid uint32, u *userLooks) {
	if u.all--; u.all == 0 {
		delete(l.users, uid)
	}
}

// ProcessStatus is what any user can read about any process at any time.
type ProcessStatus struct {
	Parent  int
	UID     uint32 // real
	State   byte   // as ps(1) shows it
	Threads int
}

// Dead reports whether the process has ended and is not waited for yet. One whose first thread has
// ended is listed as a zombie too, and goes on.
func (s ProcessStatus) Dead() bool { return s.State == 'X' || s.State == 'Z' && s.Threads <= 1 }

// Status reads /proc/PID/status, which the kernel lets be read while the process executes a
// program.
func Status(pid int) (s ProcessStatus, err error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return s, err
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		n, _ := strconv.ParseUint(string(f[1]), 10, 32)
		// Name is the only one that has anything of the process's in it, and is escaped
		switch string(f[0]) {
		case "State:":
			s.State = f[1][0]
		case "PPid:":
			s.Parent = int(n)
		case "Uid:":
			s.UID = uint32(n)
		case "Threads:":
			s.Threads = int(n)
		}
	}
	if s.State == 0 {
		return s, fmt.Errorf("process %d: %w", pid, fs.ErrNotExist)
	}
	return s, nil
}
