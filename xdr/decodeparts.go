package xdr

// Optional reads whether optional data is there, and if so returns true with *p ready to be decoded
// into. Otherwise *p is nil.
func Optional[T any](d *Decoder, p **T) bool {
	if !d.Bool() {
		*p = nil
		return false
	}
	if *p == nil || d.memory == Copy {
		*p = new(T)
	}
	return true
}

// Slice returns a slice of n elements to decode into, n as [Decoder.Len] returned it: old's memory
// unless d copies. It is for elements that have a fixed size; others are decoded one by one, with
// [Empty] and [Next].
func Slice[T any](d *Decoder, old []T, n int) []T {
	if d.memory != Copy && n <= cap(old) {
		return old[:n]
	}
	if n == 0 {
		return nil
	}
	return make([]T, n)
}

// Empty returns a slice without elements, which [Next] then makes longer.
func Empty[T any](d *Decoder, old []T) []T {
	if d.memory == Copy {
		return nil
	}
	return old[:0]
}

// Next returns s with one element more, to decode into. So memory is taken only as elements arrive:
// where arrays lie within arrays, each could announce as many elements as all of the input has.
func Next[T any](d *Decoder, s []T) []T {
	if d.memory != Copy && len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// Enter goes into a value of a recursive type, and fails at MaxDepth. Where it returns true, Leave
// comes after the value.
func (d *Decoder) Enter() bool {
	if d.depth >= MaxDepth {
		if d.err == nil {
			d.Fail(ErrDepth)
		}
		return false
	}
	d.depth++
	return true
}

// Leave goes out of a value.
func (d *Decoder) Leave() { d.depth-- }
