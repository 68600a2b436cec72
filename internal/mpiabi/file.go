package mpiabi

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "I/O": files, their views and pointers.

const fileNull Handle = 0x118

// Modes of files, and where seeks begin.
const (
	modeAppend        = 1
	modeCreate        = 2
	modeDeleteOnClose = 4
	modeExcl          = 8
	modeReadOnly      = 16
	modeReadWrite     = 32
	modeSequential    = 64
	modeUniqueOpen    = 128
	modeWriteOnly     = 256

	seekCurrent = 401
	seekEnd     = 402
	seekSet     = 403

	displacementCurrent = -1

	maxFileName = 4096 // of Linux, with the NUL
)

// modes are package mpi's modes in the ABI.
var modes = map[int]mpi.FileMode{
	modeAppend: mpi.ModeAppend, modeCreate: mpi.ModeCreate, modeDeleteOnClose: mpi.ModeDeleteOnClose,
	modeExcl: mpi.ModeExcl, modeReadOnly: mpi.ModeReadOnly, modeReadWrite: mpi.ModeReadWrite,
	modeSequential: mpi.ModeSequential, modeUniqueOpen: mpi.ModeUniqueOpen, modeWriteOnly: mpi.ModeWriteOnly,
}

// file is an open file.
type file struct {
	h       Handle
	f       *mpi.File
	name    string
	mode    int
	handler atomic.Uint64

	mu    sync.Mutex
	disp  int64    // Guarded by mu. The program has set it by MPI_File_set_view.
	etype viewType // Guarded by mu.
	items viewType // Guarded by mu.
	split *splitIO // Guarded by mu. nil: none is under way
}

// viewType is a datatype of a view.
type viewType struct {
	h Handle // of one that the standard has named, otherwise 0
	d *datatype
}

func (f *file) errhandler() *atomic.Uint64 { return &f.handler }

func (f *file) self() Handle { return f.h }

func (f *file) describe() string { return "file " + f.name }

// noFile has the error handler of errors that no open file has: those of MPI_FILE_NULL. Files that are
// opened get it too.
type noFile struct{ handler atomic.Uint64 }

func (f *noFile) errhandler() *atomic.Uint64 { return &f.handler }

func (f *noFile) self() Handle { return fileNull }

func (f *noFile) describe() string { return "MPI_FILE_NULL" }

// file is the file that an argument is the handle of.
func (e *Env) file(a *arguments, i int) (*file, error) {
	h := a.Handle(i)
	if f, ok := lookup[*file](&e.handles, h); ok {
		return f, nil
	}
	err := fail(a.name(i), errFile, "%#x is no file, or one that is closed", uint64(h))
	if h == fileNull {
		err = fail(a.name(i), errFile, "it is MPI_FILE_NULL")
	}
	return nil, &raisedOn{err, &e.noFile}
}

// fileCall is a call whose argument 0 is a file.
func fileCall(f func(e *Env, a *arguments, f *file) error) call {
	return func(e *Env, a *arguments) error {
		of, err := e.file(a, 0)
		if err != nil {
			return err
		}
		return f(e, a, of)
	}
}

