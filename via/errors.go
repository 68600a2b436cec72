package via

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// Code is the number of an error: one of VIPL's return values (VIP_RETURN). [errors.Is] finds it in
// every error of this package.
//
// Experimental: it may change in any release.
type Code int

// The codes, with VIPL's numbers.
//
// Experimental: they may change in any release.
const (
	ErrNotDone          = Code(1)  // nothing is complete, and work is outstanding
	ErrInvalidParameter = Code(2)  // an argument that cannot be, or an object that was closed
	ErrResource         = Code(3)  // a limit of the NIC is reached, or the object is in use
	ErrTimeout          = Code(4)  // the context has ended
	ErrReject           = Code(5)  // the other side has rejected the request
	ErrInvalidLevel     = Code(6)  // no reliability level, or the two ends differ in it
	ErrInvalidMTU       = Code(7)  // MaxTransferSize is not offered, or the two ends differ in it
	ErrInvalidTag       = Code(9)  // a protection tag of another NIC, or one that was destroyed
	ErrInvalidRDMARead  = Code(10) // RDMA read is not offered at the level
	ErrDescriptor       = Code(11) // the descriptor has failed (its Status), or the queue is empty
	ErrInvalidState     = Code(12) // the VI is in the wrong state
	ErrNameService      = Code(13) // no such name or address
	ErrNoMatch          = Code(14) // nothing waits for requests at the address
	ErrNotReachable     = Code(15) // the address is of no node, or its node does not answer
)

var codeText = map[Code]string{
	ErrNotDone:          "nothing is complete yet",
	ErrInvalidParameter: "invalid parameter",
	ErrResource:         "out of resources, or in use",
	ErrTimeout:          "timeout",
	ErrReject:           "the connection was rejected",
	ErrInvalidLevel:     "invalid reliability level",
	ErrInvalidMTU:       "invalid MaxTransferSize",
	ErrInvalidTag:       "invalid protection tag",
	ErrInvalidRDMARead:  "RDMA read is not offered at this level",
	ErrDescriptor:       "descriptor error",
	ErrInvalidState:     "the VI is in the wrong state",
	ErrNameService:      "name service error",
	ErrNoMatch:          "nothing waits for a request at this address",
	ErrNotReachable:     "not reachable",
}

// Error is the code's own text.
func (c Code) Error() string {
	if s, ok := codeText[c]; ok {
		return s
	}
	return fmt.Sprintf("VIA error %d", int(c))
}

// Error is what calls of this package return when they fail, unless the code says all.
//
// Experimental: it may change in any release.
type Error struct {
	Op   string // what was tried
	Code Code
	Err  error // the cause, or nil
}

// Error returns the whole of it in one line.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("via: %s: %v", e.Op, e.Code)
	}
	return fmt.Sprintf("via: %s: %v: %v", e.Op, e.Code, e.Err)
}

// Is reports whether target is this error's code.
func (e *Error) Is(target error) bool {
	c, ok := target.(Code)
	return ok && c == e.Code
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func fail(op string, code Code, format string, args ...any) error {
	e := &Error{Op: op, Code: code}
	if format != "" {
		e.Err = fmt.Errorf(format, args...)
	}
	return e
}

// contextError is the error of a context that has ended.
func contextError(ctx context.Context, op string) error {
	return &Error{Op: op, Code: ErrTimeout, Err: context.Cause(ctx)}
}

// checkCall refuses calls that could hang.
func checkCall(ctx context.Context, op string) error {
	switch {
	case vmmc.InHandler():
		return &Error{Op: op, Code: ErrInvalidState, Err: vmmc.ErrNotInHandler}
	case ctx == nil:
		return fail(op, ErrInvalidParameter, "the context is nil")
	}
	return nil
}

// codeOf is the code for an error of package vmmc.
func codeOf(ctx context.Context, err error) Code {
	switch {
	case ctx.Err() != nil:
		return ErrTimeout
	case errors.Is(err, vmmc.ErrNoSuchNode), errors.Is(err, vmmc.ErrUnreachable),
		errors.Is(err, vmmc.ErrNoDaemon):
		return ErrNotReachable
	case errors.Is(err, vmmc.ErrNoSuchProcess), errors.Is(err, vmmc.ErrPeerGone),
		errors.Is(err, vmmc.ErrRevoked), errors.Is(err, vmmc.ErrNoRights):
		return ErrNoMatch
	default:
		return ErrResource
	}
}

// ErrorCode says what an asynchronous error is (VIP_ERROR_CODE).
//
// Experimental: it may change in any release.
type ErrorCode int

// The asynchronous errors, with VIPL's numbers.
//
// Experimental: they may change in any release.
const (
	PostDescriptor  = ErrorCode(0)  // a descriptor was posted that is posted already
	ConnectionLost  = ErrorCode(1)  // the connection is gone, and the VI is in state Failed
	ReceiveEmpty    = ErrorCode(2)  // a message arrived for which no receive was posted
	Overrun         = ErrorCode(3)  // too many descriptors were posted to a queue
	WriteProtection = ErrorCode(4)  // an incoming RDMA write was refused
	WriteData       = ErrorCode(5)  // an incoming RDMA write was corrupt: the link has ended
	WriteAborted    = ErrorCode(6)  // the connection was lost in the middle of an incoming RDMA write
	ReadProtection  = ErrorCode(7)  // an incoming RDMA read was refused
	Catastrophic    = ErrorCode(10) // a completion queue has overflown
)

var errorCodeText = map[ErrorCode]string{
	PostDescriptor:  "descriptor posted twice",
	ConnectionLost:  "connection lost",
	ReceiveEmpty:    "no receive was posted",
	Overrun:         "queue overrun",
	WriteProtection: "RDMA write refused",
	WriteData:       "RDMA write corrupt",
	WriteAborted:    "RDMA write aborted",
	ReadProtection:  "RDMA read refused",
	Catastrophic:    "catastrophic failure",
}

// String is the error's own text.
func (c ErrorCode) String() string {
	if s, ok := errorCodeText[c]; ok {
		return s
	}
	return fmt.Sprintf("error code %d", int(c))
}

// AsyncError is an error that no call can return (VIP_ERROR_DESCRIPTOR). VI, CQ and Descriptor are
// nil where they have no part in it.
//
// Experimental: it may change in any release.
type AsyncError struct {
	NIC        *NIC
	VI         *VI
	CQ         *CompletionQueue
	Descriptor *Descriptor
	Code       ErrorCode
	Err        error // the cause, or nil
}
