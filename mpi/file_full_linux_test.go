package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/mpi"
)

// The disk is full in the midst of a write. The error says so, and how many bytes are in the file. With
// room again the file is used on.
func TestFileFullDisk(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "mounting a small disk needs root; run the tests as root")
	const room, size, record = 256 << 10, 3, 128
	for _, w := range ways {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, together %v", w.name, together), func(t *testing.T) {
				dir := t.TempDir()
				if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", room)); err != nil {
					t.Skipf("needs the right to mount: %v", err)
				}
				t.Cleanup(func() {
					if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
						t.Error(err)
					}
				})
				world := job(t, w, size)
				name := filepath.Join(dir, "file")
				fs := opened(t, world, name, mpi.ModeReadWrite|mpi.ModeCreate, map[string]string{"cb_buffer_size": "8192"})
				each(t, world, func(ctx context.Context, c *mpi.Comm) error {
					f := fs[c.Rank()]
					if err := f.Preallocate(ctx, 2*room); !errors.Is(err, mpi.ErrNoSpace) {
						return fmt.Errorf("room for more than there is: %w", err)
					}
					if err := errors.Join(f.SetSize(ctx, 0), strided(ctx, f, c, record)); err != nil {
						return err
					}
					b := bytes.Repeat([]byte{byte(c.Rank() + 1)}, room)
					var st mpi.Status
					var err error
					if together {
						st, err = mpi.WriteAtAll(ctx, f, 0, b)
					} else {
						st, err = mpi.WriteAt(ctx, f, 0, b)
					}
					if !errors.Is(err, mpi.ErrNoSpace) || st.Bytes == 0 || st.Bytes >= room {
						return fmt.Errorf("%d of %d bytes: %w", st.Bytes, room, err)
					}
					if err := c.Barrier(ctx); err != nil {
						return err
					}
					if got, err := mpi.ReadAt(ctx, f, 0, b[:st.Bytes]); err != nil || got.Bytes != st.Bytes {
						return fmt.Errorf("%d bytes are there, and the write has told of %d: %w", got.Bytes, st.Bytes, err)
					}
					if at := bytes.IndexFunc(b[:st.Bytes], func(r rune) bool { return r != rune(c.Rank()+1) }); at >= 0 {
						return fmt.Errorf("byte %d is %d", at, b[at])
					}
					if err := f.SetSize(ctx, 0); err != nil {
						return err
					}
					if st, err := mpi.WriteAtAll(ctx, f, 0, b[:record]); err != nil || st.Bytes != record {
						return fmt.Errorf("with room again %d bytes: %w", st.Bytes, err)
					}
					return nil
				})
			})
		}
	}
}
