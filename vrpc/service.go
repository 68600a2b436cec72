package vrpc

import (
	"context"
	"errors"

	"github.com/vmmc-go/vmmc/xdr"
)

// ErrProcUnavail is what a [Call] returns for a procedure that the program does not have, and a
// [Caller] where the server says so.
var ErrProcUnavail = errors.New("the program has no such procedure")

// ErrNoResult is what a [Call] returns if its procedure returned neither a result nor an error.
var ErrNoResult = errors.New("the procedure returned no result")

// Caller makes calls. It may be used by several goroutines at once.
type Caller interface {
	// Call calls a procedure of a version of a program and decodes what it answers into res. It
	// uses neither args nor res any more when it has returned, whatever it returns. Procedures
	// without arguments or results have [xdr.Void] for them.
	Call(ctx context.Context, prog, vers, proc uint32, args xdr.Marshaler, res xdr.Unmarshaler) error
}

// Registrar is what takes a service: a server.
type Registrar interface {
	Register(s *Service) error
}

// Service is one version of a program, as it is served.
type Service struct {
	Name             string // of the version, for errors and logs
	Program, Version uint32
	// Procedures are in the order of their numbers. Every service has procedure 0, which does
	// nothing: a server answers it even if it is not listed.
	Procedures []Procedure
}

// Procedure is one of a service.
type Procedure struct {
	Number uint32
	Name   string
	// New makes what a call of it needs. It may be called by several goroutines at once.
	New func() Call
	// Values says that the procedure is handed nothing that shares memory with the Call or with the
	// request, so that a server may always use the Call again, and decode in place. For the others
	// that is right only where procedures keep nothing of their arguments after they have returned.
	Values bool
}

// Call is a procedure's arguments and results, for one call at a time, used in this order: the
// arguments are decoded, the procedure is called, and if it returns no error its results are
// encoded. After that, or as soon as a step has failed, it may be used for the next call, into the
// same memory.
//
// Arguments that are decoded by [xdr.InPlace] are part of the request, and results may be part of
// the arguments: the request must stay as it is until the results are encoded.
type Call interface {
	xdr.Unmarshaler // the arguments
	xdr.Marshaler   // the results
	// Do calls the procedure.
	Do(ctx context.Context) error
}

// null is procedure 0 of a service that has none.
type null struct{ xdr.Void }

// Do does nothing.
func (null) Do(context.Context) error { return nil }
