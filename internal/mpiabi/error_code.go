package mpiabi

import (
	"fmt"
	"sync"
)

// Chapter "MPI Environmental Management": error classes, codes and strings.

func init() {
	registerAlways("MPI_Error_class", func(e *Env, a *arguments) error {
		class, ok := e.codes.class(int32(a.Int(0)))
		if !ok {
			return fail(a.name(0), errArg, "%d is no error code", a.Int(0))
		}
		return a.setInt(1, int(class))
	})
	registerAlways("MPI_Error_string", func(e *Env, a *arguments) error {
		text, ok := e.codes.text(int32(a.Int(0)))
		if !ok {
			return fail(a.name(0), errArg, "%d is no error code", a.Int(0))
		}
		if err := a.setCString(1, text); err != nil {
			return err
		}
		return a.setInt(2, len(text))
	})
	registerAlways("MPI_Add_error_class", func(e *Env, a *arguments) error {
		return e.addCode(a, 0, func(code int32) int32 { return code })
	})
	registerAlways("MPI_Add_error_code", func(e *Env, a *arguments) error {
		class := int32(a.Int(0))
		if of, ok := e.codes.class(class); !ok || of != class {
			return fail(a.name(0), errArg, "%d is no error class", class)
		}
		return e.addCode(a, 1, func(int32) int32 { return class })
	})
	registerAlways("MPI_Add_error_string", func(e *Env, a *arguments) error {
		text, err := a.cString(1, maxErrorString)
		if err != nil {
			return err
		}
		if len(text) == maxErrorString {
			return fail(a.name(1), errArg, "it has %d characters or more, want at most %d", len(text), maxErrorString-1)
		}
		return e.codes.setText(a, text)
	})
	registerAlways("MPI_Remove_error_class", func(e *Env, a *arguments) error { return e.codes.remove(a, true) })
	registerAlways("MPI_Remove_error_code", func(e *Env, a *arguments) error { return e.codes.remove(a, false) })
	registerAlways("MPI_Remove_error_string", func(e *Env, a *arguments) error { return e.codes.setText(a, "") })
}

// maxErrorString is how long a text is at most, with its end.
const maxErrorString = 512

// classTexts say what the error classes mean, by their numbers.
var classTexts = [...]string{
	"no error", "invalid buffer", "invalid count", "invalid datatype", "invalid tag", "invalid communicator",
	"invalid rank", "invalid request", "invalid root", "invalid group", "invalid operation",
	"invalid topology", "invalid dimension", "invalid argument of another kind", "unknown error",
	"message is longer than the receive buffer", "known error that is of no other class", "internal error",
	"pending request", "error code is in the status", "permission denied", "invalid access mode",
	"invalid assertion", "invalid file name", "invalid base address", "error in a function for data conversion",
	"invalid displacement", "data representation is defined already", "file exists",
	"file is in use by a process", "invalid file handle", "key is too long", "key is not defined",
	"value is too long or cannot be used", "invalid info object", "input or output error",
	"invalid key value", "invalid lock type", "service name is not published", "memory is exhausted",
	"arguments of a collective differ between processes", "not enough space", "file does not exist",
	"invalid port name", "quota exceeded", "file or file system is read-only",
	"memory cannot be attached", "conflicting accesses to a window",
	"target memory is not part of the window", "memory cannot be shared",
	"wrong synchronization of one-sided calls", "service name cannot be published", "invalid size",
	"processes cannot be spawned", "data representation is not supported", "operation is not supported",
	"invalid window", "window has the wrong flavor for the call", "process of the operation has aborted",
	"value is too large to store", "invalid session", "invalid error handler",
	"conflict of binary interfaces",
}

// errorCodes are the error classes and codes that the program has added.
type errorCodes struct {
	mu   sync.Mutex
	last int32                 // the greatest code that was in use, or 0. Guarded by mu.
	of   map[int32]*programErr // by code. Guarded by mu.
}

// programErr is an error class or code of the program.
type programErr struct {
	class int32 // A class is its own one.
	text  string
	codes int // how many codes a class has beside itself
}

// predefined reports whether the standard has defined a class.
func predefined(code int32) bool { return code >= 0 && int(code) < len(classTexts) }

// class is the class of a code.
func (s *errorCodes) class(code int32) (class int32, ok bool) {
	if predefined(code) {
		return code, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.of[code]; ok {
		return p.class, true
	}
	return 0, false
}

// text says what a code means.
func (s *errorCodes) text(code int32) (text string, ok bool) {
	if predefined(code) {
		return classTexts[code], true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.of[code]
	if !ok {
		return "", false
	}
	return p.text, true
}

// addCode stores a new code where argument i points to. classOf is the class of the code.
func (e *Env) addCode(a *arguments, i int, classOf func(code int32) int32) error {
	s := &e.codes
	s.mu.Lock()
	if s.of == nil {
		s.of, s.last = map[int32]*programErr{}, lastCode
	}
	s.last++
	code := s.last
	e.commAttributes.lastUsedCode = code // MPI_LASTUSEDCODE
	class := classOf(code)
	s.of[code] = &programErr{class: class}
	if p := s.of[class]; p != nil && class != code {
		p.codes++
	}
	s.mu.Unlock()
	return a.setInt(i, int(code))
}

// own is the code of argument 0, which the program has added. The caller holds mu.
func (s *errorCodes) own(a *arguments) (int32, *programErr, error) {
	code := int32(a.Int(0))
	p, ok := s.of[code]
	if !ok {
		return 0, nil, fail(a.name(0), errArg, "%d is no error class or code that the program has added", code)
	}
	return code, p, nil
}

// setText sets the text of a code that the program has added.
func (s *errorCodes) setText(a *arguments, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, p, err := s.own(a)
	if err != nil {
		return err
	}
	p.text = text
	return nil
}

// remove removes a class, or a code that is no class.
func (s *errorCodes) remove(a *arguments, class bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	code, p, err := s.own(a)
	switch {
	case err != nil:
		return err
	case (p.class == code) != class:
		return fail(a.name(0), errArg, "%d is %s", code, map[bool]string{true: "a code, and no class", false: "a class, and no code"}[class])
	case p.codes > 0:
		return fail(a.name(0), errArg, "%d codes are of class %d: remove them before", p.codes, code)
	}
	if of := s.of[p.class]; of != nil && of != p {
		of.codes--
	}
	delete(s.of, code)
	return nil
}

// describeCode names an error code for people.
func (e *Env) describeCode(code int32) string {
	text, ok := e.codes.text(code)
	if !ok || text == "" {
		return fmt.Sprintf("error code %d", code)
	}
	return fmt.Sprintf("%s (error code %d)", text, code)
}
