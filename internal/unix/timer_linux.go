package unix

import (
	"fmt"
	"time"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// Timer is a descriptor that becomes readable at a set time, for an [Epoll]. Setting a timer of the
// runtime wakes a thread that sleeps until a later one; setting this one wakes no thread. Its
// methods may not be called concurrently with Close.
type Timer struct{ fd int }

// NewTimer makes one that is not set.
func NewTimer() (*Timer, error) {
	fd, err := sys.TimerfdCreate(sys.CLOCK_MONOTONIC, sys.TFD_NONBLOCK|sys.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &Timer{fd}, nil
}

// Descriptor is what to add to a set; it is the timer's.
func (t *Timer) Descriptor() int { return t.fd }

// Set has it go off once, after d; with 0 not at all. What it had gone off before is forgotten.
func (t *Timer) Set(d time.Duration) {
	spec := sys.ItimerSpec{Value: sys.NsecToTimespec(int64(d))}
	_, _, _ = sys.RawSyscall6(sys.SYS_TIMERFD_SETTIME, uintptr(t.fd), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

// Close gives the descriptor back.
func (t *Timer) Close() { _ = sys.Close(t.fd) }
