package mpiabi

import "github.com/vmmc-go/vmmc/mpi"

// Chapter "Datatypes": packing.

func init() {
	register("MPI_Pack", pack)
	register("MPI_Unpack", unpack)
	register("MPI_Pack_size", packSize)
}

// position is a place in a packed buffer of so many bytes.
func (a *arguments) position(i, size int) (int, error) {
	list, err := a.ints(i, 1)
	if err != nil {
		return 0, err
	}
	if size < 0 || list[0] < 0 || list[0] > size {
		return 0, fail(a.name(i), errArg, "it is %d, and the packed buffer has %d bytes", list[0], size)
	}
	return list[0], nil
}

func pack(e *Env, a *arguments) error {
	if _, err := e.comm(a, 6); err != nil {
		return err
	}
	it, err := e.items(a, 0)
	if err != nil {
		return err
	}
	pos, err := a.position(5, a.Count(4))
	if err != nil {
		return err
	}
	n, room := it.n*it.d.size, a.Count(4)-pos
	if n > room {
		return fail(a.name(4), errTruncate, "%d bytes are to be packed, and the buffer has room for %d: call MPI_Pack_size", n, room)
	}
	if n > 0 {
		if a.Addr(3) == 0 {
			return fail(a.name(3), errBuffer, "it is NULL, and %d bytes are to be packed", n)
		}
		if fault := a.access(3, func() {
			out := slice[byte](a.Addr(3)+uint64(pos), n)
			if it.contiguous() {
				copy(out, it.bytes)
				return
			}
			_, err = mpi.Pack(out[:0], it.bytes, it.n, it.d.d)
		}); fault != nil {
			return fault
		}
		if err != nil {
			return err
		}
	}
	return a.setInt(5, pos+n)
}

func unpack(e *Env, a *arguments) error {
	if _, err := e.comm(a, 6); err != nil {
		return err
	}
	it, err := e.items(a, 3)
	if err != nil {
		return err
	}
	pos, err := a.position(2, a.Count(1))
	if err != nil {
		return err
	}
	n, rest := it.n*it.d.size, a.Count(1)-pos
	if n > rest {
		return fail(a.name(1), errTruncate, "%d bytes are to be unpacked, and the buffer has %d more", n, rest)
	}
	if n > 0 {
		if a.Addr(0) == 0 {
			return fail(a.name(0), errBuffer, "it is NULL, and %d bytes are to be unpacked", n)
		}
		var in []byte
		if err := a.access(0, func() {
			in = slice[byte](a.Addr(0)+uint64(pos), n)
			touch(in, false)
		}); err != nil {
			return err
		}
		if err := a.unpack(3, &it, in); err != nil {
			return err
		}
	}
	return a.setInt(2, pos+n)
}

// packSize is how many bytes items need: packed ones have no header.
func packSize(e *Env, a *arguments) error {
	n, err := a.count(0)
	if err != nil {
		return err
	}
	t, err := e.committed(a, 1)
	if err != nil {
		return err
	}
	if _, err := e.comm(a, 2); err != nil {
		return err
	}
	if t.size > 0 && n > maxBytes/t.size {
		return fail(a.name(0), errCount, "%d items of %s are more than a program has memory for", n, t.describe())
	}
	return a.setInt(3, n*t.size)
}
