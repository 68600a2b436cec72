package mpi

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// The classes of files.
//
// Experimental: they may change in any release.
const (
	ErrFile                 Class = iota + 151 // MPI_ERR_FILE: the file is closed, or nil
	ErrNoSuchFile                              // MPI_ERR_NO_SUCH_FILE
	ErrFileExists                              // MPI_ERR_FILE_EXISTS
	ErrBadFile                                 // MPI_ERR_BAD_FILE: no file can have this name
	ErrFileInUse                               // MPI_ERR_FILE_IN_USE: a program that runs
	ErrAccess                                  // MPI_ERR_ACCESS: the operating system, or the mode, does not permit it
	ErrReadOnly                                // MPI_ERR_READ_ONLY: the file, or its file system, is not written
	ErrMode                                    // MPI_ERR_AMODE: modes that do not go together
	ErrNotSame                                 // MPI_ERR_NOT_SAME: ranks have given different arguments
	ErrNoSpace                                 // MPI_ERR_NO_SPACE: the file system is full
	ErrQuota                                   // MPI_ERR_QUOTA: the user's share of the file system is full
	ErrIO                                      // MPI_ERR_IO: any other error of the operating system
	ErrInfoValue                               // MPI_ERR_INFO_VALUE: the value of a hint
	ErrUnsupportedOperation                    // MPI_ERR_UNSUPPORTED_OPERATION: not on a file of ModeSequential
)

// systemClasses are the classes of the operating system's errors. The first one that fits counts.
var systemClasses = []struct {
	err   error
	class Class
}{
	{context.Canceled, ErrCanceled},
	{context.DeadlineExceeded, ErrCanceled},
	{syscall.ENOSPC, ErrNoSpace},
	{syscall.EDQUOT, ErrQuota},
	{syscall.EROFS, ErrReadOnly},
	{syscall.ETXTBSY, ErrFileInUse},
	{syscall.EISDIR, ErrBadFile},
	{syscall.ENOTDIR, ErrBadFile},
	{syscall.ENAMETOOLONG, ErrBadFile},
	{fs.ErrNotExist, ErrNoSuchFile},
	{fs.ErrExist, ErrFileExists},
	{fs.ErrPermission, ErrAccess},
	{os.ErrClosed, ErrFile},
}

// wrapSystem names the call of an error of the operating system.
func wrapSystem(call string, err error) error {
	if err == nil {
		return nil
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	for _, s := range systemClasses {
		if errors.Is(err, s.err) {
			return &Error{Call: call, Class: s.class, Err: err}
		}
	}
	return &Error{Call: call, Class: ErrIO, Err: err}
}

// classOf is the class of an error of this package, and 0 for nil.
func classOf(err error) Class {
	if err == nil {
		return 0
	}
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Class
	}
	return ErrOther
}
