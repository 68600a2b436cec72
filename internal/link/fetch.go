package link

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxFetches bounds the unanswered gets and atomics on one link. The exporter ends a link that has
// more.
const maxFetches = 64

// fetch is an unanswered get or atomic. Once it is in the table, the table's mu guards dst,
// received, old, storeErr and err until done advances; the other fields do not change. The receiver
// writes to dst under rmu.
type fetch struct {
	dst      []byte
	handle   uint32
	id       uint32 // Number of the buffer.
	off      uint64
	size     uint64
	seq      uint64
	received int
	bytes    bool // No last word.

	op  wire.Op // Of an atomic, else 0.
	a   uint64  // Its operands.
	b   uint64
	old uint64 // Its result.

	storeErr error       // dst could not be written.
	canceled atomic.Bool // Its import was closed. Set with storeErr, before an answer.
	err      error       // Set before done advances.
	done     wait.EventCount
}

// Read describes a get.
type Read struct {
	Handle uint32
	ID     uint32
	Off    uint64
	Dst    []byte
	Bytes  bool
	Ended  *atomic.Bool
	Done   <-chan struct{} // Closed after Ended is set.
}

var fetchPool = sync.Pool{New: func() any { return new(fetch) }}

func (f *fetch) set(r *Read) {
	f.dst, f.handle, f.id, f.off, f.size, f.bytes = r.Dst, r.Handle, r.ID, r.Off, uint64(len(r.Dst)), r.Bytes
	f.received, f.op, f.storeErr, f.err = 0, 0, nil, nil
	f.canceled.Store(false)
}

func (f *fetch) finish(err error) {
	f.err = err
	f.done.Advance()
}

// header returns the frame of the request.
func (f *fetch) header() wire.Header {
	h := wire.Header{Type: wire.Get, Handle: f.handle, Seq: f.seq, Off: f.off, Size: f.size}
	if f.op != 0 {
		h.Type = wire.Atomic
		h.SetOperands(f.op, f.a, f.b)
	} else if f.bytes {
		h.Flags = wire.Bytes
	}
	return h
}

// fetchTable holds the gets and atomics without an answer, oldest first.
type fetchTable struct {
	mu    sync.Mutex // Last in the lock order.
	list  []*fetch
	count atomic.Int32    // len(list). Grows under inboxMu.
	event wait.EventCount // Advances when a get or an atomic is answered.
	// The get whose payload is arriving. Guarded by rmu.
	arriving *fetch
}

// oldest returns the oldest fetch if its number is seq, or nil. The caller holds mu.
func (t *fetchTable) oldest(seq uint64) *fetch {
	if len(t.list) == 0 || t.list[0].seq != seq {
		return nil
	}
	return t.list[0]
}

// overlaps reports whether an unanswered get reads what an update would write. A get returns memory
// as of a moment before its answer is complete, so the update waits.
func (t *fetchTable) overlaps(id uint32, off, size uint64) bool {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.list {
		abandoned := f.op == 0 && f.dst == nil // its result is discarded
		if f.id == id && !abandoned && f.off < off+size && off < f.off+f.size {
			return true
		}
	}
	return false
}

// unansweredBefore reports whether a get or an atomic before message seq is unanswered: requests
// complete in order, whatever their kind.
func (t *fetchTable) unansweredBefore(seq uint64) bool {
	if t.count.Load() == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.list) > 0 && t.list[0].seq < seq
}

// connLost forgets the part of the oldest answer that has arrived, and returns its length: the
// answer is read again from its beginning, last word first. The caller holds rmu.
func (t *fetchTable) connLost() (arrived int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arriving = nil
	if len(t.list) > 0 {
		arrived, t.list[0].received = t.list[0].received, 0
	}
	return arrived
}

// storeFaulted makes the get fail whose payload is arriving. The caller holds rmu.
func (t *fetchTable) storeFaulted(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.arriving; f != nil {
		f.dst, f.storeErr = nil, err
	}
}

// failAll empties the table of a link that has ended.
func (t *fetchTable) failAll(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.list {
		if f.op != 0 { // the exporter may have executed it
			f.finish(unknown(err))
		} else {
			f.finish(err)
		}
	}
	t.list = nil
	t.count.Store(0)
}

// Get fetches len(r.Dst) bytes.
func (rq *Requester) Get(ctx context.Context, r Read) error {
	f := fetchPool.Get().(*fetch)
	f.set(&r)
	_, err := rq.roundTrip(ctx, f, r.Ended, r.Done)
	return err
}

