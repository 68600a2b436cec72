package manual

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vmmc-go/vmmc"
)

// ImportRequest is an import that is being made (vmmc_ImportRecvBufAsync). Its methods may be
// called concurrently.
type ImportRequest struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	im    *vmmc.Import
	err   error
	taken bool // reports whether Status gave im out. Guarded by mu.
}

// ImportAsync begins an import by p and does not wait for it (vmmc_ImportRecvBufAsync). The context
// is the whole request's: when it ends before the import is made, the request fails. An import that
// was made and never asked for is closed with the process, and one that is being made fails then.
// In a notification handler the request fails with [vmmc.ErrNotInHandler].
func ImportAsync(
	ctx context.Context, p *vmmc.Process, node vmmc.NodeID, pid vmmc.PID, id uint32,
) *ImportRequest {
	r := &ImportRequest{cancel: func() {}, done: make(chan struct{})}
	switch {
	case ctx == nil:
		r.finish(nil, nilContext(fmt.Sprintf("import buffer %d", id)))
	case p == nil:
		r.finish(nil, fail(fmt.Sprintf("import buffer %d", id), vmmc.ErrBadArg, "there is no process"))
	case vmmc.InHandler():
		r.finish(nil, inHandler("import"))
	default:
		ctx, r.cancel = context.WithCancel(ctx)
		go func() { r.finish(p.Import(ctx, node, pid, id)) }() // Process.Close ends it
	}
	return r
}

func (r *ImportRequest) finish(im *vmmc.Import, err error) {
	r.mu.Lock()
	r.im, r.err = im, err
	r.mu.Unlock()
	close(r.done)
	r.cancel()
}

// Status says how the request stands (vmmc_ImportRecvBufStatus): [vmmc.ErrInProgress] until it is
// over, then, once, the import, or why there is none. After the import was given out the error is
// [vmmc.ErrStaleHandle]. That of a nil request is [vmmc.ErrBadAsyncHandle]. It never waits.
func (r *ImportRequest) Status() (*vmmc.Import, error) {
	if r == nil || r.done == nil {
		return nil, fail("ask for an import", vmmc.ErrBadAsyncHandle, "this request was never begun")
	}
	select {
	case <-r.done:
	default:
		return nil, vmmc.ErrInProgress
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		return nil, r.err
	case r.taken:
		return nil, fail("ask for an import", vmmc.ErrStaleHandle, "the import was given out already")
	}
	r.taken = true
	return r.im, nil
}

// Wait is Status once the request is over, or the context's error; then the request goes on. It
// must not be called in a notification handler.
func (r *ImportRequest) Wait(ctx context.Context) (*vmmc.Import, error) {
	const op = "wait for an import"
	switch {
	case r == nil || r.done == nil:
		return r.Status()
	case vmmc.InHandler():
		return nil, inHandler(op)
	case ctx == nil:
		return nil, nilContext(op)
	}
	select {
	case <-r.done:
		return r.Status()
	case <-ctx.Done():
		return nil, ended(ctx, op)
	}
}

// Cancel gives the request up, and closes the import if it was made and not yet given out. In a
// notification handler it does not wait for that.
func (r *ImportRequest) Cancel() {
	if r == nil || r.done == nil {
		return
	}
	r.cancel()
	drop := func() {
		<-r.done
		if im, err := r.Status(); err == nil {
			_ = im.Close()
		}
	}
	if vmmc.InHandler() {
		go drop() // p.Close ends it: the import fails then, or has been made
		return
	}
	drop()
}

func nilContext(op string) error {
	return fail(op, vmmc.ErrBadArg, "the context is nil: give context.Background() for none")
}

func inHandler(op string) error {
	return fail(op, vmmc.ErrNotInHandler, vmmc.ErrNotInHandler.Error())
}

// ended is the error of a wait that its context has ended.
func ended(ctx context.Context, op string) error {
	c, err := vmmc.ErrCanceled, ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		c = vmmc.ErrTimeout
	}
	if cause := context.Cause(ctx); errors.Is(cause, err) {
		err = cause
	} else {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return &vmmc.Error{Op: op, Code: c, Err: err}
}
