package unix

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	sys "golang.org/x/sys/unix"
)

// borrowedSocket is a socket of a C program, whose mode stays as it is: Go's own connections would have calls
// of the program fail with EAGAIN. Reads and writes have one deadline.
type borrowedSocket struct {
	fd       int
	deadline atomic.Int64 // in nanoseconds of Unix time; 0: none
}

// socketPoll bounds how long a wait does not see that the deadline has changed.
const socketPoll = 20 * time.Millisecond

// BorrowSocket is a connection by a socket that a C program has connected. Close leaves the program's
// descriptor open.
func BorrowSocket(fd int) (net.Conn, error) {
	if _, err := sys.Getpeername(fd); err != nil {
		return nil, os.NewSyscallError("getpeername", err)
	}
	own, err := sys.FcntlInt(uintptr(fd), sys.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	return &borrowedSocket{fd: own}, nil
}

func (s *borrowedSocket) Close() error { return sys.Close(s.fd) }

func (*borrowedSocket) LocalAddr() net.Addr { return &net.UnixAddr{} }

func (*borrowedSocket) RemoteAddr() net.Addr { return &net.UnixAddr{} }

func (s *borrowedSocket) SetReadDeadline(t time.Time) error { return s.SetDeadline(t) }

func (s *borrowedSocket) SetWriteDeadline(t time.Time) error { return s.SetDeadline(t) }

func (s *borrowedSocket) SetDeadline(t time.Time) error {
	at := int64(0)
	if !t.IsZero() {
		at = t.UnixNano()
	}
	s.deadline.Store(at)
	return nil
}

// wait waits until the socket is ready.
func (s *borrowedSocket) wait(events int16) error {
	for {
		if at := s.deadline.Load(); at != 0 && time.Now().UnixNano() >= at {
			return os.ErrDeadlineExceeded
		}
		fds := []sys.PollFd{{Fd: int32(s.fd), Events: events}}
		n, err := sys.Poll(fds, int(socketPoll/time.Millisecond))
		if err != nil && !errors.Is(err, sys.EINTR) {
			return os.NewSyscallError("poll", err)
		}
		if n > 0 {
			return nil
		}
	}
}

func (s *borrowedSocket) Read(b []byte) (int, error) {
	for {
		if err := s.wait(sys.POLLIN); err != nil {
			return 0, err
		}
		n, _, err := sys.Recvfrom(s.fd, b, sys.MSG_DONTWAIT)
		switch {
		case errors.Is(err, sys.EAGAIN), errors.Is(err, sys.EINTR):
		case err != nil:
			return 0, os.NewSyscallError("recv", err)
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (s *borrowedSocket) Write(b []byte) (sent int, err error) {
	for sent < len(b) {
		if err := s.wait(sys.POLLOUT); err != nil {
			return sent, err
		}
		n, err := sys.SendmsgN(s.fd, b[sent:], nil, nil, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, sys.EAGAIN), errors.Is(err, sys.EINTR):
		case err != nil:
			return sent, os.NewSyscallError("send", err)
		default:
			sent += n
		}
	}
	return sent, nil
}
