package unix

import (
	"runtime"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Passed are the descriptors that came over a stream socket, one with each frame
// that announces one, and room for the next. They are in the order of their frames,
// of which the receive calls know nothing.
type Passed struct {
	room [3]uint64 // a control message with one descriptor
	fds  []int     // -1: lost on the way
}

// Take gives the oldest, or -1; the caller owns it.
func (p *Passed) Take() int {
	if len(p.fds) == 0 {
		return -1
	}
	fd := p.fds[0]
	p.fds = p.fds[1:]
	return fd
}

// Close closes all that were not taken.
func (p *Passed) Close() {
	for _, fd := range p.fds {
		if fd >= 0 {
			_ = Close(fd)
		}
	}
	p.fds = nil
}

// maxPassed bounds what a peer can have put here without being asked.
const maxPassed = 64

// RecvPassed is [IO.Recv] that takes descriptors too. The kernel ends a call behind
// the bytes that one was sent with.
func (io *IO) RecvPassed(fd int, a, b []byte, p *Passed) (n int, err error) {
	io.set(a, b)
	io.msg.Control = (*byte)(unsafe.Pointer(&p.room))
	io.msg.SetControllen(int(unsafe.Sizeof(p.room)))
	r, _, e := sys.RawSyscall6(sys.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&io.msg)), sys.MSG_DONTWAIT|sys.MSG_CMSG_CLOEXEC, 0, 0, 0)
	length, flags := int(io.msg.Controllen), int(io.msg.Flags)
	io.msg.Control, io.msg.Controllen, io.msg.Flags = nil, 0, 0
	io.clear()
	if e == 0 && (length > 0 || flags&sys.MSG_CTRUNC != 0) {
		p.put(length, flags)
	}
	return outcome(r, e)
}

func (p *Passed) put(length, flags int) {
	fds, err := ParseRights(unsafe.Slice((*byte)(unsafe.Pointer(&p.room)), length), flags)
	if err != nil || len(fds) != 1 { // this process is at its limit, or the peer does not keep to one
		for _, fd := range fds {
			_ = Close(fd)
		}
		fds = []int{-1}
	}
	p.fds = append(p.fds, fds...)
	if len(p.fds) > maxPassed {
		p.Close()
	}
}

// SendPassed is [IO.Send] of a with a descriptor, which stays the caller's. ok is
// false if the kernel keeps no more descriptors under way for this user, and
// nothing was sent.
func (io *IO) SendPassed(fd int, a []byte, pass int) (n int, ok bool, err error) {
	room := Rights([]int{pass})
	io.set(a)
	io.msg.Control = &room[0]
	io.msg.SetControllen(len(room))
	r, _, e := sys.RawSyscall6(sys.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&io.msg)), sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL, 0, 0, 0)
	runtime.KeepAlive(room)
	io.msg.Control, io.msg.Controllen = nil, 0
	io.clear()
	switch {
	case e == sys.ETOOMANYREFS:
		return 0, false, nil
	case e != 0 && again(e):
		return 0, true, nil
	case e != 0:
		return 0, true, e
	}
	return int(r), true, nil
}
