package peers

import (
	"context"
	"errors"
	"strconv"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
)

// codeHeader carries our code beside connect's own, which is coarser.
const codeHeader = "Vmmc-Code"

// Coded gives an error the nearest of connect's codes, and ours.
func Coded(err error) error {
	c, k := code.Unknown, connect.CodeInternal
	var own code.Code
	if errors.Is(err, context.DeadlineExceeded) {
		c = code.Timeout
	}
	if errors.As(err, &own) {
		c = own
		switch own {
		case code.NoSuchNode, code.NoSuchProcess, code.NoSuchSession:
			k = connect.CodeNotFound
		case code.NoRights:
			k = connect.CodePermissionDenied
		case code.StaleImport, code.BadRbufState:
			k = connect.CodeFailedPrecondition
		case code.BadArg, code.BadName:
			k = connect.CodeInvalidArgument
		case code.BufAlreadyExists, code.NameTaken:
			k = connect.CodeAlreadyExists
		}
	}
	e := connect.NewError(k, err)
	e.Meta().Set(codeHeader, strconv.Itoa(int(c)))
	return e
}

// codeOf is our code of an error, or Unknown.
func codeOf(err error) code.Code {
	c := code.Unknown
	errors.As(err, &c)
	return c
}

// answeredError returns the error that the daemon sent; ok is false if the call failed otherwise.
func answeredError(err error) (e *code.Error, ok bool) {
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return nil, false
	}
	n, err := strconv.Atoi(ce.Meta().Get(codeHeader))
	return &code.Error{Code: code.Code(n), Text: ce.Message()}, err == nil
}
