package unix

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"
)

func TestBellWakesAllWhoWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bell")
	if _, err := HearBell(path, uint32(os.Geteuid())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a bell that is not there: %v", err)
	}
	ring := func() {
		t.Helper()
		if err := RingBell(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	ring()
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var wg sync.WaitGroup
	for range 150 { // more than a user's instances of inotify
		b, err := HearBell(path, uint32(os.Geteuid()))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer b.Close()
			if rung, err := b.Wait(time.Minute); !rung || err != nil {
				t.Error(rung, err)
			}
		})
	}
	b, err := HearBell(path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if rung, err := b.Wait(time.Millisecond); rung || err != nil {
		t.Errorf("before it rings: %v, %v", rung, err)
	}
	ring()
	wg.Wait()
	for range 2 { // a late waiter, too
		if rung, err := b.Wait(time.Minute); !rung || err != nil {
			t.Error(rung, err)
		}
	}
}

// A waiter trusts the file's owner with nothing but the wake-up.
func TestBellsThatAreNone(t *testing.T) {
	me := uint32(os.Geteuid())
	path := filepath.Join(t.TempDir(), "bell")
	for what, make := range map[string]func() error{
		"a pipe":      func() error { return sys.Mkfifo(path, 0o600) },
		"a directory": func() error { return os.Mkdir(path, 0o700) },
		"a link":      func() error { return os.Symlink("/dev/zero", path) },
		"short":       func() error { return os.WriteFile(path, []byte{1}, 0o600) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if b, err := HearBell(path, me); err == nil {
			t.Errorf("%s was heard", what)
			b.Close()
		}
		if err := RingBell(path, 0o600); err != nil {
			t.Errorf("%s was not replaced: %v", what, err)
		}
		b, err := HearBell(path, me)
		if err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		if rung, err := b.Wait(time.Minute); rung || err == nil {
			t.Errorf("a bell that was cut short: %v, %v", rung, err)
		}
		b.Close()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := RingBell(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := HearBell(path, me+1); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("another user's: %v", err)
		b.Close()
	}
}
