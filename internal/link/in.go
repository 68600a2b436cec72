package link

import (
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
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
	Silent *atomic.Bool                          // its notifications have no effect; nil: never

	Redirect *Redirect // nil if the export is not redirectable

	Careful bool        // the program may take the memory back, or has lent some that messages are redirected to
	Fault   func(error) // is told, on a goroutine of its own, that the memory cannot be accessed any more

	revoked bool // with rmu and tmu held
}

// Anew is the same for another link: the one before has withdrawn t, or is about to.
func (t *Target) Anew() *Target {
	return &Target{Handle: t.Handle, Export: t.Export, Mem: t.Mem, Write: t.Write, Read: t.Read, Notify: t.Notify, Silent: t.Silent, Redirect: t.Redirect, Careful: t.Careful, Fault: t.Fault}
}

// In is the exporting side of a link: it puts what arrives where it belongs,
// and answers. It never waits for anything but the socket.
type In struct {
	stream
	pages *Pages     // nil between nodes
	board wait.Board // the importer's, with pages

	targets map[uint32]*Target // with rmu
	near    *Target            // of them, the last one that a message came for, or nil; with rmu
	cur     message            // the message under way, with rmu

	applied atomic.Uint64 // last message applied; written with rmu
	unacked int           // messages applied since the last acknowledgement, with rmu
	asks    bool          // and one of them asked for one, with rmu
	alone   bool          // and one of those that did said of no others, with rmu
	bytes   uint64        // and their bytes
	share   uint64        // how many make one, of messages as the last one: see [share]
	speaks  bool          // what came has made something to be sent, with rmu

	ackDue  bool      // with tmu
	replies []reply   // with tmu
	acks    [2]uint64 // what was last said: applied, credits; with tmu

	unread    []byte // of an answer, which the kernel could not read: see blamed; with tmu
	unreadErr error  // why; with tmu

	asked   fifo[reply]   // the last gets and results, which the importer may not have had; with tmu
	notices []wire.Header // the last ones, the same; with tmu
	noticed uint32        // their number in all; with tmu
	resumed func()        // nobody waits any longer for the importer to resume; with tmu

	queued  atomic.Bool // in the engine's queue of links with notes
	watched atomic.Bool // in its watch
	unpaid  bool        // in its list of those with credits to come; of its goroutine
	nmu     sync.Mutex
	notes   []note  // that came over the stream
	head    uint32  // notes taken out of the ring
	ran     uint32  // serial of the last notification run, with none before it that was not
	early   []span  // what was done behind it, before its turn; see settleEarly
	ahead   uint32  // how many these are
	last    *Target // of the last note of the ring, while it is among the targets
	gaps    bool    // the link has ended: serials that are not there never come

	answerer Answerer // nil: imports are asked for elsewhere
	onDetach func(handle uint32)
	onLost   func(err error)
	spoke    bool // see Spoke; written before onLost is called
}

// message is what is known of the message whose chunks are arriving.
type message struct {
	target *Target // nil: refused, its payload goes nowhere
	active bool
	seq    uint64
	base   uint64
	size   uint64
	done   uint64
	serial uint32
	handle uint32
	raw    bool

	redirected bool // some of it was
}

// The most that is applied without being acknowledged.
const (
	ackMessages = 1024
	ackBytes    = 512 << 10
)

// NewIn starts the exporting side, as [NewOut]. targets are there before the
// first frame is looked at. imports, which may be nil, answers those on the link.
func NewIn(e *Engine, fd int, pages *Pages, terms Terms, targets []*Target, imports Answerer, onDetach func(uint32), onLost func(error)) (*In, error) {
	in := &In{pages: pages, targets: map[uint32]*Target{}, answerer: imports, onDetach: onDetach, onLost: onLost, resumed: func() {}}
	in.agree(terms)
	for _, t := range targets {
		in.targets[t.Handle] = t
	}
	if pages != nil {
		in.board = pages.Peer.Board()
	}
	if err := in.start(e, fd, in, pages != nil); err != nil {
		pages.retire()
		return nil, err
	}
	return in, nil
}

