package pair

import (
	"context"
	"errors"

	"github.com/vmmc-go/vmmc"
)

// CheckCall refuses calls that could hang: those in a notification handler, and without a context.
func CheckCall(ctx context.Context, op string) error {
	switch {
	case vmmc.InHandler():
		return &vmmc.Error{Op: op, Code: vmmc.ErrNotInHandler, Err: vmmc.ErrNotInHandler}
	case ctx == nil:
		return BadArg(op, errors.New("the context is nil"))
	}
	return nil
}

// BadArg is the error of a call with an argument that cannot be.
func BadArg(op string, err error) error {
	return &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: err}
}

// ContextError is the error of a context that has ended.
func ContextError(ctx context.Context, op string) *vmmc.Error {
	code := vmmc.ErrTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = vmmc.ErrCanceled
	}
	return &vmmc.Error{Op: op, Code: code, Err: context.Cause(ctx)}
}

// ClosedError is the error of a call of something that is closed.
func ClosedError(op, what string) error {
	return &vmmc.Error{Op: op, Code: vmmc.ErrClosed, Err: errors.New(what + " is closed")}
}

// NoWait is a context that has ended. A send looks at it only before it has to wait, or between the
// pieces of a long message.
var NoWait = func() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	return ctx
}()
