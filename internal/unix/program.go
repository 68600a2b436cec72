package unix

import (
	"errors"
	"os"
	"syscall"
)

// Identity is the user and the groups that a program runs as, in the kernel's numbers.
type Identity struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // beside GID
}

// Program is what [Start] starts. It has no other descriptors of this process than Files and Extra.
type Program struct {
	Path  string // a relative one is looked up in the directory; nothing searches $PATH
	Args  []string
	Env   []string    // all of it
	Dir   string      // "": the one that this process is in
	In    *os.File    // the directory instead of Dir, if it is open; may be nil
	As    *Identity   // nil: this process's own
	Files [3]*os.File // its standard input, output and error output
	Extra []*os.File  // its descriptors from 3 on
	Apart bool        // in a session of its own, out of reach of the terminal's signals
	Seat  bool        // Apart, and its standard input is a terminal that becomes its own
}

// Size is a terminal's.
type Size struct{ Rows, Columns uint16 }

// Ending is how a process ended: with an exit status, or by a signal if that is
// not 0.
type Ending struct {
	Status int
	Signal int
}

// Scarce reports whether a program was not started because the machine has run out of a
// resource. hint says what to do about it.
func Scarce(err error) (hint string, is bool) {
	switch {
	case errors.Is(err, syscall.EAGAIN):
		// of all calls on the way only those that bound processes say so
		return ": the system lets the node have no more processes: let some end, or raise pids.max of its cgroup (TasksMax= of vmmcd), or ulimit -u of the user", true
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "", true
	}
	return "", false
}

// EntersDirectory reports whether a program was not started because of its directory.
func EntersDirectory(err error) bool {
	var pe *os.PathError
	return errors.As(err, &pe) && pe.Op == stepDirectory
}

// stepDirectory is the step of a start that enters the directory.
const stepDirectory = "chdir"

// ownProgram is this process's program, whatever has become of its file.
const ownProgram = "/proc/self/exe"
