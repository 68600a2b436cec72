//go:build unix

package pmi

import (
	"os"
	"syscall"
)

// Open returns the launcher's end of PMI by the number of its descriptor. It is not inherited by
// programs that this one starts, and has deadlines.
func Open(fd int, name string) (*os.File, error) {
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
