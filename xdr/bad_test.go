package xdr_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/xdr"
)

func is(err, target error) bool {
	var at *xdr.Error
	return errors.Is(err, target) && errors.As(err, &at)
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		name, in string
		read     func(*xdr.Decoder)
		want     error
		text     string
	}{
		{"a bool of 2", "\x00\x00\x00\x02", func(d *xdr.Decoder) { d.Bool() }, xdr.ErrValue, "byte 0: no value of the type: 2 is not a bool"},
		{"a char of 256", "\x00\x00\x01\x00", func(d *xdr.Decoder) { d.Int8() }, xdr.ErrValue, "256 is not a char"},
		{"an unsigned char of -1", "\xff\xff\xff\xff", func(d *xdr.Decoder) { d.Uint8() }, xdr.ErrValue, "unsigned char"},
		{"a short of 65536", "\x00\x01\x00\x00", func(d *xdr.Decoder) { d.Int16() }, xdr.ErrValue, "65536 is not a short"},
		{"an unsigned short of 65536", "\x00\x01\x00\x00", func(d *xdr.Decoder) { d.Uint16() }, xdr.ErrValue, "unsigned short"},
		{"padding", "\x00\x00\x00\x01a\x00\x00\x01", func(d *xdr.Decoder) { d.Opaque(nil, 9) }, xdr.ErrPadding, "byte 4: padding"},
		{"padding of a string", "\x00\x00\x00\x03abc\x01", func(d *xdr.Decoder) { d.String("", 9) }, xdr.ErrPadding, ""},
		{"padding of fixed data", "abc\x01", func(d *xdr.Decoder) { d.FixedOpaque(make([]byte, 3)) }, xdr.ErrPadding, ""},
		{"no padding", "\x00\x00\x00\x01a", func(d *xdr.Decoder) { d.Opaque(nil, 9) }, xdr.ErrShort, "4 bytes wanted, 1 left"},
		{"more than declared", "\x00\x00\x00\x05abcde\x00\x00\x00", func(d *xdr.Decoder) { d.String("", 4) }, xdr.ErrTooLong, "5 elements, 4 at most"},
		{"more than there is", "\x00\x00\x00\x05abcd", func(d *xdr.Decoder) { d.Opaque(nil, xdr.Unlimited) }, xdr.ErrShort, "5 elements announced, 4 bytes left"},
		{"elements of 8 bytes", "\x00\x00\x00\x02abcdefghijkl", func(d *xdr.Decoder) { d.Len(9, 8) }, xdr.ErrShort, "2 elements announced, 12 bytes left"},
		{"elements of no bytes", "\xff\xff\xff\xffabcd", func(d *xdr.Decoder) { d.Len(xdr.Unlimited, 0) }, xdr.ErrShort, ""},
		{"a case", "\x00\x00\x00\x07", func(d *xdr.Decoder) { d.NoCase("shape", int64(d.Int32())) }, xdr.ErrValue, "union shape has no case 7"},
	} {
		d := xdr.NewDecoder([]byte(c.in), xdr.Copy)
		c.read(d)
		first := d.Err()
		if !is(first, c.want) || !strings.Contains(first.Error(), c.text) {
			t.Errorf("%s: %v", c.name, first)
		}
		// From then on there is nothing, and the first error stays.
		if v := d.Uint64(); v != 0 || d.Len(9, 1) != 0 || d.Bool() || d.Opaque(nil, 9) != nil || d.Err().Error() != first.Error() || len(d.Rest()) != 0 {
			t.Errorf("%s: more was read after the error", c.name)
		}
	}
}

