package unix

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// IO is the argument block of the raw transfer calls. The socket's owner keeps it, so
// that no call allocates. One goroutine at a time may use one block.
type IO struct {
	msg sys.Msghdr
	vec [2]sys.Iovec
}

// vectors are for calls with more pieces, of which few are under way at a time.
var vectors = sync.Pool{New: func() any { return new([MaxPieces]sys.Iovec) }}

// again are the errors after which the same call may be tried later.
func again(e syscall.Errno) bool { return e == sys.EAGAIN || e == sys.EINTR }

// set points the block's own vector at one or two pieces.
func (io *IO) set(pieces ...[]byte) { io.point(io.vec[:], pieces) }

// point makes vec the pieces, and vec what the call is about.
func (io *IO) point(vec []sys.Iovec, pieces [][]byte) {
	n := 0
	for _, s := range pieces {
		if len(s) > 0 {
			vec[n].Base = &s[0]
			vec[n].SetLen(len(s))
			n++
		}
	}
	io.msg.Iov = &vec[0]
	io.msg.SetIovlen(n)
}

// clear drops the pointers, so that the block keeps no caller's memory alive.
func (io *IO) clear() { clear(io.vec[:]) }

// Send writes a and then b without ever blocking, whatever the flags of the
// description say (the other holder of a description can change them). n is 0
// with a nil error when the socket has no room. It is a raw call: it does not
// tell the scheduler, so it must stay short.
func (io *IO) Send(fd int, a, b []byte) (n int, err error) {
	var r uintptr
	var e syscall.Errno
	if len(b) == 0 {
		r, _, e = sys.RawSyscall6(sys.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)), sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL, 0, 0)
		runtime.KeepAlive(a)
	} else {
		io.set(a, b)
		r, _, e = sys.RawSyscall6(sys.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&io.msg)), sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL, 0, 0, 0)
		io.clear()
	}
	if e != 0 {
		if again(e) {
			return 0, nil
		}
		return 0, e
	}
	return int(r), nil
}

// SendPieces is Send of up to [MaxPieces] pieces, one after another.
func (io *IO) SendPieces(fd int, pieces [][]byte) (n int, err error) {
	vec := vectors.Get().(*[MaxPieces]sys.Iovec)
	io.point(vec[:], pieces)
	r, _, e := sys.RawSyscall6(sys.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&io.msg)), sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL, 0, 0, 0)
	io.msg.Iov = nil
	clear(vec[:len(pieces)])
	vectors.Put(vec)
	if e != 0 {
		if again(e) {
			return 0, nil
		}
		return 0, e
	}
	return int(r), nil
}

// Recv fills a and then b with what is there. n is 0 with a nil error when
// nothing is; io.EOF when the peer has closed. Raw and non-blocking as Send.
func (io *IO) Recv(fd int, a, b []byte) (n int, err error) {
	var r uintptr
	var e syscall.Errno
	if len(b) == 0 {
		r, _, e = sys.RawSyscall6(sys.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)), sys.MSG_DONTWAIT, 0, 0)
		runtime.KeepAlive(a)
	} else {
		io.set(a, b)
		r, _, e = sys.RawSyscall6(sys.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&io.msg)), sys.MSG_DONTWAIT, 0, 0, 0)
		io.clear()
	}
	return outcome(r, e)
}

// Piecewise makes each [IO.Peek] of a TCP socket begin where the last one ended,
// and reports whether it could: kernels before 6.9 have it for other sockets only.
func Piecewise(fd int) bool {
	p, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PROTOCOL)
	return err == nil && p == sys.IPPROTO_TCP &&
		sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PEEK_OFF, 0) == nil
}

