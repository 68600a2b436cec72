package mpi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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

// offer is what ranks tell each other first.
type offer struct {
	Version uint32
	Forced  uint32
	PID     uint32 // of the process, on the rank's node
	IDs     [len(moduleNames)]uint32
}

const version = 5

// Options are those of an engine.
type Options struct {
	// Module is "shm", "tcp", "via", or "" for the best one of each pair of ranks. Two of them, with a
	// comma between, are one for the ranks of a node, and one for those of different nodes.
	Module string
	// Gone is called for each rank that is gone without Finish, on a goroutine of its own.
	Gone func(rank int, err error)
}

var moduleNames = [...]string{"shm", "tcp", "via"}

// The modules' places in that list.
const (
	moduleShm = iota
	moduleTCP
	moduleVIA
)

// choice is which modules ranks use: those of the same node, and those of different ones.
type choice struct {
	near, far int
	forced    bool
}

// code is what ranks tell each other of their choices.
func (c choice) code() uint32 {
	if !c.forced {
		return 0
	}
	return uint32(1 | c.near<<8 | c.far<<16)
}

// choose takes what the option or the environment says.
func choose(module string) (choice, error) {
	if module == "" {
		return choice{near: moduleShm, far: moduleTCP}, nil
	}
	near, far, two := strings.Cut(module, ",")
	if !two {
		far = near
	}
	c := choice{slices.Index(moduleNames[:], near), slices.Index(moduleNames[:], far), true}
	if c.near < 0 || c.far < 0 {
		return c, Fail(ErrArg, "module", "there is no module %q: choose %q, or two of them as \"shm,via\"", module, moduleNames)
	}
	return c, nil
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

// connectsAtOnce bounds how many ports import something at a time.
const connectsAtOnce = 16

// uses returns which module a pair of ranks uses, by the node of the other one.
func (e *Engine) uses(rank int, c choice) int {
	if e.g.Node(rank) == e.p.Node() {
		return c.near
	}
	return c.far
}

// connect makes the ports of all other ranks.
func (e *Engine) connect(ctx context.Context, chosen choice) error {
	mine := offer{Version: version, Forced: chosen.code()}
	if e.size > 1 {
		mine.PID = uint32(e.p.ID().PID)
	}
	for rank := range e.size {
		pr := &peer{e: e, rank: rank}
		e.peers = append(e.peers, pr)
		if rank == e.rank {
			continue // it has no port
		}
		i := e.uses(rank, chosen)
		if i == moduleShm && e.g.Node(rank) != e.p.Node() {
			return Fail(ErrArg, "module", "rank %d is on node %v, which module shm does not reach: choose tcp, or none", rank, e.g.Node(rank))
		}
		if mine.IDs[i] == 0 {
			id, err := e.modules[i].Offer()
			if err != nil {
				return &Error{ErrOther, "", err}
			}
			mine.IDs[i] = id
		}
	}
	if e.size == 1 {
		return nil
	}
	all, err := group.Exchange(ctx, e.g, mine)
	if err != nil {
		return &Error{ErrOther, "", err}
	}
	for i, m := range e.modules {
		if mine.IDs[i] == 0 {
			continue
		}
		if a, ok := m.(Awaiter); ok {
			e.awaiters = append(e.awaiters, &awaiter{Awaiter: a, wakeUp: make(chan struct{}, 1)})
		}
		e.callees = append(e.callees, m)
	}
	e.ids = make([]vmmc.ProcessID, e.size)
	for rank, o := range all {
		e.ids[rank] = vmmc.ProcessID{Node: e.g.Node(rank), PID: vmmc.PID(o.PID)}
	}
	errs := make([]error, e.size)
	for rank, o := range all {
		if rank == e.rank {
			continue
		}
		if o.Version != version || o.Forced != mine.Forced {
			errs[rank] = Fail(ErrArg, "module", "rank %d has another version, or another module is forced there", rank)
			continue
		}
		errs[rank] = e.makePort(rank, e.uses(rank, chosen), o)
	}
	if err := errors.Join(errs...); err != nil {
		return &Error{ErrOther, "", err}
	}
	for _, pr := range e.peers {
		if pr.port != nil && pr.port.Polled() {
			e.polling = true
			_, awaits := e.modules[e.uses(pr.rank, chosen)].(Awaiter)
			e.words = e.words || !awaits
		}
	}
	// A rank that is first here may call another one before that looks: the call stays.
	return nil
}

func (e *Engine) makePort(rank, module int, o offer) error {
	pr := e.peers[rank]
	pr.name = e.ids[rank].String()
	pr.module = e.modules[module].Name()
	e.mu.Lock()
	defer e.mu.Unlock()
	port, err := e.modules[module].Connect(rank, o.IDs[module], pr)
	if err != nil {
		return fmt.Errorf("rank %d, module %s: %w", rank, pr.module, err)
	}
	pr.port = port
	return nil
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

// GroupGone is the error of a group with a rank that is gone, or nil.
func (e *Engine) GroupGone(group []int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dead == 0 {
		return nil
	}
	return e.groupGone(group, nil)
}

// NewContext returns a context that no rank has got before. The next one is the communicator's too.
func (e *Engine) NewContext() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.contexts++
	return uint64(e.rank)<<33 | uint64(e.contexts)<<1
}

// lookAgain is how often the progress goroutine looks while waiters poll, and how often it looks for
// ranks that have ended while it has something else to do.
const lookAgain = time.Millisecond

// progress takes what arrives while no waiter polls, and notices that a rank has ended.
func (e *Engine) progress() {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	var ws []vmmc.Watch
	var of []*peer // nil: of a module
	looked := time.Now()
	for polls := e.polls.Load(); ; {
		e.mu.Lock()
		e.pollAll()
		if now := time.Now(); now.Sub(looked) >= lookAgain {
			looked = now
			e.failEnded()
		}
		ws, of = ws[:0], of[:0]
		for _, c := range e.callees {
			ws, of = append(ws, c.Bell()), append(of, nil)
		}
		for _, pr := range *e.active.Load() {
			if pr.err == nil {
				for _, w := range pr.port.Watches() {
					ws, of = append(ws, w), append(of, pr)
				}
			}
		}
		watching := e.watching
		e.mu.Unlock()
		if e.ctx.Err() != nil {
			return
		}
		if len(ws) == 0 {
			<-watching.Done()
			continue
		}
		e.timed.Store(true)
		now := e.polls.Load()
		if now == polls && e.looking.Load() {
			e.timed.Store(false)
			e.idle.Store(true)
			if e.looking.Load() {
				select {
				case <-e.wakeUp:
				case <-e.ctx.Done():
				}
			}
			e.idle.Store(false)
			continue
		}
		if now != polls && (e.looking.Load() || e.parked.Load() == 0) {
			polls = now
			timer.Reset(lookAgain)
			select {
			case <-timer.C:
			case <-e.wakeUp:
			case <-e.ctx.Done():
			}
			e.timed.Store(false)
			continue
		}
		e.timed.Store(false)
		i, err := e.p.WaitAny(watching, ws...)
		if err == nil || watching.Err() != nil {
			continue
		}
		e.mu.Lock()
		e.pollAll() // what has arrived before the end
		pr := of[max(0, min(i, len(of)-1))]
		if pr == nil { // this process has ended
			pr = of[len(of)-1]
		}
		if pr != nil {
			if why := pr.port.Err(); why != nil {
				err = why
			}
			pr.fail(err)
		}
		e.mu.Unlock()
		if pr == nil {
			<-watching.Done()
		}
	}
}

// stopLooking ends the waiter's wait for words. The progress goroutine takes over if it sleeps until
// then, or if other waiters depend on it.
func (e *Engine) stopLooking() {
	e.looking.Store(false)
	if e.idle.Load() || e.parked.Load() > 0 {
		e.wakeProgress()
	}
}

// news reports whether a packet has arrived, or a rank has called or ended.
func (e *Engine) news() bool {
	if e.rung() {
		return true
	}
	for _, pr := range *e.active.Load() {
		if !pr.gone.Load() && (pr.port.News() || pr.port.Ended()) {
			return true
		}
	}
	return false
}

// rung reports whether a rank has called.
func (e *Engine) rung() bool {
	for _, c := range e.callees {
		if c.Rung() {
			return true
		}
	}
	return false
}

// awaiter is a module of which a goroutine takes what arrives while no waiter polls.
type awaiter struct {
	Awaiter
	timed  atomic.Bool   // reports whether the goroutine sleeps for lookAgain, or is about to
	wakeUp chan struct{} // ends that sleep
}

// await takes the packets of a module that no words tell of.
func (e *Engine) await(a *awaiter) {
	timer := time.NewTimer(lookAgain)
	defer timer.Stop()
	for polls := e.polls.Load(); e.ctx.Err() == nil; {
		a.timed.Store(true)
		if now := e.polls.Load(); now != polls && e.parked.Load() == 0 && !e.looking.Load() {
			polls = now
			timer.Reset(lookAgain)
			select {
			case <-timer.C:
			case <-a.wakeUp:
			case <-e.ctx.Done():
			}
			a.timed.Store(false)
		} else {
			a.timed.Store(false)
			if err := a.Await(e.ctx); err != nil {
				return // the engine or the module ends
			}
		}
		e.mu.Lock()
		e.pollAll()
		e.failEnded()
		e.mu.Unlock()
	}
}

// attend has the goroutines of modules that are awaited take what arrives, and the progress goroutine
// wait for words, unless a waiter does.
func (e *Engine) attend() {
	for _, a := range e.awaiters {
		if a.timed.Load() {
			select {
			case a.wakeUp <- struct{}{}:
			default:
			}
		}
	}
	if e.timed.Load() && !e.looking.Load() {
		e.wakeProgress()
	}
}

func (e *Engine) wakeProgress() {
	select {
	case e.wakeUp <- struct{}{}:
	default:
	}
}

// spin polls mapped memory for a while, and reports whether the wait is over.
func (e *Engine) spin(done func() bool) bool {
	e.polls.Add(1)
	e.pollers.Add(1)
	defer e.pollers.Add(-1)
	if !e.ending.Load() && e.rung() { // once: calls are few
		e.mu.Lock()
		e.pollAll()
		e.mu.Unlock()
	}
	for i := 0; i < spins && !e.ending.Load(); i++ {
		for _, a := range e.awaiters {
			a.Step()
		}
		for _, port := range *e.polled.Load() {
			if port.News() {
				e.mu.Lock()
				e.pollAll()
				e.mu.Unlock()
				break
			}
		}
		if done() {
			return true
		}
	}
	return false
}

// All that follows is called with mu held.

// pollAll takes what has arrived, and sends what there is room for.
func (e *Engine) pollAll() {
	if e.closed {
		return
	}
	for _, a := range e.awaiters {
		a.Step()
	}
	for _, c := range e.callees {
		if c.Rung() {
			c.Answer()
		}
	}
	for _, pr := range *e.active.Load() {
		if pr.err != nil || !pr.port.News() {
			continue
		}
		if err := pr.port.Poll(); err != nil {
			pr.fail(err)
			continue
		}
		pr.pump()
	}
}

// failEnded fails the peers whose connection has ended, after it has taken what they had sent.
func (e *Engine) failEnded() {
	if e.closed {
		return
	}
	for _, pr := range *e.active.Load() {
		if pr.err != nil || !pr.port.Ended() {
			continue
		}
		if err := pr.port.Poll(); err != nil {
			pr.fail(err)
			continue
		}
		pr.fail(pr.port.Err())
	}
}

func (e *Engine) pumpAll() {
	if e.closed {
		return
	}
	for _, pr := range e.peers {
		pr.pump()
	}
}

// activate has the engine look at the port of a peer, and wait for its words.
func (e *Engine) activate(pr *peer) {
	active := append(slices.Clone(*e.active.Load()), pr)
	e.active.Store(&active)
	if pr.port.Polled() {
		polled := append(slices.Clone(*e.polled.Load()), pr.port)
		e.polled.Store(&polled)
	}
	e.rewatch()
	e.watching, e.rewatch = context.WithCancel(e.ctx)
}

// want has a peer's port connect.
func (pr *peer) want() {
	if pr.port != nil && pr.err == nil {
		pr.wanted = true
		pr.port.Want()
	}
}

// fail notes that a rank is gone: all that waits for it fails. Requests of a collective fail too if
// their own peer lives. That peer can still name them: they are abandoned.
func (pr *peer) fail(err error) {
	e := pr.e
	if pr.err != nil {
		return
	}
	pr.err = err
	pr.gone.Store(true)
	e.dead++
	if e.dead >= separators(e.size) {
		e.search()
	}
	e.failed = append(e.failed, pr.rank)
	switch {
	case e.gone == nil:
	case e.finishing: // it has ended as this rank is about to, unless Finish gives up
		e.untold = append(e.untold, pr)
	default:
		go e.gone(pr.rank, e.errGone(pr.rank))
	}
	pr.notices, pr.control, pr.queue, pr.streams = nil, nil, nil, nil
	if pr.port != nil && pr.port.Err() == nil { // it lives, and must not wait for this rank
		pr.port.Refuse()
	}
	e.q.each(unexpected, func(i uint32, n entry) {
		if n.rank() == pr.rank && n.kind() == entryRTS { // its data does not come any more
			e.q.remove(unexpected, i)
		}
	})
	for _, s := range e.requests {
		switch r := s.r; {
		case r == nil || !r.concerns(pr):
		case r.peer == pr:
			r.fail(e.errGone(pr.rank))
		default:
			r.abandon(e.errGone(pr.rank))
		}
	}
	for i := len(e.probers) - 1; i >= 0; i-- {
		if r := e.probers[i]; r.concerns(pr) {
			e.probers = append(e.probers[:i], e.probers[i+1:]...)
			r.finish(e.errGone(pr.rank))
		}
	}
}

// Finish waits until all ranks have called it, and ends the engine. What was sent before is
// received before, but for sends that were given up before a receive has matched them. It may be
// called again after an error of the context.
//
// Where a rank is gone, survivors waits until all others have called Finish. A rank that ends earlier
// would be gone for those that go on.
func (e *Engine) Finish(ctx context.Context, survivors func(ctx context.Context) error) error {
	for {
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			return Fail(ErrOther, "", "MPI is finalized already")
		}
		wait := slices.ContainsFunc(e.requests, func(s slot) bool { return s.r != nil && s.r.mustLeave() })
		e.mu.Unlock()
		if !wait {
			break
		}
		e.step()
		select {
		case <-ctx.Done():
			return canceled(ctx, "wait until all messages have left")
		case <-time.After(time.Millisecond):
		}
	}
	e.mu.Lock()
	e.finishing = true
	e.mu.Unlock()
	var err error
	if e.g != nil {
		err = e.g.Barrier(ctx)
	}
	if err != nil && ctx.Err() == nil && survivors != nil {
		_ = survivors(ctx) // the barrier's error is that of the call
	}
	if err != nil && ctx.Err() != nil {
		e.mu.Lock()
		e.finishing = false
		for _, pr := range e.untold {
			go e.gone(pr.rank, e.errGone(pr.rank))
		}
		e.untold = nil
		e.mu.Unlock()
		return canceled(ctx, "wait until all ranks have called Finalize")
	}
	if err != nil {
		err = &Error{ErrProcFailed, "", err}
	}
	e.mu.Lock()
	e.finished = true
	e.mu.Unlock()
	return errors.Join(err, e.release())
}