// A length of 4 GB in a message of 40 bytes, in whatever it may be the length of, takes no memory.
func TestLengthsAreNotBelieved(t *testing.T) {
	in := make([]byte, 40)
	for i := range 4 {
		in[i] = 0xff
	}
	var d xdr.Decoder
	kept := make([]byte, 0, 64)
	for name, f := range map[string]func(){
		"opaque":  func() { d.Opaque(nil, xdr.Unlimited) },
		"string":  func() { d.String("", xdr.Unlimited) },
		"numbers": func() { xdr.Slice[int64](&d, nil, d.Len(xdr.Unlimited, 8)) },
		"nothing": func() { xdr.Slice[struct{}](&d, nil, d.Len(xdr.Unlimited, 0)) },
		"reuse":   func() { kept = d.Opaque(kept, xdr.Unlimited) },
	} {
		for _, m := range []xdr.Memory{xdr.Copy, xdr.Reuse, xdr.InPlace} {
			// The error itself is all that is made: it and its text.
			n := testing.AllocsPerRun(10, func() {
				d.Reset(in, m)
				f()
			})
			if !is(d.Err(), xdr.ErrShort) || n > 8 {
				t.Errorf("%s: %v, %v allocations", name, d.Err(), n)
			}
		}
	}
}

func TestBadValues(t *testing.T) {
	var e xdr.Encoder
	for name, f := range map[string]func(){
		"string": func() { e.String("abcd", 3) },
		"opaque": func() { e.Opaque([]byte("abcd"), 3) },
		"length": func() { e.Len(math.MaxInt32, 3) },
	} {
		e.Reset(nil)
		e.Uint32(1)
		f()
		if !is(e.Err(), xdr.ErrTooLong) || !strings.Contains(e.Err().Error(), "xdr: encode at byte 4: ") {
			t.Errorf("%s: %v", name, e.Err())
		}
	}
	e.Reset(nil)
	if e.NoCase("shape", 9); !is(e.Err(), xdr.ErrValue) {
		t.Error(e.Err())
	}
}

func TestDepth(t *testing.T) {
	var e xdr.Encoder
	d := xdr.NewDecoder(nil, xdr.Copy)
	for range xdr.MaxDepth {
		if !e.Enter() || !d.Enter() {
			t.Fatal("refused before the limit")
		}
	}
	if e.Enter() || d.Enter() || !is(e.Err(), xdr.ErrDepth) || !is(d.Err(), xdr.ErrDepth) {
		t.Error(e.Err(), d.Err())
	}
}

func TestMemory(t *testing.T) {
	in := []byte("\x00\x00\x00\x03abc\x00")
	read := func(m xdr.Memory, old []byte) []byte { return xdr.NewDecoder(in, m).Opaque(old, 9) }
	old := make([]byte, 2, 8)
	if b := read(xdr.Copy, old); &b[0] == &old[0] || &b[0] == &in[4] {
		t.Error("Copy uses memory that was there")
	}
	if b := read(xdr.Reuse, old); &b[0] != &old[0] || string(b) != "abc" {
		t.Error("Reuse does not use the memory that was there")
	}
	if b := read(xdr.InPlace, old); &b[0] != &in[4] || cap(b) != 3 {
		t.Error("InPlace copies, or lets others append to the input")
	}
	one := []byte("\x00\x00\x00\x01")
	for m, again := range map[xdr.Memory]bool{xdr.Copy: false, xdr.Reuse: true, xdr.InPlace: true} {
		p := new(int)
		was := p
		if !xdr.Optional(xdr.NewDecoder(one, m), &p) || (p == was) != again {
			t.Errorf("%v: the pointer is the same: %v", m, p == was)
		}
		s := make([]int, 3)
		d := xdr.NewDecoder(one, m)
		for _, got := range [][]int{xdr.Slice(d, s, 2), xdr.Next(d, xdr.Empty(d, s))} {
			if (&got[0] == &s[0]) != again {
				t.Errorf("%v: the slice is the same: %v", m, &got[0] == &s[0])
			}
		}
	}
	if p := new(int); xdr.Optional(xdr.NewDecoder(make([]byte, 4), xdr.Reuse), &p) || p != nil {
		t.Error("data that is not there is there")
	}
}

func TestTrailing(t *testing.T) {
	var p point
	if err := xdr.Unmarshal(make([]byte, 12), &p); !is(err, xdr.ErrTrailing) {
		t.Error(err)
	}
	if err := xdr.Unmarshal(make([]byte, 8), &p); err != nil {
		t.Error(err)
	}
}
