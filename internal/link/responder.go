package link

import (
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Target is an export as one import of it sees it.
type Target struct {
	Handle uint32
	Export uint64 // the export's number in its process
	Mem    []byte
	Write  bool
	Read   bool
	Notify func(off int, word uint32, at []byte) // nil without a handler
	Muted  *atomic.Bool                          // its notifications have no effect; nil: never

	Redirect *Redirect // nil if the export is not redirectable

	MayFault bool        // the program may take the memory back, or has lent some that messages are redirected to
	Fault    func(error) // is told, on a goroutine of its own, that the memory cannot be accessed any more

	revoked bool // with rmu and tmu held
}

// Clone is the same for another link: the one before has withdrawn t, or is about to.
func (t *Target) Clone() *Target {
	return &Target{Handle: t.Handle, Export: t.Export, Mem: t.Mem, Write: t.Write, Read: t.Read, Notify: t.Notify, Muted: t.Muted, Redirect: t.Redirect, MayFault: t.MayFault, Fault: t.Fault}
}

// Responder is the exporting side of a link: it puts what arrives where it belongs,
// and answers. It never waits for anything but the socket.
type Responder struct {
	stream
	pages *Pages     // nil between nodes
	board wait.Board // the importer's, with pages

	targets    map[uint32]*Target // with rmu
	lastTarget *Target            // of them, the last one that a message came for, or nil; with rmu
	cur        message            // the message under way, with rmu

	appliedSeq     atomic.Uint64 // last message applied; written with rmu
	unackedCount   int           // messages applied since the last acknowledgement, with rmu
	ackAsked       bool          // and one of them asked for one, with rmu
	ackUnshared    bool          // and one of those that did said of no others, with rmu
	unackedBytes   uint64        // and their bytes
	ackStrideBytes uint64        // how many make one, of messages as the last one: see [share]
	replyPending   bool          // what came has made something to be sent, with rmu

	ackDue      bool      // with tmu
	replies     []reply   // with tmu
	lastAckSent [2]uint64 // what was last said: applied, credits; with tmu

	unread    []byte // of an answer, which the kernel could not read: see blamed; with tmu
	unreadErr error  // why; with tmu

	recentReplies fifo[reply]   // the last gets and results, which the importer may not have had; with tmu
	recentRevokes []wire.Header // the last ones, the same; with tmu
	revokeCount   uint32        // their number in all; with tmu
	stopExpiry    func()        // nobody waits any longer for the importer to resume; with tmu

	inJobQueue     atomic.Bool // in the engine's queue of links with notes
	inRingPoller   atomic.Bool // in its watch
	creditsDue     bool        // in its list of those with credits to come; of its goroutine
	notifyMu       sync.Mutex
	notifications  []notification // that came over the stream
	ringHead       uint32         // notes taken out of the ring
	lastRun        uint32         // serial of the last notification run, with none before it that was not
	earlyDone      []serialRange  // what was done behind it, before its turn; see completeEarly
	earlyCount     uint32         // how many these are
	lastRingTarget *Target        // of the last note of the ring, while it is among the targets
	serialGaps     bool           // the link has ended: serials that are not there never come

	imports   ImportHandler // nil: imports are asked for elsewhere
	onDetach  func(handle uint32)
	onLost    func(err error)
	heardPeer bool // see Spoke; written before onLost is called
}

// message is what is known of the message whose chunks are arriving.
type message struct {
	target  *Target // nil: refused, its payload goes nowhere
	active  bool
	seq     uint64
	off     uint64
	size    uint64
	arrived uint64
	serial  uint32
	handle  uint32
	bytes   bool

	redirected bool // some of it was
}

// The most that is applied without being acknowledged.
const (
	ackMessages = 1024
	ackBytes    = 512 << 10
)

// NewResponder starts the exporting side, as [NewRequester]. targets are there before the
// first frame is looked at. imports, which may be nil, answers those on the link.
func NewResponder(e *Engine, fd int, pages *Pages, terms Terms, targets []*Target, imports ImportHandler, onDetach func(uint32), onLost func(error)) (*Responder, error) {
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

// Describe says to who reads the counters whom the link is with.
func (rs *Responder) Describe(peer shmlayout.LinkPeer) {
	rs.counters.Describe(rs.pages != nil, rs.encrypted, peer)
}

// Accepted says whether the importer has had the link, as far as can be known: one on this
// node says so. It is for who is told that the link is lost.
func (rs *Responder) Accepted() bool { return rs.pages == nil || rs.pages.Ring.Accepted() }

// Close ends the link.
func (rs *Responder) Close() { rs.fail(ErrClosed) }

// Attach lets the importer reach t, unless its export is closed: closed is set
// before Revoke is called, so either this finds it or Revoke finds the target.
func (rs *Responder) Attach(t *Target, closed *atomic.Bool) {
	rs.rmu.Lock()
	if !closed.Load() {
		rs.targets[t.Handle], rs.lastTarget = t, nil
	}
	rs.rmu.Unlock()
}

// Revoke takes a target away. When it returns, nothing that arrives is stored
// in it and nothing more is read from it; the importer is being told.
func (rs *Responder) Revoke(handle uint32) {
	rs.rmu.Lock()
	if t := rs.targets[handle]; t != nil {
		rs.queueRevoke(handle) // before gets of it are refused, which does not say what had arrived
		rs.removeTarget(t)
		rs.pumpNow()
	}
	rs.rmu.Unlock()
}

// SendRevoke says that an import is no more which the link never had.
func (rs *Responder) SendRevoke(handle uint32) {
	rs.rmu.Lock()
	rs.queueRevoke(handle)
	rs.pumpNow()
	rs.rmu.Unlock()
}

// CloseAndWait is Sever by this process's own wish.
func (rs *Responder) CloseAndWait() { rs.Sever(ErrClosed) }

// Sever ends the link, and does not return before nothing more is stored in or
// read from any target of it.
func (rs *Responder) Sever(why error) {
	rs.ExpectEnd(why)
	rs.fail(why)
	rs.rmu.Lock()
	for _, t := range rs.targets {
		rs.removeTarget(t)
	}
	rs.rmu.Unlock()
}

// removeTarget makes nothing reach t any more, by whichever frame: the message under
// way goes nowhere from here on, gets that are queued are refused, and of a
// reply that is half written the rest is a copy. rmu is held.
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

// checkData judges a chunk: where a message begins, its range and rights; further
// on, that it continues where the last chunk ended.
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
			rs.rx.mayFault = t.MayFault
		}
		*m = message{target: t, active: true, seq: h.Seq, off: h.Off, size: h.Size, serial: h.Serial, handle: h.Handle, bytes: h.Flags&wire.Bytes != 0}
	}
	span := h.Span()
	if h.Seq != m.seq || h.Handle != m.handle || h.Size != m.size || h.Off != m.off+m.arrived || (h.Flags&wire.Bytes != 0) != m.bytes ||
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
			rs.queueNotification(notification{serial: h.Serial}) // runs nothing; its credit goes back
		}
		rs.abortRedirect()
		rs.cur = message{}
		rs.markApplied(h.Seq, wire.AckNow)
	case wire.Detach:
		if t := rs.targets[h.Handle]; t != nil {
			rs.notifyMu.Lock()
			rs.collectRing() // they find the target only as long as it is there
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

// messageArrived completes a message: the last word last, then the notification, then
// the acknowledgement.
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
	rs.ackStrideBytes = ackStride(m.size)
	*m = message{}
	rs.markApplied(h.Seq, h.Flags)
}

