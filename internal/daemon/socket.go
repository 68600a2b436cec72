package daemon

import (
	"bytes"
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
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// unixSocket is where local processes come. Beside it lies a lock, which the
// kernel frees when the daemon dies however it dies, so the next start knows
// that it may take the socket over; the lock file also keeps the count of
// logical pids given out, so that none is given twice across restarts.
type unixSocket struct {
	l    *net.UnixListener
	lock *os.File // nil for a socket without a file
	next uint32   // logical pids given out; with the node's mu
	kept uint32   // up to here the lock file says they are
}

func listenUnix(path string) (*unixSocket, error) {
	if path == "" {
		return nil, code.New(code.BadConfig, "no socket path for local processes")
	}
	if err := local.CheckPath(path); err != nil {
		return nil, err
	}
	s := &unixSocket{}
	if !strings.HasPrefix(path, "@") {
		if err := s.takeOver(path); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		s.close()
		return nil, code.New(code.BadConfig, "listen for processes: %v", err)
	}
	s.l = l
	if s.lock != nil {
		// Anyone may connect to the system's daemon; who they are comes from the
		// kernel. A user's own daemon serves that user.
		mode := os.FileMode(0o600)
		if os.Getuid() == 0 || unix.MaySwitchUsers() {
			mode = 0o666
		}
		if err := os.Chmod(path, mode); err != nil {
			s.close()
			return nil, fmt.Errorf("socket mode: %w", err)
		}
	}
	return s, nil
}

func (s *unixSocket) takeOver(path string) error {
	mode := os.FileMode(0o700)
	if os.Getuid() == 0 || unix.MaySwitchUsers() {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
		return code.New(code.BadConfig, "directory of the socket: %v", err)
	}
	lock, err := unix.LockFile(path + ".lock")
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return code.New(code.BadConfig, "another vmmcd serves %s (it holds %s.lock): stop it, or give this one another socket", path, path)
	}
	if err != nil {
		return code.New(code.BadConfig, "lock of the socket: %v", err)
	}
	s.lock = lock
	b, err := io.ReadAll(io.LimitReader(lock, 64))
	if n, perr := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 32); err == nil && perr == nil {
		s.next, s.kept = uint32(n), uint32(n)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return code.New(code.BadConfig, "remove the socket of a daemon that died: %v", err)
	}
	return nil
}

// block is how many logical pids a node has; each node's begin at its place in
// the hosts file, so they are unique in the cluster.
const block = 1_000_000

// pid gives out the next logical pid of the node at place index. The lock file
// is written ahead, 256 at a time.
func (s *unixSocket) pid(index int) uint32 {
	s.next = s.next%(block-1) + 1
	if s.lock != nil && (s.next > s.kept || s.kept-s.next > 256) {
		s.kept = s.next + 255
		_, _ = s.lock.WriteAt([]byte(fmt.Sprintf("%-10d\n", s.kept)), 0)
	}
	return uint32(index)*block + s.next
}

func (s *unixSocket) close() {
	if s.l != nil {
		_ = s.l.Close() // removes the socket too
	}
	if s.lock != nil {
		_ = s.lock.Close()
	}
}
