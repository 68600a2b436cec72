package xdr

import (
	"encoding/binary"
	"fmt"
	"math"
)

// MaxDepth is how deep values may lie within each other by recursive types. Linked lists, whose
// last member leads to the next element, do not count.
const MaxDepth = 1000

// Memory says what a Decoder does with the memory that a value already has, and with its input.
type Memory uint8

const (
	// Copy leaves both alone: what is decoded is in new memory and may be kept.
	Copy Memory = iota
	// Reuse decodes into the slices and pointers that the value has, as far as they go. It is for a
	// value that is decoded into again and again and of which the caller keeps no part.
	Reuse
	// InPlace does as Reuse, but variable-length opaque data is not copied: the value's slices are
	// parts of the input and last as long as it does. Do not decode by Reuse into such a value
	// later.
	InPlace
)

// What a value may take in memory, unless [Decoder.Limit] says otherwise: 16 bytes for each byte of
// input, and at least 1 MiB. A union of one long arm takes its length in Go whichever arm it has,
// and 4 bytes of input: without a limit a short message could take all of a machine's memory.
const (
	memoryPerByte = 16
	leastMemory   = 1 << 20
)

// Decoder reads values from a slice of bytes. After an error, which [Decoder.Err] returns, it reads
// zeros. The zero Decoder has an empty input.
type Decoder struct {
	rest   []byte
	size   int // of the whole input
	depth  int
	free   int // bytes of memory that may still be allocated
	memory Memory
	err    error
}

// NewDecoder returns a Decoder of b.
func NewDecoder(b []byte, m Memory) *Decoder {
	d := new(Decoder)
	d.Reset(b, m)
	return d
}

// Reset makes d decode b, as if it were new.
func (d *Decoder) Reset(b []byte, m Memory) {
	*d = Decoder{rest: b, size: len(b), free: max(memoryPerByte*len(b), leastMemory), memory: m}
}

// Limit bounds the memory that is allocated for what is decoded from now on, in bytes, until the
// next Reset. Beyond it the error is [ErrMemory]. Without a call of Limit it is 16 bytes for each
// byte of input, at least 1 MiB. What the value has already, as the memory of a struct that is
// decoded into, does not count.
func (d *Decoder) Limit(bytes int) { d.free = bytes }

// allocate takes n elements of so many bytes off the limit, and reports whether they are within it.
func (d *Decoder) allocate(n int, size uintptr) bool {
	if size == 0 || uintptr(n) <= uintptr(max(d.free, 0))/size {
		d.free -= n * int(size)
		return true
	}
	if d.err == nil {
		d.Fail(fmt.Errorf("%w: %d elements of %d bytes, %d bytes left", ErrMemory, n, size, d.free))
	}
	return false
}

// Err returns the first error.
func (d *Decoder) Err() error { return d.err }

// OK reports whether there is no error so far. Loops over what is decoded ask it.
func (d *Decoder) OK() bool { return d.err == nil }

// Rest is the input that is not decoded yet; empty after an error.
func (d *Decoder) Rest() []byte { return d.rest }

// Offset is how much of the input is decoded.
func (d *Decoder) Offset() int { return d.size - len(d.rest) }

// Fail makes err the error, unless there is one. Types with rules of their own call it.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = &Error{Op: "decode", Offset: d.Offset(), Err: err}
	}
	// Without input, each later read ends at its check of the length.
	d.size, d.rest = d.Offset(), nil
}

// NoCase fails because a discriminant has none of the values that the union has cases for.
func (d *Decoder) NoCase(union string, value int64) {
	if d.err == nil {
		d.Fail(noCase(union, value))
	}
}

func (d *Decoder) short(want int) {
	if d.err == nil {
		d.Fail(fmt.Errorf("%w: %d bytes wanted, %d left", ErrShort, want, len(d.rest)))
	}
}

// Next reads n bytes, a multiple of 4 and not 0: what it returns is part of the input, whatever the
// [Memory]. It is nil if there are fewer, which is ErrShort.
func (d *Decoder) Next(n int) []byte {
	if len(d.rest) < n {
		d.short(n)
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

// Uint32 reads an unsigned int.
func (d *Decoder) Uint32() uint32 {
	if len(d.rest) < 4 {
		d.short(4)
		return 0
	}
	v := binary.BigEndian.Uint32(d.rest)
	d.rest = d.rest[4:]
	return v
}

// Uint64 reads an unsigned hyper.
func (d *Decoder) Uint64() uint64 {
	if len(d.rest) < 8 {
		d.short(8)
		return 0
	}
	v := binary.BigEndian.Uint64(d.rest)
	d.rest = d.rest[8:]
	return v
}

// Int32 reads an int or an enum.
func (d *Decoder) Int32() int32 { return int32(d.Uint32()) }

// Int64 reads a hyper.
func (d *Decoder) Int64() int64 { return int64(d.Uint64()) }

// Float32 reads a float.
func (d *Decoder) Float32() float32 { return math.Float32frombits(d.Uint32()) }

// Float64 reads a double.
func (d *Decoder) Float64() float64 { return math.Float64frombits(d.Uint64()) }

// Quadruple reads a quadruple.
func (d *Decoder) Quadruple() (q Quadruple) {
	d.FixedOpaque(q[:])
	return q
}

// Bool reads a bool. Only 0 and 1 are.
func (d *Decoder) Bool() bool {
	v := d.Uint32()
	if v > 1 {
		d.back(4, v, "a bool")
	}
	return v == 1
}

// Int16 reads what C calls a short: an int on the wire. One that was encoded without its sign is
// taken too.
func (d *Decoder) Int16() int16 {
	v := d.Int32()
	if v < math.MinInt16 || v > math.MaxUint16 {
		d.back(4, v, "a short")
		return 0
	}
	return int16(v)
}

// Uint16 reads an unsigned short: an unsigned int on the wire.
func (d *Decoder) Uint16() uint16 {
	v := d.Uint32()
	if v > math.MaxUint16 {
		d.back(4, v, "an unsigned short")
		return 0
	}
	return uint16(v)
}

// Int8 reads what C calls a char: an int on the wire. Where C has no sign in it, it is encoded
// without.
func (d *Decoder) Int8() int8 {
	v := d.Int32()
	if v < math.MinInt8 || v > math.MaxUint8 {
		d.back(4, v, "a char")
		return 0
	}
	return int8(v)
}

// Uint8 reads an unsigned char: an unsigned int on the wire.
func (d *Decoder) Uint8() uint8 {
	v := d.Uint32()
	if v > math.MaxUint8 {
		d.back(4, v, "an unsigned char")
		return 0
	}
	return uint8(v)
}

// back fails for the n bytes that were read last.
func (d *Decoder) back(n int, value any, what string) {
	if d.err == nil {
		d.size -= n
		d.Fail(fmt.Errorf("%w: %v is not %s", ErrValue, value, what))
	}
}
