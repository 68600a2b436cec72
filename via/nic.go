package via

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/viapoll"
)

// The limits of a NIC.
const (
	maxTags           = 1024
	maxRegions        = 1 << 20
	maxVIs            = 1024
	maxDescriptors    = 1024 // of a queue
	maxSegments       = 252
	maxCQs            = 1024
	maxCQEntries      = 1 << 20
	maxTransfer       = 1 << 20
	maxDiscriminator  = 32
	maxWaitingRequest = 1024 // of a listener, and of a link
)

// NIC is one opening of a device (VIP_NIC_HANDLE). All methods of it and of what it has may be
// called concurrently.
//
// Experimental: it may change in any release.
type NIC struct {
	p      *vmmc.Process
	device string
	number uint32
	addr   HostAddress
	export []vmmc.ExportOption // of the buffers of links
	dials  *semaphore.Semaphore

	publishing *semaphore.Semaphore  // guards peerBoxes
	peerBoxes  map[string]*sharedBox // by discriminators

	links       atomic.Pointer[[]*link] // Replaced as a whole, under mu.
	looks       atomic.Uint64           // see hasNews
	sleepers    atomic.Int32            // goroutines and handlers that wait for a completion or a request
	streams     atomic.Bool             // reports whether a link has not been a mapped one
	reader      viapoll.Reader          // code outside of Go that polls, or nil. Set before the first link.
	shortSleeps atomic.Uint32           // of waiters, one after another

	mu         sync.Mutex
	closed     bool
	tags       int
	regions    map[Handle]*Memory
	shared     map[*Memory]struct{} // regions with a share
	lastHandle Handle
	vis        map[*VI]struct{}
	cqs        map[*CompletionQueue]struct{}
	conns      []*VI // by the slots of connection numbers
	freeSlots  []uint32
	generation uint32 // of connection numbers
	listeners  map[string]*Listener
	peers      []*peerRequest // without an outcome

	onError func(AsyncError)
	status  statusTable
	_       [0]uint64      // aligns unseen as slots are
	unseen  [slotSize]byte // what destroyed VIs report goes here

	calls      []call // not made yet
	spareCalls []call // what calls had before, empty
	dispatches bool   // reports whether a goroutine makes calls
	dispatcher func() // dispatch. Here it is not allocated each time.

	ctx context.Context //nolint:containedctx // ends with Close
	end context.CancelFunc
	wg  sync.WaitGroup // goroutines of links, and that of calls
}

// NICAttributes are the limits of a NIC (VIP_NIC_ATTRIBUTES).
//
// Experimental: it may change in any release.
type NICAttributes struct {
	Device               string
	Address              HostAddress
	MaxDiscriminator     int // bytes
	MaxRegions           int
	MaxVIs               int
	MaxDescriptors       int // of a queue
	MaxSegments          int // of a descriptor
	MaxCompletionQueues  int
	MaxCompletionEntries int
	MaxTransferSize      int // bytes
	NativeMTU            int // bytes
	MaxTags              int
	Levels               Level // all that are offered
}

var numbers atomic.Uint32

// devices are the names that programs use.
var devices = regexp.MustCompile(`^(VINIC|nic|/dev/clanvi)[0-9]$|^/dev/via_lo$`)

// Open opens a NIC (VipOpenNic). Each open of a device gives a NIC of its own. Devices are
// "/dev/via_lo", "/dev/clanvi0" to 9, "VINIC0" to 9 and "nic0" to 9. They differ in nothing.
// Errors: [ErrInvalidParameter] for another device and for a nil process.
//
// Experimental: it may change in any release.
func Open(p *vmmc.Process, device string) (*NIC, error) {
	const op = "open a NIC"
	if p == nil {
		return nil, fail(op, ErrInvalidParameter, "the process is nil")
	}
	if !devices.MatchString(device) {
		return nil, fail(op, ErrInvalidParameter, "no device %q: try \"nic0\"", device)
	}
	name, err := p.NodeToName(p.Node())
	if err != nil {
		return nil, &Error{Op: op, Code: ErrResource, Err: err}
	}
	n := &NIC{
		p: p, device: device, number: numbers.Add(1), addr: hashName(name), dials: semaphore.New(1),
		publishing: semaphore.New(1), peerBoxes: map[string]*sharedBox{},
		regions: map[Handle]*Memory{}, shared: map[*Memory]struct{}{}, vis: map[*VI]struct{}{}, cqs: map[*CompletionQueue]struct{}{},
		listeners: map[string]*Listener{}, conns: make([]*VI, maxVIs),
	}
	for i := range uint32(maxVIs) {
		n.freeSlots = append(n.freeSlots, maxVIs-1-i)
	}
	n.dispatcher = n.dispatch
	n.links.Store(new([]*link))
	n.ctx, n.end = context.WithCancel(context.Background())
	if err := n.newStatus(); err != nil {
		n.end()
		return nil, &Error{Op: op, Code: ErrResource, Err: err}
	}
	openNICs.add(n)
	return n, nil
}