func init() {
	// Errors of these are those of MPI_FILE_NULL, whatever the communicator has.
	register("MPI_File_open", func(e *Env, a *arguments) error { return e.withoutFile(fileOpen(e, a)) })
	register("MPI_File_delete", func(e *Env, a *arguments) error {
		name, err := a.cString(0, maxFileName)
		if err == nil {
			err = mpi.FileDelete(name)
		}
		return e.withoutFile(err)
	})
	register("MPI_File_close", fileClose)

	register("MPI_File_get_amode", fileCall(func(_ *Env, a *arguments, f *file) error { return a.setInt(1, f.mode) }))
	register("MPI_File_get_group", fileCall(func(e *Env, a *arguments, f *file) error { return e.addGroup(a, 1, f.f.Group()) }))
	register("MPI_File_get_size", fileCall(func(_ *Env, a *arguments, f *file) error {
		n, err := f.f.Size()
		if err != nil {
			return err
		}
		return a.setInt(1, int(n))
	}))
	register("MPI_File_set_size", fileCall(func(e *Env, a *arguments, f *file) error { return f.f.SetSize(a.ctx, int64(a.Count(1))) }))
	register("MPI_File_preallocate", fileCall(func(e *Env, a *arguments, f *file) error {
		return f.f.Preallocate(a.ctx, int64(a.Count(1)))
	}))
	register("MPI_File_sync", fileCall(func(_ *Env, a *arguments, f *file) error { return f.f.Sync(a.ctx) }))
	register("MPI_File_set_atomicity", fileCall(func(e *Env, a *arguments, f *file) error { return f.f.SetAtomicity(a.ctx, a.Int(1) != 0) }))
	register("MPI_File_get_atomicity", fileCall(func(_ *Env, a *arguments, f *file) error { return a.setFlag(1, f.f.Atomicity()) }))

	register("MPI_File_set_view", fileCall(setView))
	register("MPI_File_get_view", fileCall(getView))
	register("MPI_File_get_byte_offset", fileCall(func(_ *Env, a *arguments, f *file) error {
		n, err := f.f.ByteOffset(int64(a.Count(1)))
		if err != nil {
			return err
		}
		return a.setInt(2, int(n))
	}))
	register("MPI_File_get_type_extent", fileCall(func(e *Env, a *arguments, _ *file) error {
		d, err := e.datatype(a, 1) // All data representations that files have are that of memory.
		if err != nil {
			return err
		}
		return a.setInt(2, d.extent)
	}))
	register("MPI_File_seek", fileCall(func(_ *Env, a *arguments, f *file) error {
		whence, err := a.whence()
		if err != nil {
			return err
		}
		_, err = f.f.Seek(int64(a.Count(1)), whence)
		return err
	}))
	register("MPI_File_seek_shared", fileCall(func(e *Env, a *arguments, f *file) error {
		whence, err := a.whence()
		if err != nil {
			return err
		}
		_, err = f.f.SeekShared(a.ctx, int64(a.Count(1)), whence)
		return err
	}))
	register("MPI_File_get_position", fileCall(func(_ *Env, a *arguments, f *file) error { return a.setInt(1, int(f.f.Position())) }))
	register("MPI_File_get_position_shared", fileCall(func(e *Env, a *arguments, f *file) error {
		n, err := f.f.PositionShared(a.ctx)
		if err != nil {
			return err
		}
		return a.setInt(1, int(n))
	}))
}

// withoutFile is an error whose handler is that of MPI_FILE_NULL.
func (e *Env) withoutFile(err error) error {
	if err == nil {
		return nil
	}
	return &raisedOn{err, &e.noFile}
}

func fileOpen(e *Env, a *arguments) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	name, err := a.cString(1, maxFileName)
	if err != nil {
		return err
	}
	if err := a.setHandle(4, fileNull); err != nil {
		return err
	}
	mode, rest := mpi.FileMode(0), a.Int(2)
	for bit, m := range modes {
		if rest&bit != 0 {
			mode |= m
			rest &^= bit
		}
	}
	if rest != 0 {
		return fail(a.name(2), errAmode, "it has the unknown bits %#x", rest)
	}
	hints, err := e.hints(a, 3)
	if err != nil {
		return err
	}
	f := &file{name: name, mode: a.Int(2)}
	if f.f, err = mpi.FileOpen(a.ctx, c.c, name, mode, hints); err != nil {
		return err
	}
	f.etype = viewType{byteHandle, named[byteHandle]}
	f.items = f.etype
	f.handler.Store(e.noFile.handler.Load())
	f.h = e.handles.add(f)
	return a.setHandle(4, f.h)
}

// byteHandle is MPI_BYTE, of which a new file consists.
const byteHandle Handle = 0x247

