package unix

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	sys "golang.org/x/sys/unix"
)

// How RemoveTree bounds what a tree that another user has made can cost.
const (
	treeBatch   = 8 << 10 // bytes of names that are read at a time
	treeDepth   = 4096    // levels that are remembered; what is deeper is moved up
	treeRestart = 8       // times that it begins again because directories were moved
	treeName    = 64      // bytes of a name in an error
)

// errMoved says that a directory is no longer where it was when it was entered.
var errMoved = errors.New("directories are moved while they are removed")

// treeID tells directories apart.
type treeID struct{ dev, ino uint64 }

// tree is a removal that is under way. It has three directories open, however deep it is.
type tree struct {
	path string
	top  int      // the directory that the tree's root is in; the caller's own
	root int      // the tree's root; -1: not entered
	cur  int      // where it is; top or a directory below it
	ids  []treeID // of the directories above cur, from top on
}

// RemoveTree removes a file or a directory with all that is in it, as [os.RemoveAll] does, of which
// another user may have made everything below dir's parent. It has a bounded number of descriptors
// open at any depth, follows no link, and leaves no file system: what is mounted in the tree it
// detaches, if it may. It ends with ctx; the next call goes on with what is left. A path that is
// not there is no error.
func RemoveTree(ctx context.Context, dir string) error {
	top, err := sys.Open(filepath.Dir(dir), sys.O_PATH|sys.O_DIRECTORY|sys.O_CLOEXEC, 0)
	if errors.Is(err, sys.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(dir), Err: err}
	}
	defer func() { _ = Close(top) }()
	for again := 0; ; again++ {
		t := &tree{path: dir, top: top, root: -1, cur: top}
		err = t.remove(ctx, filepath.Base(dir))
		t.moveTo(top)
		if t.root >= 0 {
			_ = Close(t.root)
		}
		if !errors.Is(err, errMoved) || again == treeRestart {
			return err
		}
	}
}

// moveTo makes fd the directory where the removal is.
func (t *tree) moveTo(fd int) {
	if t.cur != t.top {
		_ = Close(t.cur)
	}
	t.cur = fd
}

// failed is an error whose text is short, whatever the tree's user has called things.
func (t *tree) failed(name string, err error) error {
	if err == nil {
		return nil
	}
	if len(name) > treeName {
		name = name[:treeName] + "..."
	}
	if len(t.ids) == 0 {
		return fmt.Errorf("remove %s: %w", t.path, err)
	}
	return fmt.Errorf("remove %q, %d levels below %s: %w", name, len(t.ids), t.path, err)
}

func (t *tree) remove(ctx context.Context, root string) error {
	full, err := t.unlink(root)
	if err != nil || !full {
		return t.failed(root, err)
	}
	if err := t.enter(root); err != nil {
		return err
	}
	buf := make([]byte, treeBatch)
	for {
		if err := ctx.Err(); err != nil {
			return t.failed(".", fmt.Errorf("there is no more time: %w", context.Cause(ctx)))
		}
		sub, more, err := t.empty(buf)
		switch {
		case err != nil:
			return err
		case sub != "":
			err = t.enter(sub)
		case !more:
			err = t.leave()
		}
		if err != nil {
			return err
		}
		if len(t.ids) > 0 {
			continue
		}
		if full, err = t.unlink(root); err != nil || !full {
			return t.failed(root, err)
		}
		if err := t.enter(root); err != nil { // it is being filled
			return err
		}
	}
}

// empty removes what it can of some entries of the directory. sub is an entry that is not empty
// itself. more reports whether there was any entry.
func (t *tree) empty(buf []byte) (sub string, more bool, err error) {
	if _, err := sys.Seek(t.cur, 0, 0); err != nil {
		return "", false, t.failed(".", err)
	}
	for {
		n, err := sys.ReadDirent(t.cur, buf)
		if errors.Is(err, sys.EINTR) {
			continue
		}
		if err != nil {
			return "", false, t.failed(".", err)
		}
		_, _, names := sys.ParseDirent(buf[:max(n, 0)], -1, nil)
		if n <= 0 || len(names) > 0 {
			for _, name := range names {
				full, err := t.unlink(name)
				if err != nil {
					return "", true, t.failed(name, err)
				}
				if full {
					return name, true, nil
				}
			}
			return "", len(names) > 0, nil
		}
	}
}