func errNICClosed(op string) error { return fail(op, ErrInvalidParameter, "the NIC is closed") }

// Attributes are the NIC's limits (VipQueryNic). They never change.
//
// Experimental: it may change in any release.
func (n *NIC) Attributes() NICAttributes {
	return NICAttributes{
		Device: n.device, Address: n.addr, MaxDiscriminator: maxDiscriminator,
		MaxRegions: maxRegions, MaxVIs: maxVIs, MaxDescriptors: maxDescriptors,
		MaxSegments: maxSegments, MaxCompletionQueues: maxCQs, MaxCompletionEntries: maxCQEntries,
		MaxTransferSize: maxTransfer, NativeMTU: maxFragment, MaxTags: maxTags, Levels: allLevels,
	}
}

// OnError sets what is called for each asynchronous error (VipErrorCallback); nil restores the
// default, which logs by [slog.Default]. The calls are made one after another, by a goroutine of
// the NIC, in one order with those of Notify handlers. A handler may call this package, but not [NIC.Close].
// So OnError waits for no call: one of the earlier handler that has begun goes on, and all later errors are
// told to h. The earlier one is not running any more when Close has returned.
//
// Experimental: it may change in any release.
func (n *NIC) OnError(h func(AsyncError)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.onError = h
}

// raise has an asynchronous error told. mu is held.
func (n *NIC) raise(e AsyncError) {
	e.NIC = n
	n.enqueue(call{failure: e})
}

// logError is the error handler of a NIC that has no other.
func logError(e AsyncError) {
	slog.Warn("via: asynchronous error", "code", e.Code.String(), "cause", e.Err)
}

// Close closes the NIC (VipCloseNic) with all that it has: VIs are disconnected and destroyed,
// listeners closed, calls that wait return. The other ends of its VIs go to state Error. Close
// waits for handlers and must not be called in one. Regions that peers have used directly are taken
// away as by [Memory.Deregister], which goes on where Close has failed to. The second call returns
// [ErrInvalidParameter].
//
// Experimental: it may change in any release.
func (n *NIC) Close() error {
	const op = "close a NIC"
	if vmmc.InHandler() {
		return &Error{Op: op, Code: ErrInvalidState, Err: vmmc.ErrNotInHandler}
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return errNICClosed(op)
	}
	n.closed = true
	listeners := make([]*Listener, 0, len(n.listeners))
	for _, l := range n.listeners {
		listeners = append(listeners, l)
	}
	n.mu.Unlock()
	var err error
	for _, l := range listeners { // no link is made after that
		err = errors.Join(err, l.Close())
	}
	n.end()
	_ = n.dials.Acquire(context.Background()) // none is being dialled any more
	n.dials.Release()
	n.mu.Lock()
	for vi := range n.vis {
		vi.disconnect()
		vi.destroy()
	}
	for c := range n.cqs {
		c.destroy()
	}
	links := *n.links.Load()
	for _, l := range links {
		l.finish(nil)
	}
	n.mu.Unlock()
	n.wg.Wait()
	n.closeStatus()
	openNICs.remove(n) // nothing that arrives is stored any more
	defer n.lockToRevoke()()
	for m := range n.shared {
		err = errors.Join(err, m.closeShare(op))
	}
	return err
}

// linkList returns the links.
func (n *NIC) linkList() []*link { return *n.links.Load() }

// looking is one goroutine in hasNews, in the low half of NIC.looks. The high half counts the calls:
// while it grows the program polls.
const looking = 1

// hasNews reports whether a peer has sent something that was not taken yet. mu need not be held:
// a link's memory stays until no goroutine is looking.
func (n *NIC) hasNews() bool {
	n.looks.Add(1<<32 + looking)
	news := false
	for _, l := range n.linkList() {
		if l.hasNews() {
			news = true
			break
		}
	}
	n.looks.Add(^uint64(looking - 1))
	return news
}

