package unix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"
	"unsafe"

	sys "golang.org/x/sys/unix"
)

// A bell is a file with a word that counts how often it was rung. Processes sleep on the word in
// mappings of theirs that they cannot write. Any number of processes may wait: inotify usually
// allows a user only 128 instances. A process that ceases to wait wakes no other process, unlike
// with a named pipe.

const bellSize = 4

// RingBell wakes all processes that wait at the bell at path. It first makes the file if there is
// none or if it is another user's. The users that mode lets read the file may wait at it.
func RingBell(path string, mode fs.FileMode) error {
	f, err := ownBell(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chmod(mode); err != nil {
		return err
	}
	var count [bellSize]byte
	_, _ = f.ReadAt(count[:], 0) // a new one has none
	if _, err := f.WriteAt(binary.NativeEndian.AppendUint32(nil, binary.NativeEndian.Uint32(count[:])+1), 0); err != nil {
		return err
	}
	return withWord(f, func(w unsafe.Pointer) error {
		_, _, e := sys.Syscall6(sys.SYS_FUTEX, uintptr(w), futexWake, math.MaxInt32, 0, 0, 0)
		if e != 0 {
			return fmt.Errorf("ring the bell %s: %w", path, e)
		}
		return nil
	})
}

// ownBell keeps the file that is there if it can be a bell, because a process may be waiting at it.
func ownBell(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|sys.O_NONBLOCK|sys.O_NOFOLLOW, 0)
	if err == nil {
		if err = checkBell(f, []uint32{uint32(os.Geteuid())}); err == nil {
			err = onlyBell(f)
		}
		if err == nil {
			return f, nil
		}
		_ = f.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// Bell is one that this process may wait at.
type Bell struct {
	f     *os.File
	count uint32
}

// HearBell opens a bell: from here on no ring is missed. What is no bell, or not of one of these
// users, is refused.
func HearBell(path string, users ...uint32) (*Bell, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|sys.O_NONBLOCK|sys.O_NOFOLLOW|sys.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	b := &Bell{f: f}
	if err = checkBell(f, users); err == nil {
		b.count, err = b.counted()
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Wait waits until the bell is rung, at most for patience. It reports whether the bell was rung
// since it was opened.
func (b *Bell) Wait(patience time.Duration) (rung bool, err error) {
	err = withWord(b.f, func(w unsafe.Pointer) error {
		ts := sys.NsecToTimespec(int64(patience))
		// The kernel reads the word: if the file was cut short, that is an error here, and not a
		// signal.
		_, _, e := sys.Syscall6(sys.SYS_FUTEX, uintptr(w), futexWait, uintptr(b.count), uintptr(unsafe.Pointer(&ts)), 0, 0)
		if e != 0 && e != sys.EAGAIN && e != sys.EINTR && e != sys.ETIMEDOUT {
			return fmt.Errorf("wait at the bell %s: %w", b.f.Name(), e)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	now, err := b.counted()
	return now != b.count, err
}

// Close ends the waiting.
func (b *Bell) Close() { _ = b.f.Close() }

func (b *Bell) counted() (uint32, error) {
	var count [bellSize]byte
	if _, err := b.f.ReadAt(count[:], 0); err != nil {
		return 0, fmt.Errorf("read the bell %s: %w", b.f.Name(), err)
	}
	return binary.NativeEndian.Uint32(count[:]), nil
}

// onlyBell refuses a file that is something else as well: a user may have linked it there to have
// this process change it.
func onlyBell(f *os.File) error {
	var st sys.Stat_t
	err := sys.Fstat(int(f.Fd()), &st)
	if err == nil && (st.Size > bellSize || st.Nlink != 1) {
		err = fmt.Errorf("use the bell %s: it has %d bytes and %d names", f.Name(), st.Size, st.Nlink)
	}
	return err
}

func checkBell(f *os.File, users []uint32) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	uid, _, err := OwnerOf(f)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("use the bell %s: it is no regular file (%v)", f.Name(), info.Mode())
	case !slices.Contains(users, uid):
		return fmt.Errorf("use the bell %s: it is user %d's: %w", f.Name(), uid, fs.ErrPermission)
	}
	return nil
}

// withWord maps the word for as long as do runs.
func withWord(f *os.File, do func(w unsafe.Pointer) error) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var w unsafe.Pointer
	if cerr := rc.Control(func(fd uintptr) { w, err = Map(int(fd), bellSize, false, false) }); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return errors.Join(do(w), Unmap(w, bellSize))
}
