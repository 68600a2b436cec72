package shm

import (
	"iter"
	"slices"
)

// Spans is what lies in memory, each thing in a piece of its own, none over another, found by memory that lies over it.
// To find one takes time by the logarithm of their number; to add or remove one moves what lies above it in a list, 24 bytes
// each. The zero value has none. It has no lock, and keeps no mapping alive.
type Spans[T any] struct {
	list []entry[T] // by address
}

type entry[T any] struct {
	from, to uint64
	what     T
}

// bounds are b's addresses, that behind its last byte included.
func bounds(b []byte) (from, to uint64) { return Addr(b, 0), Addr(b, len(b)) }

// search is the place of the first that ends above an address.
func (s *Spans[T]) search(at uint64) int {
	i, _ := slices.BinarySearchFunc(s.list, at, func(o entry[T], at uint64) int {
		if o.to > at {
			return 1
		}
		return -1
	})
	return i
}

// Add puts what at mem, over which nothing lies.
func (s *Spans[T]) Add(mem []byte, what T) {
	from, to := bounds(mem)
	s.list = slices.Insert(s.list, s.search(from), entry[T]{from, to, what})
}

// Remove takes away what begins where mem does, if there is such a thing.
func (s *Spans[T]) Remove(mem []byte) {
	from, _ := bounds(mem)
	if i := s.search(from); i < len(s.list) && s.list[i].from == from {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

// Overlapping are those that share a byte with b, from the lowest on.
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

// First is the lowest of those, the zero value if there is none.
func (s *Spans[T]) First(b []byte) (what T) {
	for what = range s.Overlapping(b) {
		break
	}
	return what
}

// All are all of them, from the lowest on.
func (s *Spans[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, o := range s.list {
			if !yield(o.what) {
				return
			}
		}
	}
}

// Len is their number.
func (s *Spans[T]) Len() int { return len(s.list) }
