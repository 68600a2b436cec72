package mpiabi

import "github.com/vmmc-go/vmmc/mpi"

// Chapter "Point-to-Point Communication": sends and receives that need not be over, and persistent ones.

func init() {
	standard := func(*Env, *comm) sender { return mpi.Isend[byte] }
	synchronous := func(*Env, *comm) sender { return mpi.Issend[byte] }
	buffered := (*Env).bufferedSender
	for _, m := range []struct {
		begin, persistent, blocking string
		f                           mode
	}{
		{"MPI_Isend", "MPI_Send_init", "", standard},
		{"MPI_Irsend", "MPI_Rsend_init", "MPI_Rsend", standard},
		{"MPI_Issend", "MPI_Ssend_init", "MPI_Ssend", synchronous},
		{"MPI_Ibsend", "MPI_Bsend_init", "MPI_Bsend", buffered},
	} {
		register(m.begin, func(e *Env, a *arguments) error { return e.isend(a, m.f) })
		register(m.persistent, func(e *Env, a *arguments) error { return e.sendInit(a, m.f) })
		if m.blocking != "" {
			register(m.blocking, func(e *Env, a *arguments) error { return e.sendBy(a, m.f) })
		}
	}
	register("MPI_Irecv", irecv)
	register("MPI_Recv_init", recvInit)
	register("MPI_Sendrecv", func(e *Env, a *arguments) error { return e.exchange(a, 11, false) })
	register("MPI_Sendrecv_replace", func(e *Env, a *arguments) error { return e.exchangeReplace(a, 8, false) })
	register("MPI_Isendrecv", func(e *Env, a *arguments) error { return e.exchange(a, 11, true) })
	register("MPI_Isendrecv_replace", func(e *Env, a *arguments) error { return e.exchangeReplace(a, 8, true) })
}

// sender is mpi.Isend and its kin.
type sender func(c *mpi.Comm, buf []byte, dest, tag int) (*mpi.Request, error)

// mode is how messages of a communicator are sent.
type mode func(e *Env, c *comm) sender

// packed are the bytes of the items without gaps: a copy if they have any.
func (it items) packed() ([]byte, error) {
	if !it.d.gaps || it.n == 0 {
		return it.bytes, nil
	}
	return mpi.Pack(make([]byte, 0, it.n*it.d.size), it.bytes, it.n, it.d.d)
}

// unpack stores packed bytes, which need be no whole number of items.
func (it items) unpack(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n := (len(b) + it.d.size - 1) / it.d.size
	if rest := n*it.d.size - len(b); rest > 0 { // The last item keeps what has not come.
		whole, err := mpi.Pack(nil, it.bytes, n, it.d.d)
		if err != nil {
			return err
		}
		b = append(b[:len(b):len(b)], whole[len(b):]...)
	}
	_, err := mpi.Unpack(b, it.bytes, n, it.d.d)
	return err
}

// receiver is where a message goes: to the items, or by a copy if they have gaps.
func (it items) receiver() (buf []byte, done func(st mpi.Status) error) {
	if !it.d.gaps || it.n == 0 {
		return it.bytes, nil
	}
	buf = make([]byte, it.n*it.d.size)
	return buf, func(st mpi.Status) error {
		if st.Cancelled {
			return nil
		}
		return it.unpack(buf[:st.Bytes])
	}
}

// outgoing is what six arguments say: a buffer, a count, a datatype, a rank, a tag, a communicator.
func (e *Env) outgoing(a *arguments) (*comm, items, error) {
	c, err := e.comm(a, 5)
	if err != nil {
		return nil, items{}, err
	}
	it, err := e.items(a, 0)
	return c, it, err
}

// sendBy sends, and waits until it is over.
func (e *Env) sendBy(a *arguments, f mode) error {
	c, it, err := e.outgoing(a)
	if err != nil {
		return err
	}
	buf, err := it.packed()
	if err != nil {
		return err
	}
	r, err := f(e, c)(c.c, buf, a.Int(3), a.Int(4))
	if err != nil {
		return err
	}
	if _, err = r.Wait(a.ctx); a.ctx.Err() != nil {
		r.Cancel() // The program has no request that it could wait for again.
	}
	return err
}

