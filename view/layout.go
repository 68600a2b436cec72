package view

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/vmmc-go/vmmc"
)

// Layout is how the elements of a view lie in memory.
//
// Experimental: it may change in any release.
type Layout struct {
	Size  int    // of an element, in bytes
	Align int    // of its address
	Text  string // canonical: two layouts are the same if their texts are
}

// Fingerprint is the first eight bytes of the text's SHA-256, little-endian.
func (l Layout) Fingerprint() uint64 {
	sum := sha256.Sum256([]byte(l.Text))
	return binary.LittleEndian.Uint64(sum[:])
}

// TypeError says why values of a type cannot lie in remote memory. It is also [vmmc.ErrBadArg].
//
// Experimental: it may change in any release.
type TypeError struct {
	Type  string // of the elements
	Field string // the path of the field that is refused, "" for the type itself
	Why   string // with what to write instead
}

// Error returns the whole of it in one line.
func (e *TypeError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("view: %s: %s", e.Type, e.Why)
	}
	return fmt.Sprintf("view: %s: field %s: %s", e.Type, e.Field, e.Why)
}

// Is reports whether target is [vmmc.ErrBadArg].
func (e *TypeError) Is(target error) bool { return target == vmmc.ErrBadArg }

// LayoutOf returns the layout of T, or a [*TypeError] that says why T has none. It is computed once
// for each type.
//
// Experimental: it may change in any release.
func LayoutOf[T any]() (Layout, error) {
	l, err := layoutOf[T]()
	if err != nil {
		return Layout{}, err
	}
	return l.Layout, nil
}

// layout is a layout with what views of its type share.
type layout struct {
	Layout
	fields []field
	values sync.Pool // of *T: what a call loads or stores, which must not lie on its stack
}

// field is where a field is described in the text.
type field struct {
	path       string
	start, end int
}

var layouts sync.Map // of *layout and *TypeError, by reflect.Type

func layoutOf[T any]() (*layout, error) {
	t := reflect.TypeFor[T]()
	known, ok := layouts.Load(t)
	if !ok {
		known, _ = layouts.LoadOrStore(t, describe(t, func() any { return new(T) }))
	}
	if l, ok := known.(*layout); ok {
		return l, nil
	}
	return nil, known.(*TypeError)
}

// describe returns the *layout of t, or a *TypeError.
func describe(t reflect.Type, newValue func() any) any {
	d := describer{top: t}
	d.text.WriteString(byteOrder())
	if err := d.add(t, ""); err != nil {
		return err
	}
	if n := t.Size(); n%wordSize != 0 && n != 1 && n != 2 {
		more := wordSize - n%wordSize
		return d.refuse("", "its size of %d bytes is not a multiple of %d, nor 1 or 2: add %d bytes at its end, in a struct by a field _ [%d]byte", n, wordSize, more, more)
	}
	l := &layout{Layout: Layout{Size: int(t.Size()), Align: t.Align(), Text: d.text.String()}, fields: d.fields}
	l.values.New = newValue
	return l
}

const wordSize = 4

// byteOrder begins each text.
func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "le:"
	}
	return "be:"
}

// describer writes the text of a type.
type describer struct {
	top    reflect.Type
	text   strings.Builder
	fields []field
}

func (d *describer) refuse(path, format string, args ...any) *TypeError {
	return &TypeError{Type: d.top.String(), Field: path, Why: fmt.Sprintf(format, args...)}
}

var scalars = map[reflect.Kind]string{
	reflect.Int8: "i8", reflect.Int16: "i16", reflect.Int32: "i32", reflect.Int64: "i64",
	reflect.Uint8: "u8", reflect.Uint16: "u16", reflect.Uint32: "u32", reflect.Uint64: "u64",
	reflect.Float32: "f32", reflect.Float64: "f64",
}

// add writes the text of t, which lies at path.
func (d *describer) add(t reflect.Type, path string) *TypeError {
	switch t.PkgPath() {
	case "sync", "sync/atomic":
		return d.refuse(path, "%v is for the goroutines of one process: use uint32 or uint64, and Add, CompareAndSwap and Cell", t)
	case "time":
		return d.refuse(path, "%v is of this program's clock and zone: use int64, and say in its name what it counts", t)
	}
	if s := scalars[t.Kind()]; s != "" {
		d.text.WriteString(s)
		return nil
	}
	switch t.Kind() {
	case reflect.Array:
		if t.Size() == 0 {
			return d.refuse(path, "%v has no size: leave it out", t)
		}
		fmt.Fprintf(&d.text, "[%d]", t.Len())
		return d.add(t.Elem(), path+"[]")
	case reflect.Struct:
		return d.addStruct(t, path)
	case reflect.Int, reflect.Uint:
		return d.refuse(path, "the size of %v differs between machines: use %v32 or %v64", t, t.Kind(), t.Kind())
	case reflect.Uintptr:
		return d.refuse(path, "%v is an address, which means nothing in another process: use an index", t)
	case reflect.Bool:
		return d.refuse(path, "a peer may store what is neither true nor false into %v: use uint8", t)
	case reflect.Complex64, reflect.Complex128:
		return d.refuse(path, "%v is not a type of most languages: use an array of two floats", t)
	case reflect.Slice, reflect.String:
		return d.refuse(path, "%v has a pointer, which means nothing in another process: use an array, and a length beside it", t)
	default:
		return d.refuse(path, "%v has a pointer, which means nothing in another process: use an index", t)
	}
}

func (d *describer) addStruct(t reflect.Type, path string) *TypeError {
	if t.Size() == 0 {
		return d.refuse(path, "%v has no size: leave it out", t)
	}
	d.text.WriteByte('{')
	open, at := d.text.Len(), uintptr(0)
	for i := range t.NumField() {
		f := t.Field(i)
		inner := f.Name
		if path != "" {
			inner = path + "." + inner
		}
		if gap := f.Offset - at; gap != 0 {
			return d.refuse(inner, "there are %d bytes of unnamed padding before it, which the compiler leaves unset: name them, by a field _ [%d]byte before it", gap, gap)
		}
		at += f.Type.Size()
		if f.Type.PkgPath() == "structs" && f.Type.Size() == 0 { // structs.HostLayout
			continue
		}
		if d.text.Len() > open {
			d.text.WriteByte(';')
		}
		start := d.text.Len()
		if f.Name == "_" {
			if err := (&describer{top: d.top}).add(f.Type, inner); err != nil {
				return err
			}
			fmt.Fprintf(&d.text, "_%d", f.Type.Size())
		} else {
			if err := d.add(f.Type, inner); err != nil {
				return err
			}
			d.text.WriteString(" " + f.Name)
		}
		d.fields = append(d.fields, field{inner, start, d.text.Len()})
	}
	if gap := t.Size() - at; gap != 0 {
		return d.refuse(path, "there are %d bytes of unnamed padding at the end of %v, which the compiler leaves unset: name them, by a last field _ [%d]byte", gap, t, gap)
	}
	d.text.WriteByte('}')
	return nil
}
