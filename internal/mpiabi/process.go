package mpiabi

// Chapter "Process Creation and Management", of which C has no call yet that starts a job or connects
// with one.

func init() {
	register("MPI_Comm_get_parent", func(e *Env, a *arguments) error {
		if e.world.c.Parent() != nil {
			return fail("", errUnsupp, "a job in Go has spawned this one: its intercommunicator has no handle in C yet")
		}
		return a.setHandle(0, commNull)
	})
	register("MPI_Comm_disconnect", func(e *Env, a *arguments) error {
		h, err := a.handleAt(0)
		if err != nil {
			return err
		}
		if c, ok := lookup[*comm](&e.handles, h); ok { // freeComm tells what is wrong with another one
			if err := c.c.Barrier(e.ctx); err != nil {
				return err
			}
		}
		return freeComm(e, a)
	})
}
