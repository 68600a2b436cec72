package mpiabi

import (
	"fmt"
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
}

// comm is a communicator.
type comm struct {
	h       Handle
	c       *mpi.Comm // nil: MPI is not initialized
	handler atomic.Uint64
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
	case e.phase.Load() != phaseRunning:
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