// roundTrip sends the request and waits for the answer. It owns f from then on.
func (rq *Requester) roundTrip(
	ctx context.Context, f *fetch, ended *atomic.Bool, done <-chan struct{},
) (old uint64, err error) {
	if err := rq.backlog.wait(ctx, ended); err != nil {
		return 0, err
	}
	if err := rq.acquireSender(ctx, done); err != nil {
		return 0, err
	}
	tick := f.done.Load()
	err = rq.sendFetch(ctx, f, ended)
	rq.sendSem.Release()
	if err != nil {
		return 0, err
	}
	rq.e.markHot(&rq.stream)
	if err := rq.e.wait(ctx, &wait.Cond{Word: f.done.Word(), Old: tick, Ended: ended, LocalOnly: true}, &rq.stream); err != nil || f.done.Load() == tick {
		if rq.abandonFetch(f) {
			if err == nil {
				err = ErrEnded
			}
			if f.op != 0 {
				err = &PendingAtomic{err: unknown(err), o: rq, f: f, tick: tick}
			}
			return 0, err
		}
	}
	old, err = f.old, f.err
	f.dst = nil
	fetchPool.Put(f)
	return old, err
}

// sendFetch queues the request on the stream and in the table.
func (rq *Requester) sendFetch(ctx context.Context, f *fetch, ended *atomic.Bool) error {
	for {
		if err := rq.waitFetchSlot(ctx, ended); err != nil {
			return err
		}
		if f.op != 0 {
			if err := rq.waitNoOverlap(ctx, ended, f.id, f.off, f.size); err != nil {
				return err
			}
		}
		if err := rq.lockIdleQueue(ctx, ended); err != nil {
			return err
		}
		if rq.fetches.count.Load() < maxFetches { // under inboxMu, under which it grows
			break
		}
		rq.inboxMu.Unlock()
		rq.tmu.Unlock()
	}
	defer rq.tmu.Unlock()
	if err := rq.err(); err != nil { // discardAll has emptied the table, or is about to
		rq.inboxMu.Unlock()
		return err
	}
	f.seq = rq.lastSeq.Load() + 1
	rq.lastSeq.Store(f.seq)
	rq.addFetch(f)
	rq.inboxMu.Unlock()
	if rq.needsProbes {
		rq.tailProbe.schedule()
	}
	h := f.header()
	rq.messageFramed(f.seq, false)
	if rq.writeShort(&h, nil) && !rq.nothingQueued() { // more was queued meanwhile
		rq.pump()
	}
	return nil
}

// addFetch puts f into the table. The caller holds inboxMu, so fetches are in the order of their
// numbers.
func (rq *Requester) addFetch(f *fetch) {
	if f.op != 0 {
		rq.counters.AddLocked(shmlayout.Atomics, 1)
	} else {
		rq.counters.AddLocked(shmlayout.Gets, 1)
		rq.counters.AddLocked(shmlayout.GetBytes, f.size)
	}
	rq.fetches.mu.Lock()
	rq.fetches.list = append(rq.fetches.list, f)
	rq.fetches.count.Store(int32(len(rq.fetches.list)))
	if invariant.Enabled {
		rq.fetches.check()
		rq.traceFetch("ask for a", f)
	}
	rq.fetches.mu.Unlock()
}

// waitFetchSlot waits until one more get may be sent. Only a caller that holds inboxMu can rely on
// the result.
func (rq *Requester) waitFetchSlot(ctx context.Context, ended *atomic.Bool) error {
	return rq.await(ctx, ended, &rq.fetches.event, &rq.stream, func() bool { return rq.fetches.count.Load() < maxFetches })
}

// waitNoOverlap waits until no unanswered get overlaps.
func (rq *Requester) waitNoOverlap(
	ctx context.Context, ended *atomic.Bool, id uint32, off, size uint64,
) error {
	return rq.await(ctx, ended, &rq.fetches.event, &rq.stream, func() bool { return !rq.fetches.overlaps(id, off, size) })
}

// waitAnsweredBefore waits until all gets and atomics before message seq are answered.
func (rq *Requester) waitAnsweredBefore(
	ctx context.Context, ended *atomic.Bool, seq uint64,
) error {
	return rq.await(ctx, ended, &rq.fetches.event, &rq.stream, func() bool { return !rq.fetches.unansweredBefore(seq) })
}

// GetAsync begins a get. r.Dst belongs to the link until the request is done.
func (rq *Requester) GetAsync(ctx context.Context, r Read) (Request, error) {
	if err := rq.err(); err != nil {
		return Request{}, err
	}
	f := new(fetch) // not pooled: the request uses it for as long as its owner polls it
	f.set(&r)
	ask := Message{Handle: r.Handle, Ended: r.Ended}
	if !rq.backlog.busy() && rq.fetches.count.Load() < maxFetches/2 {
		if err := rq.enqueue(ctx, &outgoing{msg: ask, fetch: f}); err != nil {
			return Request{}, err
		}
		return Request{requester: rq, fetch: f}, nil
	}
	req, err := rq.backlog.deferOp(ctx, r.Ended, &deferredOp{mayWait: true, run: func(ctx context.Context, _ *deferredOp) error {
		return rq.enqueue(ctx, &outgoing{msg: ask, fetch: f})
	}})
	req.fetch = f
	return req, err
}

