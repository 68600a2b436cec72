package shm

import (
	"slices"
	"syscall"
	"testing"
)

// The system may take pages out of a mapping at any time, to have room, and put them
// back later. What was stored to before is known afterwards, and so is what is
// stored to when they come back.
func TestWatchedPagesThatAreTakenOut(t *testing.T) {
	const size = 4 << 20 // all entries of some tables
	for what, out := range map[string][2]int{"a page": {3 * PageSize, 4 * PageSize}, "everything": {0, size}} {
		t.Run(what, func(t *testing.T) {
			r, w := watched(t, size/PageSize)
			written := func() (pages []int) {
				t.Helper()
				var runs [4]PageRun
				n, end, err := w.Written(0, size, true, runs[:])
				if err != nil || end != size {
					t.Fatal(n, end, err)
				}
				for _, r := range runs[:n] {
					for at := int(r.Start); at < int(r.End); at += PageSize {
						pages = append(pages, at)
					}
				}
				return pages
			}
			takeOut := func() {
				t.Helper()
				// Of shared memory this drops the mapping's entries alone, as reclaim does.
				if err := syscall.Madvise(r.Bytes()[out[0]:out[1]], syscall.MADV_DONTNEED); err != nil {
					t.Fatal(err)
				}
			}
			for at := out[0]; at < out[1]; at += PageSize {
				Word(r.Bytes(), at).Store(7)
			}
			takeOut()
			if got := written(); len(got) != (out[1]-out[0])/PageSize || got[0] != out[0] {
				t.Fatalf("%d pages were stored to and taken out, of %d", len(got), (out[1]-out[0])/PageSize)
			}
			if Word(r.Bytes(), out[0]).Load() != 7 {
				t.Fatal("they are empty")
			}
			takeOut() // while they are protected
			_ = written()
			Word(r.Bytes(), 3*PageSize).Store(8)
			if got := written(); !slices.Contains(got, 3*PageSize) {
				t.Fatalf("a store to a page that came back is not known: %v", got)
			}
		})
	}
}