// Describe says to who reads the counters whom the link is with.
func (in *In) Describe(peer page.LinkPeer) { in.count.Describe(in.pages != nil, in.encrypted, peer) }

// Taken says whether the importer has had the link, as far as can be known: one on this
// node says so. It is for who is told that the link is lost.
func (in *In) Taken() bool { return in.pages == nil || in.pages.Ring.Taken() }

// Close ends the link.
func (in *In) Close() { in.fail(ErrClosed) }

// Attach lets the importer reach t, unless its export is closed: closed is set
// before Revoke is called, so either this finds it or Revoke finds the target.
func (in *In) Attach(t *Target, closed *atomic.Bool) {
	in.rmu.Lock()
	if !closed.Load() {
		in.targets[t.Handle], in.near = t, nil
	}
	in.rmu.Unlock()
}

// Revoke takes a target away. When it returns, nothing that arrives is stored
// in it and nothing more is read from it; the importer is being told.
func (in *In) Revoke(handle uint32) {
	in.rmu.Lock()
	if t := in.targets[handle]; t != nil {
		in.tell(handle) // before gets of it are refused, which does not say what had arrived
		in.withdraw(t)
		in.push()
	}
	in.rmu.Unlock()
}

// Tell says that an import is no more which the link never had.
func (in *In) Tell(handle uint32) {
	in.rmu.Lock()
	in.tell(handle)
	in.push()
	in.rmu.Unlock()
}

// Cut is Sever by this process's own wish.
func (in *In) Cut() { in.Sever(ErrClosed) }

// Sever ends the link, and does not return before nothing more is stored in or
// read from any target of it.
func (in *In) Sever(why error) {
	in.Expect(why)
	in.fail(why)
	in.rmu.Lock()
	for _, t := range in.targets {
		in.withdraw(t)
	}
	in.rmu.Unlock()
}

// withdraw makes nothing reach t any more, by whichever frame: the message under
// way goes nowhere from here on, gets that are queued are refused, and of a
// reply that is half written the rest is a copy. rmu is held.
func (in *In) withdraw(t *Target) {
	delete(in.targets, t.Handle)
	in.near = nil
	in.nmu.Lock()
	if in.last == t {
		in.last = nil
	}
	in.nmu.Unlock()
	if in.cur.target == t {
		in.cut()
		in.cur.target = nil
		in.rx.divert()
	}
	in.tmu.Lock()
	t.revoked = true
	in.tx.keep()
	in.tmu.Unlock()
}

func (in *In) frame(h *wire.Header) error {
	switch h.Type {
	case wire.Data:
		return in.data(h)
	case wire.Get, wire.Abort, wire.Atomic:
		if h.Seq != in.applied.Load()+1 {
			return protocol("message %d after %d", h.Seq, in.applied.Load())
		}
		if in.cur.active && (h.Type != wire.Abort || h.Seq != in.cur.seq) {
			return protocol("message %d before %d was complete", h.Seq, in.cur.seq)
		}
	case wire.Bye:
		return in.bade(h)
	case wire.Bell, wire.Detach, wire.Ping, wire.Import:
	default:
		return protocol("the importer sent a frame of type %d", h.Type)
	}
	return nil
}

