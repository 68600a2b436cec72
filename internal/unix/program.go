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
}
