package mpi

import (
	"context"
	"os"
)

// Size is how many bytes the file has (MPI_File_get_size, chapter I/O).
//
// Experimental: it may change in any release.
func (f *File) Size() (_ int64, err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_get_size"
	if err := f.enter(call, context.Background()); err != nil {
		return 0, err
	}
	defer f.leave()
	return f.size(call)
}

func (f *File) size(call string) (int64, error) {
	st, err := f.os.Stat()
	if err != nil {
		return 0, wrapSystem(call, err)
	}
	return st.Size(), nil
}

// SetSize gives the file n bytes (MPI_File_set_size, chapter I/O). It is a collective. Bytes beyond are
// gone, and new ones are 0. File pointers stay.
//
// Errors, at all ranks: [ErrArg] if n is negative; [ErrReadOnly]; [ErrNotSame]; [ErrNoSpace]; [ErrIO].
//
// Experimental: it may change in any release.
func (f *File) SetSize(ctx context.Context, n int64) (err error) {
	defer func() { err = f.raise(err) }()
	return f.resize(ctx, "MPI_File_set_size", n, func() error { return f.os.Truncate(n) })
}

// Preallocate takes room on the disk for the first n bytes of the file, which becomes so long unless it
// is longer (MPI_File_preallocate, chapter I/O). It is a collective. Bytes that are there stay. Errors
// as SetSize.
//
// Where the operating system has no call for that, only bytes behind the present end get room, and
// nothing else may write there meanwhile.
//
// Experimental: it may change in any release.
func (f *File) Preallocate(ctx context.Context, n int64) (err error) {
	defer func() { err = f.raise(err) }()
	return f.resize(ctx, "MPI_File_preallocate", n, func() error { return preallocate(f.os, n) })
}

// resize has rank 0 change the file's length.
func (f *File) resize(ctx context.Context, call string, n int64, do func() error) error {
	if err := f.enter(call, ctx); err != nil {
		return err
	}
	defer f.leave()
	var bad error
	if n < 0 {
		bad = fail(call, "size", ErrArg, "it is %d, want 0 or more", n)
	} else if f.mode&ModeReadOnly != 0 {
		bad = fail(call, "fh", ErrReadOnly, "%s is opened with ModeReadOnly", f.name)
	}
	if err := f.same(ctx, call, "size", n, bad); err != nil {
		return err
	}
	var err error
	if f.c.rank == 0 {
		f.written()
		err = wrapSystem(call, do())
	}
	return f.agree(ctx, call, err)
}

// fill writes zeros behind the end of a file until it has n bytes.
func fill(f *os.File, n int64) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	zeros := make([]byte, 64<<10)
	for at := st.Size(); at < n; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), n-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// written notes that Close has something to bring to the disk.
func (f *File) written() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dirty = true
}

// Sync brings what this rank has written to the disk (MPI_File_sync, chapter I/O). It is a collective:
// when it returns, what all ranks have written before they called it is there. Errors, at all ranks:
// [ErrNoSpace], [ErrQuota], [ErrIO].
//
// Experimental: it may change in any release.
func (f *File) Sync(ctx context.Context) (err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_sync"
	if err := f.enter(call, ctx); err != nil {
		return err
	}
	defer f.leave()
	if f.mode&ModeReadOnly == 0 {
		err = wrapSystem(call, f.os.Sync())
	}
	return f.agree(ctx, call, err)
}

// SetAtomicity turns atomic mode on or off (MPI_File_set_atomicity, chapter I/O). It is a collective.
// In atomic mode concurrent calls of the file's ranks have the outcome of one after another, whichever
// bytes they touch. A collective counts as the calls of its ranks in their order. Each call takes a
// lock then. It is off at first. SetSize and Preallocate take none. A collective in which the context of
// a rank ends, or a rank dies, may have an outcome between. [ErrNotSame], at all ranks: ranks give
// different arguments.
//
// Experimental: it may change in any release.
func (f *File) SetAtomicity(ctx context.Context, on bool) (err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_set_atomicity"
	if err := f.enter(call, ctx); err != nil {
		return err
	}
	defer f.leave()
	value := int64(0)
	if on {
		value = 1
	}
	if err := f.same(ctx, call, "flag", value, nil); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.atomic = on
	return nil
}

// Atomicity reports whether atomic mode is on (MPI_File_get_atomicity, chapter I/O).
//
// Experimental: it may change in any release.
func (f *File) Atomicity() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.atomic
}
