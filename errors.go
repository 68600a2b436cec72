package vmmc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Code is the number of an error: one of the manual's return values (page 24), or one of our own
// from -64 down. It is an error itself: errors.Is(err, vmmc.ErrRevoked) finds it in what a call
// returned, and errors.As finds the Code of an [Error]. The numbers never change. No call returns
// the code 0, the manual's success: a call that succeeds returns a nil error.
type Code int32

// Error is the code's own text (the manual's vmmc_ErrorStr).
func (c Code) Error() string { return code.Code(c).Error() }

// The codes. Package manual has those of the manual that no Go call returns.
const (
	ErrBadAlignment         = Code(code.BadAlignment)         // offset, length or address not in whole words
	ErrBufAlreadyExists     = Code(code.BufAlreadyExists)     // this id is exported already
	ErrBadIbufState         = Code(code.BadIbufState)         // the import cannot be used; more precise codes are also this one
	ErrBadRbufState         = Code(code.BadRbufState)         // the export cannot be used
	ErrBadProxyAddr         = Code(code.BadProxyAddr)         // the range is not within one import
	ErrBadSize              = Code(code.BadSize)              // not positive
	ErrBadArg               = Code(code.BadArg)               // outside an argument's domain
	ErrNotImplemented       = Code(code.NotImplemented)       // not on this system
	ErrBlockedNotifications = Code(code.BlockedNotifications) // notifications of the export are queued and blocked
	ErrNoPhysDestSpace      = Code(code.NoPhysDestSpace)      // the limit on imported bytes is reached
	ErrNoMem                = Code(code.NoMem)                // no memory, or no room in a table
	ErrNoSuchNode           = Code(code.NoSuchNode)
	ErrNoSuchProcess        = Code(code.NoSuchProcess)
	ErrNotInHandler         = Code(code.NotInHandler)   // not to be called by a notification handler
	ErrOverlappedBufs       = Code(code.OverlappedBufs) // the memory is exported already, in part or whole
	ErrInProgress           = Code(code.InProgress)     // the request is not over yet
	ErrNoParent             = Code(code.NoParent)       // no other process spawned this one
	ErrBadAsyncHandle       = Code(code.BadAsyncHandle) // a request that was never begun
	ErrStaleHandle          = Code(code.StaleHandle)    // an import that was given out already

	ErrNoRights        = Code(code.NoRights)    // the exporter does not allow it
	ErrPeerGone        = Code(code.PeerGone)    // the exporting process, or its node, is gone
	ErrRevoked         = Code(code.Revoked)     // the exporter closed the export
	ErrStaleImport     = Code(code.StaleImport) // another incarnation of the peer
	ErrNotRedirectable = Code(code.NotRedirectable)
	ErrTimeout         = Code(code.Timeout)        // the context's deadline passed, or a time limit of the library
	ErrOutcomeUnknown  = Code(code.OutcomeUnknown) // wholly, partly or not delivered
	ErrNoDaemon        = Code(code.NoDaemon)       // no node daemon at the socket
	ErrUnreachable     = Code(code.Unreachable)    // the other node does not answer
	ErrClosed          = Code(code.Closed)         // closed by this process
	ErrProtocol        = Code(code.Protocol)       // the peer broke the protocol
	ErrBadConfig       = Code(code.BadConfig)      // a node's configuration does not hold together
	ErrNoCredit        = Code(code.NoCredit)       // a handler's notification would have to wait
	ErrNoSuchSession   = Code(code.NoSuchSession)  // the node has no session of this name
	ErrCanceled        = Code(code.Canceled)       // the context was cancelled
	ErrNameTaken       = Code(code.NameTaken)      // another process has published something under the name
	ErrBadName         = Code(code.BadName)        // no name that can be published
	ErrUnknown         = Code(code.Unknown)        // an error without a code, mostly the system's: errors.Is and errors.As find it
)

// errNilContext is the cause of every call that was given no context. Each exported call compares
// its context with nil itself, before anything has begun: so a fast path, which does not look at
// its context, refuses it as well.
var errNilContext = code.New(code.BadArg, "the context is nil: give context.Background() for none")

// Error is what every call of this package returns when it fails: what was
// tried, with which peer and on which path, and why it failed.
type Error struct {
	Op   string // what was tried, with its figures
	Peer string // the other process, where there is one
	Path Path   // where there is a link
	Link uint64 // the link's number, where it has one
	Code Code
	Err  error // the cause

	ofExport bool     // a call on this process's own export failed
	outcome  *Outcome // of an atomic, where it is still to come
}

// Error returns the whole of it in one line: what was tried, with which peer, on which
// path, and why it failed. It is what the manual's vmmc_Error prints.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("vmmc: " + e.Op)
	if e.Peer != "" {
		b.WriteString(", " + e.Peer)
	}
	if e.Path != 0 {
		fmt.Fprintf(&b, " (%s link %#x)", e.Path, e.Link)
	}
	b.WriteString(": ")
	if e.Err != nil {
		b.WriteString(strings.TrimPrefix(e.Err.Error(), "vmmc: ")) // of an Error that is the cause
	} else {
		b.WriteString(e.Code.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is this error's code, a code of its cause, or the manual's nearest one:
// [ErrBadIbufState] for [ErrPeerGone], [ErrRevoked], [ErrStaleImport],
// [ErrNoRights] and [ErrClosed], and [ErrBadRbufState] for [ErrNotRedirectable].
// An error with [ErrTimeout] is also [context.DeadlineExceeded], whether this process or a daemon
// found the time up; one with [ErrCanceled] is [context.Canceled].
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	if !ok {
		return e.Code == ErrTimeout && target == context.DeadlineExceeded ||
			e.Code == ErrCanceled && target == context.Canceled
	}
	switch e.Code {
	case ErrPeerGone, ErrRevoked, ErrStaleImport, ErrNoRights, ErrClosed:
		if e.ofExport && c == ErrBadRbufState || !e.ofExport && c == ErrBadIbufState {
			return true
		}
	case ErrNotRedirectable:
		if c == ErrBadRbufState {
			return true
		}
	}
	return c == e.Code || errors.Is(e.Err, code.Code(c))
}

// As sets a target of type *[Code] to this error's code.
func (e *Error) As(target any) bool {
	c, ok := target.(*Code)
	if ok {
		*c = e.Code
	}
	return ok
}

// fail makes an Error of whatever the layers below returned.
func fail(op string, err error) *Error {
	return &Error{Op: op, Code: codeOf(err), Err: err}
}

// failf makes an Error of a code and a text.
func failf(op string, c Code, format string, args ...any) *Error {
	return &Error{Op: op, Code: c, Err: code.New(code.Code(c), format, args...)}
}

// contextEnded adds the context's own error to one that is only the cause that the program gave
// when it ended the context.
func contextEnded(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) &&
		!errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// codeOf finds the code of an error of the layers below.
func codeOf(err error) Code {
	var own Code
	var c code.Code
	switch {
	case errors.Is(err, context.Canceled): // also where the outcome is unknown, which errors.Is finds beside it
		return ErrCanceled
	case errors.Is(err, context.DeadlineExceeded): // likewise
		return ErrTimeout
	case errors.Is(err, wire.ErrFrame), errors.Is(err, wire.ErrHello), errors.Is(err, shmlayout.ErrLayout), errors.Is(err, shm.ErrAnnounced):
		return ErrProtocol
	case errors.As(err, &own): // an Error's too
		return own
	case errors.As(err, &c):
		return Code(c)
	case errors.Is(err, shm.ErrForbidden):
		return ErrBadArg
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return ErrNoMem
	}
	return ErrUnknown
}
