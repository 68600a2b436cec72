package unix

import (
	"math"
	"runtime"
	"sync"
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

// SleepOn sleeps until a thread or process calls [Rouse] for the word, at most for patience.
// It returns at once if the word is not old any more.
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

// RouseAll wakes all that sleep on the word.
func RouseAll(w *atomic.Uint32) {
	_, _, _ = sys.RawSyscall6(sys.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, math.MaxInt32, 0, 0, 0)
	runtime.KeepAlive(w)
}

// futexWaitv is the kernel's struct futex_waitv.
type futexWaitv struct {
	val, uaddr uint64
	flags, _   uint32
}

// futex32 is the size of a word, FUTEX2_SIZE_U32. Without FUTEX2_PRIVATE it may be in
// memory of any kind.
const futex32 = 2

// WordSet is words on which one thread sleeps at a time (Linux 5.16). It has a fixed
// size, so that sleeping allocates nothing.
type WordSet struct {
	n     int
	kept  [WordSetSize]*atomic.Uint32 // the kernel's entries keep nothing alive
	waits [WordSetSize]futexWaitv
}

// Clear empties the set.
func (s *WordSet) Clear() {
	clear(s.kept[:s.n])
	s.n = 0
}

// Add puts in a word, and the value that it has as far as the caller knows. The
// caller adds at most WordSetSize, and none that is on a stack, which may move.
func (s *WordSet) Add(w *atomic.Uint32, old uint32) {
	s.kept[s.n] = w
	s.waits[s.n] = futexWaitv{val: uint64(old), uaddr: uint64(uintptr(unsafe.Pointer(w))), flags: futex32}
	s.n++
}

// Moved reports whether the i-th word is not as it was added.
func (s *WordSet) Moved(i int) bool { return uint64(s.kept[i].Load()) != s.waits[i].val }

// Sleep sleeps until a thread or process calls [Rouse] for one of the words, and returns its
// index in the order of Add. It returns -1, at once, if a word is not as it was added, and
// when a signal arrives.
func (s *WordSet) Sleep() (which int, err error) {
	// Not RawSyscall: the runtime must be able to take the processor away meanwhile.
	i, _, e := sys.Syscall6(sys.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(&s.waits)), uintptr(s.n), 0, 0, 0, 0)
	runtime.KeepAlive(s)
	switch e {
	case 0:
		return int(i), nil
	case sys.EAGAIN, sys.EINTR:
		return -1, nil
	}
	return -1, e
}

// CanSleepOnWords reports whether the kernel has what [WordSet.Sleep] needs, and lets
// this process use it.
var CanSleepOnWords = sync.OnceValue(func() bool {
	_, _, e := sys.RawSyscall6(sys.SYS_FUTEX_WAITV, 0, 0, 0, 0, 0, 0)
	return e == sys.EINVAL // no words
})

// AwaitInput sleeps until something can be read, or for patience.
func AwaitInput(fd int, patience time.Duration) error {
	p := []sys.PollFd{{Fd: int32(fd), Events: sys.POLLIN}}
	if _, err := sys.Poll(p, int(patience.Milliseconds())); err != nil && err != sys.EINTR {
		return err
	}
	return nil
}
