package mpi

import (
	"errors"
	"fmt"
	"sync/atomic"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// Class is an error class of MPI. It is an error itself: errors.Is(err, mpi.ErrRank) finds it.
//
// Experimental: it may change in any release.
type Class int

// The classes. Beside each its name in MPI.
//
// Experimental: they may change in any release.
const (
	ErrBuffer     = Class(engine.ErrBuffer)     // MPI_ERR_BUFFER
	ErrCount      = Class(engine.ErrCount)      // MPI_ERR_COUNT
	ErrType       = Class(engine.ErrType)       // MPI_ERR_TYPE
	ErrTag        = Class(engine.ErrTag)        // MPI_ERR_TAG
	ErrComm       = Class(engine.ErrComm)       // MPI_ERR_COMM
	ErrRank       = Class(engine.ErrRank)       // MPI_ERR_RANK
	ErrRequest    = Class(engine.ErrRequest)    // MPI_ERR_REQUEST
	ErrRoot       = Class(engine.ErrRoot)       // MPI_ERR_ROOT
	ErrOp         = Class(engine.ErrOp)         // MPI_ERR_OP
	ErrArg        = Class(engine.ErrArg)        // MPI_ERR_ARG
	ErrTruncate   = Class(engine.ErrTruncate)   // MPI_ERR_TRUNCATE
	ErrOther      = Class(engine.ErrOther)      // MPI_ERR_OTHER
	ErrPending    = Class(engine.ErrPending)    // MPI_ERR_PENDING: the context of a wait has ended, and the request goes on
	ErrProcFailed = Class(engine.ErrProcFailed) // MPI_ERR_PROC_FAILED: a rank is gone
	ErrRevoked    = Class(engine.ErrRevoked)    // MPI_ERR_REVOKED: the communicator is revoked
	ErrGroup      = Class(engine.ErrGroup)      // MPI_ERR_GROUP
	ErrCanceled   = Class(engine.ErrCanceled)   // none of MPI: the context has ended, and the call is over
)

// The classes that the engine does not use. It numbers its own from 1 on.
//
// Experimental: they may change in any release.
const (
	ErrTopology Class = iota + 101 // MPI_ERR_TOPOLOGY
	ErrDims                        // MPI_ERR_DIMS
	ErrWin                         // MPI_ERR_WIN: the window is freed, or nil
	ErrRMASync                     // MPI_ERR_RMA_SYNC: no epoch is open for the call
	ErrRMARange                    // MPI_ERR_RMA_RANGE: not within the target's memory
	ErrLockType                    // MPI_ERR_LOCKTYPE
)

// More of these.
//
// Experimental: they may change in any release.
const (
	ErrKeyval  Class = iota + 201 // MPI_ERR_KEYVAL: it is nil, or freed
	ErrPort                       // MPI_ERR_PORT: no process has the port open
	ErrName                       // MPI_ERR_NAME: no port is published under the name
	ErrService                    // MPI_ERR_SERVICE: the name is published already, or not by this process
	ErrSpawn                      // MPI_ERR_SPAWN: a program cannot be started, or has ended before Init
)

var classNames = map[Class]string{
	ErrBuffer: "ERR_BUFFER", ErrCount: "ERR_COUNT", ErrType: "ERR_TYPE", ErrTag: "ERR_TAG",
	ErrComm: "ERR_COMM", ErrRank: "ERR_RANK", ErrRequest: "ERR_REQUEST", ErrRoot: "ERR_ROOT",
	ErrOp: "ERR_OP", ErrArg: "ERR_ARG", ErrTruncate: "ERR_TRUNCATE", ErrOther: "ERR_OTHER",
	ErrPending: "ERR_PENDING", ErrProcFailed: "ERR_PROC_FAILED", ErrGroup: "ERR_GROUP",
	ErrTopology: "ERR_TOPOLOGY", ErrDims: "ERR_DIMS", ErrCanceled: "ERR_CANCELED",
	ErrWin: "ERR_WIN", ErrRMASync: "ERR_RMA_SYNC", ErrRMARange: "ERR_RMA_RANGE",
	ErrLockType: "ERR_LOCKTYPE", ErrKeyval: "ERR_KEYVAL", ErrRevoked: "ERR_REVOKED",
	ErrRMAShared: "ERR_RMA_SHARED",
	ErrPort:      "ERR_PORT", ErrName: "ERR_NAME", ErrService: "ERR_SERVICE", ErrSpawn: "ERR_SPAWN",

	ErrFile: "ERR_FILE", ErrNoSuchFile: "ERR_NO_SUCH_FILE", ErrFileExists: "ERR_FILE_EXISTS",
	ErrBadFile: "ERR_BAD_FILE", ErrFileInUse: "ERR_FILE_IN_USE", ErrAccess: "ERR_ACCESS",
	ErrReadOnly: "ERR_READ_ONLY", ErrMode: "ERR_AMODE", ErrNotSame: "ERR_NOT_SAME",
	ErrNoSpace: "ERR_NO_SPACE", ErrQuota: "ERR_QUOTA", ErrIO: "ERR_IO", ErrInfoValue: "ERR_INFO_VALUE",
	ErrUnsupportedOperation: "ERR_UNSUPPORTED_OPERATION",
}

// Error is the name of the class in MPI.
//
// Experimental: it may change in any release.
func (c Class) Error() string {
	if name, ok := classNames[c]; ok {
		return "MPI_" + name
	}
	return fmt.Sprintf("MPI error class %d", int(c))
}

// Error is what all calls of this package return.
//
// Experimental: it may change in any release.
type Error struct {
	Call  string // the MPI call
	Arg   string // the argument that cannot be, or ""
	Class Class
	Err   error // why

	raised atomic.Bool // reports whether a handler was called
}

// Error says which call has failed, by which argument, and why.
//
// Experimental: it may change in any release.
func (e *Error) Error() string {
	arg := ""
	if e.Arg != "" {
		arg = ", argument " + e.Arg
	}
	return fmt.Sprintf("%s%s: %v (%v)", e.Call, arg, e.Err, e.Class)
}

// Is reports whether target is the error's class.
//
// Experimental: it may change in any release.
func (e *Error) Is(target error) bool { return target == e.Class }

// Unwrap gives the cause: that of the context, or a [vmmc.Error].
//
// Experimental: it may change in any release.
func (e *Error) Unwrap() error { return e.Err }

// wrap names the call of an error of the engine.
func wrap(call string, err error) error {
	if err == nil {
		return nil
	}
	var e *engine.Error
	if errors.As(err, &e) {
		return &Error{Call: call, Arg: e.Arg, Class: Class(e.Class), Err: err}
	}
	return &Error{Call: call, Class: ErrOther, Err: err}
}

func fail(call, arg string, c Class, format string, args ...any) error {
	return &Error{Call: call, Arg: arg, Class: c, Err: fmt.Errorf(format, args...)}
}
