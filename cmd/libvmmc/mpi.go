//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/mpiabi"
)

// mpiEnv executes libmpi_abi's calls. It has no context: only the end of the job ends a call of MPI.
var mpiEnv = sync.OnceValue(func() *mpiabi.Env { return mpiabi.New(mpiabi.Config{Callback: callProgram, Exit: endJob}) })

// ending is 256 and the status when the job ends, and 0 before.
var ending atomic.Uint64

// endJob ends the program. A thread that is in a call does it, after it has flushed what the program has
// printed. If none is, or one of the streams is in use, the Go part does it a little later.
func endJob(status int) {
	const flush = 200 * time.Millisecond
	ending.Store(256 | uint64(status)&255)
	time.AfterFunc(flush, func() { os.Exit(status & 255) })
}

// runMPI runs a call of MPI. The record has a copy of its arguments: C's thread may leave the call by
// siglongjmp.
func (l *library) runMPI(r *record) error {
	n := uint64(r.in[1])
	given := r.given()
	if uint64(len(given)) != n*8 {
		return fmt.Errorf("MPI call %d has %d bytes of arguments, want %d: libmpi_abi and libvmmc-go do not fit",
			r.in[0], len(given), n*8)
	}
	args := make(mpiabi.Args, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(args))), n*8), given)
	r.out[0] = C.uint64_t(mpiEnv().Call(int(r.in[0]), args))
	r.out[1] = C.uint64_t(ending.Load())
	return nil
}
