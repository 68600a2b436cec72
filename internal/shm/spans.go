package shm

import (
	"iter"
	"slices"
)

// Spans finds the thing that lies over given memory. The things lie in memory without overlap.
// Finding one takes time logarithmic in their number; adding or removing one moves what lies above
// it in a list, 24 bytes each. The zero value is empty. It has no lock and keeps no mapping alive.
type Spans[T any] struct {
	list []entry[T] // by address
}

type entry[T any] struct {
	from, to uint64
	what     T
}

// bounds returns b's addresses, the second one behind its last byte.
func bounds(b []byte) (from, to uint64) { return Addr(b, 0), Addr(b, len(b)) }

// search returns the index of the first thing that ends above an address.
func (s *Spans[T]) search(at uint64) int {
	i, _ := slices.BinarySearchFunc(s.list, at, func(o entry[T], at uint64) int {
		if o.to > at {
			return 1
		}
		return -1
	})
	return i
}

// Add adds what at mem, over which nothing lies.
func (s *Spans[T]) Add(mem []byte, what T) {
	from, to := bounds(mem)
	s.list = slices.Insert(s.list, s.search(from), entry[T]{from, to, what})
}

// Remove removes the thing that begins where mem does, if there is one.
func (s *Spans[T]) Remove(mem []byte) {
	from, _ := bounds(mem)
	if i := s.search(from); i < len(s.list) && s.list[i].from == from {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

// Overlapping returns the things that share a byte with b, from the lowest on.
func (s *Spans[T]) Overlapping(b []byte) iter.Seq[T] {
	return func(yield func(T) bool) {
		from, to := bounds(b)
		for i := s.search(from); i < len(s.list) && s.list[i].from < to && from < to; i++ {
			if !yield(s.list[i].what) {
				return
			}
		}
	}
}

// First returns the lowest of those, or the zero value.
func (s *Spans[T]) First(b []byte) (what T) {
	for what = range s.Overlapping(b) {
		break
	}
	return what
}

// All returns all things, from the lowest on.
func (s *Spans[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range s.list {
			if !yield(o.what) {
				return
			}
		}
	}
}

// Len returns their number.
func (s *Spans[T]) Len() int { return len(s.list) }
