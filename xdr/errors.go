package xdr

import (
	"errors"
	"fmt"
)

// What can be wrong with a value or with its representation. Errors wrap one of these.
var (
	ErrShort    = errors.New("the input ends too early")
	ErrTooLong  = errors.New("longer than declared")
	ErrPadding  = errors.New("padding is not zero")
	ErrValue    = errors.New("no value of the type")
	ErrTrailing = errors.New("bytes are left over")
	ErrDepth    = errors.New("too many values within values")
	ErrNoSpace  = errors.New("no space left in the buffer")
	ErrMemory   = errors.New("the value takes more memory than the limit")
)

// Error says where in the bytes a value could not be decoded or encoded.
type Error struct {
	Op     string // "decode" or "encode"
	Offset int    // bytes before it
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("xdr: %s at byte %d: %v", e.Op, e.Offset, e.Err)
}

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Err }

func noCase(union string, value int64) error {
	return fmt.Errorf("%w: union %s has no case %d", ErrValue, union, value)
}
