package mpiabi

import (
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/mpi"
)

// failure is an error that this package finds itself.
type failure struct {
	arg   string // the argument, or ""
	class int32
	err   error
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// fail is the error of an argument. Without a name of one it is the error of the call.
func fail(arg string, class int32, format string, args ...any) error {
	return &failure{arg, class, fmt.Errorf(format, args...)}
}

// classes are package mpi's classes in the ABI. The standard has none for revoked communicators:
// a revoked one is of no more use, as after the end of a process.
var classes = map[mpi.Class]int32{
	mpi.ErrBuffer: errBuffer, mpi.ErrCount: errCount, mpi.ErrType: errType, mpi.ErrTag: errTag,
	mpi.ErrComm: errComm, mpi.ErrRank: errRank, mpi.ErrRequest: errRequest, mpi.ErrRoot: errRoot,
	mpi.ErrOp: errOp, mpi.ErrArg: errArg, mpi.ErrTruncate: errTruncate, mpi.ErrOther: errOther,
	mpi.ErrPending: errPending, mpi.ErrProcFailed: errAborted, mpi.ErrRevoked: errAborted,
	mpi.ErrGroup: errGroup, mpi.ErrCanceled: errOther, mpi.ErrTopology: errTopology,
	mpi.ErrDims: errDims, mpi.ErrWin: errWin, mpi.ErrRMASync: errRMASync, mpi.ErrRMARange: errRMARange,
	mpi.ErrLockType: errLockType, mpi.ErrKeyval: errKeyval,

	mpi.ErrFile: errFile, mpi.ErrNoSuchFile: errNoFile, mpi.ErrFileExists: errExists,
	mpi.ErrBadFile: errBadFile, mpi.ErrFileInUse: errFileInUse, mpi.ErrAccess: errAccess,
	mpi.ErrReadOnly: errReadOnly, mpi.ErrMode: errAmode, mpi.ErrNotSame: errNotSame,
	mpi.ErrNoSpace: errNoSpace, mpi.ErrQuota: errQuota, mpi.ErrIO: errIO,
	mpi.ErrRMAShared: errRMAShared,
	mpi.ErrPort:      errPort, mpi.ErrName: errName, mpi.ErrService: errService, mpi.ErrSpawn: errSpawn,

	mpi.ErrInfoValue: errInfoValue, mpi.ErrUnsupportedOperation: errUnsupp,
}

// classOf is the ABI's class of an error.
func classOf(err error) int32 {
	var f *failure
	var e *mpi.Error
	var c mpi.Class
	switch {
	case err == nil:
		return errSuccess
	case errors.As(err, &f):
		return f.class
	case errors.As(err, &e):
		c = e.Class
	default:
		errors.As(err, &c)
	}
	if class, ok := classes[c]; ok {
		return class
	}
	return errOther
}

// describe says which call has failed, by which argument, and why.
func describe(call string, err error) string {
	var f *failure
	var e *mpi.Error
	arg, cause := "", err
	switch {
	case errors.As(err, &f):
		arg, cause = f.arg, f.err
	case errors.As(err, &e):
		arg, cause = e.Arg, e.Err
	}
	if arg != "" {
		arg = ", argument " + arg
	}
	return fmt.Sprintf("%s%s: %v (error class %d)", call, arg, cause, classOf(err))
}
