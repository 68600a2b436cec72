package table

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/view"
)

// typed is what owners and readers have of K and V.
type typed[K comparable, V any] struct {
	keyLayout, valueLayout view.Layout
	keys                   shm.Values[K]
	values                 shm.Values[V]
	unnamed                []span // of a key: fields whose name is _, which == does not compare
	pool                   sync.Pool
}

type span struct{ from, to uintptr }

// callMemory is the memory of one call, as neither keys nor values may lie on a stack.
type callMemory[K comparable, V any] struct {
	k   K
	v   V
	buf []byte
}

func typesOf[K comparable, V any]() (*typed[K, V], error) {
	t := &typed[K, V]{}
	var err error
	if t.keyLayout, err = view.LayoutOf[K](); err != nil {
		return nil, err
	}
	if t.valueLayout, err = view.LayoutOf[V](); err != nil {
		return nil, err
	}
	if t.keys, err = shm.ValuesOf[K](); err != nil {
		return nil, err
	}
	if t.values, err = shm.ValuesOf[V](); err != nil {
		return nil, err
	}
	if max(len(t.keyLayout.Text), len(t.valueLayout.Text)) > maxText {
		return nil, fmt.Errorf("the text of a layout is longer than %d bytes", maxText)
	}
	key := reflect.TypeFor[K]()
	if path, ok := hasFloat(key, ""); ok {
		return nil, &view.TypeError{
			Type: key.String(), Field: path,
			Why: "a key is compared by its bytes, but 0 == -0, and NaN is not itself: " +
				"use an integer, math.Float64bits for instance",
		}
	}
	t.unnamed = unnamed(key, 0, nil)
	return t, nil
}

// hasFloat returns the path of a floating-point number in a type.
func hasFloat(t reflect.Type, path string) (string, bool) {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64:
		return path, true
	case reflect.Array:
		return hasFloat(t.Elem(), path+"[]")
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			inner := f.Name
			if path != "" {
				inner = path + "." + inner
			}
			if found, ok := hasFloat(f.Type, inner); ok && f.Name != "_" {
				return found, true
			}
		}
	}
	return "", false
}

// unnamed appends where a type at an offset has fields whose name is _.
func unnamed(t reflect.Type, at uintptr, spans []span) []span {
	switch t.Kind() {
	case reflect.Array:
		if len(unnamed(t.Elem(), 0, nil)) > 0 {
			for i := range t.Len() {
				spans = unnamed(t.Elem(), at+uintptr(i)*t.Elem().Size(), spans)
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Name != "_" {
				spans = unnamed(f.Type, at+f.Offset, spans)
			} else if n := f.Type.Size(); n > 0 {
				spans = append(spans, span{at + f.Offset, at + f.Offset + n})
			}
		}
	}
	return spans
}

// begin returns memory for a call about a key.
func (t *typed[K, V]) begin(k K, buf int) *callMemory[K, V] {
	c, ok := t.pool.Get().(*callMemory[K, V])
	if !ok {
		c = &callMemory[K, V]{}
	}
	if len(c.buf) < buf {
		c.buf = make([]byte, buf)
	}
	c.k = k
	if b := t.keys.Of(&c.k); t.unnamed != nil {
		for _, s := range t.unnamed {
			clear(b[s.from:s.to])
		}
	}
	return c
}

// checkCall refuses a call that has no context.
func checkCall(ctx context.Context, op string) error {
	if ctx == nil {
		return &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("the context is nil")}
	}
	return nil
}
