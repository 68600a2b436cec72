package unix

import (
	"errors"
	"fmt"
	"os"

	sys "golang.org/x/sys/unix"
)

// OutputPipe makes a pipe for a program's output: the end that is read does not
// block a thread, the end that the program gets blocks as programs expect.
func OutputPipe() (r, w *os.File, err error) {
	var p [2]int
	if err := sys.Pipe2(p[:], sys.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	// Each end has a description of its own, so this leaves the writing one alone.
	if err := sys.SetNonblock(p[0], true); err != nil {
		_, _ = Close(p[0]), Close(p[1])
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "output"), os.NewFile(uintptr(p[1]), "output"), nil
}

// InputPipe makes a pipe for a program's input: the end that is written does not
// block a thread.
func InputPipe() (r, w *os.File, err error) {
	var p [2]int
	if err := sys.Pipe2(p[:], sys.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	if err := sys.SetNonblock(p[1], true); err != nil {
		_, _ = Close(p[0]), Close(p[1])
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	return os.NewFile(uintptr(p[0]), "input"), os.NewFile(uintptr(p[1]), "input"), nil
}

// ReadSome reads what is there. again says that nothing is, yet; else n of 0 is
// the end.
func ReadSome(fd uintptr, b []byte) (n int, again bool) {
	return readSome(func(b []byte) (int, error) { return sys.Read(int(fd), b) }, b)
}

// readSome takes no first EIO of a terminal's screen for its end. The kernel (6.18, n_tty_read)
// looks for input, waits for what is on its way, looks again, and only then for whether the
// program's end is closed: what was printed between the last two, by a program that closed it with
// that, is still to come. The next read waits for it, and as nothing can follow an end that was
// closed before it began, its EIO is the end.
func readSome(read func([]byte) (int, error), b []byte) (n int, again bool) {
	for ended := false; ; {
		n, err := read(b)
		switch {
		case errors.Is(err, sys.EINTR):
		case errors.Is(err, sys.EAGAIN):
			return 0, true
		case errors.Is(err, sys.EIO) && !ended:
			ended = true
		case err != nil:
			return 0, false
		default:
			return n, false
		}
	}
}

// Readable reports whether there is anything to read from a pipe.
func Readable(f *os.File) bool {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	_ = rc.Control(func(fd uintptr) { there = ended(fd) })
	return there
}
