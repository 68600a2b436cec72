package mpiabi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// call executes a call of C. Its error is an *mpi.Error, an mpi.Class or one of [fail].
type call func(e *Env, a *arguments) error

// entry is what is registered for a call.
type entry struct {
	f      call
	always bool // It is legal before MPI_Init and after MPI_Finalize.
	way    way
}

// entries are the registered calls by their names.
var entries = map[string]entry{}

// table are the registered calls by their numbers.
var table = sync.OnceValue(func() []entry {
	all := make([]entry, len(prototypes))
	for name, en := range entries {
		all[numbers[name]] = en
	}
	for w, names := range ways {
		for _, name := range names {
			for _, form := range [...]string{name, name + "_c"} {
				if number, ok := numbers[form]; ok {
					all[number].way = w
				}
			}
		}
	}
	return all
})

// register sets the function of a call, and of its form with large counts.
func register(name string, f call) { registerEntry(name, entry{f: f}) }

// registerAlways is register of a call that is legal before MPI_Init and after MPI_Finalize.
func registerAlways(name string, f call) { registerEntry(name, entry{f: f, always: true}) }

func registerEntry(name string, en entry) {
	if _, ok := numbers[name]; !ok {
		panic("mpiabi: calls.txt has no prototype of " + name)
	}
	if _, ok := entries[name]; ok {
		panic("mpiabi: two functions are registered for " + name)
	}
	entries[name] = en
	if _, ok := numbers[name+"_c"]; ok {
		entries[name+"_c"] = en
	}
}

// Number is the number of a call, and -1 if there is none of the name.
func Number(name string) int {
	if number, ok := numbers[name]; ok {
		return number
	}
	return -1
}

// Call executes a call, and returns its error code: 0 if it has succeeded. If it fails the error
// handler of its communicator, window, file or session is called before. It never panics.
//
// ctx is derived from [Env.Context], and ends when the program's thread has left the call. The call is
// over soon then, and what it has begun is withdrawn: a receive takes no message any more, a send is as
// after [mpi.ErrCanceled]. No error handler is called, as no thread is in the call. MPI_Init and
// MPI_Finalize go on.
func (e *Env) Call(ctx context.Context, number int, a Args) int32 {
	if number < 0 || number >= len(prototypes) {
		p := &prototype{name: fmt.Sprintf("MPI call %d", number)}
		return e.raise(&arguments{p: p}, fail("", errIntern, "calls.txt has no such call: the libraries are of different versions"))
	}
	p := prototypes[number]
	if len(a) != len(p.params) {
		return e.raise(&arguments{p: p}, fail("", errIntern, "it has %d arguments, want %d: the libraries are of different versions", len(a), len(p.params)))
	}
	args := &arguments{Args: a, p: p, ctx: ctx}
	if err := e.run(args); err != nil {
		if ctx.Err() != nil && e.ctx.Err() == nil {
			return classOf(err)
		}
		return e.raise(args, err)
	}
	return errSuccess
}

// run executes a call. A panic is an internal error.
func (e *Env) run(a *arguments) (err error) {
	en := &table()[a.p.number]
	if en.f == nil {
		return fail("", errUnsupp, "this library does not have the call yet")
	}
	if !en.always && !e.usable() {
		return errNotRunning(e.phase.Load())
	}
	defer func() {
		r := recover()
		if bad, ok := r.(badAddress); ok {
			err = fail("", errBuffer, "%v: check the addresses", bad)
		} else if r != nil {
			err = fail("", errIntern, "it has panicked, which is a fault of vmmc: report it: %v", r)
		}
	}()
	return en.f(e, a)
}

// handled is an object that has an error handler.
type handled interface {
	// errhandler is the handle of the error handler.
	errhandler() *atomic.Uint64
	// describe names the object, and the rank.
	describe() string
	// self is the object's own handle.
	self() Handle
}

// userHandler is an error handler of the program (MPI_Comm_create_errhandler and the like).
type userHandler struct {
	typ      string // the type of its objects: "MPI_Comm"
	function uint64
}

// holder is the object whose error handler is called: that of the call, or otherwise none.
func (e *Env) holder(a *arguments) handled {
	if len(a.Args) == len(a.p.params) {
		if i := a.p.handleParam("MPI_Comm"); i >= 0 {
			if c, err := e.comm(a, i); err == nil {
				return c
			}
		}
		for _, typ := range []string{"MPI_Win", "MPI_File", "MPI_Session"} {
			if i := a.p.handleParam(typ); i >= 0 {
				if h, ok := lookup[handled](&e.handles, a.Handle(i)); ok {
					return h
				}
			}
		}
	}
	return detached{e}
}

// detached has the errors of calls that have no communicator, window, file or session. Their error handler
// is that of MPI_COMM_SELF.
type detached struct{ e *Env }

func (d detached) errhandler() *atomic.Uint64 { return &d.e.self.handler }

func (d detached) self() Handle { return commSelf }

// describe names the process, which no communicator of the call does.
func (d detached) describe() string { return d.e.world.describe() }

// raisedOn is an error of an object that is no argument of the call: of the communicator of a request.
type raisedOn struct {
	error
	of handled
}

func (r *raisedOn) Unwrap() error { return r.error }

// fatal reports whether an error handler ends the job.
func fatal(h Handle) bool { return h == errorsAreFatal || h == errorsAbort }

// raise has the error handler called for the error of a call, and returns the error's code.
func (e *Env) raise(a *arguments, err error) int32 {
	if strings.HasPrefix(a.p.name, "MPI_T_") { // the chapter's calls have no error handler
		return errToolNotSupported
	}
	code := classOf(err)
	of := e.holder(a)
	var on *raisedOn
	if errors.As(err, &on) && on.of != nil {
		of = on.of
	}
	return e.handle(of, code, describe(a.p.name, err))
}

// handle has the error handler of an object called for an error. It returns the code that the call returns:
// a handler of the program may change it.
func (e *Env) handle(of handled, code int32, why string) int32 {
	h := Handle(of.errhandler().Load())
	switch {
	case h == errorsReturn:
	case fatal(h):
		where := "there"
		if _, ok := of.(detached); ok {
			where = "of calls without a communicator"
			if e.world.c != nil {
				where = "of MPI_COMM_SELF, which has those of calls without a communicator,"
			}
		}
		e.abort(1, fmt.Sprintf("%s: %s: errors %s are fatal, so the job ends: set MPI_ERRORS_RETURN to have calls return them",
			of.describe(), why, where))
	default:
		if user, ok := lookup[*userHandler](&e.handles, h); ok {
			var failed error
			if code, failed = e.callHandler(user, of.self(), code); failed != nil {
				e.abort(1, fmt.Sprintf("%s: %s: the error handler cannot be called, so the job ends: %v", of.describe(), why, failed))
			}
		}
	}
	return code
}

// callHandler calls an error handler of the program with the addresses of a handle and a code. It returns the
// code that is there then.
func (e *Env) callHandler(user *userHandler, object Handle, code int32) (int32, error) {
	if e.config.Callback == nil {
		return code, errNoCallback
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&object)
	pin.Pin(&code)
	e.config.Callback(user.function, address(&object), address(&code))
	return code, nil
}
