package mpiabi

import (
	"fmt"
	"slices"
	"sync"
)

// Chapter "MPI Environmental Management": error handlers.

func init() {
	comms := func(e *Env, a *arguments) (handled, error) { return orNil(e.comm(a, 0)) }
	for typ, of := range map[string]holderOf{
		"MPI_Comm": comms,
		"MPI_Win":  func(e *Env, a *arguments) (handled, error) { return orNil(e.win(a, 0)) },
		"MPI_File": func(e *Env, a *arguments) (handled, error) {
			if a.Handle(0) == fileNull { // It has the handler of files that are opened later.
				return &e.noFile, nil
			}
			return orNil(e.file(a, 0))
		},
	} {
		register(typ+"_create_errhandler", func(e *Env, a *arguments) error { return e.createErrhandler(a, typ) })
		register(typ+"_set_errhandler", func(e *Env, a *arguments) error { return e.setErrhandler(a, typ, of) })
		register(typ+"_get_errhandler", func(e *Env, a *arguments) error { return e.getErrhandler(a, of) })
		register(typ+"_call_errhandler", func(e *Env, a *arguments) error { return e.callErrhandler(a, of) })
	}
	// The names of MPI-1.
	register("MPI_Errhandler_set", func(e *Env, a *arguments) error { return e.setErrhandler(a, "MPI_Comm", comms) })
	register("MPI_Errhandler_get", func(e *Env, a *arguments) error { return e.getErrhandler(a, comms) })
	registerAlways("MPI_Session_create_errhandler", func(e *Env, a *arguments) error { return e.createErrhandler(a, "MPI_Session") })
	registerAlways("MPI_Errhandler_free", freeErrhandler)
	register("MPI_Errhandler_create", func(e *Env, a *arguments) error { return e.createErrhandler(a, "MPI_Comm") })
}

// holderOf is the object of argument 0.
type holderOf func(e *Env, a *arguments) (handled, error)

// orNil is an object, and no interface of a nil pointer after an error.
func orNil[T handled](object T, err error) (handled, error) {
	if err != nil {
		return nil, err
	}
	return object, nil
}

// errhandlers counts the handles of error handlers. An object keeps its handler when the program has freed
// the handle.
type errhandlers struct {
	mu sync.Mutex
	// held is how often the program has been given the handle of a handler, and has not freed it. Guarded by mu.
	held map[Handle]int
	// freed are handlers whose handles the program has freed. Objects may have them. Guarded by mu.
	freed []Handle
}

// createErrhandler makes an error handler for objects of a type.
func (e *Env) createErrhandler(a *arguments, typ string) error {
	if a.Addr(0) == 0 {
		return fail(a.name(0), errArg, "it is NULL, want a function")
	}
	e.dropErrhandlers()
	s := &e.errhandlers
	s.mu.Lock()
	h := e.handles.add(&userHandler{typ, a.Addr(0)})
	if s.held == nil {
		s.held = map[Handle]int{}
	}
	s.held[h] = 1
	s.mu.Unlock()
	return a.setHandle(1, h)
}

// errhandler checks that an argument is the handle of an error handler for objects of a type. "" is any.
func (e *Env) errhandler(a *arguments, i int, h Handle, typ string) error {
	if h == errorsReturn || fatal(h) {
		return nil
	}
	e.errhandlers.mu.Lock()
	held := e.errhandlers.held[h]
	e.errhandlers.mu.Unlock()
	user, ok := lookup[*userHandler](&e.handles, h)
	if !ok || held == 0 {
		return fail(a.name(i), errHandler, "%#x is no error handler, or one that is freed", uint64(h))
	}
	if typ != "" && user.typ != typ {
		return fail(a.name(i), errHandler, "it is an error handler for %s, want one for %s", user.typ, typ)
	}
	return nil
}

// setErrhandler sets the error handler of an object. of finds the object of argument 0.
func (e *Env) setErrhandler(a *arguments, typ string, of holderOf) error {
	object, err := of(e, a)
	if err != nil {
		return err
	}
	if err := e.errhandler(a, 1, a.Handle(1), typ); err != nil {
		return err
	}
	object.errhandler().Store(uint64(a.Handle(1)))
	e.dropErrhandlers()
	return nil
}

// getErrhandler stores the handle of an object's error handler. The program frees it.
func (e *Env) getErrhandler(a *arguments, of holderOf) error {
	object, err := of(e, a)
	if err != nil {
		return err
	}
	s := &e.errhandlers
	s.mu.Lock()
	h := Handle(object.errhandler().Load())
	if h >= firstDynamic && s.held != nil {
		s.held[h]++
		s.freed = slices.DeleteFunc(s.freed, func(o Handle) bool { return o == h })
	}
	s.mu.Unlock()
	return a.setHandle(1, h)
}

// callErrhandler has the error handler of an object called with a code.
func (e *Env) callErrhandler(a *arguments, of holderOf) error {
	object, err := of(e, a)
	if err != nil {
		return err
	}
	code := int32(a.Int(1))
	if _, ok := e.codes.class(code); !ok {
		return fail(a.name(1), errArg, "%d is no error code", code)
	}
	e.handle(object, code, fmt.Sprintf("%s: %s", a.p.name, e.describeCode(code)))
	return nil
}

// freeErrhandler frees a handle, and stores MPI_ERRHANDLER_NULL in it.
func freeErrhandler(e *Env, a *arguments) error {
	h, err := a.handleAt(0)
	if err != nil {
		return err
	}
	if err := e.errhandler(a, 0, h, ""); err != nil {
		return err
	}
	if h >= firstDynamic {
		s := &e.errhandlers
		s.mu.Lock()
		if s.held[h]--; s.held[h] == 0 {
			delete(s.held, h)
			s.freed = append(s.freed, h)
		}
		s.mu.Unlock()
		e.dropErrhandlers()
	}
	return a.setHandle(0, errhandlerNull)
}

// dropErrhandlers removes the handlers whose handles are freed, and that no object has.
func (e *Env) dropErrhandlers() {
	s := &e.errhandlers
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.freed) == 0 {
		return
	}
	used := map[Handle]bool{
		Handle(e.world.handler.Load()):  true,
		Handle(e.self.handler.Load()):   true,
		Handle(e.noFile.handler.Load()): true,
	}
	e.handles.each(func(object any) {
		if o, ok := object.(handled); ok {
			used[Handle(o.errhandler().Load())] = true
		}
	})
	s.freed = slices.DeleteFunc(s.freed, func(h Handle) bool {
		if !used[h] {
			remove[*userHandler](&e.handles, h)
		}
		return !used[h]
	})
}
