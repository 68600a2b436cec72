//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/vmmc-go/vmmc/internal/code"
)

const (
	slotSize  = 1 << C.VMMCB_SLOT_SHIFT
	pieceSize = 1 << C.VMMCB_TOP_SHIFT
	leastSize = 1 << 20   // of a piece, where larger ones are refused
	margin    = 512 << 20 // left free, as Go's heap ends the process where it cannot grow
)

// run is a range of slots.
type run struct{ begin, slots uint64 }

// space is DestSpace: address space without memory, in which each import has slots of its own. C
// finds an import's number by an address in two loads, of top and of a leaf.
type space struct {
	top []*leaf // in memory that C made

	mu    sync.Mutex
	rest  run   // of the piece that was reserved last
	given []run // of imports that have ended, the oldest first: used when nothing can be reserved
	size  uint64
}

type leaf [C.VMMCB_SLOTS]uint32

func newSpace(shared *C.struct_vmmcb_shared) *space {
	return &space{top: unsafe.Slice((**leaf)(unsafe.Pointer(shared.top)), C.VMMCB_TOPS), size: pieceSize}
}

// take gives the slots of an import of n bytes, and one behind them.
func (s *space) take(n uint64) (begin, slots uint64, err error) {
	slots = (n+slotSize-1)/slotSize + 1
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest.slots < slots && !s.reserve(slots) {
		return s.reuse(slots)
	}
	begin = s.rest.begin
	s.rest.begin += slots * slotSize
	s.rest.slots -= slots
	return begin, slots, nil
}

// reserve gets a piece with room for so many slots. mu is held.
func (s *space) reserve(slots uint64) bool {
	for {
		size := max(s.size, (slots+1)*slotSize)
		p, _, e := syscall.Syscall6(syscall.SYS_MMAP, 0, uintptr(size+margin), syscall.PROT_NONE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE, ^uintptr(0), 0)
		if e == 0 {
			_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, p+uintptr(size), margin, 0)
		}
		switch {
		case e == 0:
			begin := (uint64(p) + slotSize - 1) &^ (slotSize - 1)
			r := run{begin, (uint64(p) + size - begin) / slotSize}
			if s.addLeaves(r) {
				s.given = append(s.given, s.rest)
				s.rest = r
				return true
			}
			_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, p, uintptr(size), 0)
			return false
		case size == max(leastSize, (slots+1)*slotSize):
			return false
		}
		s.size = max(s.size/2, leastSize)
	}
}

// addLeaves makes the run a part of DestSpace. mu is held.
func (s *space) addLeaves(r run) bool {
	end := r.begin + r.slots*slotSize
	if end>>C.VMMCB_ADDR_BITS != 0 {
		return false
	}
	for i := r.begin / pieceSize; i <= (end-1)/pieceSize; i++ {
		if s.top[i] != nil {
			continue
		}
		p, err := syscall.Mmap(-1, 0, int(unsafe.Sizeof(leaf{})), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return false
		}
		atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&s.top[i])), unsafe.Pointer(&p[0]))
	}
	s.set(r.begin, r.slots, C.VMMCB_NO_IMPORT)
	return true
}

// set makes the slots those of an import.
func (s *space) set(begin, slots uint64, number uint32) {
	for a := begin; slots > 0; a, slots = a+slotSize, slots-1 {
		atomic.StoreUint32(&s.top[a/pieceSize][a%pieceSize/slotSize], number)
	}
}

// give takes slots back. They are used again only when no address space is left.
func (s *space) give(begin, slots uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = append(s.given, run{begin, slots})
}

// reuse gives slots of an import that has ended, those that ended first if they suffice. mu is held.
func (s *space) reuse(slots uint64) (begin, n uint64, err error) {
	for i, r := range s.given {
		if r.slots < slots {
			continue
		}
		if r.slots == slots {
			s.given = append(s.given[:i:i], s.given[i+1:]...)
		} else {
			s.given[i] = run{r.begin + slots*slotSize, r.slots - slots}
		}
		return r.begin, slots, nil
	}
	return 0, 0, code.New(code.BadProxyExtension,
		"%d KiB of address space cannot be reserved: raise ulimit -v, or end imports", slots*slotSize>>10)
}
