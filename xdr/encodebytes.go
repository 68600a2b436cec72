package xdr

import "fmt"

// Len writes the length of a variable-length array, at most max.
func (e *Encoder) Len(n int, max uint32) {
	if uint64(n) > uint64(max) {
		if e.err == nil {
			e.Fail(fmt.Errorf("%w: %d elements, %d at most", ErrTooLong, n, max))
		}
		return
	}
	e.Uint32(uint32(n))
}

// FixedOpaque writes fixed-length opaque data and its padding.
func (e *Encoder) FixedOpaque(b []byte) {
	if dst := e.take(len(b) + -len(b)&3); dst != nil {
		clear(dst[copy(dst, b):])
	}
}

// Opaque writes variable-length opaque data of at most max bytes.
func (e *Encoder) Opaque(b []byte, max uint32) {
	e.Len(len(b), max)
	if e.gathers(b) {
		e.refer(b)
		return
	}
	e.FixedOpaque(b)
}

// String writes a string of at most max bytes.
func (e *Encoder) String(s string, max uint32) {
	e.Len(len(s), max)
	if dst := e.take(len(s) + -len(s)&3); dst != nil {
		clear(dst[copy(dst, s):])
	}
}

// Enter goes into a value of a recursive type, and fails at MaxDepth. Where it returns true, Leave
// comes after the value.
func (e *Encoder) Enter() bool {
	if e.depth >= MaxDepth {
		if e.err == nil {
			e.Fail(ErrDepth)
		}
		return false
	}
	e.depth++
	return true
}

// Leave goes out of a value.
func (e *Encoder) Leave() { e.depth-- }
