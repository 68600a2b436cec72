package link

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Eager is the longest message, in bytes, whose send returns once the kernel
// has it. The source is free then; longer ones return when they are acknowledged.
const Eager = 64 << 10

// AppliedUnknown replaces the number of the last applied message where the importer learns of an
// import's end from a refusal.
const AppliedUnknown = math.MaxUint64

// Requester is the importing side of a link. All its methods may be called concurrently.
type Requester struct {
	stream
	pages *Pages // nil between nodes

	sendSem *semaphore.Semaphore // Admits one synchronous sender at a time.

	// Guards inbox, which asynchronous messages enter. swapInbox moves all of them to queue at
	// once, so enqueuing a message never waits for a write. Taken after tmu.
	inboxMu sync.Mutex
	inbox   fifo[outgoing]
	// The next holder of tmu, or the background goroutine, empties inbox. Stored under inboxMu.
	inboxReady atomic.Bool
	queuedOps  atomic.Int32 // Length of inbox and queue. Grows under inboxMu.

	queue fifo[outgoing] // Guarded by tmu.
	// A synchronous message is between its chunks. Guarded by tmu.
	midMessage bool
	// Asynchronous operations that could not be queued yet.
	backlog backlog
	// In the bulk batch: long messages in inbox wait to be coalesced. Stored under batch.mu.
	inBulkBatch atomic.Bool
	// In the batch list, waiting to be coalesced. Stored under batch.mu.
	inBatch atomic.Bool

	// Last message that is wholly in frames. Grows under tmu.
	writtenSeq atomic.Uint64
	// An acknowledgement of all messages up to here was requested. Guarded by tmu.
	ackRequested uint64
	// An acknowledgement is to be requested once this message is written. Guarded by tmu.
	ackWanted uint64
	inFlight  pacing.InFlight // Guarded by tmu.

	// lastSeq is the last message begun, stored under inboxMu. ackedSeq is the last one applied by
	// the exporter, stored by the receiver. They are equal when nothing is in flight, which mapped
	// sends check.
	lastSeq  atomic.Uint64
	ackedSeq atomic.Uint64
	ackEvent wait.EventCount // Advances with ackedSeq.

	fetches fetchTable

	// Keeps serials in the order of the ring's entries.
	notifyMu        sync.Mutex
	lastSerial      uint32
	creditsTaken    atomic.Uint32 // Total of credits taken.
	creditsReturned atomic.Uint32 // Total of credits returned over the stream.
	// A cached total of returned credits, at most the true one: reading the exporter's word costs a
	// cache miss.
	creditsSeen atomic.Uint32

	hasFaults atomic.Bool // faults is not empty. Stored under tmu.
	// The most recent messages that were aborted by a fault. Guarded by tmu.
	faults []sendFault

	imports   importRequests
	tailProbe tailProbe

	// Guarded by tmu, as all fields down to pendingDetaches.
	unacked sendBuffer
	// The highest message that was ever wholly in frames.
	maxWrittenSeq uint64
	// Messages up to maxWrittenSeq that are sent again, oldest first.
	retransmits     []retransmission
	pendingDetaches []pendingDetach // The most recent closed imports.
	// Writing is paused until a message is acknowledged.
	ackBlocked atomic.Bool

	repliedSeq  uint64 // The last get or atomic that was answered. Guarded by rmu.
	revokesSeen uint32 // Notices of revoked imports received. Guarded by rmu.
	redialer    redialer

	onRevoke func(handle uint32, applied uint64, err error)
	onLost   func(err error)
}

// NewRequester starts the importing side on a connected socket, which it owns from then on. pages
// is nil between nodes; terms is zero within a node. The engine calls onRevoke and onLost, which
// must not block. onRevoke's applied is the last message that was applied while the export lived,
// or AppliedUnknown.
func NewRequester(
	e *Engine, fd int, pages *Pages, terms Terms,
	onRevoke func(handle uint32, applied uint64, err error), onLost func(error),
) (*Requester, error) {
	rq := &Requester{pages: pages, sendSem: semaphore.New(1), onRevoke: onRevoke, onLost: onLost}
	rq.backlog.rq, rq.imports.rq, rq.tailProbe.rq, rq.redialer.rq = rq, rq, rq, rq
	rq.importing = true
	rq.setTerms(terms)
	rq.rx.mayFault = true // answers are stored in memory of the caller
	rq.redialer.redial, rq.redialer.attempts, rq.unacked.copies.Pool = terms.Redial, 1, &e.segmentPool
	if err := rq.start(e, fd, rq, pages != nil); err != nil {
		pages.retire()
		return nil, err
	}
	return rq, nil
}