// GiveUpAfter makes the kernel end a TCP connection whose far end has acknowledged nothing for so
// long, though there was something to acknowledge: if nothing is sent, it asks now and then. On
// others it does nothing.
func GiveUpAfter(fd int, d time.Duration) {
	if p, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PROTOCOL); err != nil ||
		p != sys.IPPROTO_TCP {
		return
	}
	for _, o := range [...]struct{ level, name, value int }{
		{sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, int(max(d.Milliseconds(), 1))},
		{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, seconds(d / 2)},
		{sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, seconds(d / 4)},
		{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1},
	} {
		_ = sys.SetsockoptInt(fd, o.level, o.name, o.value) // there since Linux 2.6.37
	}
}

// Unacknowledged is how long ago the far end of a TCP socket has acknowledged anything, if there is
// something that it has not acknowledged: bytes, or two probes of its window in a row. It is 0
// otherwise.
func Unacknowledged(fd int) time.Duration {
	i, err := sys.GetsockoptTCPInfo(fd, sys.IPPROTO_TCP, sys.TCP_INFO)
	if err != nil || i.Unacked == 0 && i.Probes < 2 {
		return 0
	}
	return time.Duration(i.Last_ack_recv) * time.Millisecond
}

// seconds rounds up, to at least one.
func seconds(d time.Duration) int { return int(max(d+time.Second-1, time.Second) / time.Second) }

// Unsent is how many bytes a TCP socket has taken that the far end has not acknowledged.
func Unsent(fd int) int {
	n, err := sys.IoctlGetInt(fd, sys.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// LongestSegment is what a TCP socket takes the longest segment of its far end to be: it
// acknowledges when more bytes than that have come, if not before.
func LongestSegment(fd int) (int, error) {
	i, err := sys.GetsockoptTCPInfo(fd, sys.IPPROTO_TCP, sys.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("TCP_INFO: %w", err)
	}
	return int(i.Rcv_mss), nil
}

// RoundTrip is the shortest that a TCP socket has seen, at first that of its handshake; 0 if it has
// seen none, or is no TCP socket.
func RoundTrip(fd int) time.Duration {
	i, err := sys.GetsockoptTCPInfo(fd, sys.IPPROTO_TCP, sys.TCP_INFO)
	if err != nil || i.Min_rtt == math.MaxUint32 {
		return 0
	}
	return time.Duration(i.Min_rtt) * time.Microsecond
}

// BoundSend bounds what a socket takes before the far end has acknowledged it, to twice n bytes,
// the kernel's own of each segment included, and ends its growing by itself. The kernel may bound
// it to less (net.core.wmem_max).
func BoundSend(fd, n int) { _ = sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_SNDBUF, n) }

// BeginUnpaced is for a net.Dialer or a net.ListenConfig whose connections may have a near end:
// none begins with BBR, which has what it sends leave at the rate that it has found out. It must
// not even begin: Linux goes on to pace a connection that BBR has begun, at twice the rate of the
// next one's window, which does not grow while it is not full (tcp_update_pacing_rate; there is no
// way back from SK_PACING_NEEDED). Accepted connections have what their listener has, so one that
// began before BBR became the system's lets them begin with it. See Pace.
func BeginUnpaced(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { Unpace(int(fd)) })
}

// Pace gives a connection that began unpaced the congestion control that new connections of this
// process have. If the process may not choose that one, the connection stays unpaced. Pace also
// overrides a route's own choice of Reno.
func Pace(fd int) {
	if Congestion(fd) != unpaced {
		return
	}
	fresh, err := sys.Socket(sys.AF_INET, sys.SOCK_STREAM|sys.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	restore(fd, Congestion(fresh))
	_ = sys.Close(fresh)
}

func restore(fd int, system string) {
	if system != "" && system != unpaced {
		_ = sys.SetsockoptString(fd, sys.IPPROTO_TCP, sys.TCP_CONGESTION, system)
	}
}

const unpaced = "reno" // which each kernel has

func paces(congestion string) bool { return strings.HasPrefix(congestion, "bbr") }

// Unpace has Reno's congestion control in the place of BBR's.
func Unpace(fd int) {
	if paces(Congestion(fd)) {
		_ = sys.SetsockoptString(fd, sys.IPPROTO_TCP, sys.TCP_CONGESTION, unpaced)
	}
}

// Congestion is the congestion control of a TCP socket, as the kernel names it; "" if it is no TCP
// socket.
func Congestion(fd int) string {
	name, _ := sys.GetsockoptString(fd, sys.IPPROTO_TCP, sys.TCP_CONGESTION)
	return name
}

// Peek is Recv that leaves in the socket what it gives.
func (io *IO) Peek(fd int, a []byte) (n int, err error) {
	r, _, e := sys.RawSyscall6(sys.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&a[0])), uintptr(len(a)), sys.MSG_DONTWAIT|sys.MSG_PEEK, 0, 0)
	runtime.KeepAlive(a)
	return outcome(r, e)
}

