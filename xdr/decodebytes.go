package xdr

import "fmt"

// Len reads the length of a variable-length array: at most max, with elements that take elem bytes
// or more. A length for which the input cannot have the elements is an error, and the result then
// 0. Elements that take no bytes are counted as if they took one.
func (d *Decoder) Len(max uint32, elem int) int {
	n := d.Uint32()
	if n > max {
		if d.err == nil {
			d.Fail(fmt.Errorf("%w: %d elements, %d at most", ErrTooLong, n, max))
		}
		return 0
	}
	if uint64(n) > uint64(len(d.rest)/atLeastOne(elem)) {
		if d.err == nil {
			d.Fail(fmt.Errorf("%w: %d elements announced, %d bytes left", ErrShort, n, len(d.rest)))
		}
		return 0
	}
	return int(n)
}

// The parameter of Len hides the built-in function.
func atLeastOne(n int) int { return max(n, 1) }

// take returns the next n bytes and leaves their padding behind, after a look at it.
func (d *Decoder) take(n int) []byte {
	padded := n + -n&3
	if len(d.rest) < padded {
		d.short(padded)
		return nil
	}
	b := d.rest[:n:n]
	for _, p := range d.rest[n:padded] {
		if p != 0 {
			d.Fail(ErrPadding)
			return nil
		}
	}
	d.rest = d.rest[padded:]
	return b
}

// FixedOpaque reads fixed-length opaque data into b, all of it.
func (d *Decoder) FixedOpaque(b []byte) { copy(b, d.take(len(b))) }

// Opaque reads variable-length opaque data of at most max bytes. What becomes of old, the memory
// that is there, is for [Memory] to say.
func (d *Decoder) Opaque(old []byte, max uint32) []byte {
	b := d.take(d.Len(max, 1))
	switch d.memory {
	case InPlace:
		return b
	case Reuse:
		if len(b) > cap(old) && !d.allocate(len(b), 1) {
			return old[:0]
		}
		return append(old[:0], b...)
	default:
		if !d.allocate(len(b), 1) {
			return nil
		}
		return append([]byte(nil), b...)
	}
}

// String reads a string of at most max bytes. It returns old if that is what it reads, without
// allocating. That the bytes are text is not checked.
func (d *Decoder) String(old string, max uint32) string {
	b := d.take(d.Len(max, 1))
	if string(b) == old {
		return old
	}
	if !d.allocate(len(b), 1) {
		return ""
	}
	return string(b)
}
