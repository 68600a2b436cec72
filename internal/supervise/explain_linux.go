package supervise

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// explain gives the kernel's reason a code, and says what may be meant by it.
func (s *supervisor) explain(o Order, err error) error {
	if err == nil {
		return nil
	}
	k, hint := code.BadArg, ""
	switch {
	case errors.Is(err, syscall.ENOENT):
		hint = ": there is no such program there; of a script, there may be no such interpreter"
	case errors.Is(err, syscall.EACCES):
		hint = ": the session's user may not enter the directory, or not execute the program"
	case errors.Is(err, syscall.ENOEXEC):
		hint = ": it is no program for this machine; a script begins with #!"
	}
	if h, is := unix.Scarce(err); is {
		k, hint = code.NoMem, h
	}
	if coded := (*code.Error)(nil); errors.As(err, &coded) {
		return err
	}
	return code.New(k, "start %s in directory %s of session %q on node %q: %v%s", o.Path, o.Directory, s.spec.Session, s.spec.Node, plain(err), hint)
}

// plain leaves out the path, which the text around it has.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
