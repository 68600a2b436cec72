package unix

import (
	"fmt"
	"os"

	sys "golang.org/x/sys/unix"
)

// OpenTerminal makes a terminal: screen is the master's end, which does not block a
// thread, and program is the program's end. Neither becomes this process's controlling
// terminal.
func OpenTerminal(s Size) (screen, program *os.File, err error) {
	m, err := sys.Open("/dev/ptmx", sys.O_RDWR|sys.O_NOCTTY|sys.O_CLOEXEC|sys.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a terminal: open /dev/ptmx: %w", err)
	}
	p, err := programEnd(m, s)
	if err != nil {
		_ = Close(m)
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	// Opened without blocking, so that the runtime's poller takes it.
	return os.NewFile(uintptr(m), "terminal"), os.NewFile(uintptr(p), "terminal"), nil
}

// programEnd opens the program's end by the other one, because /dev/pts may be
// another one than this terminal's; by its name where the kernel cannot do that.
func programEnd(screen int, s Size) (int, error) {
	if err := sys.IoctlSetPointerInt(screen, sys.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock it: %w", err)
	}
	if err := sys.IoctlSetWinsize(screen, sys.TIOCSWINSZ, &sys.Winsize{Row: s.Rows, Col: s.Columns}); err != nil {
		return -1, fmt.Errorf("set its size: %w", err)
	}
	const how = sys.O_RDWR | sys.O_NOCTTY | sys.O_CLOEXEC
	if p, _, e := sys.Syscall(sys.SYS_IOCTL, uintptr(screen), sys.TIOCGPTPEER, how); e == 0 {
		return int(p), nil
	}
	n, err := sys.IoctlGetUint32(screen, sys.TIOCGPTN)
	if err != nil {
		return -1, fmt.Errorf("number it: %w", err)
	}
	name := fmt.Sprintf("/dev/pts/%d", n)
	p, err := sys.Open(name, how, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", name, err)
	}
	return p, nil
}

// InForeground reports whether this process's group is in the foreground of its controlling
// terminal, which signals the whole group when a key is typed.
func InForeground() bool {
	fd, err := sys.Open("/dev/tty", sys.O_RDONLY|sys.O_NOCTTY|sys.O_NONBLOCK|sys.O_CLOEXEC, 0)
	if err != nil { // it has none
		return false
	}
	defer sys.Close(fd)
	group, err := sys.IoctlGetUint32(fd, sys.TIOCGPGRP)
	return err == nil && int(group) == sys.Getpgrp()
}

// Resize gives a terminal another size, and tells the programs in its foreground.
func Resize(screen *os.File, s Size) error {
	rc, err := screen.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := rc.Control(func(fd uintptr) {
		err = sys.IoctlSetWinsize(int(fd), sys.TIOCSWINSZ, &sys.Winsize{Row: s.Rows, Col: s.Columns})
	}); cerr != nil {
		return cerr
	}
	return err
}
