package shm

import (
	"bytes"
	"testing"
)

// fill writes the number of each page into its first and last byte.
func fill(b []byte) {
	for i := range len(b) / PageSize {
		b[i*PageSize], b[(i+1)*PageSize-1] = byte(i+1), byte(i+1)
	}
}

// pages are the numbers that fill wrote, 0 where they are not there any more.
func pages(b []byte) (out []byte) {
	for i := range len(b) / PageSize {
		out = append(out, b[i*PageSize]&b[(i+1)*PageSize-1])
	}
	return out
}

// far is all of r as another process has it mapped.
func far(t *testing.T, r *Region, write bool) *Region {
	t.Helper()
	fd, err := r.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	o, err := Open(fd, r.Size(), write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Retire)
	return o
}

func TestRenewPartLeavesTheRest(t *testing.T) {
	for _, ro := range []bool{false, true} {
		r := region(t, 8*PageSize, false)
		if r.Shared() {
			t.Error("no descriptor was given out yet")
		}
		if err := r.Seal(ro); err != nil {
			t.Fatal(err)
		}
		fill(r.Bytes())
		o := far(t, r, !ro)
		step := func(off, n int, orphans ...byte) {
			t.Helper()
			if err := r.RenewPart(off*PageSize, n*PageSize); err != nil {
				t.Fatal(err)
			}
			if got, want := pages(r.Bytes()), []byte{1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
				t.Fatalf("the owner has pages %v, want %v", got, want)
			}
			if got := pages(o.Bytes()); !bytes.Equal(got, orphans) {
				t.Fatalf("the other has pages %v, want %v", got, orphans)
			}
		}
		step(0, 0, 1, 2, 3, 4, 5, 6, 7, 8)
		step(2, 2, 1, 2, 0, 0, 5, 6, 7, 8)
		step(2, 2, 1, 2, 0, 0, 5, 6, 7, 8)
		step(5, 1, 1, 2, 0, 0, 5, 0, 7, 8)
		step(1, 6, 1, 0, 0, 0, 0, 0, 0, 8) // pages that have moved before are between
		for i, shared := range []bool{true, false, false, false, false, false, false, true} {
			r.Bytes()[i*PageSize+8] = 77
			if got := o.Bytes()[i*PageSize+8] == 77; got != shared {
				t.Errorf("page %d is shared: %v, want %v", i, got, shared)
			}
			if !ro {
				o.Bytes()[i*PageSize+9] = 78
				if got := r.Bytes()[i*PageSize+9] == 78; got != shared {
					t.Errorf("page %d can be written by the other: %v, want %v", i, got, shared)
				}
			}
			fd, ok, err := r.DescriptorOf(i*PageSize+4, 8)
			if ok {
				o, at, err := OpenPart(fd, r.Size(), i*PageSize+4, 8, !ro)
				if err != nil || at != 4 || o.Size() != PageSize || o.Bytes()[8] != 77 {
					t.Fatalf("page %d: %v, at %d", i, err, at)
				}
				o.Retire()
			}
			if ok != shared || err != nil {
				t.Errorf("page %d is handed out: %v (%v), want %v", i, ok, err, shared)
			}
		}
		if _, ok, err := r.DescriptorOf(PageSize-4, 8); ok || err != nil {
			t.Errorf("half in a page that has moved: %v, %v", ok, err)
		}
		if err := r.Renew("test"); err != nil {
			t.Fatal(err)
		}
		if got, want := pages(r.Bytes()), []byte{1, 2, 3, 4, 5, 6, 7, 8}; !bytes.Equal(got, want) {
			t.Errorf("the owner has pages %v, want %v", got, want)
		}
		if got := pages(o.Bytes()); !bytes.Equal(got, make([]byte, 8)) {
			t.Errorf("the other has pages %v, want none", got)
		}
		if r.Shared() {
			t.Error("the fresh pages were not given out")
		}
		if err := r.Seal(false); err != nil {
			t.Fatal(err)
		}
		if got := pages(far(t, r, true).Bytes()); !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("what was renewed has pages %v for others", got)
		}
	}
}

func TestOpenPartChecksItsRange(t *testing.T) {
	r := region(t, 4*PageSize, false)
	if err := r.Seal(false); err != nil {
		t.Fatal(err)
	}
	fill(r.Bytes())
	size := r.Size()
	for _, c := range []struct {
		size, off, n int
		ok           bool
	}{
		{size, 0, size, true},
		{size, size - 4, 4, true},
		{size, PageSize - 4, 8, true},
		{size, size - 4, 8, false},
		{size, -4, 8, false},
		{size, size, 4, false},
		{size, 0, 0, false},
		{size, 0, -4, false},
		{size, 4, 1<<63 - 4, false},
		{size, 1<<63 - 4, 8, false},
		{size + PageSize, 0, 4, false},
		{size - 4, 0, 4, false},
		{0, 0, 4, false},
	} {
		fd, err := r.Descriptor()
		if err != nil {
			t.Fatal(err)
		}
		o, at, err := OpenPart(fd, c.size, c.off, c.n, true)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			if !bytes.Equal(o.Bytes()[at:at+c.n], r.Bytes()[c.off:c.off+c.n]) {
				t.Errorf("%+v: the contents differ", c)
			}
			o.Retire()
		}
	}
}

func TestRenewOfWhatIsRetired(t *testing.T) {
	r := region(t, 2*PageSize, false)
	r.Retire()
	if err := r.RenewPart(0, PageSize); err == nil {
		t.Error("a part was renewed")
	}
	if err := r.Renew("test"); err == nil {
		t.Error("all was renewed")
	}
	if _, _, err := r.DescriptorOf(0, 4); err == nil {
		t.Error("it has a descriptor")
	}
}
