package shm

import (
	"bytes"
	"syscall"
	"testing"
)

// A signal's word is stored after all of its data: while data cannot be copied, it is not there.
func TestPutSignal(t *testing.T) {
	for _, n := range []int{4, 8, 64, 4096, 32 << 10, Piece} {
		r := region(t, 2*Piece, false)
		src := bytes.Repeat([]byte{1, 2, 3, 4}, n/4)
		PutSignal(r.Bytes(), 8, src, 4, 5)
		PutSignal(r.Bytes(), 8, src, 8+n, 6)
		if w, v := Word(r.Bytes(), 4).Load(), Word(r.Bytes(), 8+n).Load(); w != 5 || v != 6 || !bytes.Equal(r.Bytes()[8:8+n], src) {
			t.Errorf("%d bytes: the words are %d and %d, or the data differs", n, w, v)
		}
		if r.Bytes()[0] != 0 || Word(r.Bytes(), 12+n).Load() != 0 {
			t.Errorf("%d bytes: neighbours were touched", n)
		}
		bad, err := syscall.Mmap(-1, 0, 2*Piece, syscall.PROT_NONE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Munmap(bad) })
		if err := Guard(func() { PutSignal(r.Bytes(), 8, bad[:n], 4, 7) }); err == nil {
			t.Errorf("%d bytes that cannot be read were copied", n)
		}
		if w := Word(r.Bytes(), 4).Load(); w != 5 {
			t.Errorf("%d bytes: the word is stored, the data is not", n)
		}
	}
}
