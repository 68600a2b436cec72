package shm

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Values views values of T as bytes, and bytes as values of T. T has no pointers, so bytes that
// others store can be no pointer of this process. [ValuesOf] makes it; the zero Values panics.
type Values[T any] struct{ size uintptr }

// ValuesOf returns the views of T. It fails if T has no size, or has pointers.
func ValuesOf[T any]() (Values[T], error) {
	t := reflect.TypeFor[T]()
	if t.Size() == 0 || hasPointers(t) {
		return Values[T]{}, fmt.Errorf("values of %v have pointers, or no size", t)
	}
	return Values[T]{t.Size()}, nil
}

func hasPointers(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.Array:
		return hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return k == reflect.Invalid || k > reflect.Complex128
	}
}

// Of returns the bytes of *v, which stays reachable with them.
func (v Values[T]) Of(value *T) []byte {
	v.check()
	return unsafe.Slice((*byte)(unsafe.Pointer(value)), v.size)
}

// Bytes returns the bytes of s.
func (v Values[T]) Bytes(s []T) []byte {
	v.check()
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*v.size)
}

// Slice returns the whole values that b has room for. ok is false if b is not aligned for them.
func (v Values[T]) Slice(b []byte) (s []T, ok bool) {
	v.check()
	p := unsafe.Pointer(unsafe.SliceData(b))
	var one T
	if uintptr(p)%unsafe.Alignof(one) != 0 {
		return nil, false
	}
	return unsafe.Slice((*T)(p), uintptr(len(b))/v.size), true
}

func (v Values[T]) check() {
	if v.size == 0 {
		panic("shm: the zero Values")
	}
}
