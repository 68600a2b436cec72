package link

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Mapped is an import whose pages this process has mapped. Its methods may be
// called concurrently; offsets and lengths were checked by the caller.
type Mapped struct {
	out    *Out
	count  shm.Tally // the link's
	handle uint32
	region *shm.Region
	mem    []byte
	state  *atomic.Uint32 // of the export, in the exporter's page
	alive  uint32         // what it holds while the export lives
	board  wait.Board     // of the exporter
	place  uint64         // where the export is, as its exporter says it there; 0 if it does not
	fence  atomic.Uint32  // see Write
	closed atomic.Bool
	answer *atomic.Bool // see Prefetch

	Claims      *Claims      // nil: the export is not redirectable
	Ended       *atomic.Bool // the import is no more
	PlainNotify bool         // the same of QuickNotify

	Plain bool // what Quick sends may be sent: there are rights to it, no Claims, and Ended is set
}

// NewMapped makes one; size is the export's, which lies in the region at off.
func NewMapped(o *Out, handle uint32, r *shm.Region, off, size int, slot, alive uint32, place uint64) *Mapped {
	return &Mapped{
		out: o, answer: o.e.budget.Answer(), count: o.count.Tally, handle: handle, region: r, mem: r.Bytes()[off : off+size : off+size],
		state: o.pages.Peer.State(slot), alive: alive, board: o.pages.Peer.Board(), place: place,
	}
}

// Close puts nothing in the place of the pages; a copier that is still at work
// hurts nobody.
func (m *Mapped) Close() {
	m.closed.Store(true)
	m.region.Retire()
}

// check is what must hold before and after each copy. A state that changed
// means that the exporter has closed the export: what was written is in no
// memory of its any more, or may not be.
func (m *Mapped) check() error {
	if m.out.broken.Load() {
		return m.out.err()
	}
	closed := m.closed.Load() // before the state: the export's end closes it too, after that changed
	if m.state.Load() != m.alive {
		if m.out.broken.Load() { // since: then the exporter's page may be gone, too
			return m.out.err()
		}
		return ErrRevoked
	}
	if closed {
		return ErrClosed
	}
	return nil
}

// well is check without the reason, small enough to be part of its caller.
func (m *Mapped) well(o *Out) bool {
	return !o.broken.Load() && !m.closed.Load() && m.state.Load() == m.alive
}

// Alive says whether the export lives, as its exporter's page has it: the news of
// its end may still be on the way.
func (m *Mapped) Alive() error { return m.check() }

// order waits until the stream's messages before this one are applied: data
// sent through one way is never overtaken through the other. Two private loads
// when there are none.
func (m *Mapped) order(ctx context.Context) error {
	if seq := m.out.seq.Load(); seq != m.out.acked.Load() {
		return m.out.settle(ctx, seq)
	}
	return nil
}

// Prefetch is called before [Mapped.Quick], with an offset that nobody has checked. After a wait of this process it asks for the line of what may be an
// answer, before Quick has looked at all that it looks at: that takes less time than the line. Messages that follow one another, or
// go where nobody looks, would only lose by it.
func (m *Mapped) Prefetch(off int) {
	if m.answer.Load() {
		m.prefetch(off)
	}
}

// prefetch is no part of its caller, which is to be part of Send.
//
//go:noinline
func (m *Mapped) prefetch(off int) {
	shm.Prefetch(m.mem, off)
	m.answer.Store(false)
}

// Quick is Send for the messages that most are: short, and with nothing that has to come first or that stands in
// their way. It looks at all that may, its caller's arguments included; [ErrNotQuick] means that it has done nothing. There
// is no call in it but that of a copy of more than two words, unless somebody sleeps or the export ends; the looks are those of [Mapped.check], in their order.
func (m *Mapped) Quick(off int, src []byte) error {
	o, mem, n := m.out, m.mem, len(src)
	if !m.Plain || n == 0 || n > shm.Piece || (n|off)%shm.WordSize != 0 || off < 0 || off > len(mem)-n || o.later.left.Load() != 0 {
		return ErrNotQuick
	}
	if seq := o.seq.Load(); seq != o.acked.Load() || m.Ended.Load() || !m.well(o) {
		return ErrNotQuick
	}
	if invariant.Enabled {
		m.traceSend(off, src, nil)
	}
	switch {
	case n <= shm.Short:
		shm.PutShort(mem, off, src)
	case n < shm.Bulk:
		shm.PutPiece(mem, off, src)
	default:
		shm.PutBulk(mem, off, src)
	}
	// The last word's exchange orders it before these loads.
	if m.board.Count.Load() != 0 || !m.well(o) {
		return m.end(off, n)
	}
	m.count.Add2(page.Messages, 1, page.Bytes, uint64(n))
	runtime.KeepAlive(m) // and so the pages, until the copy is over
	return nil
}

