package mpiabi

import (
	"context"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Args are the arguments of a call. Integers are sign-extended. Pointers, handles and functions are
// what they are in C.
type Args []uint64

// Int is an argument of type int.
func (a Args) Int(i int) int { return int(int32(uint32(a[i]))) }

// Count is an argument of type int, MPI_Count, MPI_Aint or MPI_Offset.
func (a Args) Count(i int) int { return int(int64(a[i])) }

// Addr is a pointer.
func (a Args) Addr(i int) uint64 { return a[i] }

// Handle is a handle.
func (a Args) Handle(i int) Handle { return Handle(a[i]) }

// arguments are the arguments of a call, and its prototype.
type arguments struct {
	Args
	p     *prototype
	tries bool // reports whether the call is to return errWouldWait rather than to wait
	// ctx ends with the job, and when the program's thread has left the call. What goes on after the call
	// has the context of Env.
	ctx context.Context //nolint:containedctx // It lives as long as the call.
}

// name is the name of an argument, for errors.
func (a *arguments) name(i int) string { return a.p.params[i].name }

// access runs f, which accesses the memory that an argument points to. An address that cannot be
// accessed is an error. f calls nothing that takes a lock: the lock would stay locked after a fault.
func (a *arguments) access(i int, f func()) error {
	if err := shm.Guard(f); err != nil {
		return fail(a.name(i), errBuffer, "%v: check the address", err)
	}
	return nil
}

// reachable checks that an argument points to n values of a size, before anything is made for so many.
func (a *arguments) reachable(i, n, size int) error {
	return a.access(i, func() {
		checkAddress(a.Addr(i), n, uintptr(size))
		touch(slice[byte](a.Addr(i), n*size), false)
	})
}

// count is a number of items, which is not negative.
func (a *arguments) count(i int) (int, error) {
	n := a.Count(i)
	if n < 0 {
		return 0, fail(a.name(i), errCount, "it is %d, want 0 or more", n)
	}
	return n, nil
}

// ints are n integers of an array of int, or of a wider type as the prototype says.
func (a *arguments) ints(i, n int) ([]int, error) {
	if n == 0 {
		return nil, nil
	}
	addr := a.Addr(i)
	if addr == 0 {
		return nil, fail(a.name(i), errArg, "it is NULL, want an array of %d", n)
	}
	if err := a.reachable(i, n, a.p.params[i].width); err != nil {
		return nil, err
	}
	out := make([]int, n)
	err := a.access(i, func() {
		if a.p.params[i].width == 4 {
			for k, v := range slice[int32](addr, n) {
				out[k] = int(v)
			}
			return
		}
		for k, v := range slice[int64](addr, n) {
			out[k] = int(v)
		}
	})
	return out, err
}

// intAt is the int that an argument points to.
func (a *arguments) intAt(i int) (int, error) {
	v, err := a.ints(i, 1)
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

// setInt stores an integer where an argument points to. One that an int does not hold is
// MPI_UNDEFINED.
func (a *arguments) setInt(i, v int) error {
	addr := a.Addr(i)
	if addr == 0 {
		return fail(a.name(i), errArg, "it is NULL, want where to store the result")
	}
	if a.p.params[i].width == 8 {
		return a.access(i, func() { *at[int64](addr) = int64(v) })
	}
	if int(int32(v)) != v {
		v = undefined
	}
	return a.access(i, func() { *at[int32](addr) = int32(v) })
}

// setFlag stores 1 or 0.
func (a *arguments) setFlag(i int, v bool) error {
	if v {
		return a.setInt(i, 1)
	}
	return a.setInt(i, 0)
}

// handleAt is the handle that an argument points to.
func (a *arguments) handleAt(i int) (h Handle, err error) {
	addr := a.Addr(i)
	if addr == 0 {
		return 0, fail(a.name(i), errArg, "it is NULL, want the address of a handle")
	}
	err = a.access(i, func() { h = *at[Handle](addr) })
	return h, err
}

// setHandle stores a handle.
func (a *arguments) setHandle(i int, h Handle) error {
	addr := a.Addr(i)
	if addr == 0 {
		return fail(a.name(i), errArg, "it is NULL, want where to store the handle")
	}
	return a.access(i, func() { *at[Handle](addr) = h })
}
