//go:build linux && cgo

package main

// #include "boundary.h"
//
// /* Runs a function of the program. Its parameters are integers and pointers: on the machines that
//    have this library a caller may pass more of them than the function has. */
// static uint64_t call_program(uint64_t function, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
//                              uint64_t e, uint64_t f) {
//     if (function & VMMCB_PROGRAM_RECORD) {
//         struct vmmcb_program_record *r = (void *)(uintptr_t)(function & ~VMMCB_PROGRAM_RECORD);
//         return r->call(r, a, b, c, d, e, f);
//     }
//     typedef uint64_t (*program_function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
//     return ((program_function)(uintptr_t)function)(a, b, c, d, e, f);
// }
import "C"

// callProgram runs a function of the program that a call of MPI was given: an operation, an error
// handler, one that copies or deletes an attribute. It runs on the thread of the program that makes the
// call, or on one of the library while the call waits, with signals blocked. It may call MPI. It must
// return: it cannot be left by longjmp.
func callProgram(function uint64, args ...uint64) uint64 {
	var a [6]C.uint64_t
	for i, arg := range args {
		a[i] = C.uint64_t(arg)
	}
	return uint64(C.call_program(C.uint64_t(function), a[0], a[1], a[2], a[3], a[4], a[5]))
}
