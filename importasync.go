package vmmc

import (
	"context"
	"fmt"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
)

// ImportRequest is an import that is being made (vmmc_ImportRecvBufAsync).
type ImportRequest struct {
	p    *Process
	stop context.CancelFunc
	done chan struct{}

	mu    sync.Mutex
	im    *Import
	err   error
	taken bool
}

// ImportAsync begins an import and does not wait for it
// (vmmc_ImportRecvBufAsync). The context is the whole request's: when it ends
// before the import is made, the request fails. An import that was made and
// never asked for is closed with the process.
func (p *Process) ImportAsync(ctx context.Context, node NodeID, pid PID, id uint32) *ImportRequest {
	if ctx == nil {
		r := &ImportRequest{p: p, stop: func() {}, done: make(chan struct{})}
		r.finish(nil, fail(fmt.Sprintf("import buffer %d", id), errNilContext))
		return r
	}
	ctx, stop := context.WithCancel(ctx)
	r := &ImportRequest{p: p, stop: stop, done: make(chan struct{})}
	if link.InHandler() {
		r.finish(nil, failf("import", ErrNotInHandler, "%v", code.NotInHandler))
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		r.finish(nil, failf("import", ErrClosed, "the process is closed"))
		return r
	}
	p.begun.Go(func() {
		defer context.AfterFunc(p.life, stop)()
		r.finish(p.Import(ctx, node, pid, id))
	})
	return r
}

func (r *ImportRequest) finish(im *Import, err error) {
	r.mu.Lock()
	r.im, r.err = im, err
	r.mu.Unlock()
	close(r.done)
	r.stop()
}

// Status says how the request stands (vmmc_ImportRecvBufStatus):
// [ErrInProgress] until it is over, then, once, the import, or why there is none.
// After the import was given out the error is [ErrStaleHandle]. That of a nil
// request is [ErrBadAsyncHandle]. It never waits.
func (r *ImportRequest) Status() (*Import, error) {
	if r == nil || r.done == nil {
		return nil, failf("ask for an import", ErrBadAsyncHandle, "this request was never begun")
	}
	select {
	case <-r.done:
	default:
		return nil, code.InProgress
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		return nil, r.err
	case r.taken:
		return nil, failf("ask for an import", ErrStaleHandle, "the import was given out already")
	}
	r.taken = true
	return r.im, nil
}

// Wait is Status once the request is over, or the context's error; then the
// request goes on. It must not be called in a notification handler.
func (r *ImportRequest) Wait(ctx context.Context) (*Import, error) {
	if r == nil || r.done == nil {
		return r.Status()
	}
	if link.InHandler() {
		return nil, failf("wait for an import", ErrNotInHandler, "%v", code.NotInHandler)
	}
	if ctx == nil {
		return nil, fail("wait for an import", errNilContext)
	}
	select {
	case <-r.done:
		return r.Status()
	case <-ctx.Done():
		return nil, fail("wait for an import", context.Cause(ctx))
	}
}

// Cancel gives the request up, and closes the import if it was made and not yet
// given out. In a notification handler it does not wait for that.
func (r *ImportRequest) Cancel() {
	if r == nil || r.done == nil {
		return
	}
	r.stop()
	drop := func() {
		<-r.done
		if im, err := r.Status(); err == nil {
			_ = im.Close()
		}
	}
	if !link.InHandler() {
		drop()
		return
	}
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if !r.p.closed { // which closes all imports
		r.p.begun.Go(drop)
	}
}
