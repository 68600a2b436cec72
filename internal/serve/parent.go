package serve

import (
	"context"
	"errors"
	"io"
	"os"
)

var errParentGone = errors.New("the parent process is gone")

// withParent returns a context that ends when descriptor fd reads its end: the
// kernel closes the other side of the pipe however the parent dies. A parent
// that writes a byte lets go: from then on its death means nothing. The reader
// keeps the descriptor until one of these or until the program ends; release
// only stops the context.
func withParent(ctx context.Context, fd int) (_ context.Context, release func(), err error) {
	f := os.NewFile(uintptr(fd), "parent pipe")
	if f == nil {
		return nil, nil, Usage("--parent-pipe %d: not a descriptor", fd)
	}
	if _, err := f.Stat(); err != nil {
		return nil, nil, Usage("--parent-pipe %d: no such descriptor was inherited: %v", fd, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		var b [1]byte
		if _, err := io.ReadFull(f, b[:]); err != nil {
			cancel(errParentGone)
		}
		_ = f.Close()
	}()
	return ctx, func() { cancel(nil) }, nil
}
