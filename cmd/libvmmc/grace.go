//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// A path is the mapped path of an import, given to C. The import is reachable through it, and so
// its pages are mapped; the words that C loads are pinned.
type path struct {
	im    *vmmc.Import
	words *C.struct_vmmcb_path
	pin   runtime.Pinner
}

// The layouts of both sides must agree: each line is an error of the compiler where they do not.
var (
	_ = [1]struct{}{}[C.VMMCB_BOARD_WORDS-wait.Words]
	_ = [1]struct{}{}[C.VMMCB_LANES-shm.Lanes]
	_ = [1]struct{}{}[C.VMMCB_IDLE-link.GateIdle]
	_ = [1]struct{}{}[C.VMMCB_RUNNING-link.GateRunning]
	_ = [1]struct{}{}[C.VMMCB_AWAITED-link.GateAwaited]
	_ = [1]struct{}{}[C.VMMCB_COUNTERS-shm.ShardCounters]
	_ = [1]struct{}{}[C.VMMCB_MESSAGES-shmlayout.Messages]
	_ = [1]struct{}{}[C.VMMCB_BYTES-shmlayout.Bytes]
	_ = [1]struct{}{}[C.VMMCB_GETS-shmlayout.Gets]
	_ = [1]struct{}{}[C.VMMCB_GET_BYTES-shmlayout.GetBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(atomic.Bool{})-unsafe.Sizeof(uint32(0))]
	_ = [1]struct{}{}[unsafe.Sizeof(atomic.Uint64{})-unsafe.Sizeof(uint64(0))]
)

// newPath returns nil for an import of which C must enter Go for each transfer.
func (l *library) newPath(i *imported, im *vmmc.Import) *path {
	o, mayRead, mayWrite, ok := link.ImportsOutside.Of(im)
	if !ok {
		return nil
	}
	// A child must not go on with a copy that its parent's thread was in, or hold the exporter's
	// memory.
	if syscall.Madvise(o.Region.Bytes(), syscall.MADV_DONTFORK) != nil {
		return nil
	}
	w := &C.struct_vmmcb_path{
		handle: i.handle, begin: C.uint64_t(i.begin), size: C.uint64_t(len(o.Mem)),
		alive: C.uint32_t(o.LiveState), address: C.uint64_t(o.Addr),
	}
	if mayRead {
		w.rights |= C.VMMCB_EXPORT_READ
	}
	if mayWrite && !o.Redirectable {
		w.rights |= C.VMMCB_EXPORT_WRITE
	}
	p := &path{im: im, words: w}
	p.pin.Pin(w)
	o.Pin(&p.pin)
	// Addresses in mappings and of pinned words.
	for _, v := range []struct{ at, to unsafe.Pointer }{
		{unsafe.Pointer(&w.mem), unsafe.Pointer(unsafe.SliceData(o.Mem))},
		{unsafe.Pointer(&w.state), unsafe.Pointer(o.State)},
		{unsafe.Pointer(&w.sleepers), unsafe.Pointer(o.Board.Count)},
		{unsafe.Pointer(&w.sleepers_any), unsafe.Pointer(o.Board.Any)},
		{unsafe.Pointer(&w.sleepers_at), unsafe.Pointer(o.Board.Words[0])},
		{unsafe.Pointer(&w.pending), unsafe.Pointer(o.Pending)},
		{unsafe.Pointer(&w.last_seq), unsafe.Pointer(o.LastSeq)},
		{unsafe.Pointer(&w.acked_seq), unsafe.Pointer(o.AckedSeq)},
		{unsafe.Pointer(&w.link_ended), unsafe.Pointer(o.LinkEnded)},
		{unsafe.Pointer(&w.import_ended), unsafe.Pointer(o.ImportEnded)},
		{unsafe.Pointer(&w.closed), unsafe.Pointer(o.Closed)},
		{unsafe.Pointer(&w.lanes), unsafe.Pointer(o.Lanes)},
	} {
		*(*unsafe.Pointer)(v.at) = v.to
	}
	return p
}

// An end is where the end of data of an export is, given to C.
type end struct {
	e     *vmmc.Export
	out   redirect.EndOutside // Its pages stay mapped.
	words *C.struct_vmmcb_end
	pin   runtime.Pinner
}

