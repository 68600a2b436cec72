package unix

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// The operations, for words that several processes share.
const (
	futexWait = 0
	futexWake = 1
)

// SleepOn sleeps until somebody calls [Rouse] for the word, or for patience. It
// returns at once if the word is not old any more.
func SleepOn(w *atomic.Uint32, old uint32, patience time.Duration) error {
	ts := sys.NsecToTimespec(int64(patience))
	_, _, e := sys.Syscall6(sys.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
	runtime.KeepAlive(w)
	if e != 0 && e != sys.EAGAIN && e != sys.EINTR && e != sys.ETIMEDOUT {
		return e
	}
	return nil
}

// Rouse wakes one that sleeps on the word.
func Rouse(w *atomic.Uint32) {
	_, _, _ = sys.RawSyscall6(sys.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, 1, 0, 0, 0)
	runtime.KeepAlive(w)
}

// AwaitInput sleeps until something can be read, or for patience.
func AwaitInput(fd int, patience time.Duration) error {
	p := []sys.PollFd{{Fd: int32(fd), Events: sys.POLLIN}}
	if _, err := sys.Poll(p, int(patience.Milliseconds())); err != nil && err != sys.EINTR {
		return err
	}
	return nil
}