// data judges a chunk: where a message begins, its range and rights; further
// on, that it continues where the last chunk ended.
func (in *In) data(h *wire.Header) error {
	m := &in.cur
	if !m.active {
		if h.Seq != in.applied.Load()+1 {
			return protocol("message %d after %d", h.Seq, in.applied.Load())
		}
		t := in.near
		if t == nil || t.Handle != h.Handle {
			t = in.targets[h.Handle]
			in.near = t
		}
		if t != nil {
			if !t.Write {
				return protocol("a send to import %d, which is read-only", h.Handle)
			}
			if h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off {
				return protocol("a send of %d bytes at %d, the export has %d", h.Size, h.Off, len(t.Mem))
			}
			in.rx.careful = t.Careful
		}
		*m = message{target: t, active: true, seq: h.Seq, base: h.Off, size: h.Size, serial: h.Serial, handle: h.Handle, raw: h.Flags&wire.Bytes != 0}
	}
	span := h.Span()
	if h.Seq != m.seq || h.Handle != m.handle || h.Size != m.size || h.Off != m.base+m.done || (h.Flags&wire.Bytes != 0) != m.raw ||
		span > m.size-m.done || (h.Flags&wire.Last != 0) != (m.done+span == m.size) {
		return protocol("chunk at %d of message %d does not continue it", h.Off, h.Seq)
	}
	return nil
}

func (in *In) placed(h *wire.Header) error {
	switch h.Type {
	case wire.Data:
		in.cur.done += h.Span()
		in.bytes += h.Span()
		if invariant.Enabled {
			in.checkMessage()
		}
		if h.Flags&wire.Last != 0 {
			in.arrived(h)
			in.e.warm(&in.stream)
		}
	case wire.Get:
		return in.get(h)
	case wire.Atomic:
		return in.change(h)
	case wire.Abort:
		if h.Flags&wire.Notify != 0 {
			in.note(note{serial: h.Serial}) // runs nothing; its credit goes back
		}
		in.cut()
		in.cur = message{}
		in.apply(h.Seq, wire.AckNow)
	case wire.Detach:
		if t := in.targets[h.Handle]; t != nil {
			in.nmu.Lock()
			in.collect() // they find the target only as long as it is there
			in.nmu.Unlock()
			in.withdraw(t)
			in.onDetach(h.Handle)
		}
	case wire.Ping:
		in.owe(true)
	case wire.Import:
		return in.sought(h)
	case wire.Bell:
		if in.pages != nil {
			in.sweep()
			in.e.notes.add(in)
		}
	}
	return nil
}

// arrived completes a message: the last word last, then the notification, then
// the acknowledgement.
func (in *In) arrived(h *wire.Header) {
	m := &in.cur
	in.e.glancer.arrived(m.size)
	var at []byte
	if m.target != nil && !m.raw && m.target.Careful {
		if err := shm.Guard(func() { at = in.storeWord(h.Word) }); err != nil {
			in.unwritable(err)
		}
	}
	if invariant.Enabled {
		in.trace("arrived", m.handle, m.seq, m.base, m.size)
	}
	n := note{serial: h.Serial, target: m.target, off: m.base + m.size - 4, word: h.Word}
	switch {
	case m.target == nil:
		in.remind(h.Handle)
		in.speaks = true
	case m.raw:
	case m.target.Careful:
		n.at = at
	default:
		n.at = in.storeWord(h.Word)
	}
	if h.Flags&wire.Notify != 0 {
		if m.target == nil || m.raw {
			n.target = nil
		}
		in.note(n)
	}
	in.count.Locked(page.Messages, 1)
	in.count.Locked(page.Bytes, m.size)
	in.share = share(m.size)
	*m = message{}
	in.apply(h.Seq, h.Flags)
}

// storeWord stores the last word of the message under way, and says where.
func (in *In) storeWord(word uint32) []byte {
	m := &in.cur
	off := m.base + m.size - 4
	if r := m.target.Redirect; r != nil {
		return r.settle(in, off, word)
	}
	storeLast(m.target.Mem, off, word)
	return m.target.Mem[off : off+4]
}

// apply counts a message as applied. rmu is held, so last word, notification
// and number change as one for whoever resumes the link.
func (in *In) apply(seq uint64, flags uint8) {
	in.nextApplied(seq)
	in.unacked++
	in.asks = in.asks || flags&wire.AckNow != 0
	in.alone = in.alone || flags&(wire.AckNow|wire.Shared) == wire.AckNow
	in.owe(in.unacked >= ackMessages || in.bytes >= ackBytes)
}