// stale reports whether the words are not the export's any more.
func (n *end) stale() bool { return n.out.Version != nil && n.out.Version.Load() != n.out.At }

func newEnd(e *vmmc.Export, handle C.uint64_t) *end {
	w := &C.struct_vmmcb_end{handle: handle}
	n := &end{e: e, words: w}
	n.pin.Pin(w)
	o, ok := link.ExportsOutside.End(e)
	if !ok {
		return n
	}
	n.out = o
	w.at, w.size = C.uint32_t(o.At), C.uint64_t(o.Size)
	n.pin.Pin(o.Version)
	n.pin.Pin(o.End)
	*(*unsafe.Pointer)(unsafe.Pointer(&w.version)) = unsafe.Pointer(o.Version)
	*(*unsafe.Pointer)(unsafe.Pointer(&w.last)) = unsafe.Pointer(o.End)
	if o.Shared == nil {
		return n
	}
	n.pin.Pin(o.Cleared)
	*(*unsafe.Pointer)(unsafe.Pointer(&w.cleared)) = unsafe.Pointer(o.Cleared)
	*(*unsafe.Pointer)(unsafe.Pointer(&w.messages)) = unsafe.Pointer(o.Messages)
	for i, p := range o.Ends {
		*(*unsafe.Pointer)(unsafe.Pointer(&w.ends[i])) = unsafe.Pointer(p)
	}
	return n
}

// epoch says whether a thread of C is in a call.
type epoch C.struct_vmmcb_epoch

func (e *epoch) word() *uint64 { return (*uint64)(unsafe.Pointer(&e.now)) }

// grace keeps closed paths, ends of data and words of polls until no thread of C can be using them.
// Go's collector does the same for goroutines, and does not see threads of C.
type grace struct {
	epochs []epoch
	used   *uint32 // How many of them were ever taken.
	fences bool    // There is no membarrier: C stores its epochs with barriers of its own.

	mu      sync.Mutex
	retired []func() // Let go of what was closed. Guarded by mu.
	sweeps  bool     // A goroutine sweeps. Guarded by mu.

	kept []func() // Never called, as membarrier fails by now. The sweeping goroutine's.
}

func (g *grace) init(shared *C.struct_vmmcb_shared) {
	g.epochs = unsafe.Slice((*epoch)(unsafe.Pointer(shared.epochs)), C.VMMCB_EPOCHS)
	g.used = (*uint32)(unsafe.Pointer(&shared.epochs_used))
	if unix.RegisterBarrier() != nil || unix.Barrier() != nil {
		g.fences = true
		shared.barriers = 1
	}
}

// retire has free called when no thread of C can be using what it frees. C can no longer load the
// address of that, as it is no more where C looks for it.
func (g *grace) retire(free func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.retired = append(g.retired, free)
	if !g.sweeps {
		g.sweeps = true
		go g.sweep()
	}
}

// sweep frees what was retired until there is nothing.
func (g *grace) sweep() {
	for {
		g.mu.Lock()
		batch := g.retired
		g.retired = nil
		g.sweeps = len(batch) > 0
		g.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if !g.wait() {
			g.kept = append(g.kept, batch...)
			continue
		}
		for _, free := range batch {
			free()
		}
	}
}

// longestPause is between two looks at a thread that does not leave its call: it may be stopped, or
// have left by siglongjmp and not called again.
const longestPause = 100 * time.Millisecond

// wait returns true when each thread of C that was in a call has left it. It returns false if that
// cannot be known: a seccomp filter of the program can forbid membarrier at any time.
func (g *grace) wait() bool {
	if !g.fences && unix.Barrier() != nil {
		return false
	}
	entered := map[*uint64]uint64{} // Threads that enter later cannot load what is retired.
	for i := range atomic.LoadUint32(g.used) {
		now := g.epochs[i].word()
		if seen := atomic.LoadUint64(now); seen&1 != 0 {
			entered[now] = seen
		}
	}
	for now, seen := range entered {
		for pause := time.Microsecond; atomic.LoadUint64(now) == seen; pause = min(2*pause, longestPause) {
			time.Sleep(pause)
		}
	}
	return true
}