// Sever ends the link with the given cause.
func (rq *Requester) Sever(why error) {
	rq.ExpectEnd(why)
	rq.fail(why)
}

// Drain ends a link whose peer process is gone or taken for gone (docs/models/gone.pml). Data that
// the process sent is received first, until the connection ends, nothing arrives for timeout.Drain,
// or timeout.Drained has passed. Drain returns at once and may be called under any lock. why is
// [ErrGone] too.
func (rq *Requester) Drain(why error) { rq.drain(why, func() {}) }

// Err returns why the link has ended, or nil.
func (rq *Requester) Err() error { return rq.err() }

// Ended returns the flag that is set once Err returns an error. Waiters are woken when it is set.
func (rq *Requester) Ended() *atomic.Bool { return &rq.failed }

// AckedSeq returns the last message that the exporter has applied or refused.
func (rq *Requester) AckedSeq() uint64 { return rq.ackedSeq.Load() }

// Detach tells the exporter that an import was closed.
func (rq *Requester) Detach(handle uint32) {
	if rq.err() != nil {
		return
	}
	h := wire.Header{Type: wire.Detach, Handle: handle}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	if rq.reconnectLimit > 0 {
		acked := rq.ackedSeq.Load()
		rq.pendingDetaches = slices.DeleteFunc(rq.pendingDetaches, func(d pendingDetach) bool { return d.afterSeq < acked })
		rq.pendingDetaches = append(rq.pendingDetaches, pendingDetach{handle, rq.maxWrittenSeq})
		// retransmitDone sends it after the retransmitted messages
		if len(rq.retransmits) > 0 || rq.disconnected() {
			return
		}
	}
	rq.tx.control = append(rq.tx.control, h)
	rq.pump()
}

// Import asks the exporter to let this process import buffer id. ok reports whether it does.
// Otherwise the nodes must be asked, which may know the reason, or wait. The caller owns the
// descriptor, which is -1 unless the grant is mapped.
func (rq *Requester) Import(ctx context.Context, id uint32) (g wire.Granted, fd int, ok bool) {
	return rq.imports.ask(ctx, id)
}

// WaitApplied waits until the exporter has applied all that this process sent on the link so far,
// deferred operations included. It fails with [ErrEnded] once closed is true, which may be nil.
func (rq *Requester) WaitApplied(ctx context.Context, closed *atomic.Bool) error {
	if err := rq.backlog.wait(ctx, closed); err != nil {
		return err
	}
	return rq.waitAcked(ctx, closed, rq.lastSeq.Load())
}

// AllApplied reports whether [Requester.WaitApplied] would return at once, without an error.
func (rq *Requester) AllApplied() bool {
	return !rq.backlog.busy() && rq.ackedSeq.Load() >= rq.lastSeq.Load()
}

// await waits until ready is true, of which event tells. own is the stream to write on meanwhile,
// or nil. ended, which may be nil, is set when the caller's import has ended; it wakes the engine.
func (rq *Requester) await(
	ctx context.Context, ended *atomic.Bool, event *wait.EventCount, own *stream, ready func() bool,
) error {
	for {
		tick := event.Load()
		if ready() {
			return nil
		}
		if err := rq.waiterError(ended); err != nil {
			return err
		}
		if err := rq.e.wait(ctx, &wait.Cond{Word: event.Word(), Old: tick, Failed: &rq.failed, Ended: ended, LocalOnly: true}, own); err != nil {
			return err
		}
	}
}

// waiterError returns why a call has nothing to wait for, or nil.
func (rq *Requester) waiterError(ended *atomic.Bool) error {
	if err := rq.err(); err != nil {
		return err
	}
	if ended != nil && ended.Load() {
		return ErrEnded
	}
	return nil
}

