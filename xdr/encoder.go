package xdr

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Encoder writes values to a slice of bytes. After an error, which [Encoder.Err] returns, it writes
// nothing. The zero Encoder takes its own memory.
type Encoder struct {
	buf   []byte
	fixed bool
	depth int
	err   error
	pieces
}

// Reset makes e append to b, as if it were new, and take more memory where b has no more capacity.
func (e *Encoder) Reset(b []byte) {
	clear(e.cuts) // what it referred to is the caller's
	*e = Encoder{buf: b, pieces: pieces{cuts: e.cuts[:0]}}
}

// ResetFixed makes e append to b within its capacity. What does not fit is ErrNoSpace.
func (e *Encoder) ResetFixed(b []byte) {
	e.Reset(b)
	e.fixed = true
}

// Bytes returns the slice that e was reset with and all that was appended. After an error its
// length says nothing. It has all that was encoded unless e gathers.
func (e *Encoder) Bytes() []byte { return e.buf }

// Size is the length of all so far, also of what is only referred to.
func (e *Encoder) Size() int { return len(e.buf) + e.outside }

// Err returns the first error.
func (e *Encoder) Err() error { return e.err }

// OK reports whether there is no error so far. Loops without a bound of their own ask it.
func (e *Encoder) OK() bool { return e.err == nil }

// Fail makes err the error, unless there is one. Types with rules of their own call it.
func (e *Encoder) Fail(err error) {
	if e.err == nil {
		e.err = &Error{Op: "encode", Offset: e.Size(), Err: err}
	}
	// Without capacity, each later write ends at its check.
	e.buf, e.fixed = e.buf[:len(e.buf):len(e.buf)], true
}

// NoCase fails because a discriminant has none of the values that the union has cases for.
func (e *Encoder) NoCase(union string, value int64) {
	if e.err == nil {
		e.Fail(noCase(union, value))
	}
}

// take returns the next n bytes to be written; nil if there is no space.
func (e *Encoder) take(n int) []byte {
	l := len(e.buf)
	if cap(e.buf)-l < n && !e.grow(n) {
		return nil
	}
	e.buf = e.buf[:l+n]
	return e.buf[l:]
}

// grow makes room for n bytes more, and says whether it could.
func (e *Encoder) grow(n int) bool {
	if e.fixed {
		e.full(n)
		return false
	}
	e.buf = slices.Grow(e.buf, n)
	return true
}

func (e *Encoder) full(n int) {
	if e.err == nil {
		e.Fail(fmt.Errorf("%w: %d bytes wanted, %d left", ErrNoSpace, n, cap(e.buf)-len(e.buf)))
	}
}

// Next writes n bytes, a multiple of 4 and not 0, all of which the caller has to put into what it
// returns: the fields of a header, say, whose length is known. It is nil if they do not fit, which
// is ErrNoSpace.
func (e *Encoder) Next(n int) []byte {
	b := e.take(n)
	if b == nil {
		return nil
	}
	return b[:n:n]
}

// Uint32 writes an unsigned int.
func (e *Encoder) Uint32(v uint32) {
	if b := e.take(4); b != nil {
		binary.BigEndian.PutUint32(b, v)
	}
}

// Uint64 writes an unsigned hyper.
func (e *Encoder) Uint64(v uint64) {
	if b := e.take(8); b != nil {
		binary.BigEndian.PutUint64(b, v)
	}
}

// Int32 writes an int or an enum.
func (e *Encoder) Int32(v int32) { e.Uint32(uint32(v)) }

// Int64 writes a hyper.
func (e *Encoder) Int64(v int64) { e.Uint64(uint64(v)) }

// Float32 writes a float.
func (e *Encoder) Float32(v float32) { e.Uint32(math.Float32bits(v)) }

// Float64 writes a double.
func (e *Encoder) Float64(v float64) { e.Uint64(math.Float64bits(v)) }

// Quadruple writes a quadruple.
func (e *Encoder) Quadruple(q Quadruple) { e.FixedOpaque(q[:]) }

// Bool writes a bool.
func (e *Encoder) Bool(v bool) {
	var n uint32
	if v {
		n = 1
	}
	e.Uint32(n)
}

// Int16 writes what C calls a short, as an int.
func (e *Encoder) Int16(v int16) { e.Int32(int32(v)) }

// Uint16 writes an unsigned short, as an unsigned int.
func (e *Encoder) Uint16(v uint16) { e.Uint32(uint32(v)) }

// Int8 writes what C calls a char, as an int.
func (e *Encoder) Int8(v int8) { e.Int32(int32(v)) }

// Uint8 writes an unsigned char, as an unsigned int.
func (e *Encoder) Uint8(v uint8) { e.Uint32(uint32(v)) }