// abandonFetch makes an answer that is still to come be discarded. It returns false if the answer
// was complete before. It holds rmu, so the receiver does not write to dst meanwhile.
func (rq *Requester) abandonFetch(f *fetch) bool {
	rq.rmu.Lock()
	defer rq.rmu.Unlock()
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	if !slices.Contains(rq.fetches.list, f) {
		return false
	}
	f.dst = nil
	if rq.fetches.arriving == f {
		rq.rx.discardRest()
	}
	return true
}

// payloadBuffer returns the memory for a reply's payload.
func (rq *Requester) payloadBuffer(rest int) []byte {
	f := rq.fetches.arriving
	if f == nil {
		return nil
	}
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	if f.dst == nil { // abandoned
		return nil
	}
	at := f.received + int(rq.rx.hdr.Chunk) - rest
	return f.dst[at : at+rest]
}

// checkReply checks a reply's header.
func (rq *Requester) checkReply(h *wire.Header) error {
	sent := rq.fullySent(h.Seq)
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	f := rq.fetches.oldest(h.Seq)
	if f == nil || f.op != 0 || !sent {
		return protocol("a reply to %d, which was not asked for", h.Seq)
	}
	span := int(h.Span())
	switch {
	case f.bytes != (h.Flags&wire.Bytes != 0), h.Off != uint64(f.received):
		return protocol("reply to %d at %d, expected at %d", h.Seq, h.Off, f.received)
	case f.size != h.Size, h.Span() > f.size-uint64(f.received), (h.Flags&wire.Last != 0) != (uint64(f.received+span) == f.size):
		return protocol("reply of %d bytes to a get of %d", h.Size, f.size)
	}
	rq.fetches.arriving = f
	return nil
}

// handleReply is called when a reply's payload is in place.
func (rq *Requester) handleReply(h *wire.Header) {
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	f := rq.fetches.arriving
	rq.fetches.arriving = nil
	f.received += int(h.Span())
	if f.dst != nil && h.Flags&wire.Last != 0 && !f.bytes {
		f.storeErr = shm.Guard(func() { setLastWord(f.dst, h.Word) })
	}
	if h.Flags&wire.Last != 0 {
		rq.fetchAnswered(f.storeErr)
	}
}

// handleNak handles a refusal: of a get or an atomic, which it completes, or of a message.
func (rq *Requester) handleNak(h *wire.Header) error {
	err := refusal(h.Word)
	if h.Word != wire.CodeAlignment { // misalignment is the request's fault, not the import's end
		rq.onRevoke(h.Handle, AppliedUnknown, err)
	}
	sent := rq.fullySent(h.Seq)
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	if rq.fetches.oldest(h.Seq) != nil && sent {
		rq.fetchAnswered(err)
	}
	return nil
}

// fetchAnswered completes the oldest fetch. Its answer acknowledges all messages before it, because
// the exporter works in order. The caller holds the table's mu.
func (rq *Requester) fetchAnswered(err error) {
	t := &rq.fetches
	f := t.list[0]
	rq.repliedSeq = f.seq
	if rq.ackedSeq.Load() < f.seq { // only the holder of rmu stores ackedSeq
		rq.ackedSeq.Store(f.seq)
	}
	n := copy(t.list, t.list[1:])
	t.list[n] = nil
	t.list = t.list[:n]
	t.count.Store(int32(n))
	if invariant.Enabled {
		t.check()
		rq.traceFetch("answered", f)
	}
	f.finish(err)
	t.event.Advance()
	rq.ackEvent.Advance()
}

// Atomic executes c at the exporter, in its place among the messages, and returns the old value.
func (rq *Requester) Atomic(ctx context.Context, c AtomicOp) (old uint64, err error) {
	f := fetchPool.Get().(*fetch)
	f.set(&Read{Handle: c.Handle, ID: c.ID, Off: c.Off})
	f.op, f.a, f.b, f.size = c.Op, c.A, c.B, c.size()
	return rq.roundTrip(ctx, f, c.Ended, c.Done)
}

// checkResult checks that an atomic's result was requested.
func (rq *Requester) checkResult(h *wire.Header) error {
	sent := rq.fullySent(h.Seq)
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	if f := rq.fetches.oldest(h.Seq); f == nil || f.op == 0 || !sent {
		return protocol("a result of %d, which was not asked for", h.Seq)
	}
	return nil
}

// handleResult completes an atomic.
func (rq *Requester) handleResult(h *wire.Header) {
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	rq.fetches.list[0].old = h.Off
	rq.fetchAnswered(nil)
}

// storeFaulted discards the rest of an answer and makes its get fail. The caller holds rmu.
func (rq *Requester) storeFaulted(err error) {
	rq.fetches.storeFaulted(err)
}
