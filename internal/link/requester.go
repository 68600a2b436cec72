package link

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Eager is the longest message, in bytes, whose send returns once the kernel
// has it. The source is free then; longer ones return when they are acknowledged.
const Eager = 64 << 10

// AppliedUnknown is in place of the last message that was applied where an import's end
// is known from a refusal.
const AppliedUnknown = math.MaxUint64

// Requester is the importing side of a link. All its methods may be called
// concurrently.
type Requester struct {
	stream
	pages *Pages // nil between nodes

	sendSem *semaphore.Semaphore // one synchronous message at a time is put on the stream

	// Asynchronous messages not wholly written come into inbox, and from there all
	// at once into queue, so that beginning one never waits for a write.
	inboxMu    sync.Mutex // after tmu
	inbox      fifo[outgoing]
	inboxReady atomic.Bool  // whoever holds tmu next, or the background, looks into inbox; with inboxMu
	queuedOps  atomic.Int32 // those in both; grows with inboxMu

	queue       fifo[outgoing] // with tmu
	midMessage  bool           // a synchronous message is between its chunks, with tmu
	backlog     backlog        // asynchronous operations that could not be queued yet
	inBulkBatch atomic.Bool    // long ones wait for more in inbox; stored with batch.mu
	inBatch     atomic.Bool    // among those that wait for company; stored with batch.mu
	ended       atomic.Bool    // the link has ended, and no memory of a request is used any more

	writtenSeq   atomic.Uint64 // last message that is wholly in frames; grows with tmu
	ackRequested uint64        // up to here an acknowledgement was asked for, with tmu
	ackWanted    uint64        // and here one is to be asked for once it is written, with tmu
	inFlight     inFlightBytes // with tmu, too

	// lastSeq is the last message begun, written with inboxMu held; acked
	// the last one applied at the far end, written by the engine. They are
	// equal when nothing is under way, which mapped sends check.
	lastSeq  atomic.Uint64
	ackedSeq atomic.Uint64
	ackEvent wait.EventCount // moves with acked

	fetchMu    sync.Mutex      // last in the order of locks
	fetches    []*fetch        // asked for and not answered, oldest first
	fetchCount atomic.Int32    // their number
	fetchEvent wait.EventCount // moves when a get is answered
	rxFetch    *fetch          // whose payload is arriving; with rmu

	notifyMu        sync.Mutex // orders serials with the ring's entries
	lastSerial      uint32
	creditsTaken    atomic.Uint32 // credits taken, in all
	creditsReturned atomic.Uint32 // credits come back over the stream, in all
	creditsSeen     atomic.Uint32 // of the credits come back, those known here: the exporter's word is far away

	hasFaults atomic.Bool // there are any in faults; stored with tmu
	faults    []sendFault // messages whose memory could not be read, the last ones; with tmu

	imports  importRequests
	busyTime time.Duration // for which the tailProber have not looked at this, as somebody wrote; theirs alone

	unacked            sendBuffer // with tmu, as all that follows but full
	probeScheduled     bool       // among the engine's tailProber
	probedSeq          uint64     // what was written when they looked last
	silenceDetector    silenceDetector
	creditWaiters      int              // who wait for notification credits
	creditWaitTime     time.Duration    // that somebody has waited since credits came or were asked for
	lastCredits        uint32           // what had come by then
	creditProbePending bool             // they were, and nothing has come since
	maxWrittenSeq      uint64           // the last message that was ever wholly in frames
	retransmits        []retransmission // of messages up to top, oldest first
	pendingDetaches    []pendingDetach  // the last ones
	ackBlocked         atomic.Bool      // no more is written before something is acknowledged

	redial       Redial // with rmu, as all that follows
	attempts     uint64
	repliedSeq   uint64    // the last get or atomic that was answered
	revokesSeen  uint32    // of revoked imports
	progress     progress  // when the connection was lost last
	lateSince    time.Time // and since when there is no more
	wasWaiting   bool      // for something, then
	partialBytes uint64    // see progress
	replyBytes   uint64
	redialPause  time.Duration

	onRevoke func(handle uint32, applied uint64, err error)
	onLost   func(err error)
}

// NewRequester starts the importing side on a connected socket, which it owns from
// then on. pages is nil between nodes, and terms none within one. onRevoke and onLost are called from the
// engine; they must not block. onRevoke's applied is the last message that was
// applied while the export lived, or AppliedUnknown.
func NewRequester(e *Engine, fd int, pages *Pages, terms Terms, onRevoke func(handle uint32, applied uint64, err error), onLost func(error)) (*Requester, error) {
	rq := &Requester{pages: pages, sendSem: semaphore.New(1), onRevoke: onRevoke, onLost: onLost}
	rq.setTerms(terms)
	rq.rx.mayFault = true // answers go to memory that is a caller's
	rq.redial, rq.attempts, rq.unacked.pool = terms.Redial, 1, &e.segmentPool
	if err := rq.start(e, fd, rq, pages != nil); err != nil {
		pages.retire()
		return nil, err
	}
	return rq, nil
}

