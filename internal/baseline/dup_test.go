package baseline

import (
	"os"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// dup is a descriptor of its own for a mapping that takes it.
func dup(t *testing.T, f *os.File) int {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if cerr := c.Control(func(d uintptr) { fd, err = unix.Dup(int(d)) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return fd
}
