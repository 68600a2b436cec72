package mpiabi

import (
	"bytes"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Collective Communication": collectives in which ranks have parts of a buffer.

func init() {
	register("MPI_Gather", gather)
	register("MPI_Gatherv", gatherv)
	register("MPI_Scatter", scatter)
	register("MPI_Scatterv", scatterv)
	register("MPI_Allgather", allgather)
	register("MPI_Allgatherv", allgatherv)
	register("MPI_Alltoall", alltoall)
	register("MPI_Alltoallv", alltoallv)
	register("MPI_Alltoallw", alltoallw)
}

// itemsOf are the items of n ranks, each of which has as many as argument count says. Arguments are as
// those of [Env.items].
func (e *Env) itemsOf(a *arguments, buf, n int) (items, error) {
	each, err := a.count(buf + 1)
	if err != nil {
		return items{}, err
	}
	d, err := e.committed(a, buf+2)
	if err != nil {
		return items{}, err
	}
	all, ok := times(n, each)
	if !ok {
		return items{}, fail(a.name(buf+1), errCount, "%d items of each of %d ranks are more than a program has memory for", each, n)
	}
	return a.itemsAt(buf, buf+1, a.Addr(buf), all, d)
}

// parts is a buffer in which each rank has a part. Without gaps it is the program's memory, and
// otherwise the parts are packed, one after another.
type parts struct {
	buf    int // the argument
	b      []byte
	at     mpi.Parts // in bytes
	packed []items   // the parts in the program's memory, or nil
}

// layout is where the parts of ranks are: how many items, how many bytes from the buffer on, and of
// which datatypes. A rank that has no items needs no datatype.
type layout struct {
	counts, displs []int
	types          []*datatype
	one            *datatype // the datatype of all, or nil
}

// layout reads an array of numbers, one of displacements, and a datatype, which are arguments from count on.
func (e *Env) layout(a *arguments, count, n int) (*layout, error) {
	d, err := e.committed(a, count+2)
	if err != nil {
		return nil, err
	}
	l, err := a.lists(count, n, d.extent)
	if err != nil {
		return nil, err
	}
	l.one = d
	for i := range l.types {
		l.types[i] = d
	}
	return l, nil
}

// lists reads the numbers, and the displacements in units of bytes.
func (a *arguments) lists(count, n, unit int) (*layout, error) {
	counts, err := a.counts(count, n)
	if err != nil {
		return nil, err
	}
	displs, err := a.ints(count+1, n)
	if err != nil {
		return nil, err
	}
	for i, x := range displs {
		var ok bool
		if displs[i], ok = times(x, unit); !ok && counts[i] > 0 {
			return nil, fail(a.name(count+1), errArg, "that of rank %d is %d, which is beyond the addresses of a program", i, x)
		}
	}
	return &layout{counts: counts, displs: displs, types: make([]*datatype, n)}, nil
}

// layoutOfTypes is layout with a datatype of each rank, and displacements in bytes.
func (e *Env) layoutOfTypes(a *arguments, count, n int) (*layout, error) {
	l, err := a.lists(count, n, 1)
	if err != nil {
		return nil, err
	}
	handles, err := a.handles(count+2, n)
	if err != nil {
		return nil, err
	}
	for i, h := range handles {
		if l.counts[i] == 0 {
			continue
		}
		if l.types[i], err = e.committedOf(a.name(count+2), h); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// parts are the parts of a buffer. full says that what is in it is needed. count is the argument with the
// numbers of items.
func (a *arguments) parts(buf, count int, l *layout, full bool) (*parts, error) {
	n := len(l.counts)
	p := &parts{buf: buf, at: mpi.Parts{Counts: make([]int, n)}}
	each, total := make([]items, n), 0
	for i, k := range l.counts {
		if k == 0 {
			continue
		}
		base := a.Addr(buf)
		if base == 0 && l.types[i].trueLB == 0 || base > 0 && base <= bufferAutomatic {
			return nil, fail(a.name(buf), errBuffer, "it is no address, and rank %d has %d items there", i, k)
		}
		var err error
		if each[i], err = a.itemsAt(buf, count, base+uint64(l.displs[i]), k, l.types[i]); err != nil {
			return nil, err
		}
		p.at.Counts[i] = k * l.types[i].size
		if total += p.at.Counts[i]; total > maxBytes {
			return nil, fail(a.name(count), errCount, "they are more than a program has memory for")
		}
	}
	if l.one != nil && !l.one.gaps {
		p.whole(a, l)
		return p, nil
	}
	p.packed = each
	p.b = make([]byte, 0, total)
	if !full {
		p.b = p.b[:total]
		return p, nil
	}
	for i := range each {
		b, err := a.pack(buf, &each[i])
		if err != nil {
			return nil, err
		}
		p.b = append(p.b, b...)
	}
	return p, nil
}

// whole takes the program's memory from the first part to the last one.
func (p *parts) whole(a *arguments, l *layout) {
	var s span
	for i, k := range p.at.Counts {
		if k > 0 {
			s.add(l.displs[i], l.displs[i]+k)
		}
	}
	p.at.Displs = make([]int, len(l.counts))
	if !s.some {
		return
	}
	for i, k := range p.at.Counts {
		if k > 0 {
			p.at.Displs[i] = l.displs[i] - s.lo
		}
	}
	p.b = slice[byte](a.Addr(p.buf)+uint64(s.lo)+uint64(l.one.trueLB), s.hi-s.lo)
}

// of is the part of a rank.
func (p *parts) of(rank int) []byte {
	if p.at.Displs != nil {
		return p.b[p.at.Displs[rank]:][:p.at.Counts[rank]]
	}
	from := 0
	for _, k := range p.at.Counts[:rank] {
		from += k
	}
	return p.b[from:][:p.at.Counts[rank]]
}

// store stores what has come where it belongs.
func (p *parts) store(a *arguments) error {
	for i := range p.packed {
		if err := a.unpack(p.buf, &p.packed[i], p.of(i)); err != nil {
			return err
		}
	}
	return nil
}

// sent are the packed items of arguments from buf on.
func (e *Env) sent(a *arguments, buf int) ([]byte, error) {
	it, err := e.items(a, buf)
	if err != nil {
		return nil, err
	}
	return a.pack(buf, &it)
}

func gather(e *Env, a *arguments) error {
	c, err := e.comm(a, 7)
	if err != nil {
		return err
	}
	root, rank, n := a.Int(6), c.c.Rank(), c.c.Size()
	if root != rank {
		send, err := e.sent(a, 0)
		if err != nil {
			return err
		}
		return mpi.Gather(a.ctx, c.c, send, nil, root)
	}
	out, err := e.itemsOf(a, 3, n)
	if err != nil {
		return err
	}
	recv, err := a.room(3, &out, a.inPlaceAt(0))
	if err != nil {
		return err
	}
	k := len(recv) / n
	send := recv[rank*k:][:k]
	if !a.inPlaceAt(0) {
		if send, err = e.sent(a, 0); err != nil {
			return err
		}
	}
	if err := mpi.Gather(a.ctx, c.c, send, recv, root); err != nil {
		return err
	}
	return a.store(3, &out, recv)
}

func gatherv(e *Env, a *arguments) error {
	c, err := e.comm(a, 8)
	if err != nil {
		return err
	}
	root, rank := a.Int(7), c.c.Rank()
	if root != rank {
		send, err := e.sent(a, 0)
		if err != nil {
			return err
		}
		return mpi.Gatherv(a.ctx, c.c, send, nil, mpi.Parts{}, root)
	}
	l, err := e.layout(a, 4, c.c.Size())
	if err != nil {
		return err
	}
	out, err := a.parts(3, 4, l, a.inPlaceAt(0))
	if err != nil {
		return err
	}
	send := out.of(rank)
	if !a.inPlaceAt(0) {
		if send, err = e.sent(a, 0); err != nil {
			return err
		}
	}
	if err := mpi.Gatherv(a.ctx, c.c, send, out.b, out.at, root); err != nil {
		return err
	}
	return out.store(a)
}

// received is memory for the items of arguments from buf on.
func (e *Env) received(a *arguments, buf int) (items, []byte, error) {
	it, err := e.items(a, buf)
	if err != nil {
		return it, nil, err
	}
	b, err := a.room(buf, &it, false)
	return it, b, err
}

func scatter(e *Env, a *arguments) error {
	c, err := e.comm(a, 7)
	if err != nil {
		return err
	}
	root, rank, n := a.Int(6), c.c.Rank(), c.c.Size()
	var send []byte
	if root == rank {
		in, err := e.itemsOf(a, 0, n)
		if err != nil {
			return err
		}
		if send, err = a.pack(0, &in); err != nil {
			return err
		}
		if a.inPlaceAt(3) { // The root's part stays where it is.
			return mpi.Scatter(a.ctx, c.c, send, make([]byte, len(send)/n), root)
		}
	}
	out, recv, err := e.received(a, 3)
	if err != nil {
		return err
	}
	if err := mpi.Scatter(a.ctx, c.c, send, recv, root); err != nil {
		return err
	}
	return a.store(3, &out, recv)
}

func scatterv(e *Env, a *arguments) error {
	c, err := e.comm(a, 8)
	if err != nil {
		return err
	}
	root, rank := a.Int(7), c.c.Rank()
	in := &parts{}
	if root == rank {
		l, err := e.layout(a, 1, c.c.Size())
		if err != nil {
			return err
		}
		if in, err = a.parts(0, 1, l, true); err != nil {
			return err
		}
		if a.inPlaceAt(4) { // The root's part stays where it is.
			return mpi.Scatterv(a.ctx, c.c, in.b, in.at, make([]byte, in.at.Counts[rank]), root)
		}
	}
	out, recv, err := e.received(a, 4)
	if err != nil {
		return err
	}
	if err := mpi.Scatterv(a.ctx, c.c, in.b, in.at, recv, root); err != nil {
		return err
	}
	return a.store(4, &out, recv)
}

// senders is how many ranks a rank receives from in a collective of all: those of the other group of an
// intercommunicator.
func senders(c *mpi.Comm) int {
	if c.Inter() {
		return c.RemoteSize()
	}
	return c.Size()
}

func allgather(e *Env, a *arguments) error {
	c, err := e.comm(a, 6)
	if err != nil {
		return err
	}
	n, rank := senders(c.c), c.c.Rank()
	out, err := e.itemsOf(a, 3, n)
	if err != nil {
		return err
	}
	inPlace := a.inPlaceAt(0) && !c.c.Inter()
	recv, err := a.room(3, &out, inPlace)
	if err != nil {
		return err
	}
	var send []byte
	if inPlace {
		k := len(recv) / n
		send = recv[rank*k:][:k]
	} else if send, err = e.sent(a, 0); err != nil {
		return err
	}
	if err := mpi.Allgather(a.ctx, c.c, send, recv); err != nil {
		return err
	}
	return a.store(3, &out, recv)
}

func allgatherv(e *Env, a *arguments) error {
	c, err := e.comm(a, 7)
	if err != nil {
		return err
	}
	l, err := e.layout(a, 4, c.c.Size())
	if err != nil {
		return err
	}
	out, err := a.parts(3, 4, l, a.inPlaceAt(0))
	if err != nil {
		return err
	}
	send := out.of(c.c.Rank())
	if !a.inPlaceAt(0) {
		if send, err = e.sent(a, 0); err != nil {
			return err
		}
	}
	if err := mpi.Allgatherv(a.ctx, c.c, send, out.b, out.at); err != nil {
		return err
	}
	return out.store(a)
}

func alltoall(e *Env, a *arguments) error {
	c, err := e.comm(a, 6)
	if err != nil {
		return err
	}
	out, err := e.itemsOf(a, 3, c.c.Size())
	if err != nil {
		return err
	}
	recv, err := a.room(3, &out, a.inPlaceAt(0))
	if err != nil {
		return err
	}
	var send []byte
	if a.inPlaceAt(0) {
		send = bytes.Clone(recv)
	} else {
		in, err := e.itemsOf(a, 0, c.c.Size())
		if err != nil {
			return err
		}
		if send, err = a.pack(0, &in); err != nil {
			return err
		}
	}
	if err := mpi.Alltoall(a.ctx, c.c, send, recv); err != nil {
		return err
	}
	return a.store(3, &out, recv)
}

func alltoallv(e *Env, a *arguments) error { return e.exchangeParts(a, e.layout) }

func alltoallw(e *Env, a *arguments) error { return e.exchangeParts(a, e.layoutOfTypes) }

// exchangeParts sends each rank its part, and receives one of each.
func (e *Env) exchangeParts(a *arguments, read func(a *arguments, count, n int) (*layout, error)) error {
	c, err := e.comm(a, 8)
	if err != nil {
		return err
	}
	n := c.c.Size()
	l, err := read(a, 5, n)
	if err != nil {
		return err
	}
	out, err := a.parts(4, 5, l, a.inPlaceAt(0))
	if err != nil {
		return err
	}
	var in *parts
	if a.inPlaceAt(0) {
		in = &parts{b: bytes.Clone(out.b), at: out.at}
	} else {
		if l, err = read(a, 1, n); err != nil {
			return err
		}
		if in, err = a.parts(0, 1, l, true); err != nil {
			return err
		}
	}
	if err := mpi.Alltoallv(a.ctx, c.c, in.b, in.at, out.b, out.at); err != nil {
		return err
	}
	return out.store(a)
}
