package unix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sys "golang.org/x/sys/unix"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() { testutil.RegisterRole("removetree", removeTreeRole) }

// removeTreeRole removes a tree with few descriptors.
func removeTreeRole() int {
	few := sys.Rlimit{Cur: 24, Max: 24}
	if err := sys.Setrlimit(sys.RLIMIT_NOFILE, &few); err != nil {
		fmt.Println(err)
		return 2
	}
	if err := RemoveTree(context.Background(), testutil.Args()[0]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// quickDir is a directory where many files are made soon: in memory, if the system has such a one.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "removed-tree-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = RemoveTree(context.Background(), dir) })
	return dir
}

// nest makes directories in each other, each with a file.
func nest(t *testing.T, dir string, depth int, name string) {
	t.Helper()
	fd, err := sys.Open(dir, sys.O_RDONLY|sys.O_DIRECTORY|sys.O_CLOEXEC, 0)
	for i := 0; err == nil && i < depth; i++ {
		down := -1
		if err = sys.Mkdirat(fd, name, 0o755); err == nil {
			if err = sys.Mknodat(fd, "file", sys.S_IFREG|0o600, 0); err == nil || i > 0 && errors.Is(err, sys.EEXIST) {
				down, err = sys.Openat(fd, name, sys.O_RDONLY|sys.O_DIRECTORY|sys.O_CLOEXEC, 0)
			}
		}
		_ = Close(fd)
		fd = down
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = Close(fd)
}

// A tree is removed with two dozen descriptors, whatever its user has made of it, and nothing else
// is.
func TestRemoveTree(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dear := quickDir(t)
	must(os.WriteFile(filepath.Join(dear, "file"), []byte("dear"), 0o600))
	for name, make := range map[string]func(dir string){
		"nothing":       func(dir string) { must(os.Remove(dir)) },
		"a file":        func(dir string) { must(os.Remove(dir)); must(os.WriteFile(dir, nil, 0o600)) },
		"a link":        func(dir string) { must(os.Remove(dir)); must(os.Symlink(dear, dir)) },
		"an empty one":  func(string) {},
		"60,000 levels": func(dir string) { nest(t, dir, 60_000, "d") },
		"long names":    func(dir string) { nest(t, dir, 9000, strings.Repeat("x", 255)) },
		"names as moved": func(dir string) {
			must(os.WriteFile(filepath.Join(dir, "removed.1"), nil, 0))
			nest(t, dir, 9000, "removed.1"[:8])
		},
		"names as moved, as many as there may be, and full": func(dir string) {
			// The deep ones are the first and the last, as file systems list entries in either
			// order.
			nest(t, dir, 5000, "first")
			for i := range 1<<16 + 1 {
				must(os.MkdirAll(fmt.Sprintf("%s/removed.%d/sub", dir, i), 0o755))
			}
			must(os.Mkdir(filepath.Join(dir, "last"), 0o755))
			nest(t, filepath.Join(dir, "last"), 5000, "last")
		},
		"many": func(dir string) {
			for i := range 300 {
				sub := filepath.Join(dir, fmt.Sprint("sub", i))
				must(os.MkdirAll(filepath.Join(sub, "deep"), 0o755))
				for j := range 30 {
					must(os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o600))
				}
			}
		},
		"links, pipes and sockets": func(dir string) {
			must(os.Symlink(dear, filepath.Join(dir, "dir")))
			must(os.Symlink("..", filepath.Join(dir, "up")))
			must(os.Symlink(filepath.Join(dear, "file"), filepath.Join(dir, "file")))
			must(os.Link(filepath.Join(dear, "file"), filepath.Join(dir, "name")))
			must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
			must(sys.Mknod(filepath.Join(dir, "socket"), sys.S_IFSOCK|0o600, 0))
		},
		"without rights": func(dir string) {
			must(os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755))
			for _, d := range []string{"a/b/c", "a/b", "a"} {
				must(os.Chmod(filepath.Join(dir, d), 0))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(quickDir(t), "tree")
			must(os.Mkdir(dir, 0o700))
			make(dir)
			c := testutil.Command(t, "removetree", dir)
			if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
				t.Fatalf("%v: %s", err, out)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is there: %v", err)
			}
			if b, err := os.ReadFile(filepath.Join(dear, "file")); err != nil || string(b) != "dear" {
				t.Errorf("a file elsewhere has %q (%v)", b, err)
			}
		})
	}
}

// What is mounted in a tree is taken out of it, and stays as it is.
func TestRemoveTreeWithMounts(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "mounting needs root; run the tests as root")
	dear, dir := quickDir(t), filepath.Join(t.TempDir(), "tree")
	for _, d := range []string{"a/b", "bound"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dear, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", filepath.Join(dir, "a/b"), "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("needs the right to mount: %v", err)
	}
	if err := syscall.Mount(dear, filepath.Join(dir, "bound"), "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := RemoveTree(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dear, "file")); err != nil {
		t.Errorf("what was mounted has lost a file: %v", err)
	}
}

// A removal ends with its context, its error is short, and the next one goes on.
func TestRemoveTreeIsResumed(t *testing.T) {
	dir := filepath.Join(quickDir(t), "tree")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	nest(t, dir, 20_000, strings.Repeat("\x01", 255))
	rounds := 0
	for ; ; rounds++ {
		err := RemoveTree(&rest{Context: t.Context(), left: 12_000}, dir)
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || len(err.Error()) > 1000 {
			t.Fatalf("an error of %d bytes: %.200v", len(err.Error()), err)
		}
	}
	if rounds == 0 {
		t.Error("it has not ended with its context")
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

// rest is a context that ends after it was asked so often.
type rest struct {
	context.Context
	left int
}

func (r *rest) Err() error {
	if r.left--; r.left < 0 {
		return context.Canceled
	}
	return nil
}