// Discard takes n bytes, which were peeked at, out of a TCP socket. They are not
// copied.
func (io *IO) Discard(fd, n int) (int, error) {
	r, _, e := sys.RawSyscall6(sys.SYS_RECVFROM, uintptr(fd), 0, uintptr(n), sys.MSG_DONTWAIT|sys.MSG_TRUNC, 0, 0)
	return outcome(r, e)
}

// outcome is what a receive call has given.
func outcome(r uintptr, e syscall.Errno) (n int, err error) {
	switch {
	case e != 0 && again(e):
		return 0, nil
	case e != 0:
		return 0, e
	case r == 0:
		return 0, errEOF
	}
	return int(r), nil
}

var errEOF = io.EOF

// StreamPair makes two joined stream sockets.
func StreamPair() (a, b int, err error) {
	p, err := sys.Socketpair(sys.AF_UNIX, sys.SOCK_STREAM|sys.SOCK_CLOEXEC|sys.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("socketpair: %w", err)
	}
	return p[0], p[1], nil
}

// PacketPair makes two joined sockets that keep the boundaries of packets.
func PacketPair() (a, b int, err error) {
	p, err := sys.Socketpair(sys.AF_UNIX, sys.SOCK_SEQPACKET|sys.SOCK_CLOEXEC|sys.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("socketpair: %w", err)
	}
	return p[0], p[1], nil
}

// IsStream returns an error unless a received descriptor is a stream socket. Nothing
// else may be given to the link engine.
func IsStream(fd int) error {
	t, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_TYPE)
	if err != nil {
		return fmt.Errorf("received descriptor is no socket: %w", err)
	}
	if t != sys.SOCK_STREAM {
		return errors.New("received descriptor is no stream socket")
	}
	return nil
}

// TakeOver duplicates the descriptor under a connection and closes the
// connection. net.Conn.File is not used: it makes the description, which both
// holders share, blocking.
func TakeOver(c syscall.Conn) (int, error) {
	fd, err := Borrow(c)
	if cl, ok := c.(io.Closer); ok {
		_ = cl.Close()
	}
	return fd, err
}

// Adopt makes a connection of the descriptor of a connected TCP socket, which it owns, also
// when it fails.
func Adopt(fd int) (*net.TCPConn, error) {
	f := os.NewFile(uintptr(fd), "link")
	if f == nil {
		return nil, errors.New("received descriptor is not open")
	}
	defer func() { _ = f.Close() }()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("received descriptor: %w", err)
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("received descriptor is no TCP socket")
	}
	return t, nil
}

// Borrow duplicates the descriptor under a connection, which stays open.
func Borrow(c syscall.Conn) (int, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("take over connection: %w", err)
	}
	fd := -1
	var derr error
	if err := rc.Control(func(f uintptr) { fd, derr = Dup(int(f)) }); err != nil {
		return -1, fmt.Errorf("take over connection: %w", err)
	}
	return fd, derr
}