// Send copies src, and then more, into the exporter's pages, the last word last.
// Only someone asleep over there costs a system call.
func (m *Mapped) Send(ctx context.Context, off int, src []byte, more ...[]byte) error {
	if err := m.out.caughtUp(ctx); err != nil {
		return err
	}
	if m.Claims != nil {
		_, err := m.redirected(ctx, off, src, more, false, false)
		return err
	}
	return m.send(ctx, off, src, more)
}

// short says whether a message can be sent at once, with nothing but a copy.
func (m *Mapped) short(src []byte, more [][]byte) bool {
	return len(more) == 0 && len(src) <= shm.Piece && m.Claims == nil && m.free()
}

// send copies a message to an export that is not redirectable.
func (m *Mapped) send(ctx context.Context, off int, src []byte, more [][]byte) error {
	if invariant.Enabled {
		m.traceSend(off, src, more)
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	from, end := off, off+len(src)
	for _, b := range more {
		end += len(b)
	}
	for _, next := range more {
		if err := m.copyLong(ctx, m.mem[off:off+len(src)], src); err != nil {
			return err
		}
		off, src = off+len(src), next
	}
	dst := m.mem[off : off+len(src)]
	if len(src) > shm.Piece {
		n := (len(src) - 1) / shm.Piece * shm.Piece
		if err := m.copyLong(ctx, dst[:n], src[:n]); err != nil {
			return err
		}
		dst, src = dst[n:], src[n:]
	}
	shm.Put(dst, src)
	return m.end(from, end-from)
}

func (m *Mapped) begin(ctx context.Context) error {
	if err := m.order(ctx); err != nil {
		return err
	}
	return m.check()
}

// end comes after the last word's exchange, which orders it before these loads. n
// bytes at off were stored, a message.
func (m *Mapped) end(off, n int) error {
	err := m.check()
	if err != nil {
		err = unknown(err)
	} else {
		m.count.Add2(page.Messages, 1, page.Bytes, uint64(n))
		if m.board.Count.Load() != 0 {
			m.awaken(off, n)
		}
	}
	runtime.KeepAlive(m) // and so the pages, until the copy is over
	return err
}

// over is end for what is no message.
func (m *Mapped) over(off, n int) error {
	err := m.check()
	if err != nil {
		err = unknown(err)
	} else if m.board.Count.Load() != 0 {
		m.awaken(off, n)
	}
	runtime.KeepAlive(m)
	return err
}

// awaken rings if somebody may sleep for one of n bytes at off.
func (m *Mapped) awaken(off, n int) {
	place := m.place
	if place != 0 {
		place += uint64(off)
	}
	if m.board.Concerns(place, n) {
		m.out.ring()
	}
}

// copyLong looks at the context and the export after each piece.
func (m *Mapped) copyLong(ctx context.Context, dst, src []byte) error {
	for len(src) > 0 {
		n := min(len(src), shm.Piece)
		shm.Copy(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
		err := m.check()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return unknown(err)
		}
	}
	return nil
}

// QuickNotify is to SendNotify what [Mapped.Quick] is to Send, with a credit that is known to be there.
func (m *Mapped) QuickNotify(off int, src []byte) error {
	o, n := m.out, len(src)
	if !m.PlainNotify || n == 0 || n > brief || (n|off)%shm.WordSize != 0 || off < 0 || off > len(m.mem)-n || o.later.left.Load() != 0 {
		return ErrNotQuick
	}
	if seq := o.seq.Load(); seq != o.acked.Load() || m.Ended.Load() {
		return ErrNotQuick
	}
	// As in credit: seen only lags behind what is back, and whoever lost the exchange has taken nothing. From here on
	// together gives the credit back, or its note has it.
	if t := o.taken.Load(); t-o.seen.Load() >= page.Credits || !o.taken.CompareAndSwap(t, t+1) {
		return ErrNotQuick
	}
	return m.together(off, src)
}

// SendNotify sends, then leaves a note in the ring.
func (m *Mapped) SendNotify(ctx context.Context, off int, src []byte, more ...[]byte) error {
	if err := m.out.credit(ctx, m.Ended); err != nil {
		return err
	}
	err := m.out.caughtUp(ctx)
	if err != nil {
		m.out.uncredit(true)
		return err
	}
	return m.notify(ctx, off, src, more)
}

// brief is the longest message whose notification is not waited with.
const brief = 1 << 10

// notify is SendNotify with the credit taken.
func (m *Mapped) notify(ctx context.Context, off int, src []byte, more [][]byte) error {
	if len(src) <= brief && m.short(src, more) {
		return m.together(off, src)
	}
	if m.Claims != nil {
		return m.notifyRedirected(ctx, off, src, more, false)
	}
	if err := m.send(ctx, off, src, more); err != nil {
		m.out.uncredit(true) // no note without its data
		return err
	}
	at := off + len(src) - 4
	if n := len(more); n > 0 {
		for _, b := range more {
			at += len(b)
		}
		src = more[n-1]
	}
	m.tell(at, lastWord(src), 0)
	return nil
}

// tell has the exporter notified of what has arrived, with the credit taken.
func (m *Mapped) tell(at int, word, redir uint32) {
	m.out.nmu.Lock()
	tail, awake := m.note(at, word, redir)
	m.out.nmu.Unlock()
	m.announce(tail, awake)
}

// together sends a short message and its note with one exchange, that of the note: the cache
// lines of both come at the same time. An export that ends meanwhile is found afterwards, when the note
// is in the ring already; the exporter finds that out, too, and gives the credit back.
func (m *Mapped) together(off int, src []byte) error {
	if invariant.Enabled {
		m.traceSend(off, src, nil)
	}
	o, n := m.out, len(src)
	var word uint32
	o.nmu.Lock()
	if !m.well(o) {
		if err := m.check(); err != nil {
			o.nmu.Unlock()
			o.uncredit(true)
			return err
		}
	}
	if n <= shm.Short {
		word = shm.PutShortBefore(m.mem, off, src)
	} else {
		word = shm.PutBefore(m.mem[off:off+n], src)
	}
	tail, awake := m.note(off+n-4, word, 0)
	o.nmu.Unlock()
	if awake != page.Polls {
		m.announce(tail, awake)
	}
	if m.board.Count.Load() != 0 || !m.well(o) {
		return m.end(off, n)
	}
	m.count.Add2(page.Messages, 1, page.Bytes, uint64(n))
	runtime.KeepAlive(m)
	return nil
}

// note puts one in the ring, after its data, and says whether the exporter watches it; nmu
// is held.
func (m *Mapped) note(at int, word, redir uint32) (tail, awake uint32) {
	o := m.out
	o.serial++
	if invariant.Enabled {
		o.checkSerial()
		o.trace("mapped notification", m.handle, uint64(o.serial), uint64(at), 4)
	}
	tail = o.pages.Ring.Put(page.Note{Handle: m.handle, Serial: o.serial, Off: uint64(at), Word: word, Redir: redir})
	o.count.Locked(page.Notes, 1)
	return tail, o.pages.Back.Awake().Load() // after the note
}

// announce rouses an exporter that does not watch its ring.
func (m *Mapped) announce(tail, awake uint32) {
	o := m.out
	switch awake {
	case page.Polls:
	case page.Sleeps:
		unix.Rouse(o.pages.Ring.Stamp(tail))
	default:
		if o.pages.Back.Head().Load() == tail {
			o.ring()
		}
	}
	runtime.KeepAlive(m)
}

// Write copies any bytes, with no promise about the last ones.
func (m *Mapped) Write(ctx context.Context, off int, src []byte) error {
	if err := m.out.caughtUp(ctx); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped write", off, len(src))
	}
	shm.Copy(m.mem[off:off+len(src)], src)
	m.fence.Add(1) // a full barrier: plain stores would let end's loads pass them
	return m.end(off, len(src))
}

// Get copies out of the exporter's pages, the last word first. The state is
// looked at again after the copy.
func (m *Mapped) Get(ctx context.Context, off int, dst []byte, raw bool) error {
	if err := m.out.caughtUp(ctx); err != nil {
		return err
	}
	return m.get(ctx, off, dst, raw)
}

func (m *Mapped) get(ctx context.Context, off int, dst []byte, raw bool) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped get", off, len(dst))
	}
	src := m.mem[off : off+len(dst)]
	if raw {
		shm.Copy(dst, src)
	} else {
		shm.Take(dst, src)
	}
	if runtime.GOARCH != "amd64" {
		m.fence.Add(1) // elsewhere an atomic load may pass plain loads before it
	}
	err := m.check()
	m.count.Add2(page.Gets, 1, page.GetBytes, uint64(len(dst)))
	runtime.KeepAlive(m)
	return err
}
