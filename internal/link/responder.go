package link

import (
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Target is one import's access to an export.
type Target struct {
	Handle uint32
	Export uint64 // Number of the export in its process.
	Mem    []byte
	Write  bool
	Read   bool
	Notify func(off int, word uint32, at []byte) // nil: there is no handler.
	// Set while notifications run no handler. nil: never.
	Muted *atomic.Bool

	Redirect *redirect.Exporter // nil: the export is not redirectable.

	// Access may fault: the program may unmap the memory, or has lent some that messages are
	// redirected to.
	MayFault bool
	// Called on a goroutine of its own when the memory can no longer be accessed.
	Fault func(error)

	revoked bool // Guarded by rmu and tmu together.
	// A message was lost because the memory cannot be accessed: no later one is stored. Guarded by
	// rmu.
	faulted bool
}

// Clone returns a copy of t for another link. The previous link has removed t, or is about to.
func (t *Target) Clone() *Target {
	return &Target{Handle: t.Handle, Export: t.Export, Mem: t.Mem, Write: t.Write, Read: t.Read, Notify: t.Notify, Muted: t.Muted, Redirect: t.Redirect, MayFault: t.MayFault, Fault: t.Fault}
}

// Responder is the exporting side of a link. It stores arriving data and answers requests. It waits
// for nothing but the socket.
type Responder struct {
	stream
	pages *Pages // nil between nodes.
	// The importer's sleep board; valid if pages is set.
	board wait.Board

	targets map[uint32]*Target // Guarded by rmu.
	// Target of the last message, or nil: a cache of targets. Guarded by rmu.
	lastTarget *Target
	cur        message // The message that is arriving. Guarded by rmu.

	appliedSeq atomic.Uint64 // Last message applied. Stored under rmu.
	// Messages applied since the last acknowledgement. Guarded by rmu.
	unackedCount int
	// One of them requested an acknowledgement. Guarded by rmu.
	ackAsked bool
	// One of the requests did not allow a shared acknowledgement. Guarded by rmu.
	ackUnshared bool
	// Bytes of the unacknowledged messages. Guarded by rmu.
	unackedBytes uint64
	// Bytes that share one acknowledgement, for messages as long as the last one. See
	// [pacing.AckStride].
	ackStrideBytes uint64
	// The frames received made something to be sent. Guarded by rmu.
	replyPending bool

	ackDue  bool    // Guarded by tmu.
	replies []reply // Guarded by tmu.
	// Messages applied and credits returned in the last acknowledgement. Guarded by tmu.
	lastAckSent [2]uint64

	// Memory of an answer that the kernel could not read, and why. See blamed. Guarded by tmu.
	unread    []byte
	unreadErr error

	// The latest gets and results, whose answers the importer may not have received. Guarded by
	// tmu.
	recentReplies fifo[reply]
	// The latest notices of revoked imports, the same. Guarded by tmu.
	recentRevokes []wire.Header
	revokeCount   uint32 // Total of notices sent. Guarded by tmu.
	// Ends the wait for the importer to resume. Guarded by tmu.
	stopExpiry func()

	inJobQueue   atomic.Bool // In the dispatcher's job queue.
	inRingPoller atomic.Bool // Polled by the dispatcher's ring poller.
	// In the dispatcher's list of links with credits to return. Used by the dispatcher's goroutine
	// only.
	creditsDue bool
	notifyMu   sync.Mutex
	// Notifications received over the stream, and those collected from the ring.
	notifications []notification
	ringHead      uint32 // Notifications taken out of the ring.
	done          doneSerials
	// Target of the last ring notification, while it is in targets.
	lastRingTarget *Target
	// The link has ended: missing serials never arrive.
	serialGaps bool

	imports   ImportHandler // nil: imports are not granted on this link.
	onDetach  func(handle uint32)
	onLost    func(err error)
	heardPeer bool // See HeardPeer. Stored before onLost is called.
}

// message is the state of the message whose chunks are arriving.
type message struct {
	// nil: the import is gone and the payload is discarded.
	target  *Target
	active  bool
	seq     uint64
	off     uint64
	size    uint64
	arrived uint64
	serial  uint32
	handle  uint32
	bytes   bool

	redirected bool // A redirection was claimed for it.
}

// Bounds of what is applied without an acknowledgement.
const (
	ackMessages = 1024
	ackBytes    = 512 << 10
)

// NewResponder starts the exporting side, as [NewRequester] does the importing one. targets are in
// place before the first frame is read. imports, which may be nil, answers import requests on the
// link.
func NewResponder(
	e *Engine, fd int, pages *Pages, terms Terms, targets []*Target, imports ImportHandler,
	onDetach func(uint32), onLost func(error),
) (*Responder, error) {
	rs := &Responder{pages: pages, targets: map[uint32]*Target{}, imports: imports, onDetach: onDetach, onLost: onLost, stopExpiry: func() {}}
	rs.setTerms(terms)
	for _, t := range targets {
		rs.targets[t.Handle] = t
	}
	if pages != nil {
		rs.board = pages.Peer.Board()
	}
	if err := rs.start(e, fd, rs, pages != nil); err != nil {
		pages.retire()
		return nil, err
	}
	return rs, nil
}

// Accepted reports whether the importer is known to have received the link, which an importer on
// this node says in its page. It is called when the link is lost.
func (rs *Responder) Accepted() bool { return rs.pages == nil || rs.pages.Ring.Accepted() }

// Attach gives the importer access to t unless its export is closed or the link has ended. closed is
// set before Revoke is called, so either Attach finds it set or Revoke finds the target. So it is with
// the link's end and Sever: the grant may have another link, and another target, by now.
func (rs *Responder) Attach(t *Target, closed *atomic.Bool) {
	rs.rmu.Lock()
	if !closed.Load() && !rs.failed.Load() {
		rs.targets[t.Handle], rs.lastTarget = t, nil
	}
	rs.rmu.Unlock()
}

// Revoke removes a target. When it returns, arriving data is not stored in the target any more and
// answers are not read from it. The importer is being told.
func (rs *Responder) Revoke(handle uint32) {
	rs.rmu.Lock()
	if t := rs.targets[handle]; t != nil {
		// before gets of it are refused: a refusal does not say which messages were applied
		rs.queueRevoke(handle)
		rs.removeTarget(t)
		rs.pumpNow()
	}
	rs.rmu.Unlock()
}

// SendRevoke tells the importer of the end of an import that the link never had.
func (rs *Responder) SendRevoke(handle uint32) {
	rs.rmu.Lock()
	rs.queueRevoke(handle)
	rs.pumpNow()
	rs.rmu.Unlock()
}

// CloseAndWait is Sever with [ErrClosed].
func (rs *Responder) CloseAndWait() { rs.Sever(ErrClosed) }

// Sever ends the link. When it returns, no target of the link is stored to or read from any more.
func (rs *Responder) Sever(why error) {
	rs.ExpectEnd(why)
	rs.fail(why)
	rs.rmu.Lock()
	for _, t := range rs.targets {
		rs.removeTarget(t)
	}
	rs.rmu.Unlock()
}

// Drain does the same for the exporting side. It tells the importer which messages were applied.
func (rs *Responder) Drain(why error) { rs.drain(why, func() { rs.markAckDue(true); rs.pumpNow() }) }

// HeardPeer reports whether the importer was alive when the link had begun: it sent a frame, or on
// this node it took the link. It is for the function that is called when the link has ended.
func (rs *Responder) HeardPeer() bool { return rs.heardPeer }

// removeTarget ends all access to t: the rest of an arriving message is discarded, queued gets are
// refused, and the rest of a half-written reply is copied. The caller holds rmu.
func (rs *Responder) removeTarget(t *Target) {
	delete(rs.targets, t.Handle)
	rs.lastTarget = nil
	rs.notifyMu.Lock()
	if rs.lastRingTarget == t {
		rs.lastRingTarget = nil
	}
	rs.notifyMu.Unlock()
	if rs.cur.target == t {
		rs.abortRedirect()
		rs.cur.target = nil
		rs.rx.discardRest()
	}
	rs.tmu.Lock()
	t.revoked = true
	rs.tx.detachPayload()
	rs.tmu.Unlock()
}

func (rs *Responder) checkFrame(h *wire.Header) error {
	switch h.Type {
	case wire.Data:
		return rs.checkData(h)
	case wire.Get, wire.Abort, wire.Atomic:
		if h.Seq != rs.appliedSeq.Load()+1 {
			return protocol("message %d after %d", h.Seq, rs.appliedSeq.Load())
		}
		if rs.cur.active && (h.Type != wire.Abort || h.Seq != rs.cur.seq) {
			return protocol("message %d before %d was complete", h.Seq, rs.cur.seq)
		}
	case wire.Bye:
		return rs.byeError(h)
	case wire.Bell, wire.Detach, wire.Ping, wire.Import:
	default:
		return protocol("the importer sent a frame of type %d", h.Type)
	}
	return nil
}

// checkData checks a chunk. The first chunk of a message is checked for sequence, range and rights,
// a later one for continuing where the last one ended.
func (rs *Responder) checkData(h *wire.Header) error {
	m := &rs.cur
	if !m.active {
		if h.Seq != rs.appliedSeq.Load()+1 {
			return protocol("message %d after %d", h.Seq, rs.appliedSeq.Load())
		}
		t := rs.lastTarget
		if t == nil || t.Handle != h.Handle {
			t = rs.targets[h.Handle]
			rs.lastTarget = t
		}
		if t != nil {
			if !t.Write {
				return protocol("a send to import %d, which is read-only", h.Handle)
			}
			if h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off {
				return protocol("a send of %d bytes at %d, the export has %d", h.Size, h.Off, len(t.Mem))
			}
			if rs.rx.mayFault = t.MayFault; t.faulted {
				t = nil
			}
		}
		*m = message{target: t, active: true, seq: h.Seq, off: h.Off, size: h.Size, serial: h.Serial, handle: h.Handle, bytes: h.Flags&wire.Bytes != 0}
	}
	span := h.Span()
	if h.Seq != m.seq || h.Handle != m.handle || h.Size != m.size || h.Off != m.off+m.arrived ||
		(h.Flags&wire.Bytes != 0) != m.bytes ||
		span > m.size-m.arrived || (h.Flags&wire.Last != 0) != (m.arrived+span == m.size) {
		return protocol("chunk at %d of message %d does not continue it", h.Off, h.Seq)
	}
	return nil
}

func (rs *Responder) handleFrame(h *wire.Header) error {
	switch h.Type {
	case wire.Data:
		rs.cur.arrived += h.Span()
		rs.unackedBytes += h.Span()
		if invariant.Enabled {
			rs.checkMessage()
		}
		if h.Flags&wire.Last != 0 {
			rs.messageArrived(h)
			rs.e.markHot(&rs.stream)
		}
	case wire.Get:
		return rs.handleGet(h)
	case wire.Atomic:
		return rs.handleAtomic(h)
	case wire.Abort:
		if h.Flags&wire.Notify != 0 {
			// runs no handler; its credit is returned
			rs.queueNotification(notification{serial: h.Serial})
		}
		rs.abortRedirect()
		rs.cur = message{}
		rs.markApplied(h.Seq, wire.AckNow)
	case wire.Detach:
		if t := rs.targets[h.Handle]; t != nil {
			rs.notifyMu.Lock()
			rs.collectRing() // resolves ring entries while the target is still known
			rs.notifyMu.Unlock()
			rs.removeTarget(t)
			rs.onDetach(h.Handle)
		}
	case wire.Ping:
		rs.markAckDue(true)
	case wire.Import:
		return rs.handleImport(h)
	case wire.Bell:
		if rs.pages != nil {
			rs.completeMuted()
			rs.e.dispatcher.enqueue(rs)
		}
	}
	return nil
}

// messageArrived completes a message: it stores the last word, then queues the notification, then
// counts the message as applied.
func (rs *Responder) messageArrived(h *wire.Header) {
	m := &rs.cur
	rs.e.bulkActivity.noteArrival(m.size)
	var at []byte
	if m.target != nil && !m.bytes && m.target.MayFault {
		if err := shm.Guard(func() { at = rs.storeLastWord(h.Word) }); err != nil {
			rs.storeFaulted(err)
		}
	}
	if invariant.Enabled {
		rs.trace("arrived", m.handle, m.seq, m.off, m.size)
	}
	n := notification{serial: h.Serial, target: m.target, off: m.off + m.size - 4, word: h.Word}
	switch {
	case m.target == nil:
		rs.resendRevoke(h.Handle)
		rs.replyPending = true
	case m.bytes:
	case m.target.MayFault:
		n.at = at
	default:
		n.at = rs.storeLastWord(h.Word)
	}
	if h.Flags&wire.Notify != 0 {
		if m.target == nil || m.bytes {
			n.target = nil
		}
		rs.queueNotification(n)
	}
	rs.counters.AddLocked(shmlayout.Messages, 1)
	rs.counters.AddLocked(shmlayout.Bytes, m.size)
	rs.ackStrideBytes = pacing.AckStride(m.size)
	*m = message{}
	rs.markApplied(h.Seq, h.Flags)
}

// storeLastWord stores the last word of the arriving message and returns where it lies.
func (rs *Responder) storeLastWord(word uint32) []byte {
	m := &rs.cur
	off := m.off + m.size - 4
	if r := m.target.Redirect; r != nil {
		return rs.placeLastWord(r, off, word)
	}
	storeLast(m.target.Mem, off, word)
	return m.target.Mem[off : off+4]
}

// storeFaulted discards the rest of the arriving message and ends its export. The caller holds rmu.
func (rs *Responder) storeFaulted(err error) {
	if t := rs.cur.target; t != nil {
		rs.abortRedirect()
		rs.cur.target, t.faulted = nil, true
		rs.targetFaulted(t, err)
	}
}

// targetFaulted ends the export of t, whose memory can no longer be accessed. It may be called
// under any lock.
func (rs *Responder) targetFaulted(t *Target, err error) {
	if t.Fault != nil {
		rs.e.wg.Go(func() { t.Fault(err) })
	}
}

// markApplied counts a message as applied. The caller holds rmu, so last word, notification and
// sequence number change together for Resume.
func (rs *Responder) markApplied(seq uint64, flags uint8) {
	rs.advanceApplied(seq)
	rs.unackedCount++
	rs.ackAsked = rs.ackAsked || flags&wire.AckNow != 0
	rs.ackUnshared = rs.ackUnshared || flags&(wire.AckNow|wire.Shared) == wire.AckNow
	rs.markAckDue(rs.unackedCount >= ackMessages || rs.unackedBytes >= ackBytes)
}

// advanceApplied moves on to message seq, which checkFrame has checked.
func (rs *Responder) advanceApplied(seq uint64) {
	n := rs.appliedSeq.Add(1)
	if invariant.Enabled {
		invariant.Check(n == seq && !rs.cur.active,
			"message %d applied as the %d., message %d under way: %v", seq, n, rs.cur.seq, rs.cur.active)
	}
}

// markAckDue makes an acknowledgement due if due is set.
func (rs *Responder) markAckDue(due bool) {
	if due {
		rs.unackedCount, rs.unackedBytes, rs.ackAsked, rs.ackUnshared = 0, 0, false, false
		rs.replyPending = true
		rs.tmu.Lock()
		rs.ackDue = true
		rs.tmu.Unlock()
	}
}

// ImportHandler decides whether the importer of a link may import buffer id. If so it enters the
// import in the exporter's tables and returns a target, and for a mapped grant a descriptor, which
// the link then owns. It must answer at once. It is called with rmu held, so the end of an export
// that it grants follows later on the link.
type ImportHandler func(rs *Responder, id uint32) (t *Target, g wire.Granted, fd int)

// handleImport answers an import.
func (rs *Responder) handleImport(h *wire.Header) error {
	if rs.pages == nil || rs.imports == nil {
		return protocol("an import on a link that takes none")
	}
	rs.tmu.Lock()
	full := len(rs.tx.importAnswers) >= maxImports
	rs.tmu.Unlock()
	if full {
		return protocol("more than %d imports unanswered", maxImports)
	}
	t, g, fd := rs.imports(rs, h.Handle)
	if t != nil {
		rs.targets[t.Handle], rs.lastTarget = t, nil
	} else {
		g, fd = wire.Granted{}, -1
	}
	a := importAnswer{fd: fd}
	a.h.SetGranted(h.Serial, &g)
	rs.replyPending = true
	rs.tmu.Lock()
	rs.tx.importAnswers = append(rs.tx.importAnswers, a)
	rs.tmu.Unlock()
	return nil
}

// maxQueuedRevokes bounds the notices that an importer which does not read makes this side queue.
const maxQueuedRevokes = 256

// queueRevoke queues the notice of an import's end. It is sent before any later acknowledgement.
func (rs *Responder) queueRevoke(handle uint32) {
	rs.tmu.Lock()
	h := wire.Header{Type: wire.Revoke, Handle: handle, Word: wire.CodeRevoked, Ack: rs.appliedSeq.Load()}
	rs.retainRevoke(&h)
	rs.tx.control = append(rs.tx.control, h)
	rs.tmu.Unlock()
}

// resendRevoke repeats the notice when a message for the import arrives: the importer may not have
// known of its import when the first one came. A notice that is still queued is not repeated.
func (rs *Responder) resendRevoke(handle uint32) {
	rs.tmu.Lock()
	n := len(rs.tx.control)
	for _, c := range rs.tx.control {
		if c.Type == wire.Revoke && c.Handle == handle {
			n = maxQueuedRevokes
		}
	}
	rs.tmu.Unlock()
	if n < maxQueuedRevokes {
		rs.queueRevoke(handle)
	}
}

// batchReceived sends what is due. Messages that request an acknowledgement share one if more data
// has begun to arrive. They also share one while the token's holder polls on, if every request
// allowed that. An acknowledgement costs both ends a system call.
func (rs *Responder) batchReceived(more, polling bool) (ackDeferred bool) {
	most := uint64(chunk)
	if rs.ackAsked && !rs.ackUnshared {
		rs.tmu.Lock()
		answers := len(rs.replies) > 0 // an answer may be long
		rs.tmu.Unlock()
		most, more = rs.ackStrideBytes, (more || polling) && !answers
	}
	// a pending reply makes a call anyway
	rs.markAckDue(rs.ackAsked && (rs.replyPending || rs.unackedBytes >= most || !more))
	switch {
	case rs.replyPending: // otherwise nothing is unsent that was not tried already
		rs.replyPending = false
		rs.pumpNow()
	case invariant.Enabled:
		rs.checkNothingDue()
	}
	return rs.ackAsked
}

// nextFrame returns acknowledgements first, then a chunk of the oldest reply.
func (rs *Responder) nextFrame(h *wire.Header) ([]byte, bool) {
	if rs.ackDue {
		rs.fillAck(h)
		return nil, true
	}
	return rs.nextReply(h)
}

// fillAck makes h an acknowledgement of all messages applied. The caller holds tmu.
func (rs *Responder) fillAck(h *wire.Header) {
	rs.ackDue = false
	*h = wire.Header{Type: wire.Ack, Ack: rs.appliedSeq.Load(), Credits: rs.credits()}
	rs.counters.AddLocked(shmlayout.Acks, 1)
	rs.lastAckSent = [2]uint64{h.Ack, uint64(h.Credits)}
}

// finalFrame returns the acknowledgement that was deferred or not requested, so that the importer
// knows of all applied messages. It returns none if a notice of an import's end is queued, because
// that must be sent first.
func (rs *Responder) finalFrame(h *wire.Header) bool {
	if rs.unackedCount == 0 && !rs.ackDue || len(rs.tx.control) > 0 {
		return false
	}
	rs.fillAck(h)
	return true
}

func (rs *Responder) inboxDue() bool { return false }

func (rs *Responder) bulkInFlight() bool { return false }

func (rs *Responder) discardAll(err error) {
	rs.rmu.Lock()
	rs.blamed()
	rs.abortRedirect()
	rs.drainRing(err)
	rs.heardPeer = rs.recvCount > 0 || rs.pages != nil && rs.pages.Ring.Accepted()
	rs.targets, rs.lastTarget = map[uint32]*Target{}, nil
	rs.cur = message{}
	rs.rmu.Unlock()
	rs.tmu.Lock()
	rs.replies, rs.recentReplies, rs.recentRevokes = nil, fifo[reply]{}, nil
	rs.tmu.Unlock()
}

func (rs *Responder) linkClosed(err error) {
	rs.onLost(err)
	rs.e.dispatcher.linkEnded(rs)
	rs.pages.retire()
}