// Describe says to who reads the counters whom the link is with.
func (rq *Requester) Describe(peer shmlayout.LinkPeer) {
	rq.counters.Describe(rq.pages != nil, rq.encrypted, peer)
}

// Close ends the link.
func (rq *Requester) Close() { rq.fail(ErrClosed) }

// Sever ends the link for somebody else's reason.
func (rq *Requester) Sever(why error) {
	rq.ExpectEnd(why)
	rq.fail(why)
}

// Err is why the link has ended, or nil.
func (rq *Requester) Err() error { return rq.err() }

// Ended is set once Err has an error, and those who wait are woken.
func (rq *Requester) Ended() *atomic.Bool { return &rq.failed }

// AckedSeq is the last message that has been applied, or went nowhere, at the far end.
func (rq *Requester) AckedSeq() uint64 { return rq.ackedSeq.Load() }

// Detach tells the exporter that an import is no more.
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
		if len(rq.retransmits) > 0 || rq.disconnected.Load() { // then it comes after them
			return
		}
	}
	rq.tx.control = append(rq.tx.control, h)
	rq.pump()
}

// WaitApplied waits until all that this process sent on the link so far, what was
// put off included, has been applied.
func (rq *Requester) WaitApplied(ctx context.Context) error {
	if err := rq.waitBacklog(ctx); err != nil {
		return err
	}
	return rq.waitAcked(ctx, rq.lastSeq.Load())
}

func (rq *Requester) waitAcked(ctx context.Context, seq uint64) error {
	for {
		tick := rq.ackEvent.Load()
		if rq.ackedSeq.Load() >= seq {
			return nil
		}
		if err := rq.err(); err != nil {
			return err
		}
		rq.requestAckOf(seq)
		if err := rq.e.wait(ctx, &wait.Cond{Word: rq.ackEvent.Word(), Old: tick, Failed: &rq.failed, LocalOnly: true}, &rq.stream); err != nil {
			return err
		}
	}
}

// takeCredit takes a notification credit, waiting for one if need be. No lock that
// data or acknowledgements need is held.
func (rq *Requester) takeCredit(ctx context.Context, ended *atomic.Bool) error {
	if t := rq.creditsTaken.Load(); t-rq.creditsSeen.Load() < shmlayout.Credits && rq.creditsTaken.CompareAndSwap(t, t+1) {
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
		if back.Load() != r { // t is younger than r, which is why they do not fit
			continue
		}
		if t-r > 2*shmlayout.Credits { // no honest exporter returns more than was taken
			rq.fail(protocol("%d notification credits returned, %d taken", r, t))
		}
		if err := rq.err(); err != nil {
			return err
		}
		if ended != nil && ended.Load() {
			return ErrEnded
		}
		if rq.pages != nil { // the exporter looks whether its ring has any that run nothing
			rq.ringBell()
		}
		if InHandler() { // which two processes could do to each other for ever
			return ErrNoCredit
		}
		given := func() bool { return rq.creditsTaken.Load() != t } // back, by who took it in vain
		rq.addCreditWaiters(1)
		err := rq.e.Wait(ctx, wait.Cond{Word: back, Old: r, Until: given, Failed: &rq.failed, Ended: ended})
		rq.addCreditWaiters(-1)
		if err != nil {
			return err
		}
	}
}

// creditsWord is the total of credits returned: a word in the exporter's page, or what
// came over the stream.
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

// checkFrame takes what the exporter says.
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
		return rq.handleGrant(h)
	}
	return nil
}

func (rq *Requester) batchReceived(bool, bool) bool { return false }

func (rq *Requester) finalFrame(*wire.Header) bool { return false }

func (rq *Requester) linkClosed(err error) {
	rq.tmu.Lock()
	rq.inboxMu.Lock()
	rq.queue, rq.inbox, rq.midMessage = fifo[outgoing]{}, fifo[outgoing]{}, false
	rq.queuedOps.Store(0)
	rq.inboxMu.Unlock()
	rq.e.dropFromBulkBatch(rq)
	rq.retransmits, rq.pendingDetaches = nil, nil
	rq.unacked.trim(math.MaxUint64)
	rq.tmu.Unlock()
	rq.fetchMu.Lock() // after inboxMu was held: who asks has found the end there, or has asked
	for _, f := range rq.fetches {
		if f.op != 0 { // it may have been done
			f.finish(unknown(err))
		} else {
			f.finish(err)
		}
	}
	rq.fetches = nil
	rq.fetchCount.Store(0)
	rq.fetchMu.Unlock()
	rq.ended.Store(true)
	rq.closeBacklog()
	rq.ackEvent.Advance()
	rq.fetchEvent.Advance()
	rq.tx.writeEvent.Advance()
	rq.onLost(err)
	rq.pages.retire()
}
