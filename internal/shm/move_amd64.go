//go:build !race

package shm

import "unsafe"

// Bulk is from how long a message on, its last word included, one instruction copies it faster than the runtime's loop, which leaves a third of what the
// second cache takes and gives unused: on an AMD EPYC with 48 KiB of first cache 119 GB/s where the loop has 93, with 64 KiB; with 16 KiB
// 150 and 165.
const Bulk = 32 << 10

// cacheLine is what both sides have to begin at a multiple of: AMD's Zen 3 and 4 are many times slower with that instruction where only
// one of them does (glibc's bug 30994).
const cacheLine = 64

// strings says whether the processor is quick at copying strings.
var strings = quickStrings()

// quickStrings asks the processor for FSRM, fast short REP MOVSB.
func quickStrings() bool

// moveString copies n bytes, which others may see come in any order. What the caller stores next is seen after all of them: a processor that
// reorders a string's own stores does not take others past them (Intel's manual, volume 3, "Fast-String Operation and Out-of-Order Stores"; Linux
// publishes what it has copied so by plain stores, too). Both begin at a multiple of [cacheLine], and n is at most [Piece]: the collector cannot stop it.
//
//go:noescape
func moveString(dst, src unsafe.Pointer, n int)

// move is copy.
func move(dst, src []byte) {
	to, from, n := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), len(src)
	if n < Bulk-WordSize || len(dst) < n || !strings || (uintptr(to)|uintptr(from))%cacheLine != 0 || uintptr(to)-uintptr(from) < uintptr(n) {
		copy(dst, src)
		return
	}
	moveString(to, from, n)
}