// fileClose closes a file, and stores MPI_FILE_NULL in its handle.
func fileClose(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return e.withoutFile(err)
	}
	f, ok := lookup[*file](&e.handles, h)
	if !ok {
		return e.withoutFile(fail(a.name(0), errFile, "%#x is no file, or one that is closed", uint64(h)))
	}
	if err := f.f.Close(a.ctx); err != nil {
		return &raisedOn{err, f}
	}
	remove[*file](&e.handles, h)
	return a.setHandle(0, fileNull)
}

func (a *arguments) whence() (int, error) {
	switch a.Int(2) {
	case seekSet:
		return io.SeekStart, nil
	case seekCurrent:
		return io.SeekCurrent, nil
	case seekEnd:
		return io.SeekEnd, nil
	}
	return 0, fail(a.name(2), errArg, "it is %d, want MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END", a.Int(2))
}

// whole is the layout of an item from its beginning on.
func (d *datatype) whole() (mpi.Datatype, error) {
	moved, err := mpi.StructOf([]int{1}, []int{d.trueLB}, []mpi.Datatype{d.d})
	if err != nil {
		return moved, err
	}
	return moved.Resized(d.lb, d.extent)
}

func (e *Env) viewType(a *arguments, i int) (t viewType, whole mpi.Datatype, err error) {
	d, err := e.committed(a, i)
	if err != nil {
		return t, whole, err
	}
	t.d = d
	if h := a.Handle(i); h < firstDynamic {
		t.h = h
	}
	if whole, err = d.whole(); err != nil {
		return t, whole, fail(a.name(i), errType, "%s: %w", d.describe(), err)
	}
	return t, whole, nil
}

func setView(e *Env, a *arguments, f *file) error {
	etype, unit, err := e.viewType(a, 2)
	if err != nil {
		return err
	}
	items, layout, err := e.viewType(a, 3)
	if err != nil {
		return err
	}
	switch rep, err := a.cString(4, maxDatarep); {
	case err != nil:
		return err
	case rep != "native" && rep != "internal":
		return fail(a.name(4), errDatarep, "it is %q, want native or internal", rep)
	}
	disp := int64(a.Count(1))
	if disp == displacementCurrent && f.mode&modeSequential != 0 {
		at, err := f.f.PositionShared(a.ctx)
		if err != nil {
			return err
		}
		if disp, err = f.f.ByteOffset(at); err != nil {
			return err
		}
	}
	if err := f.f.SetView(a.ctx, disp, unit, layout); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disp, f.etype, f.items = disp, etype, items
	return nil
}

const maxDatarep = 128 // MPI_MAX_DATAREP_STRING

// getView stores what the view is. Datatypes that the standard has not named get new handles.
func getView(e *Env, a *arguments, f *file) error {
	f.mu.Lock()
	disp, types := f.disp, []viewType{f.etype, f.items}
	f.mu.Unlock()
	if err := a.setInt(1, int(disp)); err != nil {
		return err
	}
	if err := a.setCString(4, "native"); err != nil {
		return err
	}
	for i, t := range types {
		if t.h != 0 {
			if err := a.setHandle(2+i, t.h); err != nil {
				return err
			}
			continue
		}
		if err := e.addType(a, 2+i, t.d); err != nil {
			return err
		}
	}
	return nil
}

// splitIO is a collective between its two calls.
type splitIO struct {
	name string // of the call that ends it
	wait func(ctx context.Context) (mpi.Status, error)
}

func (f *file) begin(s *splitIO) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.split != nil {
		return fail("", errOther, "%s is to be called first: a file has one split collective at a time", f.split.name)
	}
	f.split = s
	return nil
}

func (f *file) end(name string) (*splitIO, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.split
	if s == nil || s.name != name {
		return nil, fail("", errOther, "no collective that it ends has begun")
	}
	f.split = nil
	return s, nil
}
