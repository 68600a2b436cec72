package unix

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// MaxRights is the most descriptors that one message brings (SCM_MAX_FD). A receiver that has room
// for as many never has the kernel drop one for lack of room. That matters: the kernel closes what
// it drops within the receiver's call, which then takes as long as the sender's file likes.
const MaxRights = 253

// RefuseRights has the kernel refuse descriptors that are sent to a unix socket: their sender gets
// EPERM. It reports whether the kernel does that (Linux 6.16). Descriptors that were sent before
// still come.
func RefuseRights(fd int) bool {
	return sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PASSRIGHTS, 0) == nil
}

// AwaitRights ends what [RefuseRights] began.
func AwaitRights(fd int) { _ = sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_PASSRIGHTS, 1) }

// TakesNoRights is [RefuseRights] for a net.Dialer or a net.ListenConfig. Connections that a
// listener accepts refuse too, from the moment that they were dialled. On a socket that is no unix
// socket it does nothing.
func TakesNoRights(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { RefuseRights(int(fd)) })
}

// IsMemory reports whether a received descriptor is memory (a memfd, or a file of a tmpfs). The
// kernel answers that itself. It asks no file system, which might never answer: fstat would.
func IsMemory(fd int) bool {
	_, err := sys.FcntlInt(uintptr(fd), sys.F_GET_SEALS, 0)
	return err == nil
}

// ClosesAtOnce reports whether closing a received descriptor takes no time, whatever its sender
// does. That is so of memory and of pipes.
func ClosesAtOnce(fd int) bool {
	if IsMemory(fd) {
		return true
	}
	_, err := sys.FcntlInt(uintptr(fd), sys.F_GETPIPE_SZ, 0)
	return err == nil
}

// IsLocalStream refuses each received descriptor but a stream socket of this machine (AF_UNIX).
// Sockets of other families have options by which a peer that holds them too makes closing them
// slow, or an event never clear.
func IsLocalStream(fd int) error {
	if err := IsStream(fd); err != nil {
		return err
	}
	family, err := sys.GetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_DOMAIN)
	if err != nil {
		return fmt.Errorf("received descriptor: %w", err)
	}
	if family != sys.AF_UNIX {
		return fmt.Errorf("received descriptor is a stream socket of address family %d, wanted a unix socket (%d)", family, sys.AF_UNIX)
	}
	// A byte out of band brings its descriptors past the receiver, into a call that drops them.
	return sys.SetsockoptInt(fd, sys.SOL_SOCKET, sys.SO_OOBINLINE, 1)
}

// rightsRoom is a control message of the largest size, aligned as the kernel has them.
type rightsRoom [(sys.SizeofCmsghdr + 4*MaxRights + 7) / 8]uint64

// Passed are the descriptors that came over a stream socket, one with each frame that announces
// one, and room for more. They are in the order of their frames, of which the receive calls know
// nothing. Each is foreign (see package foreign), and its taker's.
type Passed struct {
	Came func(fds []int) // is told of all that come; may be nil

	room   rightsRoom
	fds    []int // -1: lost on the way, or its sender did not keep to one
	strays []int // that came with others
}

// Len is how many frames have brought some that were not taken.
func (p *Passed) Len() int { return len(p.fds) }

// Take gives the oldest, or -1.
func (p *Passed) Take() int {
	if len(p.fds) == 0 {
		return -1
	}
	fd := p.fds[0]
	p.fds = p.fds[1:]
	return fd
}

// Rest takes all that are there, those too that Take does not give.
func (p *Passed) Rest() []int {
	rest := slices.DeleteFunc(append(p.fds, p.strays...), func(fd int) bool { return fd < 0 })
	p.fds, p.strays = nil, nil
	return rest
}

func (p *Passed) put(length, flags int) {
	fds, err := Received(unsafe.Slice((*byte)(unsafe.Pointer(&p.room)), length), flags)
	if p.Came != nil {
		p.Came(fds)
	}
	if err != nil || len(fds) != 1 { // this process is at its limit, or the peer does not keep to one
		p.strays = append(p.strays, fds...)
		fds = []int{-1}
	}
	p.fds = append(p.fds, fds...)
}

// RecvPassed is [IO.Recv] that takes descriptors too, all that come. The kernel ends a call behind
// the bytes that they were sent with. Unlike the other calls of an IO it tells the scheduler, for
// it may block all the same: the kernel drops what this process has no numbers left for.
func (io *IO) RecvPassed(fd int, a, b []byte, p *Passed) (n int, err error) {
	io.set(a, b)
	io.msg.Control = (*byte)(unsafe.Pointer(&p.room))
	io.msg.SetControllen(int(unsafe.Sizeof(p.room)))
	r, _, e := sys.Syscall6(sys.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&io.msg)), sys.MSG_DONTWAIT|sys.MSG_CMSG_CLOEXEC, 0, 0, 0)
	length, flags := int(io.msg.Controllen), int(io.msg.Flags)
	io.msg.Control, io.msg.Controllen, io.msg.Flags = nil, 0, 0
	io.clear()
	if e == 0 && (length > 0 || flags&sys.MSG_CTRUNC != 0) {
		p.put(length, flags)
	}
	return outcome(r, e)
}

// RightsLost is the flag of a message of which descriptors were lost, or did not fit the
// receiver's buffer.
const RightsLost = sys.MSG_CTRUNC

// SendRights sends b with descriptors, which stay the caller's, and does not wait.
func SendRights(fd int, b []byte, fds []int) error {
	return sys.Sendmsg(fd, b, Rights(fds), nil, sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
}

// NoRightsQueued reports whether no descriptors wait in the receive queue of a unix socket, which
// then closes at once. After [Shutdown] the answer stays true. Where the kernel does not say
// (before Linux 5.11, or without /proc) it is false.
func NoRightsQueued(fd int) bool {
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(fd))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "scm_fds:"); ok {
			return strings.TrimSpace(n) == "0"
		}
	}
	return false
}

// Shutdown ends a connection both ways, for its far end too, whatever descriptors of it are open
// still.
func Shutdown(fd int) { _ = sys.Shutdown(fd, sys.SHUT_RDWR) }

// Unclear reports whether a socket announces something that no receive call gives: an error that is
// none of the connection's (an error queue, say), or data that are not there. It would wake a
// goroutine that waits for its events again and again, without end.
func Unclear(fd int) bool {
	p := []sys.PollFd{{Fd: int32(fd), Events: sys.POLLIN}}
	if n, err := sys.Poll(p, 0); err != nil || n == 0 {
		return false
	}
	if p[0].Revents&(sys.POLLERR|sys.POLLNVAL) != 0 {
		return true
	}
	var b [1]byte
	_, _, err := sys.Recvfrom(fd, b[:], sys.MSG_DONTWAIT|sys.MSG_PEEK)
	return errors.Is(err, sys.EAGAIN)
}
