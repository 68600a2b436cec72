//go:build unix

package pmi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/pmi"
)

// The descriptor that a launcher has given is taken: it is not inherited further, and reading from it
// can be given up. A number that is no descriptor is an error.
func TestOpen(t *testing.T) {
	if f, err := pmi.Open(1<<20, "PMI_FD"); err == nil {
		f.Close()
		t.Error("descriptor 1048576 could be opened")
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(pair[1])
	inherited := func() bool {
		return exec.Command("sh", "-c", fmt.Sprintf("test -e /dev/fd/%d", pair[0])).Run() == nil
	}
	if !inherited() {
		t.Fatal("a program does not inherit a descriptor as a launcher gives it")
	}
	f, err := pmi.Open(pair[0], "PMI_FD")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if inherited() {
		t.Error("programs inherit the launcher's descriptor")
	}
	if err := f.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := pmi.New(f, 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a launcher that does not answer: %v", err)
	}
}
