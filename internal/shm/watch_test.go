package shm

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
)

func watched(t *testing.T, pages int) (*Region, *Watch) {
	t.Helper()
	if err := CanWatch(); err != nil {
		t.Skip("this kernel cannot watch memory: ", err)
	}
	r, err := New("test", pages*PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWatch(r, 0, r.Size())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Retire() })
	return r, w
}

func TestWatch(t *testing.T) {
	r, w := watched(t, 64)
	var runs [4]PageRun
	written := func(protect bool) []PageRun {
		t.Helper()
		n, end, err := w.Written(0, r.Size(), protect, runs[:])
		if err != nil || end != r.Size() {
			t.Fatal(end, err)
		}
		return runs[:n]
	}
	if got := written(false); len(got) != 0 {
		t.Errorf("nothing was stored, and pages %v changed", got)
	}
	for _, page := range []int{3, 4, 9} {
		r.Bytes()[page*PageSize+5] = 1
	}
	for _, protect := range []bool{false, true} {
		got := written(protect)
		if len(got) != 2 || got[0].Start != uint64(3*PageSize) || got[0].End != uint64(5*PageSize) || got[1].Start != uint64(9*PageSize) {
			t.Errorf("pages 3, 4, 9 were stored to, %v are said to be", got)
		}
	}
	if got := written(false); len(got) != 0 {
		t.Errorf("protected, and %v changed", got)
	}
	r.Bytes()[9*PageSize] = 2
	if err := w.Protect(9*PageSize, PageSize); err != nil {
		t.Fatal(err)
	}
	if got := written(false); len(got) != 0 {
		t.Errorf("protected by itself, and %v changed", got)
	}
	for page := 1; page < 64; page += 2 {
		r.Bytes()[page*PageSize] = 3
	}
	if n, end, err := w.Written(0, r.Size(), true, runs[:]); n != 4 || end < 8*PageSize || end >= r.Size() || err != nil {
		t.Errorf("a full table: %d runs to %d, %v", n, end, err)
	}
	for _, bad := range []func() error{
		func() error { return w.Protect(0, r.Size()+PageSize) },
		func() error { _, _, err := w.Written(0, r.Size()+PageSize, true, runs[:]); return err },
		func() error { _, err := NewWatch(r, 4, PageSize); return err },
		func() error { _, err := NewWatch(r, 0, r.Size()+PageSize); return err },
	} {
		if bad() == nil {
			t.Error("what is not there is watched")
		}
	}
}

