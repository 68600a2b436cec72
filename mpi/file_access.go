package mpi

import (
	"context"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// pointerKind is which place of the file a call begins at.
type pointerKind int

const (
	explicitOffset pointerKind = iota // an offset
	ownPointer                        // the rank's own file pointer
	sharedPointer                     // the file pointer of all ranks
)

// operation is a read or a write whose arguments were checked.
type operation struct {
	access
	f      *File
	where  pointerKind
	atomic bool
	// Of a collective, and nil otherwise. bad is then an error that all ranks are told.
	r   *round
	bad error
}

// beginFile checks the arguments of a call, and takes the file pointer forward. The caller calls leave.
func beginFile[T any](
	ctx context.Context, f *File, call string, write, all bool, where pointerKind, off int64, buf []T,
) (*operation, error) {
	if err := f.enter(call, ctx); err != nil {
		return nil, err
	}
	o := &operation{access: access{call: call, write: write}, f: f, where: where}
	if all {
		o.r = f.c.begin(call)
	}
	o.buf, o.bad = bytesOf(call, buf)
	f.mu.Lock()
	defer f.mu.Unlock()
	o.v, o.atomic = f.v, f.atomic
	switch {
	case o.bad != nil:
	case write && f.mode&ModeReadOnly != 0:
		o.bad = fail(call, "fh", ErrReadOnly, "%s is opened with ModeReadOnly", f.name)
	case !write && f.mode&ModeWriteOnly != 0:
		o.bad = fail(call, "fh", ErrAccess, "%s is opened with ModeWriteOnly", f.name)
	case where != sharedPointer && f.mode&ModeSequential != 0:
		o.bad = f.sequential(call)
	default:
		if where == ownPointer {
			off = f.pointer
		}
		o.pos, o.bad = o.v.place(call, off, len(o.buf))
		if o.bad == nil && where == ownPointer {
			f.pointer += int64(len(o.buf) / o.v.etype.size)
		}
	}
	return o, nil
}

// run does the operation, and returns how many bytes it has moved.
func (o *operation) run(ctx context.Context) (n int, err error) {
	switch {
	case o.r != nil:
		return o.f.together(ctx, o)
	case o.bad != nil:
		return 0, o.bad
	}
	if o.atomic {
		kind := LockShared
		if o.write {
			kind = LockExclusive
		}
		if err := o.f.lock.take(ctx, o.call, kind); err != nil {
			return 0, err
		}
		defer func() {
			if e := o.f.lock.give(o.call, kind); err == nil {
				err = e
			}
		}()
	}
	return o.f.transfer(ctx, &o.access)
}

// takePlace moves the shared file pointer for a call of this rank alone.
func (o *operation) takePlace(ctx context.Context) error {
	if o.where != sharedPointer || o.r != nil || o.bad != nil {
		return nil
	}
	return o.takeShared(ctx, int64(len(o.buf)/o.v.etype.size))
}

// doFile is a blocking call.
func doFile[T any](
	ctx context.Context, f *File, call string, write, all bool, where pointerKind, off int64, buf []T,
) (_ Status, err error) {
	defer func() { err = f.raise(err) }()
	o, err := beginFile(ctx, f, call, write, all, where, off, buf)
	if err != nil {
		return Status{}, err
	}
	defer f.leave()
	if err := o.takePlace(ctx); err != nil {
		return Status{}, err
	}
	n, err := o.run(ctx)
	return Status{Bytes: n}, err
}

// startFile is a non-blocking call. A goroutine does it, so it makes progress whatever the caller does.
func startFile[T any](
	f *File, call string, write, all bool, where pointerKind, off int64, buf []T,
) (_ *Request, err error) {
	defer func() { err = f.raise(err) }()
	o, err := beginFile(context.Background(), f, call, write, all, where, off, buf)
	if err != nil {
		return nil, err
	}
	err = o.takePlace(context.Background()) // before later calls of this rank
	if o.r == nil && o.bad != nil {
		err = o.bad
	}
	if err != nil {
		f.leave()
		return nil, err
	}
	q := f.c.j.e.NewGeneral()
	go func() {
		n, err := o.run(context.Background())
		f.leave()
		q.EndGeneralWith(engine.Status{Bytes: n}, asEngine(err))
	}()
	return &Request{q, call, f.c}, nil
}

// ReadAt reads values of the view from an offset on, in items of etype (MPI_File_read_at, chapter I/O).
// Status.Bytes says how many bytes were read: fewer than asked for, also none, at the end of the file,
// and what is behind them in buf is as it was. File pointers stay.
//
// Errors, before anything is read: [ErrFile]; [ErrArg] for a negative offset; [ErrType] if buf is no
// whole number of items of etype; [ErrAccess] with ModeWriteOnly; [ErrUnsupportedOperation] with
// ModeSequential. [ErrIO] comes with the Status of what was read before. So does [ErrCanceled].
//
// Experimental: it may change in any release.
func ReadAt[T any](ctx context.Context, f *File, off int64, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_read_at", false, false, explicitOffset, off, buf)
}

// WriteAt writes values to the view from an offset on, in items of etype (MPI_File_write_at, chapter
// I/O). File pointers stay. Bytes between those of the view stay as they are, unless the hint
// romio_ds_write says otherwise.
//
// Errors, before anything is written: [ErrFile]; [ErrArg] for a negative offset; [ErrType] if buf is
// no whole number of items of etype; [ErrReadOnly] with ModeReadOnly; [ErrUnsupportedOperation] with
// ModeSequential. [ErrNoSpace], [ErrQuota] and [ErrIO] come with a Status that says how many bytes of
// buf are in the file. So does [ErrCanceled].
//
// Experimental: it may change in any release.
func WriteAt[T any](ctx context.Context, f *File, off int64, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_write_at", true, false, explicitOffset, off, buf)
}

// Read is ReadAt from the individual file pointer on (MPI_File_read, chapter I/O). The pointer moves
// by all of buf when the call begins, also if the file ends before. It stays if the arguments cannot
// be.
//
// Experimental: it may change in any release.
func Read[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_read", false, false, ownPointer, 0, buf)
}

// Write is WriteAt from the individual file pointer on (MPI_File_write, chapter I/O). The pointer
// moves as that of Read.
//
// Experimental: it may change in any release.
func Write[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_write", true, false, ownPointer, 0, buf)
}

// IreadAt begins [ReadAt], and does not wait for it (MPI_File_iread_at, chapter I/O). buf belongs to it
// until it is over.
//
// Experimental: it may change in any release.
func IreadAt[T any](f *File, off int64, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iread_at", false, false, explicitOffset, off, buf)
}

// IwriteAt begins [WriteAt], and does not wait for it (MPI_File_iwrite_at, chapter I/O). buf belongs to
// it until it is over.
//
// Experimental: it may change in any release.
func IwriteAt[T any](f *File, off int64, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iwrite_at", true, false, explicitOffset, off, buf)
}

// Iread begins [Read], and does not wait for it (MPI_File_iread, chapter I/O). buf belongs to it until
// it is over.
//
// Experimental: it may change in any release.
func Iread[T any](f *File, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iread", false, false, ownPointer, 0, buf)
}

// Iwrite begins [Write], and does not wait for it (MPI_File_iwrite, chapter I/O). buf belongs to it
// until it is over.
//
// Experimental: it may change in any release.
func Iwrite[T any](f *File, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iwrite", true, false, ownPointer, 0, buf)
}