// waitAcked waits until message seq is acknowledged. ended is as in await.
func (rq *Requester) waitAcked(ctx context.Context, ended *atomic.Bool, seq uint64) error {
	for {
		tick := rq.ackEvent.Load()
		if rq.ackedSeq.Load() >= seq {
			return nil
		}
		if err := rq.waiterError(ended); err != nil {
			return err
		}
		rq.requestAckOf(seq)
		if err := rq.e.wait(ctx, &wait.Cond{Word: rq.ackEvent.Word(), Old: tick, Failed: &rq.failed, Ended: ended, LocalOnly: true}, &rq.stream); err != nil {
			return err
		}
	}
}

// nothingPending reports whether nothing on the stream is outstanding.
func (rq *Requester) nothingPending() bool {
	return rq.lastSeq.Load() == rq.ackedSeq.Load() && rq.fetches.count.Load() == 0
}

// messageFramed records that message seq is wholly in frames, and whether its frame requests an
// acknowledgement. It is called before the last frame can be answered. The caller holds tmu.
func (rq *Requester) messageFramed(seq uint64, acks bool) {
	if invariant.Enabled {
		rq.checkWritten(seq)
	}
	if rq.tx.firstBorrowedSeq.Load() == 0 {
		rq.tx.firstBorrowedSeq.Store(seq)
	}
	rq.writtenSeq.Store(seq)
	rq.maxWrittenSeq = max(rq.maxWrittenSeq, seq)
	if acks {
		rq.ackRequested = seq
	}
	if rq.ackWanted > 0 && rq.ackWanted <= seq {
		rq.ackWanted = 0
		if !acks {
			rq.requestAck()
		}
	}
}

// fullySent reports whether message seq is wholly in frames and its memory no longer used. Other
// messages cannot have arrived, whatever the exporter says. A sender of long messages holds tmu
// nearly all the time, so fullySent takes it only where payload may be unwritten: firstBorrowedSeq
// is stored before writtenSeq and loaded after it.
func (rq *Requester) fullySent(seq uint64) bool {
	if seq <= rq.writtenSeq.Load() {
		if l := rq.tx.firstBorrowedSeq.Load(); l == 0 || seq < l {
			return true
		}
	}
	rq.tmu.Lock()
	defer rq.tmu.Unlock()
	return seq <= rq.writtenSeq.Load() && seq < rq.tx.firstBorrowed()
}

func (rq *Requester) requestAck() {
	if rq.needsProbes {
		rq.tailProbe.schedule()
	}
	rq.ackRequested = rq.writtenSeq.Load()
	rq.tx.control = append(rq.tx.control, wire.Header{Type: wire.Ping})
}

// requestAckOf requests, once, an acknowledgement of message seq. If seq is still queued, the
// request follows when it is written, because a ping goes before queued messages.
func (rq *Requester) requestAckOf(seq uint64) {
	rq.e.markHot(&rq.stream)
	rq.tmu.Lock()
	switch {
	case rq.writtenSeq.Load() < seq:
		rq.ackWanted = max(rq.ackWanted, seq)
	case rq.ackRequested < seq:
		rq.requestAck()
	}
	left := rq.tryFlush()
	rq.tmu.Unlock()
	if left { // the caller waits, as a rule
		rq.e.watchdog.expedite()
	}
}

// takeCredit takes a notification credit and waits for one if necessary. It holds no lock that data
// or acknowledgements need.
func (rq *Requester) takeCredit(ctx context.Context, ended *atomic.Bool) error {
	if t := rq.creditsTaken.Load(); t-rq.creditsSeen.Load() < shmlayout.Credits &&
		rq.creditsTaken.CompareAndSwap(t, t+1) {
		return nil
	}
	back := rq.creditsWord()
	for {
		r := back.Load()
		t := rq.creditsTaken.Load()
		if t-r < shmlayout.Credits {
			if rq.creditsTaken.CompareAndSwap(t, t+1) {
				rq.creditsSeen.Store(r)
				return nil
			}
			continue
		}
		if back.Load() != r { // t is newer than r, so the two cannot be compared
			continue
		}
		if t-r > 2*shmlayout.Credits { // no honest exporter returns more credits than were taken
			rq.fail(protocol("%d notification credits returned, %d taken", r, t))
		}
		if err := rq.err(); err != nil {
			return err
		}
		if ended != nil && ended.Load() {
			return ErrEnded
		}
		if rq.pages != nil { // the exporter completes ring entries that run no handler
			rq.ringBell()
		}
		if InHandler() { // two handlers could wait for each other for ever
			return ErrNoCredit
		}
		given := func() bool { return rq.creditsTaken.Load() != t } // untakeCredit has returned one
		rq.tailProbe.addCreditWaiters(1)
		err := rq.e.Wait(ctx, wait.Cond{Word: back, Old: r, Until: given, Failed: &rq.failed, Ended: ended})
		rq.tailProbe.addCreditWaiters(-1)
		if err != nil {
			return err
		}
	}
}

