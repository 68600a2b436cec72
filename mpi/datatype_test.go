package mpi_test

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// typemap is the model of a datatype: the place of each byte, and the bounds.
type typemap struct {
	at     []int
	lb, ub int
}

// place is n items from a byte on, added to what there is.
func (m *typemap) place(of typemap, at, n int) {
	for i := range n {
		shift := at + i*(of.ub-of.lb)
		if lo, hi := of.lb+shift, of.ub+shift; m.ub == m.lb && len(m.at) == 0 {
			m.lb, m.ub = lo, hi
		} else {
			m.lb, m.ub = min(m.lb, lo), max(m.ub, hi)
		}
		for _, x := range of.at {
			m.at = append(m.at, x+shift)
		}
	}
}

// grow draws a datatype that is made of another one, and its model.
func grow(rt *rapid.T, d mpi.Datatype, m typemap) (out mpi.Datatype, want typemap, err error) {
	small := rapid.IntRange(1, 4)
	extent := m.ub - m.lb
	switch rapid.SampledFrom([]string{"contiguous", "vector", "hvector", "indexed", "struct", "resized", "subarray"}).Draw(rt, "constructor") {
	case "contiguous":
		n := small.Draw(rt, "n")
		want.place(m, 0, n)
		out, err = d.Contiguous(n)
	case "vector":
		n, k, s := small.Draw(rt, "n"), small.Draw(rt, "length"), rapid.IntRange(-5, 5).Draw(rt, "stride")
		for i := range n {
			want.place(m, i*s*extent, k)
		}
		out, err = d.Vector(n, k, s)
	case "hvector":
		n, k, s := small.Draw(rt, "n"), small.Draw(rt, "length"), rapid.IntRange(-50, 50).Draw(rt, "stride")
		for i := range n {
			want.place(m, i*s, k)
		}
		out, err = d.Hvector(n, k, s)
	case "indexed", "struct":
		n := small.Draw(rt, "n")
		lengths := rapid.SliceOfN(small, n, n).Draw(rt, "lengths")
		displs := rapid.SliceOfN(rapid.IntRange(-9, 9), n, n).Draw(rt, "displacements")
		if rapid.Bool().Draw(rt, "in items") {
			for i, at := range displs {
				want.place(m, at*extent, lengths[i])
			}
			out, err = d.Indexed(lengths, displs)
			break
		}
		for i, at := range displs {
			want.place(m, at, lengths[i])
		}
		out, err = mpi.StructOf(lengths, displs, slices.Repeat([]mpi.Datatype{d}, n))
	case "resized":
		lb, extent := rapid.IntRange(-9, 9).Draw(rt, "lb"), rapid.IntRange(1, 40).Draw(rt, "extent")
		want = typemap{m.at, lb, lb + extent}
		out, err = d.Resized(lb, extent)
	case "subarray":
		var sizes, part, starts []int
		for range rapid.IntRange(1, 3).Draw(rt, "dimensions") {
			size := small.Draw(rt, "size")
			k := rapid.IntRange(1, size).Draw(rt, "part")
			sizes, part = append(sizes, size), append(part, k)
			starts = append(starts, rapid.IntRange(0, size-k).Draw(rt, "start"))
		}
		total := 1
		for _, s := range sizes {
			total *= s
		}
		for i := range total { // each place of the array, in its order
			in, rest := true, i
			for dim := len(sizes) - 1; dim >= 0; dim-- {
				x := rest % sizes[dim]
				rest /= sizes[dim]
				in = in && x >= starts[dim] && x < starts[dim]+part[dim]
			}
			if in {
				want.place(m, i*extent, 1)
			}
		}
		want.lb, want.ub = 0, total*extent
		out, err = d.Subarray(sizes, part, starts)
	}
	return out, want, err
}

