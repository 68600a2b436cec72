package link

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Mapped is an import whose pages this process has mapped. Its methods may be called concurrently.
// The caller has checked offsets and lengths.
type Mapped struct {
	req         *Requester
	counters    shm.ShardedCounter // The link's.
	handle      uint32
	region      *shm.Region
	mem         []byte
	exportState *atomic.Uint32 // State word of the export in the exporter's page.
	liveState   uint32         // Its value while the export lives.
	board       wait.Board     // Of the exporter.
	// The export's address as the exporter publishes it on its board; 0: it does not.
	addr       uint64
	fence      atomic.Uint32 // See Write.
	closed     atomic.Bool
	answerHint *atomic.Bool // See Prefetch.

	Claims *redirect.Claims // nil: the export is not redirectable.
	Ended  *atomic.Bool     // The import has ended.
	// Set before Ended when the importer has closed it.
	LocallyClosed *atomic.Bool
	Done          <-chan struct{} // Closed after Ended is set.
	FastNotify    bool            // The same as Fast, for TrySendNotify.

	// TrySend may send: the import has the rights, no Claims, and Ended is set.
	Fast bool
}

// NewMapped makes one. size is the export's, which lies in the region at off.
func NewMapped(
	rq *Requester, handle uint32, r *shm.Region, off, size int, slot, alive uint32, addr uint64,
) *Mapped {
	return &Mapped{
		req: rq, answerHint: rq.e.budget.AnswerHint(), counters: rq.counters.ShardedCounter, handle: handle, region: r, mem: r.Bytes()[off : off+size : off+size],
		exportState: rq.pages.Peer.State(slot), liveState: alive, board: rq.pages.Peer.Board(), addr: addr,
	}
}

// Bytes is the export's memory.
func (m *Mapped) Bytes() []byte { return m.mem }

// Close replaces the pages by private ones, so a goroutine that still copies does no harm.
func (m *Mapped) Close() {
	m.closed.Store(true)
	m.region.Retire()
}

// check is called before and after each copy. A changed state means that the exporter has closed
// the export: what was written is, or may be, in no memory of it any more.
func (m *Mapped) check() error {
	if m.req.failed.Load() {
		return m.req.err()
	}
	// load before the state: the export's end sets closed too, after the state changed
	closed := m.closed.Load()
	if m.exportState.Load() != m.liveState {
		if m.req.failed.Load() { // failed since; the exporter's page may be gone, too
			return m.req.err()
		}
		return ErrRevoked
	}
	if closed {
		return ErrClosed
	}
	return nil
}

// healthy is check without the reason, small enough to be inlined.
func (m *Mapped) healthy(rq *Requester) bool {
	return !rq.failed.Load() && !m.closed.Load() && m.exportState.Load() == m.liveState
}

// Alive returns whether the export lives according to its exporter's page. The notice of its end
// may still be in flight.
func (m *Mapped) Alive() error { return m.check() }

// waitStreamApplied waits until the stream's messages before this one are applied: data on one path
// never overtakes data on the other. It takes two loads of local words if there are none.
func (m *Mapped) waitStreamApplied(ctx context.Context) error {
	if seq := m.req.lastSeq.Load(); seq != m.req.ackedSeq.Load() {
		return m.req.waitAcked(ctx, m.Ended, seq)
	}
	return nil
}

// Prefetch is called before [Mapped.TrySend], with an unchecked offset. After a wait of this
// process it requests the cache line of what may be an answer, before TrySend makes its checks,
// which take less time than the line. Messages in succession, or to lines that no CPU polls, would
// only lose by it.
func (m *Mapped) Prefetch(off int) {
	if m.answerHint.Load() {
		m.prefetch(off)
	}
}

// prefetch is no part of its caller, which is to be part of Send.
//
//go:noinline
func (m *Mapped) prefetch(off int) {
	shm.Prefetch(m.mem, off)
	m.answerHint.Store(false)
}

