package link

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/turn"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Eager is the longest message, in bytes, whose send returns once the kernel
// has it. The source is free then; longer ones return when they are acknowledged.
const Eager = 64 << 10

// NotSaid is in place of the last message that was applied where an import's end
// is known from a refusal.
const NotSaid = math.MaxUint64

// Out is the importing side of a link. All its methods may be called
// concurrently.
type Out struct {
	stream
	pages *Pages // nil between nodes

	turn *turn.Turns // one synchronous message at a time is put on the stream

	// Asynchronous messages not wholly written come into inbox, and from there all
	// at once into queue, so that beginning one never waits for a write.
	imu    sync.Mutex // after tmu
	inbox  fifo[outgoing]
	due    atomic.Bool  // whoever holds tmu next, or the background, looks into inbox; with imu
	queued atomic.Int32 // those in both; grows with imu

	queue    fifo[outgoing] // with tmu
	mid      bool           // a synchronous message is between its chunks, with tmu
	later    backlog        // asynchronous operations that could not be queued yet
	gathered atomic.Bool    // long ones wait for more in inbox; stored with batch.mu
	listed   atomic.Bool    // among those that wait for company; stored with batch.mu
	over     atomic.Bool    // the link has ended, and no memory of a request is used any more

	written atomic.Uint64 // last message that is wholly in frames; grows with tmu
	asked   uint64        // up to here an acknowledgement was asked for, with tmu
	want    uint64        // and here one is to be asked for once it is written, with tmu
	flight  flight        // with tmu, too

	// seq is the last message begun, written with imu held; acked
	// the last one applied at the far end, written by the engine. They are
	// equal when nothing is under way, which mapped sends check.
	seq   atomic.Uint64
	acked atomic.Uint64
	tick  wait.Tick // moves with acked

	gmu     sync.Mutex   // last in the order of locks
	gets    []*fetch     // asked for and not answered, oldest first
	reads   atomic.Int32 // their number
	room    wait.Tick    // moves when a get is answered
	reading *fetch       // whose payload is arriving; with rmu

	nmu      sync.Mutex // orders serials with the ring's entries
	serial   uint32
	taken    atomic.Uint32 // credits taken, in all
	returned atomic.Uint32 // credits come back over the stream, in all
	seen     atomic.Uint32 // of the credits come back, those known here: the exporter's word is far away

	faulty atomic.Bool // there are any in faults; stored with tmu
	faults []faulted   // messages whose memory could not be read, the last ones; with tmu

	seeks seeks
	busy  time.Duration // for which the idlers have not looked at this, as somebody wrote; theirs alone

	keeps    kept   // with tmu, as all that follows but full
	tended   bool   // among the engine's idlers
	quiet    uint64 // what was written when they looked last
	ear      listening
	hungers  int           // who wait for notification credits
	asking   time.Duration // that somebody has waited since credits came or were asked for
	fed      uint32        // what had come by then
	craves   bool          // they were, and nothing has come since
	top      uint64        // the last message that was ever wholly in frames
	again    []resent      // of messages up to top, oldest first
	detaches []detached    // the last ones
	full     atomic.Bool   // no more is written before something is acknowledged

	redial   Redial // with rmu, as all that follows
	attempts uint64
	replied  uint64    // the last get or atomic that was answered
	notices  uint32    // of revoked imports
	progress progress  // when the connection was lost last
	since    time.Time // and since when there is no more
	waits    bool      // for something, then
	partial  uint64    // see progress
	got      uint64
	pause    time.Duration

	onRevoke func(handle uint32, applied uint64, err error)
	onLost   func(err error)
}

// NewOut starts the importing side on a connected socket, which it owns from
// then on. pages is nil between nodes, and terms none within one. onRevoke and onLost are called from the
// engine; they must not block. onRevoke's applied is the last message that was
// applied while the export lived, or NotSaid.
func NewOut(e *Engine, fd int, pages *Pages, terms Terms, onRevoke func(handle uint32, applied uint64, err error), onLost func(error)) (*Out, error) {
	o := &Out{pages: pages, turn: turn.New(1), onRevoke: onRevoke, onLost: onLost}
	o.agree(terms)
	o.rx.careful = true // answers go to memory that is a caller's
	o.redial, o.attempts, o.keeps.from = terms.Redial, 1, &e.keeps
	if err := o.start(e, fd, o, pages != nil); err != nil {
		pages.retire()
		return nil, err
	}
	return o, nil
}

// Describe says to who reads the counters whom the link is with.
func (o *Out) Describe(peer page.LinkPeer) { o.count.Describe(o.pages != nil, o.encrypted, peer) }

// Close ends the link.
func (o *Out) Close() { o.fail(ErrClosed) }

// Sever ends the link for somebody else's reason.
func (o *Out) Sever(why error) {
	o.Expect(why)
	o.fail(why)
}

// Err is why the link has ended, or nil.
func (o *Out) Err() error { return o.err() }

// Ended is set once Err has an error, and those who wait are woken.
func (o *Out) Ended() *atomic.Bool { return &o.broken }

// Acked is the last message that has been applied, or went nowhere, at the far end.
func (o *Out) Acked() uint64 { return o.acked.Load() }

// Detach tells the exporter that an import is no more.
func (o *Out) Detach(handle uint32) {
	if o.err() != nil {
		return
	}
	h := wire.Header{Type: wire.Detach, Handle: handle}
	o.tmu.Lock()
	defer o.tmu.Unlock()
	if o.limit > 0 {
		acked := o.acked.Load()
		o.detaches = slices.DeleteFunc(o.detaches, func(d detached) bool { return d.after < acked })
		o.detaches = append(o.detaches, detached{handle, o.top})
		if len(o.again) > 0 || o.torn.Load() { // then it comes after them
			return
		}
	}
	o.tx.ctl = append(o.tx.ctl, h)
	o.pump()
}

