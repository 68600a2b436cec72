package mpi

import "context"

// contiguous is the memory of n items that follow one another without gaps, or nil.
func (d Datatype) contiguous(mem []byte, n int) []byte {
	if len(d.runs) == 1 && (n == 1 || n > 1 && d.ub-d.lb == d.size) {
		return mem[d.runs[0].at:][:n*d.size]
	}
	return nil
}

// SendItems is Send of n items of a datatype in a buffer of values (MPI_Send with a derived datatype,
// chapter Datatypes). Items without gaps are sent from where they are, and others from a packed copy.
// The receiver may take the bytes as another datatype of the same size, or as values.
//
// Errors: those of Send and Pack.
//
// Experimental: it may change in any release.
func SendItems[T any](ctx context.Context, c *Comm, buf []T, n int, d Datatype, dest, tag int) (err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Send"
	mem, err := bytesOf(call, buf)
	if err != nil {
		return err
	}
	if err := d.within(call, len(mem), n); err != nil {
		return err
	}
	b := d.contiguous(mem, n)
	if b == nil {
		if b, err = Pack(nil, buf, n, d); err != nil {
			return err
		}
	}
	return send(ctx, c, call, b, dest, tag, 0)
}

// RecvItems is Recv of at most n items of a datatype into a buffer of values (MPI_Recv with a derived
// datatype, chapter Datatypes). Items without gaps are received where they belong, and others through
// a copy. The items do not overlap. Bytes between them are unchanged. Status.Bytes says how many bytes
// have come: they need be no whole number of items.
//
// Errors: those of Recv and Unpack.
//
// Experimental: it may change in any release.
func RecvItems[T any](
	ctx context.Context, c *Comm, buf []T, n int, d Datatype, source, tag int,
) (_ Status, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Recv"
	mem, err := bytesOf(call, buf)
	if err != nil {
		return Status{}, err
	}
	if err := d.within(call, len(mem), n); err != nil {
		return Status{}, err
	}
	if b := d.contiguous(mem, n); b != nil {
		return Recv(ctx, c, b, source, tag)
	}
	size, ok := product(n, d.size)
	if !ok {
		return Status{}, fail(call, "count", ErrCount, "%d items of %d bytes are too many", n, d.size)
	}
	b := make([]byte, size)
	st, err := Recv(ctx, c, b, source, tag)
	if err != nil || st.Source == ProcNull {
		return st, err
	}
	d.scatter(mem, b[:st.Bytes])
	return st, nil
}

// scatter stores packed bytes, of any number of items, where they belong.
func (d Datatype) scatter(mem, b []byte) {
	for at := 0; len(b) > 0; at += d.ub - d.lb {
		for _, r := range d.runs {
			b = b[copy(mem[at+r.at:][:r.n], b):]
		}
	}
}
