package mpi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
)

// Wildcards of receives.
const (
	AnySource = -1
	AnyTag    = -2
)

// Engine is what a rank has of MPI: its match queues, its requests, and the other ranks. Its
// methods may be called concurrently.
type Engine struct {
	p          *vmmc.Process
	g          *group.Group
	ids        []vmmc.ProcessID // by rank; set by connect, empty in a job without a group
	rank, size int
	modules    []Module
	gone       func(rank int, err error)
	polling    bool       // reports whether some ports are worth to poll
	words      bool       // reports whether words tell of packets of some of these
	awaiters   []*awaiter // of the modules that are in use
	callees    []Module   // that are in use
	// Those whose ports can have news, and of these the ports that are worth to poll. Stored under mu: see
	// activate.
	active     atomic.Pointer[[]*peer]
	polled     atomic.Pointer[[]Port]
	connecting chan struct{} // has room for a port that connects
	deaf       func()        // ends the group's calls of noteDeath

	// Which goroutine notices what:
	//   - A packet that arrives is taken by a waiter that polls. When waiters have polled since the
	//     progress goroutine last looked, and none is parked, that goroutine sleeps for lookAgain, so
	//     that it does not take the packet from the waiters. It takes what they have left.
	//   - A waiter that stops polling waits for the words of all rings itself, if no other one does: it
	//     has set looking. It also notices that a rank has ended. The progress goroutine sleeps
	//     meanwhile, and without a time limit when waiters have not polled for lookAgain. It sets idle
	//     then, and looks at looking again. The waiter clears looking, and then looks at idle and at
	//     parked, and wakes that goroutine if it must take over (stopLooking).
	//   - In all other cases the progress goroutine waits for the words of all rings, and takes what
	//     arrives. A waiter that parks ends the sleep: it counts itself in parked, and then looks at
	//     timed (attend). The progress goroutine sets timed, and then looks at parked. So at least
	//     one of the two sees the other.
	//   - Waiters that poll do not notice that a rank has ended. The progress goroutine does: at once
	//     while it waits for words, and each lookAgain otherwise, but for the case above.
	//   - No words tell of the packets of a module that is an Awaiter. Waiters that poll have it step. A
	//     goroutine for each such module takes what arrives otherwise. It sleeps for lookAgain when
	//     waiters have polled since it last looked, and none is parked or looking (await). Waiters of
	//     its packets do not look, unless the words of other modules are worth to poll.
	//   - release sets ending, and then waits until pollers is 0. A waiter that polls counts itself in
	//     pollers, and then looks at ending. So none reads words of a ring that is closed.
	polls   atomic.Uint32 // how often waiters have polled
	pollers atomic.Int32  // waiters that are polling: they read the rings' words without the lock
	ending  atomic.Bool   // reports whether the words must not be read any more
	parked  atomic.Int32  // waiters that do not poll
	looking atomic.Bool   // reports whether a waiter waits for the words of all rings
	idle    atomic.Bool   // reports whether the progress goroutine sleeps until that one wakes it
	timed   atomic.Bool   // reports whether the progress goroutine sleeps for lookAgain, or is about to
	wakeUp  chan struct{} // ends that sleep

	mu        sync.Mutex // The lock of all that follows, and of what the peers and requests have.
	q         queues
	peers     []*peer // by rank; the own one has no port
	requests  []slot
	freed     []uint32            // slots of requests that are over
	pool      []*Request          // of calls that have returned
	waiters   []*waiter           // that are not in use
	probers   []*Request          // probes that wait
	dead      int                 // ranks that are gone
	failed    []int               // these, in the order in which this rank has noticed it
	revoked   map[uint64]struct{} // communicators, by their contexts
	untold    []*peer             // those of which the program is told if Finish gives up
	finishing bool                // reports whether ranks that end are no failure
	finished  bool                // reports whether the other ranks do not need this one any more
	searching bool                // reports whether search was called
	watching  context.Context     //nolint:containedctx // of the wait for the words of active
	rewatch   context.CancelFunc  // ends watching
	closed    bool

	ctx  context.Context //nolint:containedctx // ends with the engine
	stop context.CancelFunc
	run  sync.WaitGroup

	bufferSize, buffered int // of buffered sends: attached, and in use
	bufferFree           chan struct{}
	contexts             uint32 // of communicators that this rank leads
}