// mustLeave reports whether Finish waits for a request: a send to a living rank. No receive may ever
// match one that was given up, and the program has no request to cancel.
func (r *Request) mustLeave() bool {
	return r.kind == sending && !r.peer.lost() && (!r.abandoned || r.state != left)
}

// noteDeath is called by the group for a rank that has ended without Finish. A rank that this one is
// connected with is left to its port, which takes what the rank has sent before.
//
// A call may depend on a rank that it does not name: a receive from any rank, and a collective. The group
// tells all ranks of a death by a flood over its links, each rank's with ⌈log2 n⌉ others in both
// directions. That graph looks alike from each rank, so fewer deaths than separators leave it connected,
// and the flood reaches all that live. A rank that the flood does not reach is cut off by ranks that are
// dead: as many as separators, all of which it has heard of, because they have links with ranks that
// reach it. It then connects to all others, and finds those that are dead.
func (e *Engine) noteDeath(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	pr := e.peers[rank]
	if e.closed || pr.port == nil || pr.err != nil {
		return
	}
	err := fmt.Errorf("other ranks have found that it has ended: %w", group.MemberGoneError{Rank: rank})
	if pr.port.Lost(err) {
		pr.fail(err)
	}
}

// separators is how many ranks must be dead for the group's links to fall into parts, at least. In a
// connected graph of n nodes that looks alike from each of them, with d neighbours for each, it is
// 2(d+1)/3 (Watkins, Connectivity of transitive graphs, 1970).
func separators(n int) int {
	neighbours := map[int]bool{}
	for k := 1; k < n; k *= 2 {
		neighbours[k], neighbours[n-k] = true, true
	}
	return (2*(len(neighbours)+1) + 2) / 3
}

