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

// Code is a numbered return value: the manual's (page 24), or one of our own
// from -64 down. It is an error; errors.Is(err, vmmc.ErrRevoked) finds it in
// whatever a call returned. The numbers never change.
type Code = code.Code

// The return values. Those that no call of this package returns have a number and
// a text all the same, for [ErrorStr] and other languages.
const (
	Success = code.Success // the absence of an error

	ErrBadAlignment           = code.BadAlignment         // offset, length or address not in whole words
	ErrBufAlreadyExists       = code.BufAlreadyExists     // this id is exported already
	ErrBadIbufState           = code.BadIbufState         // the import cannot be used; more precise codes are also this one
	ErrBadRbufState           = code.BadRbufState         // the export cannot be used
	ErrBadProxyExtension      = code.BadProxyExtension    // of the C library alone
	ErrBadProxyAddr           = code.BadProxyAddr         // the range is not within one import
	ErrBadSize                = code.BadSize              // not positive
	ErrBadArg                 = code.BadArg               // outside an argument's domain
	ErrNotImplemented         = code.NotImplemented       // not on this system
	ErrUnblockedNotifications = code.UnblockedNotifs      // of no call: unblocking twice has no effect
	ErrBlockedNotifications   = code.BlockedNotifications // notifications of the export are queued and blocked
	ErrNoPhysDestSpace        = code.NoPhysDestSpace      // the limit on imported bytes is reached
	ErrNoVirtDestSpace        = code.NoVirtDestSpace      // DestSpace is used up
	ErrNoMem                  = code.NoMem                // no memory, or no room in a table
	ErrNoSuchNode             = code.NoSuchNode
	ErrNoSuchProcess          = code.NoSuchProcess
	ErrNotInHandler           = code.NotInHandler   // not to be called by a notification handler
	ErrOverlappedBufs         = code.OverlappedBufs // the memory is exported already, in part or whole
	ErrInProgress             = code.InProgress     // the request is not over yet
	ErrNoSuchError            = code.NoSuchError    // of the C library's DataEnd; here it is ok == false
	ErrNoParent               = code.NoParent       // no other process spawned this one
	ErrBadAsyncHandle         = code.BadAsyncHandle // a request that was never begun
	ErrStaleHandle            = code.StaleHandle    // an import that was given out already

	ErrNoRights        = code.NoRights    // the exporter does not allow it
	ErrPeerGone        = code.PeerGone    // the exporting process, or its node, is gone
	ErrRevoked         = code.Revoked     // the exporter closed the export
	ErrStaleImport     = code.StaleImport // another incarnation of the peer
	ErrNotRedirectable = code.NotRedirectable
	ErrTimeout         = code.Timeout
	ErrOutcomeUnknown  = code.OutcomeUnknown // wholly, partly or not delivered
	ErrNoDaemon        = code.NoDaemon       // no node daemon at the socket
	ErrUnreachable     = code.Unreachable    // the other node does not answer
	ErrClosed          = code.Closed         // closed by this process
	ErrProtocol        = code.Protocol       // the peer broke the protocol
	ErrBadConfig       = code.BadConfig      // a node's configuration does not hold together
	ErrNoCredit        = code.NoCredit       // a handler's notification would have to wait
	ErrNoSuchSession   = code.NoSuchSession  // the node has no session of this name
)

// errNilContext is the cause of every call that was given no context. Each exported call compares
// its context with nil itself, before anything has begun: so a fast path, which does not look at
// its context, refuses it as well.
var errNilContext = code.New(code.BadArg, "the context is nil: give context.Background() for none")

// ErrorStr is the text of a return value (the manual's vmmc_ErrorStr).
func ErrorStr(c Code) string { return c.Error() }

// Error is what every call of this package returns when it fails: what was
// tried, with which peer and on which path, and why it failed.
type Error struct {
	Op   string // what was tried, with its figures
	Peer string // the other process, where there is one
	Path string // "mapped" or "stream", where there is a link
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
	if e.Path != "" {
		fmt.Fprintf(&b, " (%s link %#x)", e.Path, e.Link)
	}
	b.WriteString(": ")
	if e.Err != nil {
		b.WriteString(e.Err.Error())
	} else {
		b.WriteString(e.Code.Error())
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is this error's code, or the manual's nearest one:
// [ErrBadIbufState] for [ErrPeerGone], [ErrRevoked], [ErrStaleImport],
// [ErrNoRights] and [ErrClosed], and [ErrBadRbufState] for [ErrNotRedirectable].
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	if !ok {
		return false
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
	return c == e.Code
}

// fail makes an Error of whatever the layers below returned.
func fail(op string, err error) *Error {
	return &Error{Op: op, Code: codeOf(err), Err: err}
}

// failf makes an Error of a code and a text.
func failf(op string, c Code, format string, args ...any) *Error {
	return &Error{Op: op, Code: c, Err: code.New(c, format, args...)}
}

func codeOf(err error) Code {
	var c Code
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ErrTimeout // also where the outcome is unknown, which errors.Is finds beside it
	case errors.Is(err, wire.ErrFrame), errors.Is(err, wire.ErrHello), errors.Is(err, shmlayout.ErrLayout), errors.Is(err, shm.ErrAnnounced):
		return ErrProtocol // likewise
	case errors.As(err, &c):
		return c
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		return ErrNoMem
	}
	return ErrBadArg
}

// opError describes an error of a call on the export.
func (e *Export) opError(op string, err error) error {
	f := fail(op, err)
	f.ofExport = true
	return f
}
