package mpi

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
)

// Finish waits until all ranks have called it, and ends the engine. What was sent before is
// received before, but for sends that were given up before a receive has matched them. It may be
// called again after an error of the context.
//
// Where a rank is gone, survivors waits until all others have called Finish. A rank that ends earlier
// would be gone for those that go on.
func (e *Engine) Finish(ctx context.Context, survivors func(ctx context.Context) error) error {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return Fail(ErrOther, "", "MPI is finalized already")
		}
		wait := slices.ContainsFunc(e.requests, func(s slot) bool { return s.r != nil && s.r.mustLeave() })
		e.mu.Unlock()
		if !wait {
			break
		}
		e.step()
		select {
		case <-ctx.Done():
			return canceled(ctx, "wait until all messages have left")
		case <-time.After(time.Millisecond):
		}
	}
	e.mu.Lock()
	e.finishing = true
	e.mu.Unlock()
	var err error
	if e.g != nil {
		err = e.g.Barrier(ctx)
	}
	if err != nil && ctx.Err() == nil && survivors != nil {
		_ = survivors(ctx) // the barrier's error is that of the call
	}
	if err != nil && ctx.Err() != nil {
		e.mu.Lock()
		e.finishing = false
		for _, pr := range e.untold {
			go e.gone(pr.rank, e.errGone(pr.rank))
		}
		e.untold = nil
		e.mu.Unlock()
		return canceled(ctx, "wait until all ranks have called Finalize")
	}
	if err != nil {
		err = &Error{ErrProcFailed, "", err}
	}
	e.mu.Lock()
	e.finished = true
	e.mu.Unlock()
	return errors.Join(err, e.release())
}

// mustLeave reports whether Finish waits for a request: a send to a living rank. No receive may ever
// match one that was given up, and the program has no request to cancel.
func (r *Request) mustLeave() bool {
	return r.kind == sending && !r.peer.lost() && (!r.abandoned || r.state != left)
}

// resigning bounds how long a rank that ends without the others tells them.
const resigning = time.Second

// Abandon ends the engine without the other ranks, for which this one is gone. No other call of it may
// be under way.
func (e *Engine) Abandon() error { return e.release() }

// release ends the engine.
func (e *Engine) release() error {
	e.mu.Lock()
	resign := e.g != nil && !e.closed && !e.finished
	e.closed, e.finishing = true, true
	for _, s := range e.requests {
		if s.r != nil {
			s.r.fail(Fail(ErrRequest, "", "MPI is finalized"))
		}
	}
	for _, r := range e.probers {
		r.finish(Fail(ErrRequest, "", "MPI is finalized"))
	}
	e.probers = nil
	e.mu.Unlock()
	if e.deaf != nil {
		e.deaf()
	}
	if resign { // ranks that are not connected with this one do not see its exports end
		ctx, stop := context.WithTimeout(context.Background(), resigning)
		_ = e.g.Resign(ctx) // an error: they do not answer
		stop()
	}
	e.stop()
	e.run.Wait()
	e.ending.Store(true)
	for e.pollers.Load() > 0 {
		runtime.Gosched()
	}
	var errs []error
	for _, pr := range e.peers {
		if pr.port == nil {
			continue
		}
		e.mu.Lock()
		port := pr.port
		e.mu.Unlock()
		errs = append(errs, port.Close())
	}
	for _, m := range e.modules {
		errs = append(errs, m.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(append(errs, e.q.close())...)
}
