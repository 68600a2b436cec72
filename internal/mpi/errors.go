package mpi

import (
	"context"
	"fmt"
)

// Class is an error class of MPI.
type Class int

// The classes that the engine returns.
const (
	ErrBuffer Class = iota + 1
	ErrCount
	ErrType
	ErrTag
	ErrComm
	ErrRank
	ErrRequest
	ErrRoot
	ErrGroup
	ErrOp
	ErrArg
	ErrTruncate
	ErrOther
	ErrPending
	ErrProcFailed
	ErrSession
	ErrRevoked
	ErrCanceled // no class of MPI: the context has ended, and the call is over
)

// Error is an error of the engine: its class, and why.
type Error struct {
	Class Class
	Arg   string // the argument that cannot be
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Fail is an error of a class, of an argument unless that is "".
func Fail(c Class, arg, format string, args ...any) error {
	return &Error{c, arg, fmt.Errorf(format, args...)}
}

// canceled is the error of a call that is over because its context has ended.
func canceled(ctx context.Context, what string) error {
	return &Error{ErrCanceled, "ctx", fmt.Errorf("%s: %w", what, context.Cause(ctx))}
}

// stillPending is the error of a wait whose context has ended: the request goes on.
func stillPending(ctx context.Context) error {
	return &Error{ErrPending, "ctx", fmt.Errorf("wait: %w: the request goes on", context.Cause(ctx))}
}

func (e *Engine) errGone(rank int) error {
	return Fail(ErrProcFailed, "", "rank %d of the job, at %s, takes no part any more: %w",
		rank, e.peers[rank].name, e.peers[rank].err)
}