// Datatypes that are made of others, against a list of the places of their bytes.
func TestDatatypeModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d, err := mpi.TypeOf[uint16]()
		m := typemap{[]int{0, 1}, 0, 2}
		for range rapid.IntRange(0, 3).Draw(rt, "levels") {
			if err == nil && len(m.at) < 500 {
				d, m, err = grow(rt, d, m)
			}
		}
		if err != nil {
			rt.Fatal(err)
		}
		if lb, extent := d.Extent(); d.Size() != len(m.at) || lb != m.lb || extent != m.ub-m.lb {
			rt.Fatalf("size %d, bounds %d and %d; want %d, %d and %d", d.Size(), lb, extent, len(m.at), m.lb, m.ub-m.lb)
		}
		n, buf := rapid.IntRange(0, 3).Draw(rt, "items"), make([]byte, rapid.IntRange(0, 600).Draw(rt, "buffer"))
		for i := range buf {
			buf[i] = byte(i*7 + 1)
		}
		var want []byte
		inside, twice := true, map[int]bool{}
		apart := true
		for i := range n {
			for _, x := range m.at {
				at := x + i*(m.ub-m.lb)
				if at < 0 || at >= len(buf) {
					inside = false
					break
				}
				apart = apart && !twice[at]
				twice[at] = true
				want = append(want, buf[at])
			}
		}
		packed, err := mpi.Pack(nil, buf, n, d)
		if !inside {
			if !errors.Is(err, mpi.ErrBuffer) {
				rt.Fatalf("beyond the buffer: %v", err)
			}
			return
		}
		if err != nil || !slices.Equal(packed, want) {
			rt.Fatalf("packed %v, want %v: %v", packed, want, err)
		}
		if !apart {
			return
		}
		back := make([]byte, len(buf))
		rest, err := mpi.Unpack(append(packed, 9), back, n, d)
		if err != nil || !slices.Equal(rest, []byte{9}) {
			rt.Fatalf("unpack leaves %v: %v", rest, err)
		}
		for at := range buf {
			if twice[at] && back[at] != buf[at] || !twice[at] && back[at] != 0 {
				rt.Fatalf("byte %d is %d", at, back[at])
			}
		}
		if len(packed) > 0 {
			if _, err := mpi.Unpack(packed[1:], back, n, d); !errors.Is(err, mpi.ErrTruncate) {
				rt.Fatalf("too few bytes: %v", err)
			}
		}
	})
}

// Arguments that cannot be are refused, and take no memory.
func TestDatatypeArguments(t *testing.T) {
	d, err := mpi.TypeOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	const huge = 1 << 40
	for what, make := range map[string]func() (mpi.Datatype, error){
		"a negative count":         func() (mpi.Datatype, error) { return d.Contiguous(-1) },
		"a huge count":             func() (mpi.Datatype, error) { return d.Contiguous(huge) },
		"a huge vector":            func() (mpi.Datatype, error) { return d.Vector(huge, 1, 2) },
		"a negative vector":        func() (mpi.Datatype, error) { return d.Vector(-1, 1, 2) },
		"a huge stride":            func() (mpi.Datatype, error) { return d.Vector(2, 1, huge) },
		"a huge stride in bytes":   func() (mpi.Datatype, error) { return d.Hvector(2, 1, huge) },
		"a huge displacement":      func() (mpi.Datatype, error) { return d.Indexed([]int{1}, []int{huge}) },
		"other lengths":            func() (mpi.Datatype, error) { return d.Indexed([]int{1}, nil) },
		"a huge extent":            func() (mpi.Datatype, error) { return d.Resized(0, huge) },
		"a part beyond the array":  func() (mpi.Datatype, error) { return d.Subarray([]int{4}, []int{3}, []int{2}) },
		"an array without a place": func() (mpi.Datatype, error) { return d.Subarray([]int{0}, []int{0}, []int{0}) },
		"no dimensions":            func() (mpi.Datatype, error) { return d.Subarray(nil, nil, nil) },
	} {
		if _, err := make(); !errors.Is(err, mpi.ErrArg) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := mpi.TypeOf[*int](); !errors.Is(err, mpi.ErrType) {
		t.Errorf("a pointer: %v", err)
	}
	if _, err := mpi.Pack(nil, []int64{1}, -1, d); !errors.Is(err, mpi.ErrCount) {
		t.Errorf("a negative number of items: %v", err)
	}
}
