package mpiabi

import (
	"context"
	"errors"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Point-to-Point Communication": probes, and matched messages.

func init() {
	register("MPI_Probe", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 2)
		if err != nil {
			return err
		}
		st, err := a.probe(c)
		if err != nil {
			return err
		}
		return a.setStatus(3, st)
	})
	register("MPI_Iprobe", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 2)
		if err != nil {
			return err
		}
		st, ok, err := c.c.Iprobe(a.Int(0), a.Int(1))
		if err != nil {
			return err
		}
		if err := a.setFlag(3, ok); err != nil || !ok {
			return err
		}
		return a.setStatus(4, st)
	})
	register("MPI_Mprobe", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 2)
		if err != nil {
			return err
		}
		if err := a.setHandle(3, messageNull); err != nil {
			return err
		}
		m, st, err := c.c.Mprobe(a.ctx, a.Int(0), a.Int(1))
		if err != nil {
			return err
		}
		return e.addMessage(a, 3, m, st, c)
	})
	register("MPI_Improbe", improbe)
	register("MPI_Mrecv", mrecv)
	register("MPI_Imrecv", imrecv)
}

// probe is mpi.Comm.Probe, unless the call is tried and would wait.
func (a *arguments) probe(c *comm) (st mpi.Status, err error) {
	if !a.tries {
		return c.c.Probe(a.ctx, a.Int(0), a.Int(1))
	}
	if !pollFor(func() bool {
		var ok bool
		st, ok, err = c.c.Iprobe(a.Int(0), a.Int(1))
		return ok || err != nil
	}) {
		return st, errWouldWait
	}
	return st, err
}

// message is a message that a probe has taken.
type message struct {
	m *mpi.Message
	c *comm
}

// addMessage stores the handle of a message, and its status in the argument that follows.
func (e *Env) addMessage(a *arguments, i int, m *mpi.Message, st mpi.Status, c *comm) error {
	h := messageNoProc
	if st.Source != mpi.ProcNull {
		h = e.handles.add(&message{m, c})
	}
	if err := a.setHandle(i, h); err != nil {
		return err
	}
	return a.setStatus(i+1, st)
}

// improbe takes a message that is there. Another thread may take it between the two probes. Then
// there is none.
func improbe(e *Env, a *arguments) error {
	c, err := e.comm(a, 2)
	if err != nil {
		return err
	}
	if err := a.setHandle(4, messageNull); err != nil {
		return err
	}
	_, ok, err := c.c.Iprobe(a.Int(0), a.Int(1))
	if err != nil {
		return err
	}
	if !ok {
		return a.setFlag(3, false)
	}
	ctx, stop := context.WithCancel(a.ctx)
	stop() // Mprobe looks first, and does not wait then.
	m, st, err := c.c.Mprobe(ctx, a.Int(0), a.Int(1))
	if errors.Is(err, mpi.ErrCanceled) && a.ctx.Err() == nil {
		return a.setFlag(3, false)
	}
	if err != nil {
		return err
	}
	if err := a.setFlag(3, true); err != nil {
		return err
	}
	return e.addMessage(a, 4, m, st, c)
}

// takeMessage is what four arguments say: a buffer, a count, a datatype, and a message, whose handle is
// MPI_MESSAGE_NULL then. The message of MPI_PROC_NULL is nil.
func (e *Env) takeMessage(a *arguments) (*message, items, error) {
	h, err := a.handleAt(3)
	if err != nil {
		return nil, items{}, err
	}
	it, err := e.items(a, 0)
	if err != nil {
		return nil, items{}, err
	}
	var m *message
	if h != messageNoProc {
		var ok bool
		if m, ok = remove[*message](&e.handles, h); !ok {
			return nil, items{}, fail(a.name(3), errRequest, "%#x is no message, or one that is received", uint64(h))
		}
	}
	return m, it, a.setHandle(3, messageNull)
}

// noProcStatus is the status of a receive from MPI_PROC_NULL.
var noProcStatus = mpi.Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}

func mrecv(e *Env, a *arguments) error {
	m, it, err := e.takeMessage(a)
	if err != nil {
		return err
	}
	if m == nil {
		return a.setStatus(4, noProcStatus)
	}
	buf, done := it.receiver()
	st, err := mpi.Mrecv(a.ctx, m.m, buf)
	if err == nil && done != nil {
		err = done(st)
	}
	if err != nil {
		return &raisedOn{err, m.c}
	}
	return a.setStatus(4, st)
}

// imrecv has a goroutine receive the message.
func imrecv(e *Env, a *arguments) error {
	if err := a.setHandle(4, requestNull); err != nil {
		return err
	}
	m, it, err := e.takeMessage(a)
	if err != nil {
		return err
	}
	q := &request{active: true}
	if m == nil {
		q.parts = []part{&mpi.Request{}} // Its status is that of MPI_PROC_NULL.
		return a.setHandle(4, e.handles.add(q))
	}
	buf, done := it.receiver()
	q.of, q.done = m.c, done
	q.parts = []part{inBackground(func() (mpi.Status, error) { return mpi.Mrecv(e.ctx, m.m, buf) })}
	return a.setHandle(4, e.handles.add(q))
}
