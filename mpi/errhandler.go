package mpi

import (
	"errors"
	"fmt"
	"os"
)

// Errhandler is what is done when a call of a communicator, a window or a file fails, before the call
// returns its error (MPI_Errhandler, chapter MPI Environmental Management).
//
// Experimental: it may change in any release.
type Errhandler struct{ f func(c *Comm, err error) }

// The handlers that are there. Communicators, windows and files have ErrorsReturn at first: calls return
// their errors, as Go programs expect. What is done when a rank is gone, whatever calls say, is the choice of
// [WithFailed].
//
// Experimental: they may change in any release.
var (
	ErrorsReturn   = &Errhandler{func(*Comm, error) {}} // MPI_ERRORS_RETURN
	ErrorsAreFatal = &Errhandler{endJob}                // MPI_ERRORS_ARE_FATAL: the program ends, and so the job
)

func endJob(c *Comm, err error) {
	fmt.Fprintf(os.Stderr, "mpi: rank %d of %s ends, as errors are fatal: %v\n", c.Rank(), c.Name(), err)
	os.Exit(1)
}

// NewErrhandler makes a handler (MPI_Comm_create_errhandler, MPI_Win_create_errhandler,
// MPI_File_create_errhandler). f is called on the goroutine of the call that
// has failed, or that waits for a request that has failed. The call returns the error afterwards.
// f is called once for each call that fails. It is not called for a context that has ended, which the
// program has ended itself, nor by Finalize. Where a window or a file has failed, c is a communicator of
// its ranks, with its name.
//
// Experimental: it may change in any release.
func NewErrhandler(f func(c *Comm, err error)) *Errhandler {
	if f == nil {
		return ErrorsReturn
	}
	return &Errhandler{f}
}

// SetErrhandler sets what is done when a call of c fails (MPI_Comm_set_errhandler). Communicators that
// are made of c later have it too. nil is [ErrorsReturn].
//
// Experimental: it may change in any release.
func (c *Comm) SetErrhandler(h *Errhandler) {
	if h != nil && h.f == nil { // the zero Errhandler
		h = nil
	}
	c.handler.Store(h)
}

// Errhandler returns what is done when a call of c fails (MPI_Comm_get_errhandler).
//
// Experimental: it may change in any release.
func (c *Comm) Errhandler() *Errhandler {
	if h := c.handler.Load(); h != nil {
		return h
	}
	return ErrorsReturn
}

// CallErrhandler has the handler of c called for an error (MPI_Comm_call_errhandler).
//
// Experimental: it may change in any release.
func (c *Comm) CallErrhandler(err error) { c.Errhandler().f(c, err) }

// raise has the handler called for the error of a call, and returns that error. A call that consists
// of others may raise their errors again: that does nothing.
func (c *Comm) raise(err error) error {
	if err == nil || c == nil {
		return err
	}
	h := c.handler.Load()
	if h == nil || errors.Is(err, ErrCanceled) || errors.Is(err, ErrPending) {
		return err
	}
	var e *Error
	if errors.As(err, &e) && e.raised.Swap(true) {
		return err
	}
	h.f(c, err)
	return err
}

// like gives a new communicator, unless it is nil, what it has of the one that it was made of.
func (c *Comm) like(from *Comm) *Comm {
	if c != nil {
		c.handler.Store(from.handler.Load())
	}
	return c
}

// SetErrhandler sets what is done when a call of the window fails, or a request of one
// (MPI_Win_set_errhandler). A window has [ErrorsReturn] at first, whatever its communicator has. nil is
// ErrorsReturn.
//
// Experimental: it may change in any release.
func (w *Win[T]) SetErrhandler(h *Errhandler) { w.c.SetErrhandler(h) }

// Errhandler returns what is done when a call of the window fails (MPI_Win_get_errhandler).
//
// Experimental: it may change in any release.
func (w *Win[T]) Errhandler() *Errhandler { return w.c.Errhandler() }

// CallErrhandler has the handler of the window called for an error (MPI_Win_call_errhandler).
//
// Experimental: it may change in any release.
func (w *Win[T]) CallErrhandler(err error) { w.c.CallErrhandler(err) }

func (w *Win[T]) raise(err error) error {
	if w == nil {
		return err
	}
	return w.c.raise(err)
}

// SetErrhandler sets what is done when a call of the file fails, or a request of one
// (MPI_File_set_errhandler). A file has [ErrorsReturn] at first. nil is ErrorsReturn.
//
// Experimental: it may change in any release.
func (f *File) SetErrhandler(h *Errhandler) { f.c.SetErrhandler(h) }

// Errhandler returns what is done when a call of the file fails (MPI_File_get_errhandler).
//
// Experimental: it may change in any release.
func (f *File) Errhandler() *Errhandler { return f.c.Errhandler() }

// CallErrhandler has the handler of the file called for an error (MPI_File_call_errhandler).
//
// Experimental: it may change in any release.
func (f *File) CallErrhandler(err error) { f.c.CallErrhandler(err) }

func (f *File) raise(err error) error {
	if f == nil {
		return err
	}
	return f.c.raise(err)
}