// storeLastWord stores the last word of the message under way, and says where.
func (rs *Responder) storeLastWord(word uint32) []byte {
	m := &rs.cur
	off := m.off + m.size - 4
	if r := m.target.Redirect; r != nil {
		return r.placeLastWord(rs, off, word)
	}
	storeLast(m.target.Mem, off, word)
	return m.target.Mem[off : off+4]
}

// markApplied counts a message as applied. rmu is held, so last word, notification
// and number change as one for whoever resumes the link.
func (rs *Responder) markApplied(seq uint64, flags uint8) {
	rs.advanceApplied(seq)
	rs.unackedCount++
	rs.ackAsked = rs.ackAsked || flags&wire.AckNow != 0
	rs.ackUnshared = rs.ackUnshared || flags&(wire.AckNow|wire.Shared) == wire.AckNow
	rs.markAckDue(rs.unackedCount >= ackMessages || rs.unackedBytes >= ackBytes)
}

// advanceApplied moves on to message seq, which was judged before.
func (rs *Responder) advanceApplied(seq uint64) {
	n := rs.appliedSeq.Add(1)
	if invariant.Enabled {
		invariant.Check(n == seq && !rs.cur.active, "message %d applied as the %d., message %d under way: %v", seq, n, rs.cur.seq, rs.cur.active)
	}
}

