package mpi

import (
	"context"
	"math"
)

// takeShared takes n items of etype from the shared file pointer. Its atomic does not end with the
// context: nobody would know whether the pointer has moved.
func (o *operation) takeShared(ctx context.Context, n int64) error {
	if err := ctx.Err(); err != nil {
		return &Error{Call: o.call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
	}
	at, err := o.f.control.add(context.WithoutCancel(ctx), 8, pointerAt, uint64(n))
	if err != nil {
		return wrapMemory(o.call, err)
	}
	o.pos, err = o.v.place(o.call, int64(min(at, math.MaxInt64)), len(o.buf))
	return err
}

// ReadShared is ReadAt from the shared file pointer on (MPI_File_read_shared, chapter I/O). The pointer
// moves by all of buf before anything is read, so that calls of all ranks at the same time read
// different items. All ranks have the same view. Errors as ReadAt, and [ErrProcFailed] if rank 0 is
// gone.
//
// Experimental: it may change in any release.
func ReadShared[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_read_shared", false, false, sharedPointer, 0, buf)
}

// WriteShared is WriteAt from the shared file pointer on (MPI_File_write_shared, chapter I/O). The
// pointer moves by all of buf before anything is written. So calls of all ranks at the same time write
// one behind another, in any order. All ranks have the same view. Errors as WriteAt, and
// [ErrProcFailed] if rank 0 is gone.
//
// Experimental: it may change in any release.
func WriteShared[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_write_shared", true, false, sharedPointer, 0, buf)
}

// IreadShared begins [ReadShared], and does not wait for the data (MPI_File_iread_shared, chapter I/O).
// The pointer has moved when it returns: that is a round trip to rank 0. buf belongs to it until it is
// over.
//
// Experimental: it may change in any release.
func IreadShared[T any](f *File, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iread_shared", false, false, sharedPointer, 0, buf)
}

// IwriteShared begins [WriteShared], and does not wait for the data (MPI_File_iwrite_shared, chapter
// I/O). The pointer has moved when it returns: that is a round trip to rank 0. buf belongs to it until it
// is over.
//
// Experimental: it may change in any release.
func IwriteShared[T any](f *File, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iwrite_shared", true, false, sharedPointer, 0, buf)
}

// ReadOrdered is a collective that reads from the shared file pointer on, each rank behind what lower
// ranks read (MPI_File_read_ordered, chapter I/O). All ranks have the same view. Errors as ReadAtAll.
//
// Experimental: it may change in any release.
func ReadOrdered[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_read_ordered", false, true, sharedPointer, 0, buf)
}

// WriteOrdered is a collective that writes from the shared file pointer on, each rank behind what lower
// ranks write (MPI_File_write_ordered, chapter I/O). All ranks have the same view. Errors as
// WriteAtAll.
//
// Experimental: it may change in any release.
func WriteOrdered[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_write_ordered", true, true, sharedPointer, 0, buf)
}

// SeekShared moves the shared file pointer, in items of etype, as [File.Seek] does the individual one
// (MPI_File_seek_shared, chapter I/O). It is a collective.
//
// Errors, at all ranks: [ErrArg], [ErrNotSame], [ErrProcFailed].
//
// Experimental: it may change in any release.
func (f *File) SeekShared(ctx context.Context, off int64, whence int) (_ int64, err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_seek_shared"
	if err := f.enter(call, ctx); err != nil {
		return 0, err
	}
	defer f.leave()
	if err := f.same(ctx, call, "offset", off, nil); err != nil {
		return 0, err
	}
	if err := f.same(ctx, call, "whence", int64(whence), nil); err != nil {
		return 0, err
	}
	to := []int64{0}
	if f.c.rank == 0 {
		to[0], err = f.moveShared(ctx, call, off, whence)
	}
	if err := f.agree(ctx, call, err); err != nil {
		return 0, err
	}
	return to[0], bcastPlan(f.c, call, to, 0).do(ctx)
}

// moveShared sets the shared file pointer.
func (f *File) moveShared(ctx context.Context, call string, off int64, whence int) (int64, error) {
	now, err := f.control.add(ctx, 8, pointerAt, 0)
	if err != nil {
		return 0, wrapMemory(call, err)
	}
	to, err := f.sought(call, f.seen(), int64(now), off, whence)
	if err != nil {
		return 0, err
	}
	_, err = f.control.swap(context.WithoutCancel(ctx), 8, pointerAt, uint64(to))
	return to, wrapMemory(call, err)
}

// PositionShared is the shared file pointer, in items of etype (MPI_File_get_position_shared, chapter
// I/O). [ErrProcFailed]: rank 0 is gone.
//
// Experimental: it may change in any release.
func (f *File) PositionShared(ctx context.Context) (_ int64, err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_get_position_shared"
	if err := f.enter(call, ctx); err != nil {
		return 0, err
	}
	defer f.leave()
	now, err := f.control.add(ctx, 8, pointerAt, 0)
	return int64(now), wrapMemory(call, err)
}
