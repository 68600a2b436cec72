//go:build linux && cgo

package main

// #include "boundary.h"
import "C"

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/manual"
)

// library is the one of this process.
type library struct {
	shared *C.struct_vmmcb_shared
	space  *space

	mu   sync.Mutex
	node *vmmc.Process // nil until a call has joined the node. Guarded by mu.

	joined atomic.Pointer[vmmc.Process] // node, for goroutines that must not wait for mu

	// The right to join the group, which may wait for other programs. The time limit of a call that
	// waits for it holds.
	joining *semaphore.Semaphore
	group   *group.Group // nil until a call has joined it. Guarded by joining.

	nodes    nodes
	imports  imports
	exports  exports
	requests requests
	grace    grace
	vipl     vipl
	memories sync.Map // *vmmc.Memory by address
	updates  updates
	events   events

	// Handlers. One runs at a time: Go's dispatcher gives it to the thread of C whose record is in idle,
	// and runs the calls that the handler makes, which are in nested.
	idle   chan *record
	nested chan *record

	flightMu sync.Mutex
	inFlight map[*record]*flight // queued operations that run. Guarded by flightMu.
}

// flight is a queued operation that runs.
type flight struct {
	cancel context.CancelFunc
	left   bool // Its thread has left the call. Guarded by flightMu.
}

// serve starts the goroutine that takes queued records.
func (l *library) serve() error {
	event := os.NewFile(uintptr(l.shared.event), "the C library's queue")
	if event == nil {
		return fmt.Errorf("descriptor %d of the queue is not open", l.shared.event)
	}
	go func() {
		var count [8]byte
		for {
			if _, err := event.Read(count[:]); err != nil {
				return // the descriptor was closed by the program: its calls wait for ever
			}
			l.take()
			l.lookAtGate()
		}
	}()
	return nil
}

// take starts what is queued, the oldest first.
func (l *library) take() {
	head := (*unsafe.Pointer)(unsafe.Pointer(&l.shared.head))
	newest := (*record)(atomic.SwapPointer(head, nil))
	var oldest *record
	for newest != nil {
		next := (*record)(newest.next)
		newest.next = (*C.struct_vmmcb_record)(oldest)
		oldest, newest = newest, next
	}
	for oldest != nil {
		r := oldest
		oldest = (*record)(r.next)
		switch {
		case r.op == C.VMMCB_CANCEL:
			l.cancel(*(**record)(unsafe.Pointer(&r.in[0])))
			r.complete()
		case r.op == C.VMMCB_EVENT_BACK:
			l.events.giveBack(r)
			r.complete()
		case r.op == C.VMMCB_HANDLERS:
			l.idle <- r // there is one such thread, and it waits
		case r.in_handler != 0:
			go func() { l.nested <- r }()
		default:
			l.start(r)
		}
	}
}

// parentOf is the context that an operation's is derived from: the end of the job ends calls of MPI.
func parentOf(r *record) context.Context {
	if r.op == C.VMMCB_MPI {
		return mpiEnv().Context()
	}
	return context.Background()
}

// start runs a queued operation on a goroutine of its own.
func (l *library) start(r *record) {
	ctx, cancel := context.WithCancel(parentOf(r))
	f := &flight{cancel: cancel}
	l.flightMu.Lock()
	l.inFlight[r] = f
	l.flightMu.Unlock()
	go func() {
		err := l.run(ctx, r)
		cancel()
		l.flightMu.Lock()
		defer l.flightMu.Unlock()
		delete(l.inFlight, r)
		if f.left && err == nil {
			err = l.takeBack(r)
		}
		l.finish(r, err)
	}()
}

func (l *library) finish(r *record, err error) {
	r.code = 0
	if err != nil {
		r.fail(err)
	}
	r.complete()
}

// cancel ends an operation that its thread has left, if it has not ended. C keeps the record until
// that is done.
func (l *library) cancel(r *record) {
	l.flightMu.Lock()
	defer l.flightMu.Unlock()
	if f := l.inFlight[r]; f != nil {
		f.left = true
		f.cancel()
		return
	}
	if done := (*atomic.Uint32)(unsafe.Pointer(&r.word)).Load() == C.VMMCB_DONE; done && r.code == 0 {
		if err := l.takeBack(r); err != nil {
			r.fail(err)
		}
	}
}

// takeBack undoes what an operation that has succeeded has given to a thread which had left its
// call, and returns the error that the operation has then.
func (l *library) takeBack(r *record) error {
	if r.op != C.VMMCB_EVENT {
		return nil
	}
	l.events.giveBack(r)
	return &vmmc.Error{Op: "wait for an event", Code: vmmc.ErrCanceled, Err: vmmc.ErrCanceled}
}

// handler runs a notification's handler of C on a thread of C, and the calls that it makes here, so
// that they are a handler's to the library.
func (l *library) handler(function C.uint64_t) func(vmmc.Notification) {
	return func(n vmmc.Notification) {
		r := <-l.idle
		r.out[0] = function
		*(**byte)(unsafe.Pointer(&r.out[1])) = &n.At[0] // memory of C, or of an allocation: not of the heap
		r.out[2] = C.uint64_t(n.Word)
		descriptor := int(r.in[0]) - 1
		l.finish(r, nil)
		if descriptor >= 0 { // poll mode: the program finds the record complete when it is woken
			var one [8]byte
			binary.NativeEndian.PutUint64(one[:], 1)
			_, _ = syscall.Write(descriptor, one[:])
		}
		for {
			select {
			case r := <-l.nested:
				l.finish(r, l.run(parentOf(r), r))
			case r := <-l.idle: // the handler has returned, and its thread waits again
				l.idle <- r
				return
			}
		}
	}
}

