//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/manual"
)

// nodes numbers the nodes that C has been told of. 0 is none.
type nodes struct {
	mu    sync.Mutex
	byID  map[vmmc.NodeID]C.uint64_t
	byNum []vmmc.NodeID
}

func (n *nodes) init() {
	n.byID = map[vmmc.NodeID]C.uint64_t{}
}

// number is C's number of a node, for as long as the process lives.
func (n *nodes) number(id vmmc.NodeID) C.uint64_t {
	if id == (vmmc.NodeID{}) {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.byID[id]
	if !ok {
		n.byNum = append(n.byNum, id)
		v = C.uint64_t(len(n.byNum))
		n.byID[id] = v
	}
	return v
}

// node is the node of a number; the zero one, which no call takes, for a number that was not given.
func (n *nodes) node(v C.uint64_t) vmmc.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	if v == 0 || v > C.uint64_t(len(n.byNum)) {
		return vmmc.NodeID{}
	}
	return n.byNum[v-1]
}

func random() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.NativeEndian.Uint64(b[:])
}

// A handle is 40 random bits, 4 bits of a kind, and an entry's number. A program cannot guess one,
// and one of an entry that has ended is none of the entry's next use.
const (
	numberBits = 20
	kindBits   = 4
	kindExport = 0xe
	kindImport = 0x1
)

func newHandle(kind, number uint64) C.uint64_t {
	return C.uint64_t(random()<<(numberBits+kindBits) | kind<<numberBits | number)
}

func kindOf(h C.uint64_t) C.uint64_t { return h >> numberBits & (1<<kindBits - 1) }

// table has entries of T by the numbers in their handles. Number 0 is not used.
type table[T any] struct {
	mu      sync.RWMutex
	kind    uint64
	entries []tableEntry[T]
	free    []uint32 // numbers, to be used in this order
}

type tableEntry[T any] struct {
	handle C.uint64_t
	value  T
}

func (t *table[T]) initTable(kind uint64) {
	t.kind, t.entries = kind, make([]tableEntry[T], 1)
}

// add takes an entry in use.
func (t *table[T]) add(v T) (C.uint64_t, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var i uint32
	switch {
	case len(t.entries) < C.VMMCB_IMPORTS:
		i = uint32(len(t.entries))
		t.entries = append(t.entries, tableEntry[T]{})
	case len(t.free) > 0: // the longest unused first
		i, t.free = t.free[0], t.free[1:]
	default:
		return 0, vmmc.ErrNoMem
	}
	h := newHandle(t.kind, uint64(i))
	t.entries[i] = tableEntry[T]{h, v}
	return h, nil
}

func number(h C.uint64_t) uint32 { return uint32(h & (1<<numberBits - 1)) }

// get returns the value of a handle that is in use.
func (t *table[T]) get(h C.uint64_t) (v T, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i := int(number(h)); i != 0 && i < len(t.entries) && t.entries[i].handle == h {
		return t.entries[i].value, true
	}
	return v, false
}

// handleOf returns the handle of the entry that is meant, or 0.
func (t *table[T]) handleOf(meant func(T) bool) C.uint64_t {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, e := range t.entries {
		if e.handle != 0 && meant(e.value) {
			return e.handle
		}
	}
	return 0
}

// remove ends the use of a handle, and reports whether it was in use.
func (t *table[T]) remove(h C.uint64_t) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := number(h)
	if i == 0 || int(i) >= len(t.entries) || t.entries[i].handle != h {
		return false
	}
	t.entries[i] = tableEntry[T]{}
	t.free = append(t.free, i)
	return true
}

// exported is an export of C.
type exported struct {
	e *vmmc.Export

	mu   sync.Mutex
	over bool // The program has closed it. Guarded by mu.
	end  *end // What C was given to read the end of data; nil: nothing. Guarded by mu.
}

type exports struct{ table[*exported] }

func (e *exports) init() { e.initTable(kindExport) }

// find returns the export of a handle.
func (e *exports) find(op string, h C.uint64_t) (*exported, error) {
	if x, ok := e.get(h); ok {
		return x, nil
	}
	if kindOf(h) != kindExport {
		return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadArg, Err: errors.New("this is no export's handle")}
	}
	return nil, &vmmc.Error{Op: op, Code: vmmc.ErrBadRbufState, Err: errors.New("the handle's export has ended")}
}

// imported is an import of C, or one that is being made.
type imported struct {
	mu      sync.Mutex
	handle  C.uint64_t
	request *manual.ImportRequest // of an asynchronous import, until its import was given out
	async   bool
	given   bool // reports whether C was given the address
	im      atomic.Pointer[vmmc.Import]
	begin   uint64
	slots   uint64
	path    *path // nil: C sends and gets by this package
}

type imports struct{ table[*imported] }

func (i *imports) init() { i.initTable(kindImport) }

// requests are the asynchronous sends and gets that are not known to be over. Their numbers count
// up, so that a lower one that is not here is of a request that has succeeded. C makes handles of
// the numbers, and gives only numbers of its own handles.
type requests struct {
	done []atomic.Uint64 // C's: of each place the number of the last request there that has succeeded.

	mu     sync.Mutex
	last   uint64
	oldest uint64                  // none before it is in begun
	begun  map[uint64]vmmc.Request // Guarded by mu.
	failed map[uint64]error        // stays, so that a handle may be asked for again
}

