package shm

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

func region(t *testing.T, size int, ro bool) *Region {
	t.Helper()
	r, err := New("test", size, ro)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	return r
}

func TestOpenChecksWhatItIsGiven(t *testing.T) {
	open := func(r *Region, size int, write bool) error {
		fd, err := r.Descriptor()
		if err != nil {
			t.Fatal(err)
		}
		o, err := Open(fd, size, write)
		if err == nil {
			o.Retire()
		}
		return err
	}
	loose := region(t, PageSize, false)
	if err := open(loose, PageSize, true); err == nil {
		t.Error("unsealed memory was mapped")
	}
	if err := loose.Seal(false); err != nil {
		t.Fatal(err)
	}
	if err := open(loose, PageSize, true); err != nil {
		t.Error(err)
	}
	if err := open(loose, 2*PageSize, true); err == nil {
		t.Error("memory of another size than announced was mapped")
	}
	ro := region(t, PageSize, true)
	if err := open(ro, PageSize, true); err == nil {
		t.Error("read-only memory was mapped writable")
	}
	if err := open(ro, PageSize, false); err != nil {
		t.Error(err)
	}
	a, b, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(b)
	if _, err := Open(a, PageSize, false); err == nil {
		t.Error("a socket was mapped")
	}
}

func TestRenewLeavesAnOrphan(t *testing.T) {
	for _, ro := range []bool{false, true} {
		r := region(t, 3*PageSize, ro)
		if err := r.Seal(ro); err != nil {
			t.Fatal(err)
		}
		copy(r.Bytes(), "kept by its owner")
		fd, err := r.Descriptor()
		if err != nil {
			t.Fatal(err)
		}
		far, err := Open(fd, r.Size(), !ro)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Renew("test"); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(r.Bytes(), []byte("kept by its owner")) {
			t.Error("the owner lost its contents")
		}
		if far.Bytes()[0] != 0 {
			t.Error("the orphan still shows the old contents")
		}
		r.Bytes()[0] = 'K'
		if far.Bytes()[0] == 'K' {
			t.Error("a store after revocation reached the orphan")
		}
		if !ro {
			far.Bytes()[1] = 'X'
			if r.Bytes()[1] == 'X' {
				t.Error("a store to the orphan reached the owner")
			}
		}
		far.Retire()
		if !ro { // and what is renewed can be shared anew
			if err := r.Seal(true); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestPutAndTake(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{4, 8, 64, 4096, Piece, Piece + 4, 3*Piece + 20} {
		r := region(t, n+8, false)
		src := make([]byte, n+1)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		s := src[1 : n+1] // sources may lie anywhere
		if got, want := Put(r.Bytes()[4:4+n], s), LastWord(s); got != want {
			t.Errorf("%d bytes: last word %#x, want %#x", n, got, want)
		}
		dst := make([]byte, n+1)
		Take(dst[1:], r.Bytes()[4:4+n])
		if !bytes.Equal(dst[1:], s) {
			t.Errorf("%d bytes: contents differ", n)
		}
		if r.Bytes()[0] != 0 || Word(r.Bytes(), 4+n).Load() != 0 {
			t.Errorf("%d bytes: neighbours were touched", n)
		}
	}
}

func TestRetireLeavesPagesForALateCopier(t *testing.T) {
	r := region(t, PageSize, false)
	r.Retire()
	r.Bytes()[0] = 1 // must not fault
	if _, err := r.Descriptor(); err == nil {
		t.Error("a retired region still has a descriptor")
	}
	r.Retire()
}
