//go:build linux

package mpiabi

import "testing"

func TestHandles(t *testing.T) {
	var table handleTable
	a := table.add(&comm{})
	b := table.add(&datatype{name: "b"})
	if a != firstDynamic || b != firstDynamic+1 {
		t.Fatalf("the first handles are %#x and %#x, want %#x and the next", a, b, firstDynamic)
	}
	if d, ok := lookup[*datatype](&table, b); !ok || d.name != "b" {
		t.Errorf("handle %#x is %v, %v, want the datatype b", b, d, ok)
	}
	if _, ok := lookup[*datatype](&table, a); ok {
		t.Error("the handle of a communicator is taken for a datatype's")
	}
	if _, ok := remove[*datatype](&table, a); ok {
		t.Error("the handle of a communicator is freed as a datatype's")
	}
	for _, h := range []Handle{0, commWorld, firstDynamic - 1, b + 1, ^Handle(0)} {
		if _, ok := lookup[*comm](&table, h); ok {
			t.Errorf("handle %#x, which was never given, has an object", h)
		}
		if _, ok := remove[*comm](&table, h); ok {
			t.Errorf("handle %#x, which was never given, is freed", h)
		}
	}
	if _, ok := remove[*comm](&table, a); !ok {
		t.Error("the communicator's handle is not freed")
	}
	if _, ok := remove[*comm](&table, a); ok {
		t.Error("a handle is freed twice")
	}
	// A freed handle stays invalid for a while, and then is used again.
	for i := range reuseAfter {
		h := table.add(&comm{})
		if h == a {
			t.Fatalf("handle %#x is used again after %d others were freed", a, i)
		}
		remove[*comm](&table, h)
	}
	if h := table.add(&comm{}); h != a {
		t.Errorf("the next handle is %#x, want %#x again", h, a)
	}
}
