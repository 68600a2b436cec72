package mpiabi

import (
	"strconv"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Process Initialization, Creation, and Management": sessions.
//
// The first session begins the job, or MPI_Init does. The job does not end with the last session: the program
// may begin another one. It ends with MPI_Finalize if no session is open then, or otherwise with the program.

const sessionNull Handle = 0x120

const maxPsetName = 1024 // MPI_MAX_PSET_NAME_LEN

// psets are the names of the sets of processes, in the order of their numbers.
var psets = []string{mpi.PsetWorld, mpi.PsetSelf}

// session is one user of MPI in the program.
type session struct {
	e       *Env
	h       Handle
	handler atomic.Uint64
	level   string // of threads
	buffer  ownBuffer
}

func (s *session) errhandler() *atomic.Uint64 { return &s.handler }

func (s *session) self() Handle { return s.h }

func (s *session) describe() string {
	return "rank " + strconv.Itoa(s.e.self.c.Group().Rank()) + " of a session"
}

// session is the session that an argument is the handle of.
func (e *Env) session(a *arguments, i int) (*session, error) { return e.sessionOf(a, i, a.Handle(i)) }

func (e *Env) sessionOf(a *arguments, i int, h Handle) (*session, error) {
	if s, ok := lookup[*session](&e.handles, h); ok {
		return s, nil
	}
	if h == sessionNull {
		return nil, fail(a.name(i), errSession, "it is MPI_SESSION_NULL")
	}
	return nil, fail(a.name(i), errSession, "%#x is no session, or one that is finalized", uint64(h))
}

// sessionCall is a call whose argument 0 is a session.
func sessionCall(f func(e *Env, a *arguments, s *session) error) call {
	return func(e *Env, a *arguments) error {
		s, err := e.session(a, 0)
		if err != nil {
			return err
		}
		return f(e, a, s)
	}
}

func init() {
	registerAlways("MPI_Session_init", sessionInit)
	registerAlways("MPI_Session_finalize", sessionFinalize)
	registerAlways("MPI_Session_get_info", sessionCall(func(e *Env, a *arguments, s *session) error {
		in := &info{}
		in.set("thread_level", s.level)
		return e.addInfo(a, 1, in)
	}))
	registerAlways("MPI_Session_get_num_psets", sessionCall(func(e *Env, a *arguments, _ *session) error {
		if err := e.optionalInfo(a, 1); err != nil {
			return err
		}
		return a.setInt(2, len(psets))
	}))
	registerAlways("MPI_Session_get_nth_pset", sessionCall(nthPset))
	registerAlways("MPI_Session_get_pset_info", sessionCall(func(e *Env, a *arguments, _ *session) error {
		g, err := e.pset(a, 1)
		if err != nil {
			return err
		}
		in := &info{}
		in.set("mpi_size", strconv.Itoa(g.Size()))
		return e.addInfo(a, 2, in)
	}))
	registerAlways("MPI_Group_from_session_pset", sessionCall(func(e *Env, a *arguments, _ *session) error {
		g, err := e.pset(a, 1)
		if err != nil {
			return err
		}
		return e.addGroup(a, 2, g)
	}))
	of := func(e *Env, a *arguments) (handled, error) { return orNil(e.session(a, 0)) }
	registerAlways("MPI_Session_set_errhandler", func(e *Env, a *arguments) error { return e.setErrhandler(a, "MPI_Session", of) })
	registerAlways("MPI_Session_get_errhandler", func(e *Env, a *arguments) error { return e.getErrhandler(a, of) })
	registerAlways("MPI_Session_call_errhandler", func(e *Env, a *arguments) error { return e.callErrhandler(a, of) })

	register("MPI_Comm_create_from_group", func(e *Env, a *arguments) error {
		g, err := e.group(a, 0)
		if err != nil {
			return err
		}
		return e.fromGroups(a, 1, func(tag string) (*mpi.Comm, error) { return mpi.CommFromGroup(a.ctx, g, tag) })
	})
	register("MPI_Intercomm_create_from_groups", func(e *Env, a *arguments) error {
		local, err := e.group(a, 0)
		if err != nil {
			return err
		}
		remote, err := e.group(a, 2)
		if err != nil {
			return err
		}
		return e.fromGroups(a, 4, func(tag string) (*mpi.Comm, error) {
			return mpi.IntercommFromGroups(a.ctx, local, a.Int(1), remote, a.Int(3), tag)
		})
	})
}

// sessionsOf are the sessions that a communicator may be of: those of the groups that it was made of, and their
// order does not matter to its messages.
func (e *Env) sessionsOf(c *comm) (all []*session) {
	if !c.groups {
		return nil
	}
	e.handles.each(func(object any) {
		if s, ok := object.(*session); ok {
			all = append(all, s)
		}
	})
	return all
}

// threadLevels are the values of the key thread_level.
var threadLevels = []string{"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"}

// sessionInit begins a session, and the job if it is the first user of MPI. All levels of threads are provided.
func sessionInit(e *Env, a *arguments) error {
	if err := e.optionalInfo(a, 0); err != nil {
		return err
	}
	if err := e.errhandler(a, 1, a.Handle(1), "MPI_Session"); err != nil {
		return err
	}
	if err := a.setHandle(2, sessionNull); err != nil {
		return err
	}
	e.initMu.Lock()
	defer e.initMu.Unlock()
	if err := e.beginJob(); err != nil {
		return err
	}
	s := &session{e: e, level: threadLevels[len(threadLevels)-1]}
	s.handler.Store(a.Args[1])
	s.h = e.handles.add(s)
	e.sessions.Add(1)
	return a.setHandle(2, s.h)
}

func sessionFinalize(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	s, err := e.sessionOf(a, 0, h)
	if err != nil {
		return err
	}
	if err := s.buffer.flush(a.ctx); err != nil {
		return err
	}
	e.initMu.Lock()
	defer e.initMu.Unlock()
	if _, ok := remove[*session](&e.handles, h); ok {
		e.sessions.Add(-1)
	}
	return a.setHandle(0, sessionNull)
}

// pset is the set of processes that an argument names.
func (e *Env) pset(a *arguments, i int) (mpi.Group, error) {
	name, err := a.cString(i, maxPsetName)
	if err != nil {
		return mpi.Group{}, err
	}
	g, ok := e.self.c.Pset(name)
	if !ok {
		return mpi.Group{}, fail(a.name(i), errArg, "%.64q is no set of processes: there are %q", name, psets)
	}
	return g, nil
}

// nthPset stores a name, as much of it as there is room for. If there is none it stores how much it takes.
func nthPset(e *Env, a *arguments, _ *session) error {
	if err := e.optionalInfo(a, 1); err != nil {
		return err
	}
	n := a.Int(2)
	if n < 0 || n >= len(psets) {
		return fail(a.name(2), errArg, "it is %d, want 0 to %d", n, len(psets)-1)
	}
	room, err := a.intAt(3)
	if err != nil {
		return err
	}
	switch {
	case room < 0:
		return fail(a.name(3), errArg, "it is %d, want 0 or more", room)
	case room == 0:
		return a.setInt(3, len(psets[n])+1)
	}
	return a.setCString(4, psets[n][:min(room-1, len(psets[n]))])
}

// fromGroups makes a communicator. Argument i is its tag, followed by an info object, an error handler, and the new
// communicator.
func (e *Env) fromGroups(a *arguments, i int, create func(tag string) (*mpi.Comm, error)) error {
	const maxTag = 1024 // MPI_MAX_STRINGTAG_LEN
	tag, err := a.cString(i, maxTag)
	if err != nil {
		return err
	}
	if err := e.optionalInfo(a, i+1); err != nil {
		return err
	}
	if err := e.errhandler(a, i+2, a.Handle(i+2), "MPI_Comm"); err != nil {
		return err
	}
	if err := a.setHandle(i+3, commNull); err != nil {
		return err
	}
	made, err := create(tag)
	if err != nil || made == nil {
		return err
	}
	n := e.addComm(made, nil, a.Handle(i+2))
	n.groups = true
	return a.setHandle(i+3, n.h)
}
