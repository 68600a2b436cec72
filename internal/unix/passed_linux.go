package unix

import (
	"runtime"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// SendPassed is [IO.Send] of a with a descriptor, which stays the caller's. ok is
// false if the kernel keeps no more descriptors under way for this user, or the far end
// awaits none, and nothing was sent.
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
	case e == sys.ETOOMANYREFS, e == sys.EPERM: // or the far end takes none
		return 0, false, nil
	case e != 0 && again(e):
		return 0, true, nil
	case e != 0:
		return 0, true, e
	}
	return int(r), true, nil
}
