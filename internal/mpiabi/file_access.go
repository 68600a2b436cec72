package mpiabi

import (
	"context"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "I/O": reads and writes.

// Reads and writes of package mpi: with an offset and without, blocking and not.
type (
	ioAt  func(ctx context.Context, f *mpi.File, off int64, buf []byte) (mpi.Status, error)
	io1   func(ctx context.Context, f *mpi.File, buf []byte) (mpi.Status, error)
	iioAt func(f *mpi.File, off int64, buf []byte) (*mpi.Request, error)
	iio   func(f *mpi.File, buf []byte) (*mpi.Request, error)
)

func init() {
	for _, c := range []struct {
		name  string // behind MPI_File_read or MPI_File_write
		reads bool
		f     ioAt
		begin iioAt
	}{
		{"_at", true, mpi.ReadAt[byte], mpi.IreadAt[byte]},
		{"_at", false, mpi.WriteAt[byte], mpi.IwriteAt[byte]},
		{"_at_all", true, mpi.ReadAtAll[byte], mpi.IreadAtAll[byte]},
		{"_at_all", false, mpi.WriteAtAll[byte], mpi.IwriteAtAll[byte]},
	} {
		registerIO(c.name, c.reads, 2, func(ctx context.Context, a *arguments, f *mpi.File, b []byte) (mpi.Status, error) {
			return c.f(ctx, f, int64(a.Count(1)), b)
		}, func(a *arguments, f *mpi.File, b []byte) (*mpi.Request, error) {
			return c.begin(f, int64(a.Count(1)), b)
		})
	}
	for _, c := range []struct {
		name  string
		reads bool
		f     io1
		begin iio
	}{
		{"", true, mpi.Read[byte], mpi.Iread[byte]},
		{"", false, mpi.Write[byte], mpi.Iwrite[byte]},
		{"_all", true, mpi.ReadAll[byte], mpi.IreadAll[byte]},
		{"_all", false, mpi.WriteAll[byte], mpi.IwriteAll[byte]},
		{"_shared", true, mpi.ReadShared[byte], mpi.IreadShared[byte]},
		{"_shared", false, mpi.WriteShared[byte], mpi.IwriteShared[byte]},
		{"_ordered", true, mpi.ReadOrdered[byte], nil},
		{"_ordered", false, mpi.WriteOrdered[byte], nil},
	} {
		begin := func(_ *arguments, f *mpi.File, b []byte) (*mpi.Request, error) { return c.begin(f, b) }
		if c.begin == nil {
			begin = nil
		}
		registerIO(c.name, c.reads, 1, func(ctx context.Context, _ *arguments, f *mpi.File, b []byte) (mpi.Status, error) {
			return c.f(ctx, f, b)
		}, begin)
	}
}

// transfer is a read or a write of packed bytes. startTransfer does not wait for it.
type (
	transfer      func(ctx context.Context, a *arguments, f *mpi.File, b []byte) (mpi.Status, error)
	startTransfer func(a *arguments, f *mpi.File, b []byte) (*mpi.Request, error)
)

// registerIO registers the calls of a read or a write whose buffer is argument buf: the blocking one, the
// nonblocking one, and the two of a split collective, as far as the standard has them. start is nil if package mpi has no
// nonblocking one.
func registerIO(name string, reads bool, buf int, do transfer, start startTransfer) {
	verb := "write"
	if reads {
		verb = "read"
	}
	register("MPI_File_"+verb+name, fileCall(func(e *Env, a *arguments, f *file) error {
		b, done, err := e.ioBuffer(a, buf, reads)
		if err != nil {
			return err
		}
		st, err := do(a.ctx, a, f.f, b)
		if err := settled(st, err, done); err != nil {
			return err
		}
		return a.setStatus(buf+3, st)
	}))
	if start != nil {
		register("MPI_File_i"+verb+name, fileCall(func(e *Env, a *arguments, f *file) error {
			b, done, err := e.ioBuffer(a, buf, reads)
			if err != nil {
				return err
			}
			if err := a.setHandle(buf+3, requestNull); err != nil {
				return err
			}
			r, err := start(a, f.f, b)
			if err != nil {
				return err
			}
			return e.addRequest(a, buf+3, f, done, r)
		}))
	}
	begins, ends := "MPI_File_"+verb+name+"_begin", "MPI_File_"+verb+name+"_end"
	if Number(begins) < 0 {
		return
	}
	register(begins, fileCall(func(e *Env, a *arguments, f *file) error {
		b, done, err := e.ioBuffer(a, buf, reads)
		if err != nil {
			return err
		}
		s := &splitIO{name: ends}
		if err := f.begin(s); err != nil {
			return err
		}
		if start == nil { // The second call has nothing left to do.
			st, err := do(a.ctx, a, f.f, b)
			err = settled(st, err, done)
			s.wait = func(context.Context) (mpi.Status, error) { return st, err }
			return nil
		}
		r, err := start(a, f.f, b)
		if err != nil {
			_, _ = f.end(ends)
			return err
		}
		s.wait = func(ctx context.Context) (mpi.Status, error) {
			st, err := r.Wait(ctx)
			return st, settled(st, err, done)
		}
		return nil
	}))
	register(ends, fileCall(func(_ *Env, a *arguments, f *file) error {
		s, err := f.end(ends)
		if err != nil {
			return err
		}
		st, err := s.wait(a.ctx)
		if err != nil {
			return err
		}
		return a.setStatus(2, st)
	}))
}

// settled is the error of a transfer. What it has read is stored before.
func settled(st mpi.Status, err error, done func(mpi.Status) error) error {
	if done == nil {
		return err
	}
	if stored := done(st); err == nil {
		err = stored
	}
	return err
}

// ioBuffer is the memory that a call reads into or writes. done stores what was read, unless it is nil.
func (e *Env) ioBuffer(a *arguments, i int, reads bool) (b []byte, done func(st mpi.Status) error, err error) {
	it, err := e.items(a, i)
	if err != nil {
		return nil, nil, err
	}
	if !reads {
		b, err = it.packed()
		return b, nil, err
	}
	if it.contiguous() {
		return it.bytes, nil, nil
	}
	b = make([]byte, it.n*it.d.size)
	return b, func(st mpi.Status) error { return it.unpack(b[:st.Bytes]) }, nil
}
