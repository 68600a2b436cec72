package mpiabi

import (
	"errors"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Groups, Contexts, Communicators, and Caching": MPI_Comm_idup.

func init() {
	register("MPI_Comm_idup", func(e *Env, a *arguments) error { return e.beginDup(a, 1) })
	register("MPI_Comm_idup_with_info", func(e *Env, a *arguments) error {
		if err := e.optionalInfo(a, 1); err != nil {
			return err
		}
		return e.beginDup(a, 2)
	})
}

// unfinished has the handle of a communicator until the call that makes it is over.
type unfinished struct{}

// beginDup begins to make a communicator with the attributes of the one of argument 0. The handle that
// argument i points to names it when the request is over.
func (e *Env) beginDup(a *arguments, i int) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(a.setHandle(i, commNull), a.setHandle(i+1, requestNull)); err != nil {
		return err
	}
	// It is one of the nonblocking collectives, so its messages are the shadow's.
	t := c.topology
	if t != nil && t.cart != nil {
		grid := *t.cart
		grid.Comm = c.hidden
		t = &topology{kind: topologyCart, cart: &grid}
	}
	n := &comm{h: e.handles.add(&unfinished{}), groups: c.groups}
	n.handler.Store(c.handler.Load())
	part, over, err := e.later(c, func() (err error) {
		n.c, n.topology, err = t.dup(e.ctx, c.hidden)
		return err
	})
	if err != nil {
		e.handles.drop(n.h)
		return err
	}
	if err := c.attributes.copyTo(e, c.h, &n.attributes); err != nil {
		return errors.Join(err, n.attributes.removeAll(e, n.h))
	}
	done := func(st mpi.Status) error {
		if err := over(st); err != nil {
			e.handles.drop(n.h)
			return err
		}
		n.c.SetName(c.c.Name() + " dup")
		n.hidden = n.c.Shadow()
		e.handles.replace(n.h, n)
		return nil
	}
	if err := e.addRequest(a, i+1, c, done, part); err != nil {
		return err
	}
	return a.setHandle(i, n.h)
}
