package vmmc

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// Memory is memory that can be exported and mapped by importers. It is a
// memfd: no file, no name, and it goes with its last user.
type Memory struct {
	p      *Process
	region *shm.Region
	size   int
	// The export that this memory is a redirection target of. Guarded by memoryTable.mu.
	redirectOf *Export

	exportMu sync.Mutex // held while an export of it begins or ends; taken before memoryTable.mu
}

// Bytes is the memory itself. It must not be touched after Close: a load or store there faults
// then, which ends the program as any access to memory that is not there, until the addresses are
// given back and are another mapping's.
func (m *Memory) Bytes() []byte { return m.region.Bytes()[:m.size:m.size] }

// Close gives the memory back. Memory that is exported stays, and the error is
// [ErrBadRbufState]: close the export first. So it is with memory that is a
// redirection target, or bound (see [Import.Bind]). Closing twice is no error.
func (m *Memory) Close() error {
	t := &m.p.memory
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := m.redirectOf; e != nil {
		return failf(fmt.Sprintf("free %d bytes", m.size), ErrBadRbufState,
			"the memory is a redirection target of buffer %d: close that export first", e.id)
	}
	if e := t.exportSpans.First(m.Bytes()); e != nil {
		return failf(fmt.Sprintf("free %d bytes", m.size), ErrBadRbufState,
			"the memory is exported as buffer %d: close that export first", e.id)
	}
	for b := range t.bindings {
		if b.allocation == m {
			return failf(fmt.Sprintf("free %d bytes", m.size), ErrBadRbufState,
				"the memory is bound to buffer %d of %v: close that binding first", b.im.id, b.im.peer)
		}
	}
	if t.owns(m) {
		t.allocations.Remove(m.Bytes())
		m.region.Forbid()
	}
	return nil
}

// memoryTable is what this process's memory is used for: allocations, exports, redirection targets
// and bindings.
type memoryTable struct {
	mu           sync.Mutex
	allocations  shm.Spans[*Memory]
	exports      map[uint32]*Export
	exportSpans  shm.Spans[*Export] // exports by the memory that they cover
	redirectable map[*Export]bool   // the exports that are redirectable
	freeSlots    []uint32           // free slots of the page's state table
	slotsUsed    uint32             // slots from this one on were never used
	lastSerial   uint64             // the last serial given to an export
	bindings     map[*Binding]struct{}
	announced    uint64 // how often names were announced to another daemon. Guarded by mu.

	lastPublished atomic.Uint32 // counts the ids that Publish has given
}

// allocationOf returns the allocation that contains b, and b's offset in it, or nil. mu is held.
func (t *memoryTable) allocationOf(b []byte) (*Memory, int) {
	if m := t.allocations.First(b); m != nil {
		if off, ok := shm.Within(m.Bytes(), b); ok {
			return m, off
		}
	}
	return nil, 0
}

// owns reports whether m is an open allocation. mu is held.
func (t *memoryTable) owns(m *Memory) bool { return t.allocations.First(m.Bytes()) == m }