func (q *requests) init(shared *C.struct_vmmcb_shared) {
	q.done = unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(shared.requests)), C.VMMCB_REQUESTS)
	q.oldest = 1
	q.begun, q.failed = map[uint64]vmmc.Request{}, map[uint64]error{}
}

// add gives a request a number.
func (q *requests) add(v vmmc.Request) uint64 {
	q.mu.Lock()
	q.last++
	n := q.last
	delete(q.begun, q.done[n%C.VMMCB_REQUESTS].Load()) // It has succeeded, which C may say without a call.
	q.begun[n] = v
	for range 2 { // so that programs that never ask keep few
		if r, ok := q.begun[q.oldest]; q.oldest < n && (!ok || !errors.Is(q.settle(q.oldest, r), vmmc.ErrInProgress)) {
			q.oldest++
		}
	}
	q.mu.Unlock()
	link.RequestsOutside.StoreWhenDone(v, &q.done[n%C.VMMCB_REQUESTS], n)
	return n
}

// settle returns a request's outcome, and forgets one that has succeeded. mu is held.
func (q *requests) settle(n uint64, r vmmc.Request) error {
	err := r.Status()
	if errors.Is(err, vmmc.ErrInProgress) {
		return err
	}
	delete(q.begun, n)
	if err != nil {
		q.failed[n] = err
	}
	return err
}

// status is vmmc_AsyncStatus.
func (q *requests) status(r *record) error {
	n := uint64(r.in[0])
	q.mu.Lock()
	defer q.mu.Unlock()
	if v, ok := q.begun[n]; ok {
		return q.settle(n, v)
	}
	return q.failed[n]
}

// exportEntry is what C knows of an export.
func (l *library) exportEntry(number uint32) *C.struct_vmmcb_export {
	return (*C.struct_vmmcb_export)(unsafe.Add(unsafe.Pointer(l.shared.exports),
		uintptr(number)*unsafe.Sizeof(C.struct_vmmcb_export{})))
}

// giveEnd lets C read the end of data from now on, until the export's importer changes.
func (l *library) giveEnd(x *exported, handle C.uint64_t) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over && (x.end == nil || x.end.stale()) { // a thread without an epoch asks each time
		l.replaceEnd(x, handle, newEnd(x.e, handle))
	}
}

// replaceEnd gives C another one, or none. x.mu is held.
func (l *library) replaceEnd(x *exported, handle C.uint64_t, e *end) {
	var words unsafe.Pointer
	if e != nil {
		words = unsafe.Pointer(e.words)
	}
	atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&l.exportEntry(number(handle)).end)), words)
	if x.end != nil {
		l.grace.retire(x.end.pin.Unpin)
	}
	x.end = e
}

// endExport takes a closed export from C.
func (l *library) endExport(x *exported, handle C.uint64_t) {
	x.mu.Lock()
	x.over = true
	l.replaceEnd(x, handle, nil)
	x.mu.Unlock()
	l.exports.remove(handle)
	l.countEnded()
}

// importEntry is what C knows of an import.
func (l *library) importEntry(number uint32) *C.struct_vmmcb_import {
	return (*C.struct_vmmcb_import)(unsafe.Add(unsafe.Pointer(l.shared.imports),
		uintptr(number)*unsafe.Sizeof(C.struct_vmmcb_import{})))
}

// countEnded tells C that an export or import is closed: what it knows of their handles and addresses
// may be wrong.
func (l *library) countEnded() {
	atomic.AddUint32((*uint32)(unsafe.Pointer(&l.shared.ended)), 1)
}

// open lets C find the import.
func (l *library) open(i *imported, im *vmmc.Import) error {
	begin, slots, err := l.space.take(uint64(im.Size()))
	if err != nil {
		return fmt.Errorf("import %d bytes: %w", im.Size(), err)
	}
	i.begin, i.slots = begin, slots
	i.im.Store(im)
	e := l.importEntry(number(i.handle))
	// A thread of C may still be looking at what the entry was before: it compares the handle after.
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.begin)), begin)
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.size)), uint64(im.Size()))
	var mapped uint64
	if im.Path() == vmmc.PathMapped {
		mapped = 1
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.mapped)), mapped)
	if i.path = l.newPath(i, im); i.path != nil {
		atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&e.path)), unsafe.Pointer(i.path.words))
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.handle)), uint64(i.handle))
	l.space.set(begin, slots-1, number(i.handle)) // the last slot stays between two imports
	return nil
}

// shut takes the import from C.
func (l *library) shut(i *imported) {
	if i.slots == 0 {
		return
	}
	l.space.set(i.begin, i.slots, C.VMMCB_NO_IMPORT)
	if i.path != nil {
		e := l.importEntry(number(i.handle))
		atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&e.path)), nil)
		l.grace.retire(i.path.pin.Unpin)
		i.path = nil
	}
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&l.importEntry(number(i.handle)).handle)), 0)
	l.space.give(i.begin, i.slots)
	i.slots = 0
}
