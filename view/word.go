package view

import (
	"context"

	"github.com/vmmc-go/vmmc"
)

// Word is the elements that are changed in one step.
//
// Experimental: it may change in any release.
type Word interface {
	~int32 | ~uint32 | ~int64 | ~uint64
}

// Add adds delta to element i in one step, and returns what was there before. It is ordered as an
// atomic of [vmmc.Import] is, with its errors, also [vmmc.OutcomeOf]; [vmmc.ErrBadArg] for an index
// outside of the view. To load an element of eight bytes in one step, add 0.
//
// Experimental: it may change in any release.
func Add[T Word](ctx context.Context, r *Remote[T], i int, delta T) (old T, err error) {
	switch {
	case uint(i) >= uint(r.n):
		return 0, r.outside("add to", i, 1)
	case r.size == wordSize:
		v, err := r.im.FetchAdd32(ctx, i*wordSize, uint32(delta))
		return T(v), err
	}
	v, err := r.im.FetchAdd64(ctx, i*8, uint64(delta))
	return T(v), err
}

// Swap stores v as element i in one step, and returns what was there before. Otherwise it is as
// [Add].
//
// Experimental: it may change in any release.
func Swap[T Word](ctx context.Context, r *Remote[T], i int, v T) (old T, err error) {
	switch {
	case uint(i) >= uint(r.n):
		return 0, r.outside("swap", i, 1)
	case r.size == wordSize:
		w, err := r.im.Swap32(ctx, i*wordSize, uint32(v))
		return T(w), err
	}
	w, err := r.im.Swap64(ctx, i*8, uint64(v))
	return T(w), err
}

// CompareAndSwap stores v as element i if that is old, in one step. It returns what was there
// before, and whether v was stored. Otherwise it is as [Add].
//
// Experimental: it may change in any release.
func CompareAndSwap[T Word](
	ctx context.Context, r *Remote[T], i int, old, v T,
) (prev T, swapped bool, err error) {
	switch {
	case uint(i) >= uint(r.n):
		return 0, false, r.outside("compare and swap", i, 1)
	case r.size == wordSize:
		w, swapped, err := r.im.CompareAndSwap32(ctx, i*wordSize, uint32(old), uint32(v))
		return T(w), swapped, err
	}
	w, swapped, err := r.im.CompareAndSwap64(ctx, i*8, uint64(old), uint64(v))
	return T(w), swapped, err
}

// Wait is [Cell.Wait] for element i.
//
// Experimental: it may change in any release.
func Wait[T Word](ctx context.Context, l *Local[T], i int, old T) (T, error) {
	c, err := CellOf(l, i)
	if err != nil {
		return old, err
	}
	return c.Wait(ctx, old)
}

// Cell is an element of this process's own buffer, whose methods are one step each, for importers'
// [Add], [Swap] and [CompareAndSwap] too. It must not be used after [Local.Close].
//
// Experimental: it may change in any release.
type Cell[T Word] struct {
	word vmmc.Word   // of four bytes
	wide vmmc.Word64 // of eight
	is64 bool
}

// CellOf returns element i.
//
// Experimental: it may change in any release.
func CellOf[T Word](l *Local[T], i int) (c Cell[T], err error) {
	if uint(i) >= uint(len(l.s)) {
		return c, l.outside("cell of", i)
	}
	c.is64 = l.l.Size == 8
	if c.is64 {
		c.wide, err = l.e.Word64(i * 8)
	} else {
		c.word, err = l.e.Word(i * wordSize)
	}
	return c, err
}

// Load returns the element.
func (c Cell[T]) Load() T {
	if c.is64 {
		return T(c.wide.Load())
	}
	return T(c.word.Load())
}

// Store writes the element.
func (c Cell[T]) Store(v T) {
	if c.is64 {
		c.wide.Store(uint64(v))
	} else {
		c.word.Store(uint32(v))
	}
}

// Add adds delta and returns the sum.
func (c Cell[T]) Add(delta T) T {
	if c.is64 {
		return T(c.wide.Add(uint64(delta)))
	}
	return T(c.word.Add(uint32(delta)))
}

// Swap stores v and returns what was there.
func (c Cell[T]) Swap(v T) T {
	if c.is64 {
		return T(c.wide.Swap(uint64(v)))
	}
	return T(c.word.Swap(uint32(v)))
}

// CompareAndSwap stores v if the element is old, and reports whether it was.
func (c Cell[T]) CompareAndSwap(old, v T) bool {
	if c.is64 {
		return c.wide.CompareAndSwap(uint64(old), uint64(v))
	}
	return c.word.CompareAndSwap(uint32(old), uint32(v))
}

// Wait returns the element once it differs from old, as [vmmc.Word.Wait] does, with its errors.
// Nothing tells that an importer has died: bound the wait by the context. An element of eight bytes
// that an importer changes by [Remote.Store] or [Remote.Put] may be seen with one half changed; one
// that it changes by [Add], [Swap] or [CompareAndSwap] is not.
func (c Cell[T]) Wait(ctx context.Context, old T) (T, error) {
	if !c.is64 {
		v, err := c.word.Wait(ctx, uint32(old))
		return T(v), err
	}
	v, err := c.wide.Wait(ctx, uint64(old))
	return T(v), err
}