// polls counts calls of hasNews, and polls outside of Go.
func (n *NIC) polls() uint32 {
	c := uint32(n.looks.Load() >> 32)
	if n.reader != nil {
		c += n.reader.Polls()
	}
	return c
}

// awaitLookers returns when no goroutine can see a link that was taken from the list.
func (n *NIC) awaitLookers() {
	for uint32(n.looks.Load()) != 0 {
		runtime.Gosched()
	}
}

// progress takes what has arrived. mu is held.
func (n *NIC) progress() {
	for _, l := range n.linkList() {
		if l.hasNews() {
			l.progress()
		}
	}
}

// waitList is goroutines that wait for something. Guarded by NIC.mu.
type waitList []*waiter

type waiter struct {
	c     chan struct{}
	n     *NIC        // while it polls
	found func() bool // reports whether it need not poll any more. Here it is not allocated each time.
}

var waiters = sync.Pool{New: func() any {
	w := &waiter{c: make(chan struct{}, 1)}
	w.found = func() bool { return len(w.c) > 0 || w.n.hasNews() }
	return w
}}

// wake lets all waiters look again.
func (l *waitList) wake() {
	for i, w := range *l {
		w.c <- struct{}{} // it is in one list, once
		(*l)[i] = nil
	}
	*l = (*l)[:0]
}

// A waiter looks for some 50 µs of its own time before it sleeps, as waits of package vmmc do
// (docs/decisions/0001). It counts its looks, not the clock: a waiter that was not run for a while
// would sleep at once then, and both sides would wake each other for each message.
//
// To be woken takes longer than that. So two sides that have begun to sleep would do so for each
// message: after some sleeps that were short one wait looks for longer, which finds the answer.
const (
	spinRounds = 64
	spinLooks  = 16 // between yields
	longSpin   = 5 * spinRounds
	shortSleep = time.Millisecond
	longEvery  = 4 // short sleeps
)

// sleep returns when something has arrived, or the list was woken, or with an error when the context
// has ended. mu is held at its call and its return, and not meanwhile.
func (n *NIC) sleep(ctx context.Context, op string, list *waitList) error {
	if ctx.Err() != nil {
		return contextError(ctx, op)
	}
	w := waiters.Get().(*waiter)
	*list = append(*list, w)
	n.mu.Unlock()
	pair.At("sleep")
	woken, err := n.spin(w), error(nil)
	if !woken && !n.hasNews() {
		n.sleepers.Add(1)
		for _, l := range n.linkList() {
			l.attend()
		}
		start := time.Now()
		select {
		case <-w.c:
			woken = true
		case <-ctx.Done():
			err = contextError(ctx, op)
		}
		n.sleepers.Add(-1)
		if time.Since(start) < shortSleep {
			n.shortSleeps.Add(1)
		} else {
			n.shortSleeps.Store(0)
		}
	}
	n.mu.Lock()
	if !woken {
		list.remove(w)
	}
	waiters.Put(w)
	return err
}

// remove takes a waiter out of the list, or its wake-up out of its channel.
func (l *waitList) remove(w *waiter) {
	for i, o := range *l {
		if o == w {
			last := len(*l) - 1
			(*l)[i], (*l)[last] = (*l)[last], nil
			*l = (*l)[:last]
			return
		}
	}
	<-w.c
}

// spin polls for a while. It reports whether the waiter was woken.
func (n *NIC) spin(w *waiter) bool {
	if n.streams.Load() {
		// The polling of package vmmc receives from connections, too. It does not look at its context.
		w.n = n
		_ = n.p.WaitUntil(pair.NoWait, w.found)
		w.n = nil
		select {
		case <-w.c:
			return true
		default:
			return false
		}
	}
	rounds := spinRounds
	if n.shortSleeps.Load()%longEvery == longEvery-1 {
		rounds = longSpin
	}
	for range rounds {
		for range spinLooks {
			select {
			case <-w.c:
				return true
			default:
			}
			if n.hasNews() {
				return false
			}
		}
		runtime.Gosched()
	}
	return false
}

// String names the NIC in logs.
func (n *NIC) String() string { return fmt.Sprintf("%s of %v", n.device, n.p.ID()) }