// markAckDue notes that an acknowledgement is due.
func (rs *Responder) markAckDue(due bool) {
	if due {
		rs.unackedCount, rs.unackedBytes, rs.ackAsked, rs.ackUnshared = 0, 0, false, false
		rs.replyPending = true
		rs.tmu.Lock()
		rs.ackDue = true
		rs.tmu.Unlock()
	}
}

// maxQueuedRevokes bounds what a slow importer can make this side keep by what it sends.
const maxQueuedRevokes = 256

// queueRevoke says, before anything more is acknowledged, that an import is no more.
func (rs *Responder) queueRevoke(handle uint32) {
	rs.tmu.Lock()
	h := wire.Header{Type: wire.Revoke, Handle: handle, Word: wire.CodeRevoked, Ack: rs.appliedSeq.Load()}
	rs.retainRevoke(&h)
	rs.tx.control = append(rs.tx.control, h)
	rs.tmu.Unlock()
}

// resendRevoke says it again when a message comes for it: the importer may not have
// known of its import yet the first time. What is still queued is not said twice.
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

// batchReceived sends what is due. Where more is arriving, messages that ask for an acknowledgement share one, and where one of them
// has said that it will, and whoever looks goes on, too: each costs both ends a call.
func (rs *Responder) batchReceived(more, polling bool) (ackDeferred bool) {
	most := uint64(chunk)
	if rs.ackAsked && !rs.ackUnshared {
		rs.tmu.Lock()
		answers := len(rs.replies) > 0 // which may be long
		rs.tmu.Unlock()
		most, more = rs.ackStrideBytes, (more || polling) && !answers
	}
	rs.markAckDue(rs.ackAsked && (rs.replyPending || rs.unackedBytes >= most || !more)) // what speaks makes a call anyway
	switch {
	case rs.replyPending: // else nothing is there that was not tried to send when it came to be
		rs.replyPending = false
		rs.pumpNow()
	case invariant.Enabled:
		rs.checkNothingDue()
	}
	return rs.ackAsked
}

// nextFrame gives acknowledgements first, then a chunk of the oldest reply.
func (rs *Responder) nextFrame(h *wire.Header) ([]byte, bool) {
	if rs.ackDue {
		rs.fillAck(h)
		return nil, true
	}
	return rs.nextReply(h)
}

// fillAck says what was applied; tmu is held.
func (rs *Responder) fillAck(h *wire.Header) {
	rs.ackDue = false
	*h = wire.Header{Type: wire.Ack, Ack: rs.appliedSeq.Load(), Credits: rs.credits()}
	rs.counters.AddLocked(shmlayout.Acks, 1)
	rs.lastAckSent = [2]uint64{h.Ack, uint64(h.Credits)}
}

// finalFrame is the acknowledgement that was put off, or not asked for: a message that was applied is not to be one of which
// that is not known. Where the end of an import is still to be said there is none, as that has to come before it.
func (rs *Responder) finalFrame(h *wire.Header) bool {
	if rs.unackedCount == 0 && !rs.ackDue || len(rs.tx.control) > 0 {
		return false
	}
	rs.fillAck(h)
	return true
}

func (rs *Responder) linkClosed(err error) {
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
	rs.onLost(err)
	rs.e.dispatcher.linkEnded(rs)
	rs.pages.retire()
}

// maxQueued bounds what an importer can queue: it has no more credits.
const maxQueued = shmlayout.Credits
