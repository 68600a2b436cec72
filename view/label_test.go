package view

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

type labelled struct {
	ID uint32
	In [2]struct{ X, Y uint32 }
	_  [4]byte
	N  uint32
}

// FuzzLabel takes labels that a hostile exporter gives: a layout is taken for the own one only if
// it is, with as many elements as fit into the buffer, and otherwise the error can be printed.
func FuzzLabel(f *testing.F) {
	l, err := layoutOf[labelled]()
	if err != nil {
		f.Fatal(err)
	}
	good := l.label(3)
	f.Add(good, 3*l.Size)
	f.Add([]byte(l.Text), 1)
	f.Add([]byte(l.Text[:len(l.Text)-1]), 1)
	f.Add(good, 3*l.Size-1)
	f.Add(l.label(0), 64)
	f.Add(l.label(-1), 64)
	f.Add([]byte(labelBegin), 64)
	f.Add([]byte(nil), 0)
	f.Add([]byte(strings.Replace(string(good), "u32 X", "u32 X;u32 Z", 1)), 100)
	f.Add([]byte(strings.Replace(string(good), ";u32 Y", "", 1)), 100)
	f.Add([]byte(strings.Replace(string(good), "le:", "be:", 1)), 100)
	f.Add([]byte(strings.Replace(string(good), "le:", "", 1)), 100)
	f.Add(append(good, "{{{{{{;}}}}}}}}}}"...), 100)
	f.Fuzz(func(t *testing.T, label []byte, size int) {
		if err := Check[labelled](string(label)); (err == nil) != (string(label) == l.Text) {
			t.Fatalf("the text %q: %v", label, err)
		}
		if size <= 0 { // no import has that
			return
		}
		n, err := l.elements(label, size)
		if err == nil {
			if n <= 0 || n > size/l.Size || string(label) != string(l.label(n)) {
				t.Fatalf("%q is of %d elements in %d bytes", label, n, size)
			}
			return
		}
		if e := (*LayoutError)(nil); !errors.As(err, &e) || e.Why == "" || len(e.Error()) < len(e.Why) {
			t.Fatalf("%q: %v", label, err)
		}
	})
}

// A number of elements that the buffer has no room for is refused, also where the product wraps.
func TestElementsBeyondTheBuffer(t *testing.T) {
	l, err := layoutOf[labelled]()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{0, 4, 1 << 63, 1<<64 - 1, 1 << 61} {
		label := l.label(3)
		binary.LittleEndian.PutUint64(label[len(labelBegin)+2:], n)
		var e *LayoutError
		if _, err := l.elements(label, 3*l.Size); !errors.As(err, &e) || !strings.Contains(e.Why, "number of elements") {
			t.Errorf("%d elements: %v", n, err)
		}
	}
	if n, err := l.elements(l.label(3), 3*l.Size); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