// ReceivePacket takes one packet of a connection that keeps their boundaries, with the control
// message beside it. It does not wait: ok reports whether there was a packet, the end, or an error.
// n is 0 at the end.
func ReceivePacket(fd int, b, oob []byte) (n, on, flags int, ok bool, err error) {
	for {
		n, on, flags, _, err = sys.Recvmsg(fd, b, oob, sys.MSG_DONTWAIT|sys.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, sys.EINTR):
			continue
		case errors.Is(err, sys.EAGAIN):
			return 0, 0, 0, false, nil
		}
		return max(n, 0), on, flags, true, err
	}
}

// RecvPacket is [ReceivePacket] once there is a packet. buffers gives room for it when the
// kernel is asked, which may be in vain: then again is called.
func RecvPacket(
	c syscall.RawConn, buffers func() (b, oob []byte), again func(),
) (n, on, flags int, err error) {
	rerr := c.Read(func(f uintptr) (ok bool) {
		b, oob := buffers()
		if n, on, flags, ok, err = ReceivePacket(int(f), b, oob); !ok {
			again()
		}
		return ok
	})
	if rerr != nil {
		return 0, 0, 0, rerr
	}
	return n, on, flags, err
}

// LookForPacket is [ReceivePacket] of a connection.
func LookForPacket(c syscall.RawConn, b, oob []byte) (n, on, flags int, ok bool, err error) {
	if cerr := c.Control(func(f uintptr) { n, on, flags, ok, err = ReceivePacket(int(f), b, oob) }); cerr != nil {
		return 0, 0, 0, true, cerr
	}
	return n, on, flags, ok, err
}

// HungUp reports whether the far end of a connection is closed, without reading from it.
func HungUp(c syscall.RawConn) (gone bool) {
	err := c.Control(func(f uintptr) {
		p := []sys.PollFd{{Fd: int32(f)}}
		n, err := sys.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(sys.POLLHUP|sys.POLLERR) != 0
	})
	return gone || err != nil
}

// PeerCred returns the credentials of the process at the other end of a unix socket.
func PeerCred(c *net.UnixConn) (Cred, error) {
	rc, err := c.SyscallConn()
	if err != nil {
		return Cred{}, err
	}
	var u *sys.Ucred
	var groups []uint32
	var uerr error
	if err := rc.Control(func(f uintptr) {
		u, uerr = sys.GetsockoptUcred(int(f), sys.SOL_SOCKET, sys.SO_PEERCRED)
		groups = peerGroups(int(f))
	}); err != nil {
		return Cred{}, err
	}
	if uerr != nil {
		return Cred{}, fmt.Errorf("peer credentials: %w", uerr)
	}
	return Cred{PID: int(u.Pid), UID: u.Uid, GID: u.Gid, Groups: groups}, nil
}

// Rights packs descriptors into a control message.
func Rights(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return sys.UnixRights(fds...)
}

// RightsSpace is the room that n descriptors take in a control message.
func RightsSpace(n int) int { return sys.CmsgSpace(4 * n) }

// ParseRights takes the descriptors out of a control message. flags are those that came with it: a
// truncated one means that this process has run out of descriptors (the kernel drops them without
// another sign). On an error it closes the received descriptors: it is for messages of a trusted
// peer. See [Received].
func ParseRights(oob []byte, flags int) ([]int, error) {
	fds, err := Received(oob, flags)
	if err != nil {
		for _, fd := range fds {
			_ = Close(fd)
		}
		return nil, err
	}
	return fds, nil
}

// Received takes the descriptors out of a control message, as [ParseRights] does. They are the
// caller's, also with an error, and foreign: see package foreign.
func Received(oob []byte, flags int) (fds []int, err error) {
	msgs, err := sys.ParseSocketControlMessage(oob)
	for i := range msgs {
		if got, perr := sys.ParseUnixRights(&msgs[i]); perr == nil {
			fds = append(fds, got...)
		}
	}
	if flags&sys.MSG_CTRUNC != 0 {
		err = ErrLost
	}
	return fds, err
}