// search connects to all ranks.
func (e *Engine) search() {
	if e.searching || e.closed {
		return
	}
	e.searching = true
	for _, pr := range e.peers {
		pr.want()
	}
}

// resigning bounds how long a rank that ends without the others tells them.
const resigning = time.Second

// Abandon ends the engine without the other ranks, for which this one is gone. No other call of it may
// be under way.
func (e *Engine) Abandon() error { return e.release() }

// release ends the engine.
func (e *Engine) release() error {
	e.mu.Lock()
	resign := e.g != nil && !e.closed && !e.finished
	e.closed, e.finishing = true, true
	for _, s := range e.requests {
		if s.r != nil {
			s.r.fail(Fail(ErrRequest, "", "MPI is finalized"))
		}
	}
	for _, r := range e.probers {
		r.finish(Fail(ErrRequest, "", "MPI is finalized"))
	}
	e.probers = nil
	e.mu.Unlock()
	if e.deaf != nil {
		e.deaf()
	}
	if resign { // ranks that are not connected with this one do not see its exports end
		ctx, stop := context.WithTimeout(context.Background(), resigning)
		_ = e.g.Resign(ctx) // an error: they do not answer
		stop()
	}
	e.stop()
	e.run.Wait()
	e.ending.Store(true)
	for e.pollers.Load() > 0 {
		runtime.Gosched()
	}
	var errs []error
	for _, pr := range e.peers {
		if pr.port == nil {
			continue
		}
		e.mu.Lock()
		port := pr.port
		e.mu.Unlock()
		errs = append(errs, port.Close())
	}
	for _, m := range e.modules {
		errs = append(errs, m.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(append(errs, e.q.close())...)
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
