//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/mpiabi"
)

// mpiEnv executes libmpi_abi's calls.
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
// siglongjmp. A call that must not wait, and would, is vmmc.ErrCanceled: C queues it.
func (l *library) runMPI(ctx context.Context, r *record) error {
	n := uint64(r.in[1])
	given := r.given()
	if uint64(r.in[2]) != mpiabi.TableHash {
		return fmt.Errorf("install one release of vmmc: these files are of different ones: %s", strings.Join(loadedFiles(), ", "))
	}
	if uint64(len(given)) != n*8 {
		return fmt.Errorf("MPI call %d has %d bytes of arguments, want %d: libmpi_abi and libvmmc-go do not fit",
			r.in[0], len(given), n*8)
	}
	if r.in[0] == C.UINT32_MAX {
		if ctx == ended {
			return vmmc.ErrCanceled // It may wait.
		}
		err := mpiEnv().Exit()
		r.out[0], r.out[1] = 0, C.uint64_t(ending.Load())
		return err
	}
	// They are aligned. A call that waits gets a copy, as it goes on for a while when its thread has left it.
	args := mpiabi.Args(unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(given))), n))
	if ctx != ended {
		r.out[0] = C.uint64_t(mpiEnv().Call(ctx, int(r.in[0]), slices.Clone(args)))
	} else {
		code, ok := mpiEnv().Try(int(r.in[0]), args)
		if !ok {
			return vmmc.ErrCanceled
		}
		r.out[0] = C.uint64_t(code)
	}
	r.out[1], r.out[2] = C.uint64_t(ending.Load()), C.uint64_t(mpiEnv().Phase())
	return nil
}

// loadedFiles are the files of vmmc that the process has loaded.
func loadedFiles() (paths []string) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return []string{"libmpi", "libvmmc-go.so"}
	}
	for line := range strings.Lines(string(maps)) {
		i := strings.IndexByte(line, '/')
		if i < 0 {
			continue
		}
		path := strings.TrimSpace(line[i:])
		name := filepath.Base(path)
		if (strings.HasPrefix(name, "libmpi") || name == "libvmmc-go.so") && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}
