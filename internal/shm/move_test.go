package shm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

// Copies of all lengths around the bounds, with sides that begin anywhere and that overlap, are
// those of copy, and touch nothing beside.
func TestCopy(t *testing.T) {
	const edge = 256
	rng := rand.New(rand.NewPCG(1, 2))
	memory := make([]byte, 2*(Piece+4*edge))
	rest := bytes.Clone(memory)
	lengths := []int{0, 1, 64, 4096, 32<<10 - WordSize - 1, 32<<10 - WordSize, 32 << 10, 32<<10 + 1, 64<<10 - WordSize, Piece - 1, Piece, Piece + edge}
	for _, n := range lengths {
		for _, at := range [][2]int{{0, n + edge}, {n + edge, 0}, {4, n + edge}, {0, n + edge + 4}, {64, n + 2*edge}, {8, n + edge + 8}, {0, 64}, {64, 0}, {0, 0}} {
			from, to := at[0], at[1]
			for i := range memory {
				memory[i] = byte(rng.Uint32())
			}
			copy(rest, memory)
			if overlaps := from < to+n && to < from+n; overlaps && n > Piece {
				continue // pieces are copied in their order
			}
			Copy(memory[to:to+n], memory[from:from+n])
			copy(rest[to:to+n], rest[from:from+n])
			if !bytes.Equal(memory, rest) {
				t.Fatalf("%d bytes from %d to %d", n, from, to)
			}
		}
	}
}

// A message is there whole, whatever copies it.
func TestPutOfEveryLength(t *testing.T) {
	for _, n := range []int{8, 12, 64, 32<<10 - 4, 32 << 10, 64 << 10, Piece} {
		src, mem := make([]byte, n), make([]byte, n+128)
		for i := range src {
			src[i] = byte(i) | 1
		}
		for _, off := range []int{0, 4, 64, 128} {
			clear(mem)
			if n < Bulk {
				PutPiece(mem, off, src)
			} else {
				PutBulk(mem, off, src)
			}
			if !bytes.Equal(mem[off:off+n], src) || bytes.Count(mem, []byte{0}) != 128 {
				t.Errorf("PutPiece or PutBulk of %d bytes at %d", n, off)
			}
			clear(mem)
			if last := Put(mem[off:off+n], src); last != LastWord(src) || !bytes.Equal(mem[off:off+n], src) || bytes.Count(mem, []byte{0}) != 128 {
				t.Errorf("Put of %d bytes at %d", n, off)
			}
		}
	}
}

// The runtime's copy beside it: what the processor's instruction for strings gains.
func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20} {
		src, err := New("bench", n, false)
		if err != nil {
			b.Fatal(err)
		}
		dst, err := New("bench", n, false)
		if err != nil {
			b.Fatal(err)
		}
		for name, f := range map[string]func(dst, src []byte){"copy": func(dst, src []byte) { copy(dst, src) }, "Copy": Copy} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n>>10), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f(dst.Bytes()[:n], src.Bytes()[:n])
				}
			})
		}
		src.Retire()
		dst.Retire()
	}
}

// Each way to store a message stores all of it, wherever it lies, and nothing beside it.
func TestPutOverlapping(t *testing.T) {
	short := map[string]bool{"PutShort": true, "PutShortBefore": true}
	for name, put := range map[string]func(mem []byte, off int, src []byte) uint32{
		"Put":       func(mem []byte, off int, src []byte) uint32 { return Put(mem[off:off+len(src)], src) },
		"PutBefore": func(mem []byte, off int, src []byte) uint32 { return PutBefore(mem[off:off+len(src)], src) },
		"PutShort": func(mem []byte, off int, src []byte) uint32 {
			PutShort(mem, off, src)
			return LastWord(mem[:off+len(src)])
		},
		"PutShortBefore": PutShortBefore,
		"PutPiece": func(mem []byte, off int, src []byte) uint32 {
			PutPiece(mem, off, src)
			return LastWord(mem[:off+len(src)])
		},
		"PutBulk": func(mem []byte, off int, src []byte) uint32 {
			PutBulk(mem, off, src)
			return LastWord(mem[:off+len(src)])
		},
	} {
		for _, n := range []int{WordSize, Short, Short + WordSize, 64, 32 << 10} {
			if short[name] && n > Short {
				continue
			}
			step := max(WordSize, n>>10)
			mem, want := make([]byte, n+64), make([]byte, n+64)
			for off := 0; off <= len(mem)-n; off += step {
				for from := 0; from <= len(mem)-n; from += step {
					for i := range mem {
						mem[i] = byte(i%251) + 1
					}
					copy(want, mem)
					last := LastWord(want[from : from+n])
					copy(want[off:off+n], want[from:from+n])
					if got := put(mem, off, mem[from:from+n]); got != last || !bytes.Equal(mem, want) {
						t.Fatalf("%s of %d bytes from %d to %d: other contents, or %#x for %#x", name, n, from, off, got, last)
					}
				}
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a message beyond the memory is stored")
		}
	}()
	PutShortBefore(make([]byte, 8), 4, make([]byte, 8))
}

// What is copied may lie on the stack of the caller: no function moves it to the heap.
func TestCopiesDoNotAllocate(t *testing.T) {
	if testutil.Slow > 1 {
		t.Skip("the race detector allocates")
	}
	n := testing.AllocsPerRun(10, func() {
		var near, far [4096]byte
		Copy(far[:], near[:])
		CopyUnchecked(far[:], near[:])
		Put(far[:], near[:])
		PutBefore(far[:], near[:])
		PutPiece(far[:], 0, near[:])
		PutBulk(far[:], 0, near[:])
		PutShort(far[:], 0, near[:64])
		Take(near[:], far[:])
		Prefetch(far[:], 0)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
