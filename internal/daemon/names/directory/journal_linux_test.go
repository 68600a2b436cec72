package directory

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A journal that is void is not read any more, also if its file cannot be removed.
func TestDiscardWithoutRemove(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "names")
	begin := func() (*table, []string) {
		tab := &table{journal: &journal{file: file, boot: "b", log: slog.New(slog.DiscardHandler)}}
		nodes, _ := tab.restore()
		return tab, nodes
	}
	tab, _ := begin()
	tab.record([]string{"m", "n"}, nil)
	tab.register(Registration{Key: key("q"), Owner: nodeproto.ProcessID{Node: "n", PID: 1}, Order: 1})
	tab.journal.close()
	if _, nodes := begin(); nodes == nil {
		t.Fatal("the file is not read")
	}
	tab, _ = begin()
	keepFile(t, file, func() {
		if err := os.Remove(file); err == nil || errors.Is(err, os.ErrNotExist) {
			t.Errorf("the test does not keep the file: %v", err)
		}
		tab.discard()
	})
	if tab, nodes := begin(); nodes != nil || len(tab.all()) > 0 {
		t.Errorf("the next daemon takes %d names of %q from a void file", len(tab.all()), nodes)
	}
}

// keepFile calls f while a file cannot be removed: the superuser has it be a mount point, of a
// thread's own namespace; for another user its directory is not to be written to.
func keepFile(t *testing.T, file string, f func()) {
	if os.Getuid() != 0 {
		if err := os.Chmod(filepath.Dir(file), 0o500); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.Chmod(filepath.Dir(file), 0o700) }()
		f()
		return
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := syscall.Unshare(syscall.CLONE_NEWNS)
		if err == nil {
			err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
		}
		if err == nil {
			err = syscall.Mount(file, file, "", syscall.MS_BIND, "")
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no mount namespace of its own: %v", err)
	}
}
