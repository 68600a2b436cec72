package unix

import (
	"fmt"
	"os"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Epoll is a private set of descriptors, each armed for one event at a time.
// The set itself hangs in the runtime's poller, so that one goroutine can wait
// for all of it without a thread.
type Epoll struct {
	fd   int
	file *os.File
}

// NewEpoll makes an empty set.
func NewEpoll() (*Epoll, error) {
	fd, err := sys.EpollCreate1(sys.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	// os.NewFile registers only such ones with the poller
	if err := sys.SetNonblock(fd, true); err != nil {
		_ = sys.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &Epoll{fd: fd, file: os.NewFile(uintptr(fd), "vmmc-epoll")}, nil
}

func event(id uint64, write bool) sys.EpollEvent {
	ev := sys.EpollEvent{Events: sys.EPOLLIN | sys.EPOLLRDHUP | sys.EPOLLONESHOT}
	if write {
		ev.Events = sys.EPOLLOUT | sys.EPOLLONESHOT
	}
	*(*uint64)(unsafe.Pointer(&ev.Fd)) = id
	return ev
}

// Add puts fd into the set, armed for reading (or writing) once.
func (e *Epoll) Add(fd int, id uint64, write bool) error {
	ev := event(id, write)
	if err := sys.EpollCtl(e.fd, sys.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("epoll add: %w", err)
	}
	return nil
}

// Arm asks for one more event; the kernel looks again, so one that is already
// there is delivered too.
func (e *Epoll) Arm(fd int, id uint64, write bool) error {
	ev := event(id, write)
	_, _, errno := sys.RawSyscall6(sys.SYS_EPOLL_CTL, uintptr(e.fd), sys.EPOLL_CTL_MOD, uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("epoll arm: %w", errno)
	}
	return nil
}

// Disarm asks for no event; one that is on its way comes all the same.
func (e *Epoll) Disarm(fd int, id uint64) {
	ev := event(id, false)
	ev.Events = sys.EPOLLONESHOT
	_, _, _ = sys.RawSyscall6(sys.SYS_EPOLL_CTL, uintptr(e.fd), sys.EPOLL_CTL_MOD, uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
}

// Remove takes fd out.
func (e *Epoll) Remove(fd int) { _ = sys.EpollCtl(e.fd, sys.EPOLL_CTL_DEL, fd, nil) }

// Look takes what events there are, without waiting.
func (e *Epoll) Look(out []Event) int {
	var raw [16]sys.EpollEvent
	n := min(len(out), len(raw))
	r, _, errno := sys.RawSyscall6(sys.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(n), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	for i := range int(r) {
		out[i].ID = *(*uint64)(unsafe.Pointer(&raw[i].Fd))
	}
	return int(r)
}

// Wait parks the goroutine until the set has events, and takes some. It ends
// with an error when the set is closed.
func (e *Epoll) Wait(out []Event) (n int, err error) {
	rc, err := e.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = rc.Read(func(uintptr) bool {
		n = e.Look(out)
		return n > 0
	})
	return n, err
}

// Close ends the set and wakes the goroutines that wait on it.
func (e *Epoll) Close() error { return e.file.Close() }

// YieldOpenly is Yield by a call that Go's runtime knows of: it wakes the runtime's monitor, if
// that sleeps, which a call that the runtime does not know of never does.
func YieldOpenly() { _, _, _ = sys.Syscall(sys.SYS_SCHED_YIELD, 0, 0, 0) }

// Yield lets another thread have this processor.
func Yield() { _, _, _ = sys.RawSyscall(sys.SYS_SCHED_YIELD, 0, 0, 0) }
