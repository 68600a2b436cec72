package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// drive is the session's file system, and what goes to its output directory. Its methods may be called
// concurrently: root and spec do not change once programs start.
type drive struct {
	spec      Spec
	root      *os.Root // the base
	fileSlots fileSlots
}

// appendTo opens a file for output below the base, and makes it and its
// directory if they are not there. Other users may have the directory too: a file of
// theirs under the name is not written to.
func (d *drive) appendTo(name string) (f *os.File, size int64, err error) {
	dir := within(d.spec.Output)
	file := path.Join(dir, name)
	for range 3 { // another program may create and remove the file meanwhile
		f, err = d.root.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o640)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err = d.root.MkdirAll(dir, 0o750); err != nil {
				return nil, 0, err
			}
			continue
		case errors.Is(err, fs.ErrExist):
			f, err = d.openOwn(file, os.O_RDWR|os.O_APPEND)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
		}
		break
	}
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

var errNames = errors.New("has several names")

// openOwn opens a file that is this user's and a plain one, under its only name.
func (d *drive) openOwn(file string, flag int) (*os.File, error) {
	st, err := d.root.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no plain file: it is left alone", file)
	}
	f, err := d.root.OpenFile(file, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(st, now) {
		err = fs.ErrNotExist // it was replaced meanwhile
	}
	var uid uint32
	var links uint64
	if err == nil {
		uid, links, err = unix.OwnerOf(f)
	}
	if err == nil && int(uid) != os.Getuid() {
		err = fmt.Errorf("%s belongs to user %d: it is left alone", file, uid)
	}
	if err == nil && links != 1 {
		err = fmt.Errorf("%s %w, %d: it is left alone", file, errNames, links)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
