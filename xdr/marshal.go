package xdr

import (
	"fmt"
	"math"
	"sync"
)

// Unlimited is the most elements of what is declared without a limit.
const Unlimited = math.MaxUint32

// Marshaler is a type that writes its representation.
type Marshaler interface {
	EncodeXDR(e *Encoder)
}

// Unmarshaler is a type that reads its representation. If it fails, the value is in no certain
// state.
type Unmarshaler interface {
	DecodeXDR(d *Decoder)
}

// Quadruple is a floating-point number of 128 bits, as it is on the wire. Go has no such numbers.
type Quadruple [16]byte

// Void has no representation: the arguments and the results of procedures that have none.
type Void struct{}

// EncodeXDR writes nothing.
func (Void) EncodeXDR(*Encoder) {}

// DecodeXDR reads nothing.
func (Void) DecodeXDR(*Decoder) {}

// They are kept because what goes through an interface is otherwise allocated each time.
var (
	encoders = sync.Pool{New: func() any { return new(Encoder) }}
	decoders = sync.Pool{New: func() any { return new(Decoder) }}
)

// Append appends the representation of v to b. Where b has the capacity, nothing is allocated.
func Append(b []byte, v Marshaler) ([]byte, error) {
	e := encoders.Get().(*Encoder)
	defer encoders.Put(e)
	e.Reset(b)
	v.EncodeXDR(e)
	out, err := e.buf, e.err
	e.Reset(nil)
	if err != nil {
		return b, err
	}
	return out, nil
}

// Marshal returns the representation of v.
func Marshal(v Marshaler) ([]byte, error) { return Append(nil, v) }

// Unmarshal decodes v from all of b, by [Copy].
func Unmarshal(b []byte, v Unmarshaler) error {
	d := decoders.Get().(*Decoder)
	defer decoders.Put(d)
	d.Reset(b, Copy)
	v.DecodeXDR(d)
	if n := len(d.rest); n > 0 && d.err == nil {
		d.Fail(fmt.Errorf("%w: %d", ErrTrailing, n))
	}
	err := d.err
	d.Reset(nil, Copy)
	return err
}