// creditsWord returns the total of returned credits: a word in the exporter's page, or the total
// received over the stream.
func (rq *Requester) creditsWord() *atomic.Uint32 {
	if rq.pages != nil {
		return rq.pages.Back.Returned()
	}
	return &rq.creditsReturned
}

func (rq *Requester) untakeCredit(notify bool) {
	if notify {
		rq.creditsTaken.Add(^uint32(0))
		rq.e.sleepers.Wake()
	}
}

func (rq *Requester) nextSerial() uint32 {
	rq.notifyMu.Lock()
	rq.counters.AddLocked(shmlayout.Notifications, 1)
	rq.lastSerial++
	n := rq.lastSerial
	if invariant.Enabled {
		rq.checkSerial()
	}
	rq.notifyMu.Unlock()
	return n
}

// checkFrame checks a frame of the exporter.
func (rq *Requester) checkFrame(h *wire.Header) error {
	switch h.Type {
	case wire.Ack, wire.Nak, wire.Bell, wire.Revoke, wire.Grant:
		return nil
	case wire.Reply:
		return rq.checkReply(h)
	case wire.Result:
		return rq.checkResult(h)
	case wire.Bye:
		return rq.byeError(h)
	}
	return protocol("the exporter sent a frame of type %d", h.Type)
}

func (rq *Requester) handleFrame(h *wire.Header) error {
	switch h.Type {
	case wire.Ack:
		if !rq.fullySent(h.Ack) || h.Ack < rq.ackedSeq.Load() {
			return protocol("acknowledged %d, sent %d, acknowledged before %d", h.Ack, rq.writtenSeq.Load(), rq.ackedSeq.Load())
		}
		rq.ackedSeq.Store(h.Ack)
		rq.counters.AddLocked(shmlayout.Acks, 1)
		if invariant.Enabled {
			rq.checkAcked()
		}
		rq.creditsReturned.Store(h.Credits)
		rq.ackEvent.Advance()
		if rq.ackBlocked.Load() {
			rq.ackBlocked.Store(false)
			rq.pumpNow()
			rq.tx.writeEvent.Advance()
		}
	case wire.Nak:
		return rq.handleNak(h)
	case wire.Revoke:
		if h.Serial > rq.revokesSeen {
			rq.revokesSeen = h.Serial
		}
		rq.onRevoke(h.Handle, min(h.Ack, rq.lastSeq.Load()), refusal(h.Word))
	case wire.Reply:
		rq.handleReply(h)
	case wire.Result:
		rq.handleResult(h)
	case wire.Grant:
		return rq.imports.handleGrant(h)
	}
	return nil
}

func (rq *Requester) inboxDue() bool { return rq.inboxReady.Load() }

func (rq *Requester) bulkInFlight() bool { return rq.tx.lastBulkSeq.Load() > rq.ackedSeq.Load() }

func (rq *Requester) batchReceived(bool, bool) bool { return false }

func (rq *Requester) finalFrame(*wire.Header) bool { return false }

func (rq *Requester) discardAll(err error) {
	rq.tmu.Lock()
	rq.inboxMu.Lock()
	rq.queue, rq.inbox, rq.midMessage = fifo[outgoing]{}, fifo[outgoing]{}, false
	rq.queuedOps.Store(0)
	rq.inboxMu.Unlock()
	rq.e.batch.dropBulk(rq)
	rq.retransmits, rq.pendingDetaches = nil, nil
	rq.unacked.trim(math.MaxUint64)
	rq.tmu.Unlock()
	// after inboxMu: addFetch runs under inboxMu, so a later fetch sees the link's end, and an
	// earlier one is in the table
	rq.fetches.failAll(err)
}

func (rq *Requester) linkClosed(err error) {
	rq.backlog.close()
	rq.ackEvent.Advance()
	rq.fetches.event.Advance()
	rq.tx.writeEvent.Advance()
	rq.onLost(err)
	rq.pages.retire()
}