func (e *Env) isend(a *arguments, f mode) error {
	c, it, err := e.outgoing(a)
	if err != nil {
		return err
	}
	if err := a.setHandle(6, requestNull); err != nil {
		return err
	}
	buf, err := it.packed()
	if err != nil {
		return err
	}
	r, err := f(e, c)(c.c, buf, a.Int(3), a.Int(4))
	if err != nil {
		return err
	}
	return e.addRequest(a, 6, c, nil, r)
}

func irecv(e *Env, a *arguments) error {
	c, it, err := e.outgoing(a)
	if err != nil {
		return err
	}
	if err := a.setHandle(6, requestNull); err != nil {
		return err
	}
	buf, done := it.receiver()
	r, err := mpi.Irecv(c.c, buf, a.Int(3), a.Int(4))
	if err != nil {
		return err
	}
	return e.addRequest(a, 6, c, done, r)
}

// sendInit makes a persistent send. Items with gaps are packed at each start.
func (e *Env) sendInit(a *arguments, f mode) error {
	c, it, err := e.outgoing(a)
	if err != nil {
		return err
	}
	dest, tag := a.Int(3), a.Int(4)
	// It checks the rank and the tag.
	if _, err := mpi.SendInit(c.c, it.bytes, dest, tag); err != nil {
		return err
	}
	return a.setHandle(6, e.handles.add(&request{of: c, start: func() ([]part, error) {
		buf, err := it.packed()
		if err != nil {
			return nil, err
		}
		r, err := f(e, c)(c.c, buf, dest, tag)
		return []part{r}, err
	}}))
}

func recvInit(e *Env, a *arguments) error {
	c, it, err := e.outgoing(a)
	if err != nil {
		return err
	}
	buf, done := it.receiver()
	source, tag := a.Int(3), a.Int(4)
	// It checks the rank and the tag.
	if _, err := mpi.RecvInit(c.c, buf, source, tag); err != nil {
		return err
	}
	return a.setHandle(6, e.handles.add(&request{of: c, done: done, start: func() ([]part, error) {
		r, err := mpi.Irecv(c.c, buf, source, tag)
		return []part{r}, err
	}}))
}

// exchange is MPI_Sendrecv, and MPI_Isendrecv if it does not wait. Argument out is the status, or the request.
func (e *Env) exchange(a *arguments, out int, begins bool) error {
	c, err := e.comm(a, 10)
	if err != nil {
		return err
	}
	send, err := e.items(a, 0)
	if err != nil {
		return err
	}
	receive, err := e.items(a, 5)
	if err != nil {
		return err
	}
	buf, err := send.packed()
	if err != nil {
		return err
	}
	return e.sendAndReceive(a, c, buf, [2]int{a.Int(3), a.Int(4)}, receive, [2]int{a.Int(8), a.Int(9)}, out, begins)
}

// exchangeReplace is exchange with one buffer. What it sends is a copy.
func (e *Env) exchangeReplace(a *arguments, out int, begins bool) error {
	c, err := e.comm(a, 7)
	if err != nil {
		return err
	}
	it, err := e.items(a, 0)
	if err != nil {
		return err
	}
	buf, err := it.packed()
	if err != nil {
		return err
	}
	buf = append([]byte(nil), buf...)
	return e.sendAndReceive(a, c, buf, [2]int{a.Int(3), a.Int(4)}, it, [2]int{a.Int(5), a.Int(6)}, out, begins)
}

// sendAndReceive sends and receives at the same time. to and from are ranks and tags.
func (e *Env) sendAndReceive(a *arguments, c *comm, send []byte, to [2]int, it items, from [2]int, out int, begins bool) error {
	buf, done := it.receiver()
	if begins {
		if err := a.setHandle(out, requestNull); err != nil {
			return err
		}
		if _, err := mpi.RecvInit(c.c, buf, from[0], from[1]); err != nil { // It checks the rank and the tag.
			return err
		}
		s, err := mpi.Isend(c.c, send, to[0], to[1])
		if err != nil {
			return err
		}
		r, err := mpi.Irecv(c.c, buf, from[0], from[1])
		if err != nil {
			s.Cancel()
			return err
		}
		return e.addRequest(a, out, c, done, s, r)
	}
	st, err := mpi.Sendrecv(a.ctx, c.c, send, to[0], to[1], buf, from[0], from[1])
	if err != nil {
		return err
	}
	if done != nil && st.Source != mpi.ProcNull {
		if err := done(st); err != nil {
			return err
		}
	}
	return a.setStatus(out, st)
}