// Settle waits until all that this process sent on the link so far, what was
// put off included, has been applied.
func (o *Out) Settle(ctx context.Context) error {
	if err := o.caughtUp(ctx); err != nil {
		return err
	}
	return o.settle(ctx, o.seq.Load())
}

func (o *Out) settle(ctx context.Context, seq uint64) error {
	for {
		tick := o.tick.Now()
		if o.acked.Load() >= seq {
			return nil
		}
		if err := o.err(); err != nil {
			return err
		}
		o.ping(seq)
		if err := o.e.wait(ctx, &wait.Look{Word: o.tick.Word(), Old: tick, Broken: &o.broken, Own: true}, &o.stream); err != nil {
			return err
		}
	}
}

// credit takes a notification credit, waiting for one if need be. No lock that
// data or acknowledgements need is held.
func (o *Out) credit(ctx context.Context, ended *atomic.Bool) error {
	if t := o.taken.Load(); t-o.seen.Load() < page.Credits && o.taken.CompareAndSwap(t, t+1) {
		return nil
	}
	back := o.back()
	for {
		r := back.Load()
		t := o.taken.Load()
		if t-r < page.Credits {
			if o.taken.CompareAndSwap(t, t+1) {
				o.seen.Store(r)
				return nil
			}
			continue
		}
		if back.Load() != r { // t is younger than r, which is why they do not fit
			continue
		}
		if t-r > 2*page.Credits { // no honest exporter returns more than was taken
			o.fail(protocol("%d notification credits returned, %d taken", r, t))
		}
		if err := o.err(); err != nil {
			return err
		}
		if ended != nil && ended.Load() {
			return ErrEnded
		}
		if o.pages != nil { // the exporter looks whether its ring has any that run nothing
			o.ring()
		}
		if InHandler() { // which two processes could do to each other for ever
			return ErrNoCredit
		}
		given := func() bool { return o.taken.Load() != t } // back, by who took it in vain
		o.hunger(1)
		err := o.e.Wait(ctx, wait.Look{Word: back, Old: r, Until: given, Broken: &o.broken, Ended: ended})
		o.hunger(-1)
		if err != nil {
			return err
		}
	}
}

// back is the total of credits returned: a word in the exporter's page, or what
// came over the stream.
func (o *Out) back() *atomic.Uint32 {
	if o.pages != nil {
		return o.pages.Back.Returned()
	}
	return &o.returned
}

func (o *Out) uncredit(notify bool) {
	if notify {
		o.taken.Add(^uint32(0))
		o.e.sleepers.Wake()
	}
}

func (o *Out) nextSerial() uint32 {
	o.nmu.Lock()
	o.count.Locked(page.Notes, 1)
	o.serial++
	n := o.serial
	if invariant.Enabled {
		o.checkSerial()
	}
	o.nmu.Unlock()
	return n
}

// frame takes what the exporter says.
func (o *Out) frame(h *wire.Header) error {
	switch h.Type {
	case wire.Ack, wire.Nak, wire.Bell, wire.Revoke, wire.Grant:
		return nil
	case wire.Reply:
		return o.replyTo(h)
	case wire.Result:
		return o.resultTo(h)
	case wire.Bye:
		return o.bade(h)
	}
	return protocol("the exporter sent a frame of type %d", h.Type)
}

func (o *Out) placed(h *wire.Header) error {
	switch h.Type {
	case wire.Ack:
		if !o.sent(h.Ack) || h.Ack < o.acked.Load() {
			return protocol("acknowledged %d, sent %d, acknowledged before %d", h.Ack, o.written.Load(), o.acked.Load())
		}
		o.acked.Store(h.Ack)
		o.count.Locked(page.Acks, 1)
		if invariant.Enabled {
			o.checkAcked()
		}
		o.returned.Store(h.Credits)
		o.tick.Move()
		if o.full.Load() {
			o.full.Store(false)
			o.push()
			o.tx.room.Move()
		}
	case wire.Nak:
		return o.refused(h)
	case wire.Revoke:
		if h.Serial > o.notices {
			o.notices = h.Serial
		}
		o.onRevoke(h.Handle, min(h.Ack, o.seq.Load()), refusal(h.Word))
	case wire.Reply:
		o.fetched(h)
	case wire.Result:
		o.computed(h)
	case wire.Grant:
		return o.granted(h)
	}
	return nil
}

func (o *Out) settled(bool, bool) bool { return false }

func (o *Out) farewell(*wire.Header) bool { return false }

func (o *Out) lost(err error) {
	o.tmu.Lock()
	o.imu.Lock()
	o.queue, o.inbox, o.mid = fifo[outgoing]{}, fifo[outgoing]{}, false
	o.queued.Store(0)
	o.imu.Unlock()
	o.e.ungather(o)
	o.again, o.detaches = nil, nil
	o.keeps.trim(math.MaxUint64)
	o.tmu.Unlock()
	o.gmu.Lock() // after imu was held: who asks has found the end there, or has asked
	for _, f := range o.gets {
		if f.op != 0 { // it may have been done
			f.end(unknown(err))
		} else {
			f.end(err)
		}
	}
	o.gets = nil
	o.reads.Store(0)
	o.gmu.Unlock()
	o.over.Store(true)
	o.closeBacklog()
	o.tick.Move()
	o.room.Move()
	o.tx.room.Move()
	o.onLost(err)
	o.pages.retire()
}
