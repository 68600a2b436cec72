package mpiabi

import "fmt"

// Chapter "Process Initialization, Creation, and Management": startup and end.

func init() {
	registerAlways("MPI_Init", func(e *Env, _ *arguments) error { return e.begin() })
	registerAlways("MPI_Init_thread", initThread)
	register("MPI_Finalize", func(e *Env, _ *arguments) error { return e.end() })
	register("MPI_Query_thread", func(_ *Env, a *arguments) error { return a.setInt(0, threadMultiple) })
	register("MPI_Abort", abort)
}

// initThread provides MPI_THREAD_MULTIPLE in all cases: it costs nothing more.
func initThread(e *Env, a *arguments) error {
	switch required := a.Int(2); required {
	case threadSingle, threadFunneled, threadSerialized, threadMultiple:
	default:
		return fail(a.name(2), errArg, "it is %d, want MPI_THREAD_SINGLE, FUNNELED, SERIALIZED or MULTIPLE", required)
	}
	if a.Addr(3) == 0 {
		return fail(a.name(3), errArg, "it is NULL, want where to store the result")
	}
	if err := e.begin(); err != nil {
		return err
	}
	return a.setInt(3, threadMultiple)
}

// abort ends all ranks of the job, whatever the communicator is, as the standard permits.
func abort(e *Env, a *arguments) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	e.abort(a.Int(1), fmt.Sprintf("%s has called MPI_Abort with code %d, so the job ends", c.describe(), a.Int(1)))
	return nil
}
