//go:build linux && cgo

// Libvmmc is the Go part of the C library: c/src loads it, built with -buildmode=c-shared, and calls
// vmmcgo_start once and vmmcgo_now often, both with the program's signals blocked. Operations that
// may wait come through a list in memory that C and Go share. c/src/boundary.h describes both ways.
//
// It calls no C but functions of MPI programs (callProgram), and keeps nothing that C could free. Of the Go heap C sees the words of a mapped
// import and those that polls of VIPL read, pinned until C's threads have left them (see grace). It
// only loads them, but for a count of its polls.
package main

// #cgo CFLAGS: -I${SRCDIR}/../../c/src
// #include "boundary.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/manual"
)

func main() {}

// lib is set by vmmcgo_start and never changes after.
var lib *library

//export vmmcgo_start
func vmmcgo_start(r *C.struct_vmmcb_record) {
	rec := (*record)(r)
	shared := *(**C.struct_vmmcb_shared)(unsafe.Pointer(&rec.in[0]))
	if shared.layout != C.VMMC_LAYOUT {
		rec.fail(&vmmc.Error{
			Op: "load vmmc", Code: vmmc.ErrBadConfig,
			Err: fmt.Errorf("libvmmc has layout %d and libvmmc-go has %d: install both from one release",
				shared.layout, C.VMMC_LAYOUT),
		})
		return
	}
	if lib != nil {
		rec.fail(&vmmc.Error{
			Op: "load vmmc", Code: vmmc.ErrBadConfig,
			Err: errors.New("another libvmmc of this process has loaded it: link one of them"),
		})
		return
	}
	// The C program's thread is in this call, so that Setenv changes what it could change itself.
	for i := 0; i < len(shared.env) && shared.env[i] != nil; i++ {
		kv := goString(unsafe.Pointer(shared.env[i]))
		for j := range kv {
			if kv[j] == '=' {
				_ = env.Take(kv[:j], kv[j+1:])
				break
			}
		}
	}
	manual.SetDebugLevel(int(shared.debug))
	l := &library{shared: shared, space: newSpace(shared)}
	l.nodes.init()
	l.imports.init()
	l.exports.init()
	l.requests.init(shared)
	l.vipl.init()
	l.grace.init(shared)
	l.joining = semaphore.New(1)
	l.idle, l.nested = make(chan *record, 1), make(chan *record)
	l.updates.all = map[C.uint64_t]*vmmc.Binding{}
	l.events.more = make(chan struct{}, 1)
	l.inFlight = map[*record]*flight{}
	if err := l.serve(); err != nil {
		rec.fail(&vmmc.Error{Op: "load vmmc", Code: vmmc.ErrNoMem, Err: err})
		return
	}
	lib = l
	rec.code = 0
}

// ended is the context of operations that must not wait: the library looks at it only before a wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

//export vmmcgo_now
func vmmcgo_now(r *C.struct_vmmcb_record) {
	rec := (*record)(r)
	switch err := lib.run(ended, rec); {
	case err == nil:
		rec.code = 0
	case !errors.Is(err, vmmc.ErrCanceled):
		rec.fail(err)
	case errors.Is(err, vmmc.ErrOutcomeUnknown) && rec.in[5]&C.VMMCB_ASYNC != 0: // which begins whole or not
		rec.fail(err)
	case errors.Is(err, vmmc.ErrOutcomeUnknown):
		rec.code = C.VMMCB_SENT
	default:
		rec.code = C.VMMCB_WOULD_WAIT
	}
}

// record is an operation.
type record C.struct_vmmcb_record

// data is the room behind the record.
func (r *record) data() []byte {
	p := unsafe.Add(unsafe.Pointer(r), unsafe.Sizeof(*r))
	return unsafe.Slice((*byte)(p), int(r.data_cap))
}

// given is what C put into the room.
func (r *record) given() []byte { return r.data()[:r.data_len] }

// put gives b to C. It is cut off where there is no room.
func (r *record) put(b []byte) { r.data_len = C.uint32_t(copy(r.data(), b)) }

// memory is C's memory at the address in[i], of n bytes.
func (r *record) memory(i int, n uint64) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&r.in[i])), int(n))
}

// fail gives C an error's code and text.
func (r *record) fail(err error) {
	r.code = C.int32_t(codeOf(err))
	r.say(err.Error())
}

// say gives C a text about an error.
func (r *record) say(s string) {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&r.text)), len(r.text))
	n := copy(text[:len(text)-1], s)
	text[n] = 0
}

// complete ends the record's time in Go: C may unmap it at once.
func (r *record) complete() {
	w := (*atomic.Uint32)(unsafe.Pointer(&r.word))
	w.Store(C.VMMCB_DONE)
	unix.Rouse(w)
}

// codeOf is the code that C returns. One that leaves open what was done says only that.
func codeOf(err error) vmmc.Code {
	var c vmmc.Code
	switch {
	case errors.Is(err, vmmc.ErrOutcomeUnknown):
		return vmmc.ErrOutcomeUnknown
	case errors.As(err, &c) && c < 0:
		return c
	}
	return vmmc.ErrUnknown
}

// goString copies a C string.
func goString(p unsafe.Pointer) string {
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