// unlink removes an entry of the directory. full says that it is a directory with entries.
func (t *tree) unlink(name string) (full bool, err error) {
	opened, detached := false, false
	for {
		err := sys.Unlinkat(t.cur, name, 0)
		if errors.Is(err, sys.EISDIR) {
			err = sys.Unlinkat(t.cur, name, sys.AT_REMOVEDIR)
		}
		switch {
		case err == nil, errors.Is(err, sys.ENOENT):
			return false, nil
		case errors.Is(err, sys.EINTR):
		case errors.Is(err, sys.ENOTEMPTY), errors.Is(err, sys.EEXIST):
			return true, nil
		case errors.Is(err, sys.EACCES) && !opened && t.cur != t.top: // its owner may give himself the right
			opened = true
			if sys.Fchmod(t.cur, 0o700) != nil {
				return false, err
			}
		case errors.Is(err, sys.EBUSY) && !detached && t.cur != t.top:
			detached = true
			if derr := t.detach(name); derr != nil {
				return false, fmt.Errorf("a file system is mounted there: %w", derr)
			}
		default:
			return false, err
		}
	}
}

// detach takes what is mounted at an entry out of the tree.
func (t *tree) detach(name string) error {
	return sys.Unmount("/proc/self/fd/"+strconv.Itoa(t.cur)+"/"+name, sys.MNT_DETACH|sys.UMOUNT_NOFOLLOW)
}

// enter goes down into an entry that is a directory.
func (t *tree) enter(name string) error {
	from, err := idOf(t.cur)
	if err != nil {
		return t.failed(name, err)
	}
	if len(t.ids) == treeDepth {
		return t.moveUp(name)
	}
	var fd int
	for opened, detached := false, false; ; {
		fd, err = openBelow(t.cur, name, sys.O_RDONLY)
		switch {
		case errors.Is(err, sys.EACCES) && !opened: // its owner may give himself the right
			opened = true
			if o, perr := openBelow(t.cur, name, sys.O_PATH); perr == nil {
				_ = sys.Chmod("/proc/self/fd/"+strconv.Itoa(o), 0o700)
				_ = Close(o)
			}
			continue
		case errors.Is(err, sys.EXDEV) && !detached && t.cur != t.top:
			detached = true
			if derr := t.detach(name); derr != nil {
				return t.failed(name, fmt.Errorf("a file system is mounted there: %w", derr))
			}
			continue
		case errors.Is(err, sys.ENOENT), errors.Is(err, sys.ENOTDIR), errors.Is(err, sys.ELOOP):
			return errMoved // it is something else by now
		case err != nil:
			return t.failed(name, err)
		}
		break
	}
	if len(t.ids) == 0 && t.root < 0 {
		if t.root, err = sys.FcntlInt(uintptr(fd), sys.F_DUPFD_CLOEXEC, 0); err != nil {
			_ = Close(fd)
			return t.failed(name, err)
		}
	}
	t.ids = append(t.ids, from)
	t.moveTo(fd)
	return nil
}

// moveUp takes a directory that is too deep to be entered to the tree's root, where it is met
// again. Its name there is one that the tree's user cannot have guessed, and taken.
func (t *tree) moveUp(name string) error {
	for {
		err := sys.Renameat(t.cur, name, t.root, "removed."+rand.Text())
		switch {
		case err == nil:
			return nil
		case errors.Is(err, sys.ENOENT):
			return errMoved
		case errors.Is(err, sys.EINTR):
		default:
			return t.failed(name, err)
		}
	}
}

// leave goes up from a directory without entries, which is removed there when it is met again.
func (t *tree) leave() error {
	last := len(t.ids) - 1
	up := t.top
	if last > 0 {
		var err error
		if up, err = sys.Openat(t.cur, "..", sys.O_RDONLY|sys.O_DIRECTORY|sys.O_CLOEXEC, 0); err != nil {
			return t.failed("..", err)
		}
		if got, err := idOf(up); err != nil || got != t.ids[last] {
			_ = Close(up)
			return errMoved
		}
	}
	t.moveTo(up)
	t.ids = t.ids[:last]
	return nil
}

func idOf(fd int) (treeID, error) {
	var st sys.Stat_t
	err := sys.Fstat(fd, &st)
	return treeID{uint64(st.Dev), st.Ino}, err //nolint:unconvert // of 32 bits on some machines
}

// openBelow opens a directory by its name in another one, in the same file system.
func openBelow(fd int, name string, how int) (int, error) {
	how |= sys.O_DIRECTORY | sys.O_NOFOLLOW | sys.O_CLOEXEC
	for {
		n, err := sys.Openat2(fd, name, &sys.OpenHow{
			Flags: uint64(how), Resolve: sys.RESOLVE_BENEATH | sys.RESOLVE_NO_XDEV | sys.RESOLVE_NO_SYMLINKS,
		})
		if errors.Is(err, sys.ENOSYS) || errors.Is(err, sys.EPERM) { // Linux before 5.6, old containers
			n, err = sys.Openat(fd, name, how, 0)
		}
		if !errors.Is(err, sys.EINTR) && !errors.Is(err, sys.EAGAIN) {
			return n, err
		}
	}
}
