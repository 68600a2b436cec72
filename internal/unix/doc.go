// Package unix holds every system call of the project. Nothing else imports
// golang.org/x/sys/unix, so what the kernel is asked for can be read in one
// place. On systems other than Linux each call returns [ErrUnsupported].
//
// # The spawn helper
//
// The kernel holds the thread that executes a file until the file and its interpreter are open,
// which their owner can delay by a lease (F_SETLEASE) or a FUSE server. So neither a daemon, nor a
// supervisor, nor a program with an embedded node executes a file that a user controls. Programs
// are begun by the spawn helper: an ELF image in memory of some KiB, which is a loop of 20
// instructions and a list of system calls. The child closes what it must not inherit, becomes the
// user, enters the directory and executes the program. It writes errors to a pipe that exec closes.
// Its number, pidfd and process group are the program's. The node waits on the pipe without a
// thread, for a bounded time. The user is no owner of the child before the helper runs, and cannot
// stop it earlier. Architectures other than amd64 and arm64 have no helper.
//
// # The starter
//
// A child begins with a copy of its parent's table of descriptors, and exec waits for the close of
// each that it must not keep. A daemon receives descriptors of files whose server may not answer.
// So it starts programs from a thread with a table of its own ([KeepStarter]).
package unix

import (
	"errors"
	"runtime"
)

// ErrUnsupported is what every call returns on a system other than Linux.
var ErrUnsupported = errors.New("vmmc does not support " + runtime.GOOS + ": it needs Linux (memfd, epoll)")

// ErrSealed says that a descriptor which another process handed over does not
// carry the seals without which mapping it would be dangerous.
var ErrSealed = errors.New("memory is not sealed against resizing")

// ErrLost says that descriptors which another process sent were lost on the way.
var ErrLost = errors.New("descriptors were lost on the way: whom they were sent to is at its limit of open files (ulimit -n)")

// MaxPieces is how many pieces one call can send.
const MaxPieces = 32

// WordSetSize is how many words a [WordSet] has at most.
const WordSetSize = 8

// Event is what one look at an [Epoll] found.
type Event struct {
	ID uint64 // as given to Add
}

// Cred identifies the process at the other end of a unix socket, as the kernel reports it.
type Cred struct {
	PID int
	UID uint32
	GID uint32

	Groups []uint32 // beside GID
}

// MemoryInfo is what the kernel reports of a memfd, also of one that another process made.
type MemoryInfo struct {
	Size     int64
	Present  int64 // bytes that have pages already
	Fixed    bool  // it can neither shrink nor grow, and no seal can be added
	ReadOnly bool  // no new writable mapping can be made
}

// PageRun is a run of whole pages, as offsets in what is watched; the layout is the
// kernel's.
type PageRun struct{ Start, End, Categories uint64 }

// ErrForbidden is memory that cannot be read or written, as it was mapped or because the file
// behind it is shorter.
var ErrForbidden = errors.New("the memory cannot be accessed")