// lookAtGate has the dispatcher of handlers go on that waits for the end of blocking. If a level comes
// after the look at levels, its end finds pending as it was, and writes to the queue again.
func (l *library) lookAtGate() {
	pending := atomic.LoadUint32((*uint32)(unsafe.Pointer(&l.shared.pending)))
	levels := atomic.LoadUint32((*uint32)(unsafe.Pointer(&l.shared.levels)))
	if p := l.joined.Load(); p != nil && pending != 0 && levels == 0 {
		link.ProcessesOutside.GateOpened(p)
	}
}

// gate is how C blocks handlers without a call of Go.
func (l *library) gate() *link.Gate {
	return &link.Gate{
		Levels:  (*atomic.Uint32)(unsafe.Pointer(&l.shared.levels)),
		Running: (*atomic.Uint32)(unsafe.Pointer(&l.shared.running)),
		Pending: (*atomic.Uint32)(unsafe.Pointer(&l.shared.pending)),
	}
}

// process is this process's membership of the node, which the first call makes.
func (l *library) process(ctx context.Context) (*vmmc.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.node != nil {
		return l.node, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout.Control)
	defer cancel()
	p, err := vmmc.Open(ctx, vmmc.WithLogger(manual.Logger(nil)))
	if err != nil {
		return nil, err
	}
	l.node = p
	link.ProcessesOutside.SetGate(p, l.gate())
	l.joined.Store(p)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&l.shared.joined)), 1)
	return p, nil
}

// run runs an operation. ctx bounds its waits.
func (l *library) run(ctx context.Context, r *record) error {
	if r.op == C.VMMCB_MPI {
		return l.runMPI(ctx, r)
	}
	if r.op >= C.VMMCB_VIPL {
		return l.runVIPL(ctx, r)
	}
	switch r.op {
	case C.VMMCB_DEBUG:
		manual.SetDebugLevel(int(int64(r.in[0])))
		return nil
	case C.VMMCB_SEND, C.VMMCB_GET:
		return l.transfer(ctx, r)
	case C.VMMCB_FENCE:
		return l.fence(ctx, r)
	case C.VMMCB_FINISH:
		return l.finishSend(r)
	case C.VMMCB_STATUS:
		return l.requests.status(r)
	case C.VMMCB_DATA_END, C.VMMCB_CLEAR_END, C.VMMCB_POST_REDIR, C.VMMCB_END_REDIR,
		C.VMMCB_UNEXPORT:
		return l.onExport(ctx, r)
	case C.VMMCB_IMPORT_STATE:
		return l.importState(r)
	case C.VMMCB_UNIMPORT:
		return l.unimport(r)
	case C.VMMCB_FREE:
		return l.free(r)
	case C.VMMCB_FENCE_AT:
		return l.fenceAt(ctx, r)
	case C.VMMCB_ATOMIC:
		return l.atomic(ctx, r)
	case C.VMMCB_WAIT_WORD:
		return l.waitWord(ctx, r)
	case C.VMMCB_PUBLISH, C.VMMCB_UNPUBLISH:
		return l.publish(ctx, r)
	case C.VMMCB_MAP:
		return l.mapMemory(r)
	case C.VMMCB_UNMAP, C.VMMCB_FLUSH:
		return l.onUpdates(ctx, r)
	}
	p, err := l.process(ctx)
	if err != nil {
		return err
	}
	switch r.op {
	case C.VMMCB_SELF:
		r.out[0], r.out[1] = l.nodes.number(p.Node()), C.uint64_t(p.PID())
		r.put(append([]byte(p.HostName()), 0))
		return nil
	case C.VMMCB_HOSTS:
		return l.hosts(p, r)
	case C.VMMCB_FIND_NODE:
		n, err := p.NameToNode(string(r.given()))
		if err == nil {
			r.out[0] = l.nodes.number(n)
		}
		return err
	case C.VMMCB_NODE_NAME:
		name, err := p.NodeToName(l.nodes.node(r.in[0]))
		r.put(append([]byte(name), 0))
		return err
	case C.VMMCB_PARENT:
		id, err := p.Parent()
		if err == nil {
			r.out[0], r.out[1] = l.nodes.number(id.Node), C.uint64_t(id.PID)
		}
		return err
	case C.VMMCB_SPAWN:
		return l.spawn(ctx, p, r)
	case C.VMMCB_ALLOC:
		return l.alloc(p, r)
	case C.VMMCB_EXPORT:
		return l.export(p, r)
	case C.VMMCB_IMPORT:
		return l.importBuffer(ctx, p, r)
	case C.VMMCB_IMPORT_BEGIN:
		return l.beginImport(p, r)
	case C.VMMCB_IMPORT_NAME:
		return l.importName(ctx, p, r)
	case C.VMMCB_GROUP, C.VMMCB_MEMBER, C.VMMCB_BARRIER, C.VMMCB_LEAVE:
		return l.onGroup(ctx, p, r)
	case C.VMMCB_EVENT:
		return l.nextEvent(ctx, p, r)
	}
	return &vmmc.Error{
		Op: "call vmmc", Code: vmmc.ErrBadConfig,
		Err: fmt.Errorf("operation %d is not known: libvmmc and libvmmc-go do not fit", r.op),
	}
}
