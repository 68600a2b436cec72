package rpcl

import "fmt"

// Position is a place in a file; lines and columns count from 1, columns in bytes.
type Position struct {
	File         string
	Line, Column int
}

func (p Position) String() string {
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Error is what is wrong at a place.
type Error struct {
	Position Position
	Message  string
}

func (e *Error) Error() string { return e.Position.String() + ": " + e.Message }

// failure carries an Error out of the depths of the parser; Parse catches it.
type failure struct{ err *Error }

func fail(at Position, format string, args ...any) {
	panic(failure{&Error{at, fmt.Sprintf(format, args...)}})
}

// catch turns a failure into an error.
func catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}