// Whatever runs a twin gives, applied to another copy they make it equal, and they
// have no word that did not change.
func TestTwin(t *testing.T) {
	for _, off := range []int{0, 4, 64, 4092} {
		r, err := New("test", 64<<10, false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Retire()
		near := r.Bytes()[off : 60<<10]
		twin, err := NewTwin(near)
		if err != nil {
			t.Fatal(err)
		}
		defer twin.Retire()
		far := make([]byte, len(near))
		rnd := rand.New(rand.NewPCG(1, uint64(off)))
		for range 300 {
			changed := map[int]uint32{}
			for range rnd.IntN(20) {
				at := rnd.IntN(len(near)/4) * 4
				for range 1 + rnd.IntN(1+rnd.IntN(3000)) {
					if at == len(near) {
						break
					}
					v := rnd.Uint32()
					if rnd.IntN(100) == 0 { // a hole in what changes
						at += 4
						continue
					}
					if v != Word(near, at).Load() {
						Word(near, at).Store(v)
						changed[at] = v
					}
					at += 4
				}
			}
			from, end := rnd.IntN(len(near)/4)*4, len(near)
			for _, span := range [][2]int{{from, end}, {0, from}} {
				for at := span[0]; ; {
					var to int
					if at, to = twin.Next(at, span[1]); at == to {
						break
					}
					for w := at; w < to; w += 4 {
						if v, ok := changed[w]; !ok || v != twin.At(w) {
							t.Fatalf("word %d is said to be %#x, want %#x, %v", w, twin.At(w), v, ok)
						}
						delete(changed, w)
					}
					PutWords(far[at:to], twin.Copied(at, to))
					at = to
				}
			}
			if len(changed) != 0 {
				t.Fatalf("%d words were overlooked", len(changed))
			}
		}
		if string(far) != string(near) {
			t.Error("the copies differ")
		}
	}
}

func TestPutWordsAtEveryAlignment(t *testing.T) {
	src := make([]uint64, 20<<10)
	for i := range src {
		src[i] = uint64(i)<<32 | uint64(i) + 1000
	}
	raw := func() *Region {
		r, err := newPrivate(len(src) * 8)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := raw()
	defer runtime.KeepAlive(whole) // its memory goes with it
	in := whole.Bytes()
	for i, v := range src {
		Word64(in, i*8).Store(v)
	}
	for from := 0; from < 16; from += 4 {
		for to := 0; to < 16; to += 4 {
			for n := 0; n <= 128<<10+80; n += 4 {
				if n == 44 {
					n = 128 << 10 // bulk, and then some
				}
				there := raw()
				out := there.Bytes()
				PutWords(out[to:to+n], in[from:from+n])
				if string(out[to:to+n]) != string(in[from:from+n]) || string(out[to+n:to+n+8]) != string(make([]byte, 8)) {
					t.Errorf("%d words from %d to %d", n/4, from, to)
				}
				runtime.KeepAlive(there)
			}
		}
	}
}

func TestAlias(t *testing.T) {
	a, err := New("a", 4*PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Retire()
	b, err := New("b", 2*PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Retire()
	w := func(r *Region, off int) *atomic.Uint32 { return Word(r.Bytes(), off) }
	w(a, 0).Store(1)
	w(b, 0).Store(2)
	if err := a.Alias(PageSize, b, 0, 2*PageSize); err != nil {
		t.Fatal(err)
	}
	w(a, PageSize+4).Store(3)
	if w(b, 4).Load() != 3 || w(a, PageSize).Load() != 2 || w(a, 0).Load() != 1 {
		t.Error("it is not the same memory")
	}
	if err := a.Unalias(PageSize, 2*PageSize); err != nil {
		t.Fatal(err)
	}
	w(a, PageSize+4).Add(1)
	if w(b, 4).Load() != 3 || w(a, PageSize).Load() != 2 || w(a, PageSize+4).Load() != 4 {
		t.Error("it is the same memory still, or its contents are gone")
	}
	if a.Alias(4, b, 0, PageSize) == nil || a.Alias(0, b, PageSize, 2*PageSize) == nil {
		t.Error("what is not whole pages is aliased")
	}
}

func BenchmarkTwinOfACleanPage(b *testing.B) {
	r, err := New("test", PageSize, false)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Retire()
	t, err := NewTwin(r.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		t.Next(0, PageSize)
	}
}

func BenchmarkTwinOfAllNew(b *testing.B) {
	r, err := New("test", 16<<20, false)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Retire()
	far, err := New("test", 16<<20, false)
	if err != nil {
		b.Fatal(err)
	}
	defer far.Retire()
	t, err := NewTwin(r.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(16 << 20)
	v := byte(0)
	for b.Loop() {
		b.StopTimer()
		v++
		for i := range r.Bytes() {
			r.Bytes()[i] = v
		}
		b.StartTimer()
		for at := 0; at < 16<<20; {
			from, to := t.Next(at, min(at+4096, 16<<20))
			PutWords(far.Bytes()[from:to], t.Copied(from, to))
			at = max(to, at+4096)
		}
	}
}

func BenchmarkScanOfAClean1GiB(b *testing.B) {
	b.Run("present", func(b *testing.B) { scanClean(b, New) })
	b.Run("absent", func(b *testing.B) { scanClean(b, NewSparse) })
}

func scanClean(b *testing.B, make func(string, int, bool) (*Region, error)) {
	b.Helper()
	r, err := make("test", 1<<30, false)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Retire()
	w, err := NewWatch(r, 0, 1<<30)
	if err != nil {
		b.Skip(err)
	}
	defer w.Close()
	var runs [64]PageRun
	for b.Loop() {
		if n, _, err := w.Written(0, 1<<30, false, runs[:]); n != 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
