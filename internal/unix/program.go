package unix

import "os"

// Identity is whom a program runs as, in the kernel's numbers.
type Identity struct {
	UID    uint32
	GID    uint32
	Groups []uint32 // beside GID
}

// Program is what [Start] starts.
type Program struct {
	Path  string // a relative one is looked up in Dir; nothing searches $PATH
	Args  []string
	Env   []string
	Dir   string
	As    *Identity   // nil: as whom this process runs
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
