package view_test

import (
	"errors"
	"reflect"
	"structs"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/view"
)

type (
	point struct{ X, Y float32 }
	job   struct {
		_    structs.HostLayout
		ID   uint64
		N    uint32
		_    [4]byte
		Key  [16]uint8
		Path [2]point
	}
	small  struct{ A, B uint8 }
	number int64
)

// wideAlign is where this machine has values of eight bytes.
var wideAlign = reflect.TypeFor[uint64]().Align()

// fingerprintOfU32 is what sha256sum gives of le:u32.
const fingerprintOfU32 = 0x116c188245b65b5d

func TestLayouts(t *testing.T) {
	type row struct {
		layout view.Layout
		err    error
	}
	of := func(l view.Layout, err error) row { return row{l, err} }
	for _, c := range []struct {
		got  row
		want view.Layout
	}{
		{of(view.LayoutOf[uint32]()), view.Layout{Size: 4, Align: 4, Text: "le:u32"}},
		{of(view.LayoutOf[number]()), view.Layout{Size: 8, Align: wideAlign, Text: "le:i64"}},
		{of(view.LayoutOf[int8]()), view.Layout{Size: 1, Align: 1, Text: "le:i8"}},
		{of(view.LayoutOf[small]()), view.Layout{Size: 2, Align: 1, Text: "le:{u8 A;u8 B}"}},
		{of(view.LayoutOf[[3][2]uint16]()), view.Layout{Size: 12, Align: 2, Text: "le:[3][2]u16"}},
		{of(view.LayoutOf[job]()), view.Layout{
			Size: 48, Align: wideAlign,
			Text: "le:{u64 ID;u32 N;_4;[16]u8 Key;[2]{f32 X;f32 Y} Path}",
		}},
		{of(view.LayoutOf[struct {
			point
			Z float64
		}]()), view.Layout{Size: 16, Align: wideAlign, Text: "le:{{f32 X;f32 Y} point;f64 Z}"}},
	} {
		if c.got.err != nil || c.got.layout != c.want {
			t.Errorf("%+v, %v; want %+v", c.got.layout, c.got.err, c.want)
		}
	}
	l, err := view.LayoutOf[uint32]()
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Fingerprint(); got != fingerprintOfU32 {
		t.Errorf("fingerprint %#x, want %#x", got, uint64(fingerprintOfU32))
	}
}

func TestRefusedTypes(t *testing.T) {
	type inner struct {
		A uint64
		B [2]struct{ S string }
	}
	refused := func(_ view.Layout, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused(view.LayoutOf[int]()), "view: int: the size of int differs between machines: use int32 or int64"},
		{refused(view.LayoutOf[uint]()), "view: uint: the size of uint differs between machines: use uint32 or uint64"},
		{refused(view.LayoutOf[uintptr]()), "view: uintptr: uintptr is an address, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[bool]()), "view: bool: a peer may store what is neither true nor false into bool: use uint8"},
		{refused(view.LayoutOf[complex64]()), "view: complex64: complex64 is not a type of most languages: use an array of two floats"},
		{refused(view.LayoutOf[*uint32]()), "view: *uint32: *uint32 has a pointer, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[any]()), "view: interface {}: interface {} has a pointer, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[map[uint32]uint32]()), "view: map[uint32]uint32: map[uint32]uint32 has a pointer, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[chan uint32]()), "view: chan uint32: chan uint32 has a pointer, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[func()]()), "view: func(): func() has a pointer, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[[]byte]()), "view: []uint8: []uint8 has a pointer, which means nothing in another process: use an array, and a length beside it"},
		{refused(view.LayoutOf[struct{ In [3]inner }]()), "view: struct { In [3]view_test.inner }: field In[].B[].S: string has a pointer, which means nothing in another process: use an array, and a length beside it"},
		{refused(view.LayoutOf[struct{ _ *int32 }]()), "view: struct { _ *int32 }: field _: *int32 has a pointer, which means nothing in another process: use an index"},
		{refused(view.LayoutOf[struct{ M sync.Mutex }]()), "view: struct { M sync.Mutex }: field M: sync.Mutex is for the goroutines of one process: use uint32 or uint64, and Add, CompareAndSwap and Cell"},
		{refused(view.LayoutOf[atomic.Uint32]()), "view: atomic.Uint32: atomic.Uint32 is for the goroutines of one process: use uint32 or uint64, and Add, CompareAndSwap and Cell"},
		{refused(view.LayoutOf[struct{ At [2]time.Time }]()), "view: struct { At [2]time.Time }: field At[]: time.Time is of this program's clock and zone: use int64, and say in its name what it counts"},
		{refused(view.LayoutOf[time.Duration]()), "view: time.Duration: time.Duration is of this program's clock and zone: use int64, and say in its name what it counts"},
		{refused(view.LayoutOf[struct {
			A uint16
			B uint32
		}]()), "view: struct { A uint16; B uint32 }: field B: there are 2 bytes of unnamed padding before it, which the compiler leaves unset: name them, by a field _ [2]byte before it"},
		{refused(view.LayoutOf[struct {
			In struct {
				A uint32
				B uint8
			}
		}]()), "view: struct { In struct { A uint32; B uint8 } }: field In: there are 3 bytes of unnamed padding at the end of struct { A uint32; B uint8 }, which the compiler leaves unset: name them, by a last field _ [3]byte"},
		{refused(view.LayoutOf[struct{}]()), "view: struct {}: struct {} has no size: leave it out"},
		{refused(view.LayoutOf[struct {
			A uint32
			B [0]uint32
			C uint32
		}]()), "view: struct { A uint32; B [0]uint32; C uint32 }: field B: [0]uint32 has no size: leave it out"},
		{refused(view.LayoutOf[[3]uint8]()), "view: [3]uint8: its size of 3 bytes is not a multiple of 4, nor 1 or 2: add 1 bytes at its end, in a struct by a field _ [1]byte"},
		{refused(view.LayoutOf[struct{ A, B, C uint16 }]()), "view: struct { A uint16; B uint16; C uint16 }: its size of 6 bytes is not a multiple of 4, nor 1 or 2: add 2 bytes at its end, in a struct by a field _ [2]byte"},
	} {
		var refused *view.TypeError
		if !errors.As(c.err, &refused) || !errors.Is(c.err, vmmc.ErrBadArg) || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %v", c.err, c.want)
		}
	}
}

// A layout is computed once.
func TestLayoutsAreKept(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		if _, err := view.LayoutOf[job](); err != nil {
			t.Fatal(err)
		}
	}); n != 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}
