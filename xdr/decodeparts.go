package xdr

import "reflect"

// Optional reads whether optional data is there, and if so returns true with *p ready to be decoded
// into. Otherwise *p is nil.
func Optional[T any](d *Decoder, p **T) bool {
	if !d.Bool() {
		*p = nil
		return false
	}
	if *p == nil || d.memory == Copy {
		if !d.allocate(1, sizeOf[T]()) {
			*p = nil
			return false
		}
		*p = new(T)
	}
	return true
}

// Slice returns a slice of n elements to decode into, n as [Decoder.Len] returned it: old's memory
// unless d copies. It is for elements that have a fixed size; others are decoded one by one, with
// [Empty] and [Extend].
func Slice[T any](d *Decoder, old []T, n int) []T {
	if d.memory != Copy && n <= cap(old) {
		return old[:n]
	}
	if n == 0 || !d.allocate(n, sizeOf[T]()) {
		return nil
	}
	return make([]T, n)
}

// Empty returns a slice without elements, which [Extend] then makes longer.
func Empty[T any](d *Decoder, old []T) []T {
	if d.memory == Copy {
		return nil
	}
	return old[:0]
}

// Extend makes *s longer by one element to decode into, and returns false after an error. So memory
// is taken only as elements arrive: where arrays lie within arrays, each could announce as many
// elements as all of the input has.
func Extend[S ~[]T, T any](d *Decoder, s *S) bool {
	if d.err != nil {
		return false
	}
	n := len(*s)
	if n == cap(*s) {
		more, size := max(n, 1), sizeOf[T]()
		if n > 256 {
			more = n / 2
		}
		if size > 0 {
			// Near the limit there is room for less.
			more = max(min(more, max(d.free, 0)/int(size)), 1)
		}
		if !d.allocate(more, size) {
			return false
		}
		longer := make([]T, n, n+more)
		copy(longer, *s)
		*s = longer
	}
	*s = (*s)[:n+1]
	if d.memory == Copy {
		clear((*s)[n:])
	}
	return true
}

// Next returns s with one element more, to decode into, also after an error. It is for code that an
// earlier vrpcgen wrote.
//
// Deprecated: use [Extend].
func Next[T any](d *Decoder, s []T) []T {
	if !Extend(d, &s) && len(s) == 0 {
		s = make([]T, 1)
	}
	return s
}

func sizeOf[T any]() uintptr { return reflect.TypeFor[T]().Size() }

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
