package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// unixSocket is where local processes come. Beside it lies a lock, which the
// kernel frees when the daemon dies however it dies, so the next start knows
// that it may take the socket over; the lock file also keeps the count of
// logical pids given out, so that none is given twice across restarts, and stays for that.
type unixSocket struct {
	l    *net.UnixListener
	lock *os.File // nil for a socket without a file
	next uint32   // logical pids given out. Guarded by registry.mu.
	kept uint32   // up to here the files say they are

	state *os.File // keeps the count too, because sessions outlive the socket's directory
}

func listenUnix(path string) (*unixSocket, error) {
	if path == "" {
		return nil, code.New(code.BadConfig, "no socket path for local processes")
	}
	if err := nodeproto.CheckPath(path); err != nil {
		return nil, err
	}
	s := &unixSocket{}
	if !strings.HasPrefix(path, "@") {
		if err := s.takeOver(path); err != nil {
			return nil, err
		}
	}
	// A connection takes descriptors when it is taken on (nodeproto.NewBoundedConn), and none
	// before: what is queued in one that is refused would be the daemon's to close.
	c := net.ListenConfig{Control: unix.TakesNoRights}
	l, err := c.Listen(context.Background(), "unixpacket", path)
	if err != nil {
		s.unlock()
		return nil, code.New(code.BadConfig, "listen for processes: %v", err)
	}
	s.l = l.(*net.UnixListener)
	if s.lock != nil {
		// Every user may connect to the system's daemon, and the kernel names the user. A user's own
		// daemon serves that user.
		mode := os.FileMode(0o600)
		if forAll() {
			mode = 0o666
		}
		if err := unix.ChmodSocket(path, mode); err != nil {
			s.hangUp()
			s.unlock()
			return nil, fmt.Errorf("socket mode: %w", err)
		}
	}
	return s, nil
}

// forAll reports whether this is the system's daemon, and not a user's own.
func forAll() bool { return os.Getuid() == 0 || unix.MaySwitchUsers() }

func (s *unixSocket) takeOver(path string) error {
	mode := os.FileMode(0o700)
	if forAll() {
		mode = 0o755
	}
	// Files beside the socket are written, and programs believe what listens there.
	if _, err := trust.Own().Make(filepath.Dir(path), mode); err != nil {
		return code.New(code.BadConfig,
			"directory of the socket: %v: name another one with --socket or %s", err, nodeproto.Env)
	}
	lock, err := unix.LockFile(path + ".lock")
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return code.New(code.BadConfig,
			"another vmmcd serves %s (it holds %s.lock): stop it, or give this one another socket", path,
			path)
	}
	if err != nil {
		return code.New(code.BadConfig, "lock of the socket: %v", err)
	}
	s.lock = lock
	s.next = countIn(lock)
	s.kept = s.next
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return code.New(code.BadConfig, "remove the socket of a daemon that died: %v", err)
	}
	return nil
}

// ring wakes the processes that wait for a daemon: this one accepts connections.
func (s *unixSocket) ring() error {
	switch {
	case s.lock == nil: // an abstract socket: no process waits for the next daemon
		return nil
	case forAll():
		return unix.RingBell(nodeproto.BellPath(s.l.Addr().String()), 0o644)
	}
	return unix.RingBell(nodeproto.BellPath(s.l.Addr().String()), 0o600)
}

// removeBell is for a node that no process waits to come back to.
func (s *unixSocket) removeBell() {
	if s.lock != nil {
		_ = os.Remove(nodeproto.BellPath(s.l.Addr().String()))
	}
}

// countIn is how many logical pids a file says were given out.
func countIn(f *os.File) uint32 {
	b, err := io.ReadAll(io.LimitReader(f, 64))
	n, perr := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 32)
	if err != nil || perr != nil {
		return 0
	}
	return uint32(n)
}

// keepIn keeps the count in another file too, and goes on from what that says.
func (s *unixSocket) keepIn(f *os.File) {
	s.state, s.next, s.kept = f, max(s.next, countIn(f)), 0
}

// pid gives out the next logical pid of the node at place index. The files
// are written ahead, 256 at a time.
func (s *unixSocket) pid(index int) uint32 {
	s.next = s.next%(peers.PIDBlock-1) + 1
	if s.next > s.kept || s.kept-s.next > 256 {
		s.kept = s.next + 255
		for _, f := range []*os.File{s.lock, s.state} {
			if f != nil {
				_, _ = f.WriteAt([]byte(fmt.Sprintf("%-10d\n", s.kept)), 0)
			}
		}
	}
	return uint32(index)*peers.PIDBlock + s.next
}

// hangUp ends the listening, and the connections that were not accepted, in which descriptors may
// be.
func (s *unixSocket) hangUp() {
	from := foreign.From("connections that were not accepted")
	foreign.HangUp(s.l, from) // removes the socket too
	from.Release()
}

// unlock lets another daemon have the socket: the last step, after which nothing beside it is this
// one's.
func (s *unixSocket) unlock() {
	if s.lock != nil {
		_ = s.lock.Close()
	}
}