// peer is another rank, or this one.
type peer struct {
	e      *Engine
	rank   int
	name   string // the process
	port   Port
	module string      // its name
	wanted bool        // reports whether port.Want was called for a request
	err    error       // why it is gone
	gone   atomic.Bool // reports whether err is set, for those that do not have the lock

	sent  uint32 // cells of eager messages that were sent to it
	acked uint32 // of these, cells that it has matched
	held  uint32 // cells here of unexpected messages that it has sent
	freed uint32 // cells of messages of its that were matched
	told  uint32 // freed when it was told

	asked  int // envelopes without data that were sent to it, and that it has not answered
	askers int // such envelopes of its that this rank has not answered

	notices []notice // revocations that wait for room: they leave before all else
	pings   int      // that it has not answered
	pongs   int      // answers to pings of its that have not left

	control []Header   // packets without payload that wait for room
	queue   []*Request // sends whose envelope has not left, in order
	streams []*Request // sends whose data has not left
	h       Header     // what is being sent
}

// Options are those of an engine.
type Options struct {
	// Module is "shm", "tcp", "via", or "" for the best one of each pair of ranks. Two of them, with a
	// comma between, are one for the ranks of a node, and one for those of different nodes.
	Module string
	// Gone is called for each rank that is gone without Finish, on a goroutine of its own.
	Gone func(rank int, err error)
}

// Start makes a rank of each member of the group. It is a collective of the group. Without a process
// and a group it makes a job of one rank, which needs no node.
func Start(ctx context.Context, p *vmmc.Process, g *group.Group, o Options) (_ *Engine, err error) {
	e := &Engine{p: p, g: g, size: 1, gone: o.Gone, wakeUp: make(chan struct{}, 1), connecting: make(chan struct{}, connectsAtOnce)}
	e.active.Store(new([]*peer))
	e.polled.Store(new([]Port))
	if g != nil {
		e.rank, e.size = g.Rank(), g.Size()
	}
	chosen, err := choose(o.Module)
	if err != nil {
		return nil, err
	}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.watching, e.rewatch = context.WithCancel(e.ctx)
	e.revoked = map[uint64]struct{}{}
	e.modules = []Module{
		newRingModule(e, moduleNames[moduleShm], true), newRingModule(e, moduleNames[moduleTCP], false), newViaModule(e),
	}
	e.requests = make([]slot, 1) // index 0 is none
	defer func() {
		if err != nil {
			err = errors.Join(err, e.release())
		}
	}()
	if err := e.q.init(p, e.size); err != nil {
		return nil, &Error{ErrOther, "", err}
	}
	if err := e.connect(ctx, chosen); err != nil {
		return nil, err
	}
	for _, a := range e.awaiters {
		e.run.Go(func() { e.await(a) })
	}
	e.run.Go(e.progress)
	if g != nil {
		e.deaf = g.OnGone(e.noteDeath)
	}
	return e, nil
}

// Rank is this rank's number in the job.
func (e *Engine) Rank() int { return e.rank }

// Size is the number of ranks of the job.
func (e *Engine) Size() int { return e.size }

// Module is the name of the module that this rank uses with another one: "self" with itself.
func (e *Engine) Module(rank int) string {
	if name := e.peers[rank].module; name != "" {
		return name
	}
	return "self"
}

// Node is the node of a rank. A job without a group has the zero node.
func (e *Engine) Node(rank int) vmmc.NodeID {
	if e.g == nil {
		return vmmc.NodeID{}
	}
	return e.g.Node(rank)
}

// Process is the process of this rank, nil in a job without a group.
func (e *Engine) Process() *vmmc.Process { return e.p }

// Import imports a buffer of a rank. It is that of the group, but for the import of the rank's block
// by which the group finds its process: at the start that would be an import more for each pair of
// ranks.
func (e *Engine) Import(ctx context.Context, rank int, id uint32) (*vmmc.Import, error) {
	im, err := e.p.Import(ctx, e.ids[rank].Node, e.ids[rank].PID, id)
	if errors.Is(err, vmmc.ErrNoSuchProcess) || errors.Is(err, vmmc.ErrPeerGone) {
		err = fmt.Errorf("%w: %w", group.MemberGoneError{Rank: rank}, err)
	}
	return im, err
}

// NewContext returns a context that no rank has got before. The next one is the communicator's too.
func (e *Engine) NewContext() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.contexts++
	return uint64(e.rank)<<33 | uint64(e.contexts)<<1
}

// Stats are figures of an engine, for tests and tools.
type Stats struct {
	Posted, Unexpected int // entries of the match queues
	Requests           int // that are not over
	Cells              int // that hold payloads
	Chunks             int // of the match queues
}

// Stats returns the figures.
func (e *Engine) Stats() (s Stats) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Posted, s.Unexpected, s.Chunks = e.q.length[0], e.q.length[1], len(e.q.chunks)
	for _, pr := range e.peers {
		s.Cells += int(pr.held)
	}
	for _, o := range e.requests {
		if o.r != nil {
			s.Requests++
		}
	}
	return s
}
