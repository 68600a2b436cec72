//go:build unix

package pmi_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmmc-go/vmmc/internal/pmi"
)

// The descriptor that a launcher has given is taken: it is not inherited further, and reading from it
// can be given up. A number that is no descriptor is an error.
func TestOpen(t *testing.T) {
	if f, err := pmi.Open(1<<20, "PMI_FD"); err == nil {
		f.Close()
		t.Error("descriptor 1048576 could be opened")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[1])
	f, err := pmi.Open(pair[0], "PMI_FD")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, err := unix.FcntlInt(uintptr(pair[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("its flags are %#x, %v: programs inherit it", flags, err)
	}
	if err := f.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := pmi.New(f, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a launcher that does not answer: %v", err)
	}
}
