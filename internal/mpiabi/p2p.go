package mpiabi

import "github.com/vmmc-go/vmmc/mpi"

// Chapter "Point-to-Point Communication".

func init() {
	register("MPI_Send", send)
	register("MPI_Recv", recv)
}

func send(e *Env, a *arguments) error {
	c, err := e.comm(a, 5)
	if err != nil {
		return err
	}
	it, err := e.items(a, 0)
	if err != nil {
		return err
	}
	if it.d.gaps {
		if a.tries {
			return errWouldWait
		}
		return mpi.SendItems(a.ctx, c.c, it.bytes, it.n, it.d.d, a.Int(3), a.Int(4))
	}
	return a.trySend(c, it.bytes, a.Int(3), a.Int(4))
}

func recv(e *Env, a *arguments) error {
	c, err := e.comm(a, 5)
	if err != nil {
		return err
	}
	it, err := e.items(a, 0)
	if err != nil {
		return err
	}
	var st mpi.Status
	switch {
	case !it.d.gaps:
		st, err = a.tryRecv(c, it.bytes, a.Int(3), a.Int(4))
	case a.tries:
		return errWouldWait
	default:
		st, err = mpi.RecvItems(a.ctx, c.c, it.bytes, it.n, it.d.d, a.Int(3), a.Int(4))
	}
	if err != nil {
		return err
	}
	return a.setStatus(6, st)
}

// statusSize is the size of MPI_Status: the source, the tag, the error, and five ints of the library.
const statusSize = 8 * 4

// Where MPI_Status has what.
const (
	statusSource    = 0
	statusTag       = 1
	statusError     = 2
	statusBytesLow  = 3
	statusBytesHigh = 4
	statusCancelled = 5
)

// setStatus stores a status, unless its address is MPI_STATUS_IGNORE. The error stays as it is: only
// calls for several requests set it.
func (a *arguments) setStatus(i int, st mpi.Status) error {
	if a.Addr(i) == 0 {
		return nil
	}
	return a.setStatusAt(i, a.Addr(i), st)
}

// setStatusAt stores a status in an array that an argument points to.
func (a *arguments) setStatusAt(i int, addr uint64, st mpi.Status) error {
	return a.access(i, func() {
		s := slice[int32](addr, statusSize/4)
		s[statusSource], s[statusTag] = int32(st.Source), int32(st.Tag)
		s[statusBytesLow], s[statusBytesHigh] = int32(uint32(st.Bytes)), int32(uint64(st.Bytes)>>32)
		s[statusCancelled] = 0
		if st.Cancelled {
			s[statusCancelled] = 1
		}
	})
}