// TrySend is Send for the most frequent messages: short, with nothing that must come first or
// stands in their way. It checks all that may, its caller's arguments included. [ErrSlowPath] means
// that it has done nothing. It makes no call but the copy of more than two words, unless a
// goroutine of the exporter sleeps or the export ends. Its checks are those of [Mapped.check], in
// their order.
func (m *Mapped) TrySend(off int, src []byte) error {
	rq, mem, n := m.req, m.mem, len(src)
	if !m.Fast || n == 0 || n > shm.Piece || (n|off)%shm.WordSize != 0 || off < 0 ||
		off > len(mem)-n || rq.backlog.pending.Load() != 0 {
		return ErrSlowPath
	}
	if seq := rq.lastSeq.Load(); seq != rq.ackedSeq.Load() || m.Ended.Load() || !m.healthy(rq) {
		return ErrSlowPath
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
	if m.board.Count.Load() != 0 || !m.healthy(rq) {
		return m.finishMessage(off, n)
	}
	m.counters.Add2(shmlayout.Messages, 1, shmlayout.Bytes, uint64(n))
	runtime.KeepAlive(m) // keeps the pages mapped until the copy is over
	return nil
}

// Send copies src, and then more, into the exporter's pages, the last word last. It costs a system
// call only if a goroutine of the exporter sleeps.
func (m *Mapped) Send(ctx context.Context, off int, src []byte, more ...[]byte) error {
	if err := m.req.backlog.wait(ctx, m.Ended); err != nil {
		return err
	}
	if m.Claims != nil {
		_, err := m.sendRedirected(ctx, off, src, more, false, false)
		return err
	}
	return m.send(ctx, off, src, more)
}

// canSendNow reports whether a message can be sent at once by a mere copy.
func (m *Mapped) canSendNow(src []byte, more [][]byte) bool {
	return len(more) == 0 && len(src) <= shm.Piece && m.Claims == nil && m.nothingBefore()
}

// send copies a message to an export that is not redirectable.
func (m *Mapped) send(ctx context.Context, off int, src []byte, more [][]byte) error {
	if invariant.Enabled {
		m.traceSend(off, src, more)
	}
	if err := m.beginAccess(ctx); err != nil {
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
	return m.finishMessage(from, end-from)
}

func (m *Mapped) beginAccess(ctx context.Context) error {
	if err := m.waitStreamApplied(ctx); err != nil {
		return err
	}
	return m.check()
}

// finishMessage follows the last word's exchange, which orders that word before these loads. n
// bytes at off were stored, a message.
func (m *Mapped) finishMessage(off, n int) error {
	err := m.check()
	if err != nil {
		err = unknown(err)
	} else {
		m.counters.Add2(shmlayout.Messages, 1, shmlayout.Bytes, uint64(n))
		if m.board.Count.Load() != 0 {
			m.wakeSleepers(off, n)
		}
	}
	runtime.KeepAlive(m) // keeps the pages mapped until the copy is over
	return err
}

// finishStore is finishMessage for a store that is no message.
func (m *Mapped) finishStore(off, n int) error {
	err := m.check()
	if err != nil {
		err = unknown(err)
	} else if m.board.Count.Load() != 0 {
		m.wakeSleepers(off, n)
	}
	runtime.KeepAlive(m)
	return err
}

// wakeSleepers rings if a goroutine of the exporter may sleep for one of n bytes at off.
func (m *Mapped) wakeSleepers(off, n int) {
	place := m.addr
	if place != 0 {
		place += uint64(off)
	}
	if m.board.Concerns(place, n) {
		m.req.ringBell()
	}
}

// copyLong checks the context and the export after each piece.
func (m *Mapped) copyLong(ctx context.Context, dst, src []byte) error {
	for len(src) > 0 {
		n := min(len(src), shm.Piece)
		shm.Copy(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
		err := m.check()
		if err == nil && ctx.Err() != nil {
			err = timeout.Ended(ctx)
		}
		if err != nil {
			return unknown(err)
		}
	}
	return nil
}

// TrySendNotify is to SendNotify what [Mapped.TrySend] is to Send, with a credit that is known to
// be available.
func (m *Mapped) TrySendNotify(off int, src []byte) error {
	rq, n := m.req, len(src)
	if !m.FastNotify || n == 0 || n > maxSmallNotify || (n|off)%shm.WordSize != 0 || off < 0 ||
		off > len(m.mem)-n || rq.backlog.pending.Load() != 0 {
		return ErrSlowPath
	}
	if seq := rq.lastSeq.Load(); seq != rq.ackedSeq.Load() || m.Ended.Load() {
		return ErrSlowPath
	}
	// As in takeCredit: creditsSeen is at most the true total, and a goroutine that lost the
	// exchange has taken nothing. From here on sendWithNotification returns the credit, or its
	// notification carries it.
	if t := rq.creditsTaken.Load(); t-rq.creditsSeen.Load() >= shmlayout.Credits ||
		!rq.creditsTaken.CompareAndSwap(t, t+1) {
		return ErrSlowPath
	}
	return m.sendWithNotification(off, src)
}

// SendNotify sends, then puts a notification into the ring.
func (m *Mapped) SendNotify(ctx context.Context, off int, src []byte, more ...[]byte) error {
	if err := m.req.takeCredit(ctx, m.Ended); err != nil {
		return err
	}
	err := m.req.backlog.wait(ctx, m.Ended)
	if err != nil {
		m.req.untakeCredit(true)
		return err
	}
	return m.sendNotify(ctx, off, src, more)
}

// maxSmallNotify is the longest message that is sent together with its notification.
const maxSmallNotify = 1 << 10

// sendNotify is SendNotify with the credit taken.
func (m *Mapped) sendNotify(ctx context.Context, off int, src []byte, more [][]byte) error {
	if len(src) <= maxSmallNotify && m.canSendNow(src, more) {
		return m.sendWithNotification(off, src)
	}
	if m.Claims != nil {
		return m.sendNotifyRedirected(ctx, off, src, more, false)
	}
	if err := m.send(ctx, off, src, more); err != nil {
		m.req.untakeCredit(true) // no notification without its data
		return err
	}
	at := off + len(src) - 4
	if n := len(more); n > 0 {
		for _, b := range more {
			at += len(b)
		}
		src = more[n-1]
	}
	m.postNotification(at, lastWord(src), 0)
	return nil
}

// postNotification notifies the exporter of a message that has arrived, with the credit taken.
func (m *Mapped) postNotification(at int, word, redir uint32) {
	m.req.notifyMu.Lock()
	tail, awake := m.putNotification(at, word, redir)
	m.req.notifyMu.Unlock()
	m.wakeExporter(tail, awake)
}

// sendWithNotification sends a short message and its notification with one atomic exchange, that of
// the notification: the cache lines of both are fetched at the same time. The end of the export is
// detected afterwards, when the notification is already in the ring. The exporter detects it too,
// and returns the credit.
func (m *Mapped) sendWithNotification(off int, src []byte) error {
	if invariant.Enabled {
		m.traceSend(off, src, nil)
	}
	rq, n := m.req, len(src)
	var word uint32
	rq.notifyMu.Lock()
	if !m.healthy(rq) {
		if err := m.check(); err != nil {
			rq.notifyMu.Unlock()
			rq.untakeCredit(true)
			return err
		}
	}
	if n <= shm.Short {
		word = shm.PutShortBefore(m.mem, off, src)
	} else {
		word = shm.PutBefore(m.mem[off:off+n], src)
	}
	tail, awake := m.putNotification(off+n-4, word, 0)
	rq.notifyMu.Unlock()
	if awake != shmlayout.Polls {
		m.wakeExporter(tail, awake)
	}
	if m.board.Count.Load() != 0 || !m.healthy(rq) {
		return m.finishMessage(off, n)
	}
	m.counters.Add2(shmlayout.Messages, 1, shmlayout.Bytes, uint64(n))
	runtime.KeepAlive(m)
	return nil
}

// putNotification puts one into the ring, after its data, and returns how the exporter watches the
// ring. The caller holds notifyMu.
func (m *Mapped) putNotification(at int, word, redir uint32) (tail, awake uint32) {
	rq := m.req
	rq.lastSerial++
	if invariant.Enabled {
		rq.checkSerial()
		rq.trace("mapped notification", m.handle, uint64(rq.lastSerial), uint64(at), 4)
	}
	tail = rq.pages.Ring.Put(shmlayout.Notification{Handle: m.handle, Serial: rq.lastSerial, Off: uint64(at), Word: word, Redir: redir})
	rq.counters.AddLocked(shmlayout.Notifications, 1)
	return tail, rq.pages.Back.Awake().Load() // load after the notification is stored
}

// wakeExporter wakes an exporter that does not poll its ring.
func (m *Mapped) wakeExporter(tail, awake uint32) {
	rq := m.req
	switch awake {
	case shmlayout.Polls:
	case shmlayout.Sleeps:
		unix.Rouse(rq.pages.Ring.Stamp(tail))
	default:
		if rq.pages.Back.Head().Load() == tail {
			rq.ringBell()
		}
	}
	runtime.KeepAlive(m)
}

// Write copies any bytes, with no promise about the last ones.
func (m *Mapped) Write(ctx context.Context, off int, src []byte) error {
	if err := m.req.backlog.wait(ctx, m.Ended); err != nil {
		return err
	}
	if err := m.beginAccess(ctx); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped write", off, len(src))
	}
	shm.Copy(m.mem[off:off+len(src)], src)
	m.fence.Add(1) // a full barrier: finishMessage's loads could pass plain stores
	return m.finishMessage(off, len(src))
}

// Get copies out of the exporter's pages, the last word first. It checks the state again after the
// copy.
func (m *Mapped) Get(ctx context.Context, off int, dst []byte, raw bool) error {
	if err := m.req.backlog.wait(ctx, m.Ended); err != nil {
		return err
	}
	return m.get(ctx, off, dst, raw)
}

func (m *Mapped) get(ctx context.Context, off int, dst []byte, raw bool) error {
	if err := m.beginAccess(ctx); err != nil {
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
		m.fence.Add(1) // on other CPUs an atomic load may pass earlier plain loads
	}
	err := m.check()
	m.counters.Add2(shmlayout.Gets, 1, shmlayout.GetBytes, uint64(len(dst)))
	runtime.KeepAlive(m)
	return err
}

// Automatic update on the mapped path. It is outside the message order of a pair of processes, so
// it waits for no message. If the export is redirectable, each run of words is a message, which may
// be redirected.

// Direct reports whether updates are stored in the pages directly and never wait.
func (m *Mapped) Direct() bool { return m.Claims == nil }

// Update stores whole words. No sleeper is woken before [Mapped.Updated].
func (m *Mapped) Update(ctx context.Context, off int, words []byte) error {
	if m.Claims != nil {
		return m.Send(ctx, off, words)
	}
	if err := m.check(); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped update", off, len(words))
	}
	shm.PutWords(m.mem[off:off+len(words)], words)
	m.counters.Add(shmlayout.Bytes, uint64(len(words)))
	runtime.KeepAlive(m)
	return nil
}

// UpdateWord stores one word by one atomic exchange, after those of earlier Updates.
func (m *Mapped) UpdateWord(ctx context.Context, off int, word []byte) error {
	if m.Claims != nil {
		return m.Send(ctx, off, word)
	}
	if err := m.check(); err != nil {
		return err
	}
	if invariant.Enabled {
		m.trace("mapped update", off, len(word))
	}
	shm.Word(m.mem, off).Swap(shm.LastWord(word))
	m.counters.Add(shmlayout.Bytes, uint64(len(word)))
	runtime.KeepAlive(m)
	return nil
}

// Updated wakes sleepers after Updates. An error means that the export has ended meanwhile.
func (m *Mapped) Updated() error {
	m.counters.Add(shmlayout.Updates, 1)
	m.fence.Add(1) // as in Write: finishStore's loads come after the stores
	return m.finishStore(0, len(m.mem))
}

// Pages returns the region that the import lies in, and its offset there.
func (m *Mapped) Pages() (r *shm.Region, at int) {
	at, _ = shm.Within(m.region.Bytes(), m.mem)
	return m.region, at
}

// Pages are the shared pages of a same-node link. The link retires all of them when it ends. Peer
// is the peer process's page.
type Pages struct {
	Peer shmlayout.Process

	// The importing side writes Ring and reads Back; the exporting side does the reverse.
	Ring shmlayout.Importer
	Back shmlayout.Exporter
}

func (p *Pages) retire() {
	if p != nil {
		p.Peer.Retire()
		p.Ring.Retire()
		p.Back.Retire()
	}
}