// nextApplied moves on to message seq, which was judged before.
func (in *In) nextApplied(seq uint64) {
	n := in.applied.Add(1)
	if invariant.Enabled {
		invariant.Check(n == seq && !in.cur.active, "message %d applied as the %d., message %d under way: %v", seq, n, in.cur.seq, in.cur.active)
	}
}

// owe notes that an acknowledgement is due.
func (in *In) owe(due bool) {
	if due {
		in.unacked, in.bytes, in.asks, in.alone = 0, 0, false, false
		in.speaks = true
		in.tmu.Lock()
		in.ackDue = true
		in.tmu.Unlock()
	}
}

// maxNotices bounds what a slow importer can make this side keep by what it sends.
const maxNotices = 256

// tell says, before anything more is acknowledged, that an import is no more.
func (in *In) tell(handle uint32) {
	in.tmu.Lock()
	h := wire.Header{Type: wire.Revoke, Handle: handle, Word: wire.CodeRevoked, Ack: in.applied.Load()}
	in.notice(&h)
	in.tx.ctl = append(in.tx.ctl, h)
	in.tmu.Unlock()
}

// remind says it again when a message comes for it: the importer may not have
// known of its import yet the first time. What is still queued is not said twice.
func (in *In) remind(handle uint32) {
	in.tmu.Lock()
	n := len(in.tx.ctl)
	for _, c := range in.tx.ctl {
		if c.Type == wire.Revoke && c.Handle == handle {
			n = maxNotices
		}
	}
	in.tmu.Unlock()
	if n < maxNotices {
		in.tell(handle)
	}
}

// settled sends what is due. Where more is arriving, messages that ask for an acknowledgement share one, and where one of them
// has said that it will, and whoever looks goes on, too: each costs both ends a call.
func (in *In) settled(more, looks bool) (later bool) {
	most := uint64(chunk)
	if in.asks && !in.alone {
		in.tmu.Lock()
		answers := len(in.replies) > 0 // which may be long
		in.tmu.Unlock()
		most, more = in.share, (more || looks) && !answers
	}
	in.owe(in.asks && (in.speaks || in.bytes >= most || !more)) // what speaks makes a call anyway
	switch {
	case in.speaks: // else nothing is there that was not tried to send when it came to be
		in.speaks = false
		in.push()
	case invariant.Enabled:
		in.checkSilent()
	}
	return in.asks
}

// next gives acknowledgements first, then a chunk of the oldest reply.
func (in *In) next(h *wire.Header) ([]byte, bool) {
	if in.ackDue {
		in.acknowledge(h)
		return nil, true
	}
	return in.nextReply(h)
}

// acknowledge says what was applied; tmu is held.
func (in *In) acknowledge(h *wire.Header) {
	in.ackDue = false
	*h = wire.Header{Type: wire.Ack, Ack: in.applied.Load(), Credits: in.credits()}
	in.count.Locked(page.Acks, 1)
	in.acks = [2]uint64{h.Ack, uint64(h.Credits)}
}

// farewell is the acknowledgement that was put off, or not asked for: a message that was applied is not to be one of which
// that is not known. Where the end of an import is still to be said there is none, as that has to come before it.
func (in *In) farewell(h *wire.Header) bool {
	if in.unacked == 0 && !in.ackDue || len(in.tx.ctl) > 0 {
		return false
	}
	in.acknowledge(h)
	return true
}

func (in *In) lost(err error) {
	in.rmu.Lock()
	in.blamed()
	in.cut()
	in.salvage(err)
	in.spoke = in.heard > 0 || in.pages != nil && in.pages.Ring.Taken()
	in.targets, in.near = map[uint32]*Target{}, nil
	in.cur = message{}
	in.rmu.Unlock()
	in.tmu.Lock()
	in.replies, in.asked, in.notices = nil, fifo[reply]{}, nil
	in.tmu.Unlock()
	in.onLost(err)
	in.e.notes.leave(in)
	in.pages.retire()
}

// maxNotes bounds what an importer can queue: it has no more credits.
const maxNotes = page.Credits
