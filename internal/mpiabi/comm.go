package mpiabi

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Groups, Contexts, Communicators, and Caching": communicators.

func init() {
	register("MPI_Comm_rank", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, c.c.Rank())
	})
	register("MPI_Comm_size", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		return a.setInt(1, c.c.Size())
	})
	register("MPI_Comm_dup", func(e *Env, a *arguments) error {
		return e.dupComm(a, 1)
	})
	register("MPI_Comm_split", func(e *Env, a *arguments) error {
		return e.newComm(a, 3, func(c *comm) (*mpi.Comm, error) { return c.c.Split(a.ctx, a.Int(1), a.Int(2)) })
	})
	register("MPI_Comm_free", freeComm)
	register("MPI_Barrier", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		return c.c.Barrier(a.ctx)
	})
}

// newComm makes a communicator of that of argument 0, and stores its handle where argument i points
// to. It has the error handler of the one that it was made of.
func (e *Env) newComm(a *arguments, i int, create func(c *comm) (*mpi.Comm, error)) error {
	return e.newTopology(a, i, func(c *comm) (*mpi.Comm, *topology, error) {
		made, err := create(c)
		return made, nil, err
	})
}

// newTopology is newComm of a communicator that has a topology, which may be nil.
func (e *Env) newTopology(a *arguments, i int, create func(c *comm) (*mpi.Comm, *topology, error)) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	// The call is a collective, so a wrong address must be found before.
	if err := a.setHandle(i, commNull); err != nil {
		return err
	}
	made, t, err := create(c)
	if err != nil || made == nil {
		return err
	}
	n := e.addComm(made, t, Handle(c.handler.Load()))
	n.groups = c.groups
	return a.setHandle(i, n.h)
}

// addComm gives a new communicator a handle. t may be nil.
func (e *Env) addComm(made *mpi.Comm, t *topology, handler Handle) *comm {
	n := &comm{c: made, topology: t, hidden: made.Shadow()}
	n.handler.Store(uint64(handler))
	n.h = e.handles.add(n)
	return n
}

// dupComm makes a communicator with the attributes of the one of argument 0. If a copy function fails there
// is no new one at this rank.
func (e *Env) dupComm(a *arguments, i int) error {
	if err := e.newTopology(a, i, func(c *comm) (*mpi.Comm, *topology, error) { return c.topology.dup(a.ctx, c.c) }); err != nil {
		return err
	}
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	h, err := a.handleAt(i)
	if err != nil {
		return err
	}
	n, ok := lookup[*comm](&e.handles, h)
	if !ok {
		return fail(a.name(i), errIntern, "%#x is not the new communicator: another thread has overwritten it", uint64(h))
	}
	if err := c.attributes.copyTo(e, c.h, &n.attributes); err != nil {
		remove[*comm](&e.handles, h)
		n.freeHidden()
		return errors.Join(err, n.attributes.removeAll(e, h), n.c.Free(), a.setHandle(i, commNull))
	}
	return nil
}

// freeComm frees a communicator, and stores MPI_COMM_NULL in its handle.
func freeComm(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	c, ok := lookup[*comm](&e.handles, h)
	if !ok {
		return fail(a.name(0), errComm, "%#x is no communicator that can be freed", uint64(h))
	}
	if err := c.attributes.removeAll(e, h); err != nil {
		return err
	}
	if err := c.c.Free(); err != nil {
		return err
	}
	c.freeHidden()
	remove[*comm](&e.handles, h)
	return a.setHandle(0, commNull)
}

// comm is a communicator.
type comm struct {
	h       Handle
	c       *mpi.Comm // nil: MPI is not initialized
	handler atomic.Uint64
	name    atomic.Pointer[string] // by MPI_Comm_set_name; nil: none

	attributes attributes
	topology   *topology // nil: none

	hidden     *mpi.Comm     // of the same ranks, for nonblocking collectives
	persistent atomic.Uint32 // the tag of the last persistent neighbourhood collective
	partitions atomic.Uint32 // of all partitioned sends
	buffer     ownBuffer
	groups     bool // It was made of groups, or of such a one: the buffers of sessions serve it.

	queueMu sync.Mutex
	queue   chan struct{} // Guarded by queueMu. Closed when the last nonblocking collective is over; nil: there was none.
}

// init sets what a communicator has from its start on.
func (c *comm) init(h Handle, of *mpi.Comm) {
	c.h, c.c = h, of
	c.handler.Store(uint64(errorsAreFatal))
}

func (c *comm) errhandler() *atomic.Uint64 { return &c.handler }

func (c *comm) self() Handle { return c.h }

func (c *comm) describe() string {
	if c.c == nil {
		return "before MPI_Init"
	}
	return fmt.Sprintf("rank %d of %s", c.c.Rank(), c.c.Name())
}

// comm is the communicator that an argument is the handle of.
func (e *Env) comm(a *arguments, i int) (*comm, error) {
	h := a.Handle(i)
	switch {
	case e.phase.Load() != phaseRunning && h < firstDynamic && h != commNull:
		return nil, fail(a.name(i), errComm, "it is a communicator of MPI_Init, which the program has not called, or has ended")
	case !e.usable():
	case h == commWorld:
		return &e.world, nil
	case h == commSelf:
		return &e.self, nil
	case h == commNull:
		return nil, fail(a.name(i), errComm, "it is MPI_COMM_NULL")
	}
	if c, ok := lookup[*comm](&e.handles, h); ok {
		return c, nil
	}
	return nil, fail(a.name(i), errComm, "%#x is no communicator, or one that is freed", uint64(h))
}
