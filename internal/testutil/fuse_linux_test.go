package testutil_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// A test says what the file system answers, and when.
func TestFUSE(t *testing.T) {
	f := testutil.NewFUSE(t, false, testutil.FUSEFile{
		Name: "script", Data: []byte("#!/bin/true\n"), Mode: 0o755,
	})
	path := filepath.Join(f.Dir, "script")
	if b, err := os.ReadFile(path); err != nil || string(b) != "#!/bin/true\n" {
		t.Fatalf("read: %q, %v", b, err)
	}
	if _, err := os.Stat(path + "s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, kind := range []string{"flush", "read", "write", "statfs"} {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Hang(kind)
		over := make(chan error, 1)
		go func() {
			switch kind {
			case "read":
				_, err := file.ReadAt(make([]byte, 5), 0)
				over <- errors.Join(err, file.Close())
			case "write":
				_, err := file.WriteAt([]byte("hello"), 0)
				over <- errors.Join(err, file.Close())
			case "statfs":
				var st syscall.Statfs_t
				over <- errors.Join(syscall.Statfs(path, &st), file.Close())
			default:
				over <- file.Close()
			}
		}()
		if got := f.Hung(); got != kind {
			t.Fatalf("%s hangs, want %s", got, kind)
		}
		select {
		case err := <-over:
			t.Errorf("%s has an answer: %v", kind, err)
		default:
		}
		f.Answer()
		if err := <-over; err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
