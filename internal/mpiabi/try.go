package mpiabi

import (
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/mpi"
)

// Calls that the thread of the program executes itself: an other one's would take many times as long as
// the call. Such a call must not wait, as the thread's signals are blocked meanwhile.

// patience is how long a call that is tried polls.
const patience = 50 * time.Microsecond

// errWouldWait is what a call returns that is tried, and would wait. It has done nothing.
var errWouldWait = errors.New("the call would wait")

// way is how a call may be executed.
type way int

const (
	queued way = iota // It may wait, or is rare.
	prompt            // It never waits.
	tried             // It returns errWouldWait if arguments.tries is set and it would wait.
)

var ways = map[way][]string{
	prompt: {
		"MPI_Isend", "MPI_Irsend", "MPI_Issend", "MPI_Ibsend", "MPI_Bsend", "MPI_Irecv", "MPI_Imrecv",
		"MPI_Isendrecv", "MPI_Isendrecv_replace", "MPI_Iprobe",
		"MPI_Send_init", "MPI_Rsend_init", "MPI_Ssend_init", "MPI_Bsend_init", "MPI_Recv_init",
		"MPI_Start", "MPI_Startall", "MPI_Cancel", "MPI_Request_free",
		"MPI_Test", "MPI_Testall", "MPI_Testany", "MPI_Testsome", "MPI_Request_get_status",
		"MPI_Request_get_status_all", "MPI_Request_get_status_any", "MPI_Request_get_status_some",
		"MPI_Comm_rank", "MPI_Comm_size", "MPI_Get_count", "MPI_Get_elements", "MPI_Get_elements_x",
		"MPI_Test_cancelled",
		"MPI_Type_size", "MPI_Type_get_extent", "MPI_Pack", "MPI_Unpack", "MPI_Pack_size",
		"MPI_Status_get_source", "MPI_Status_get_tag", "MPI_Status_get_error",
	},
	tried: {"MPI_Send", "MPI_Recv", "MPI_Wait", "MPI_Waitall", "MPI_Waitany", "MPI_Waitsome", "MPI_Probe"},
}

// Try executes a call without waiting. ok is false if it would wait: it has done nothing then, and is to
// be called by [Env.Call].
func (e *Env) Try(number int, a Args) (code int32, ok bool) {
	if number < 0 || number >= len(prototypes) || table()[number].way == queued {
		return 0, false
	}
	p := prototypes[number]
	if len(a) != len(p.params) {
		return 0, false
	}
	args := &arguments{Args: a, p: p, tries: true, ctx: e.ctx}
	switch err := e.run(args); {
	case err == errWouldWait: //nolint:errorlint // nothing wraps it
		return 0, false
	case err != nil:
		return e.raise(args, err), true
	}
	return errSuccess, true
}

// pollFor has look look again for as long as a call that is tried may last, and reports whether it has
// found what it looks for.
func pollFor(look func() bool) bool {
	if look() {
		return true
	}
	for end := time.Now().Add(patience); ; {
		for range 8 {
			if look() {
				return true
			}
		}
		if time.Now().After(end) {
			return false
		}
		unix.Yield() // What it waits for may need the processor.
	}
}

// trySend is mpi.Send, unless the call is tried and would wait.
func (a *arguments) trySend(c *comm, buf []byte, dest, tag int) error {
	if !a.tries {
		return mpi.Send(a.ctx, c.c, buf, dest, tag)
	}
	ok, err := mpi.TrySend(c.c, buf, dest, tag)
	if err == nil && !ok {
		return errWouldWait
	}
	return err
}

// tryRecv is mpi.Recv, unless the call is tried and would wait.
func (a *arguments) tryRecv(c *comm, buf []byte, source, tag int) (mpi.Status, error) {
	if !a.tries {
		return mpi.Recv(a.ctx, c.c, buf, source, tag)
	}
	st, ok, err := mpi.TryRecv(c.c, buf, source, tag, patience)
	if err == nil && !ok {
		return st, errWouldWait
	}
	return st, err
}
