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

func contextError(ctx context.Context, what string) error {
	return &Error{ErrPending, "ctx", fmt.Errorf("%s: %w", what, context.Cause(ctx))}
}

func (e *Engine) errGone(rank int) error {
	return Fail(ErrProcFailed, "", "rank %d of the job, at %s, takes no part any more: %w",
		rank, e.peers[rank].name, e.peers[rank].err)
}
