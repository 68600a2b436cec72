package link

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxInline is the longest payload that is copied beside its header.
const maxInline = 448

// transmitter writes frames one after another; all of it is under tmu.
type transmitter struct {
	io            unix.IO
	buf           [wire.HeaderSize + maxInline]byte
	bigBuf        *[bufferSize]byte // in place of buf, while many frames are under way
	parts         [maxPartsPerCall]part
	stagedPayload *[wire.MaxChecked]byte                                  // a payload that is checked, while it is under way
	headBufs      *[maxPartsPerCall - 1][wire.HeaderSize + maxInline]byte // of the parts but the first, while there are any
	burst         burstSizer                                              // how many parts one call writes
	checksum      bool                                                    // payloads have checksums; set before the start
	cipher        *cipherWriter                                           // nil: in clear
	firstPart     int                                                     // part under way
	partCount     int                                                     // of parts in use, the first ones included
	framesQueued  uint64                                                  // frames begun
	framesWritten uint64                                                  // frames written whole
	frameNumber   uint32                                                  // of the next frame on this connection, modulo 2^32
	control       []wire.Header                                           // frames that go before all others
	framesToPad   int                                                     // short frames until a pad is due; 0: it is, negative: none is
	bellDue       bool                                                    // a bell is owed
	awaitingAcks  bool                                                    // next has more, and waits for acknowledgements
	importAnswers []importAnswer                                          // answers to imports, oldest first
	ownHeader     wire.Header                                             // of this side's own frames; here so that none allocates
	writeEvent    wait.EventCount                                         // moves when the socket has room again

	lastBulkSeq      atomic.Uint64 // the last long message to a near end; grows with tmu
	firstBorrowedSeq atomic.Uint64 // the first message of which anything may be left, or 0; with tmu
	writeBlocked     atomic.Bool   // the socket has no room for what there is; with tmu
	activeWriters    atomic.Int32  // waiters that try again between their looks; with tmu
	writeArmed       bool          // an event will come, or is on its way
	flushing         bool          // who writes may come again soon: see offer
	quantumLeft      int           // bytes that who writes may write yet: see turn; 0: there is no bound, negative: none
}

// part is what is not written yet of some frames, and of the last one's payload.
type part struct {
	head    []byte // a copy
	payload []byte // the sender's or the exporter's memory, if it is long
	seq     uint64 // the message that it is of, which cannot have arrived yet; 0: copies, and more may come behind them
	copied  bool   // pay is a copy
}

func (t *transmitter) discard() {
	t.control = nil
	clear(t.parts[:])
	t.firstPart, t.partCount = 0, 0
	t.releaseBuffers()
	if t.cipher != nil {
		t.cipher.Drop()
		t.cipher = nil
	}
	for _, g := range t.importAnswers {
		if g.fd >= 0 {
			_ = unix.Close(g.fd)
		}
	}
	t.importAnswers = nil
}

// reset forgets what a connection has left.
func (t *transmitter) reset() {
	t.discard()
	t.framesWritten, t.frameNumber = t.framesQueued, 0
	t.firstBorrowedSeq.Store(0)
	t.writeBlocked.Store(false)
	t.bellDue, t.writeArmed = false, false
	t.burst = burstSizer{}
}

func (t *transmitter) releaseBuffers() {
	if t.bigBuf != nil {
		bufferPool.Put(t.bigBuf)
		t.bigBuf = nil
	}
	if t.headBufs != nil {
		headPool.Put(t.headBufs)
		t.headBufs = nil
	}
	if t.stagedPayload != nil {
		stagePool.Put(t.stagedPayload)
		t.stagedPayload = nil
	}
}

// maxPayload is the longest payload of a frame.
func (t *transmitter) maxPayload() int {
	if t.checksum {
		return wire.MaxChecked
	}
	return t.burst.maxPayload()
}

var stagePool = sync.Pool{New: func() any { return new([wire.MaxChecked]byte) }}

// stageChecked copies a payload that is checked: what is sent is then what was summed, though
// its memory is written to meanwhile. A short one goes behind its header.
func (t *transmitter) stageChecked(h *wire.Header, behind, payload []byte) []byte {
	to := behind
	if len(payload) > maxInline {
		t.stagedPayload = stagePool.Get().(*[wire.MaxChecked]byte)
		to = t.stagedPayload[:]
	}
	to = to[:len(payload)]
	shm.CopyUnchecked(to, payload)
	h.Sum = wire.Sum(0, to)
	return to
}

// headPool are for links that write several long frames in one call; one that is idle
// holds none.
var headPool = sync.Pool{New: func() any { return new([maxPartsPerCall - 1][wire.HeaderSize + maxInline]byte) }}

// putHeader makes the header of a frame that is the next one to be written.
func (t *transmitter) putHeader(h *wire.Header, b []byte) {
	h.Put(b, t.frameNumber)
	t.frameNumber++
}

// addFrame puts a frame behind those that are about to be written, and says whether
// another one may come behind it. Long payloads stay where they are; a call that
// writes several is faster than as many calls.
func (t *transmitter) addFrame(h *wire.Header, payload []byte) (more bool) {
	t.framesQueued++
	size := wire.HeaderSize + len(payload)
	whole := len(payload) <= maxInline
	if !whole {
		size = wire.HeaderSize
	} else if t.framesToPad > 0 {
		t.framesToPad--
	}
	if t.partCount == 0 || t.parts[t.partCount-1].seq != 0 {
		t.partCount++
	}
	p := &t.parts[t.partCount-1]
	at := len(p.head)
	switch {
	case t.partCount > 1:
		if t.headBufs == nil {
			t.headBufs = headPool.Get().(*[maxPartsPerCall - 1][wire.HeaderSize + maxInline]byte)
		}
		p.head = t.headBufs[t.partCount-2][:size]
	case at == 0:
		p.head = t.buf[:size]
	case at+size <= cap(p.head):
		p.head = p.head[:at+size]
	default: // which happens with buf only
		t.bigBuf = bufferPool.Get().(*[bufferSize]byte)
		p.head = t.bigBuf[:copy(t.bigBuf[:], p.head)+size]
	}
	if t.checksum {
		payload = t.stageChecked(h, p.head[at+wire.HeaderSize:], payload)
	}
	t.putHeader(h, p.head[at:])
	if !whole {
		p.payload, p.seq = payload, h.Seq
		if t.burst.lowRTT && h.Type == wire.Data {
			t.lastBulkSeq.Store(h.Seq)
		}
		return !t.checksum && t.burst.addPart(t.partCount, len(payload))
	}
	shm.CopyUnchecked(p.head[at+wire.HeaderSize:], payload) // of an answer it is memory that others write to
	return t.partCount == 1 && (t.bigBuf == nil || len(p.head)+len(t.buf) <= len(t.bigBuf))
}

// sendParts makes one call. It returns how much the socket took.
func (t *transmitter) sendParts(fd int) (n int, err error) {
	p := &t.parts[t.firstPart]
	switch {
	case t.cipher != nil:
		n, err = t.encrypt(fd)
	case t.partCount-t.firstPart > 1:
		var pieces [unix.MaxPieces][]byte
		k := 0
		for _, p := range t.parts[t.firstPart:t.partCount] {
			pieces[k], pieces[k+1] = p.head, p.payload
			k += 2
		}
		n, err = t.io.SendPieces(fd, pieces[:k])
	case len(p.head) > 0:
		n, err = t.io.Send(fd, p.head, p.payload)
	default:
		n, err = t.io.Send(fd, p.payload, nil)
	}
	if err == nil {
		t.consume(n)
		if t.quantumLeft > 0 {
			if t.quantumLeft -= n; t.quantumLeft <= 0 {
				t.quantumLeft = -1
			}
		}
	}
	return n, err
}

// consume notes that the socket has taken n bytes more.
func (t *transmitter) consume(n int) {
	for ; t.firstPart < t.partCount; t.firstPart++ {
		p := &t.parts[t.firstPart]
		k := min(n, len(p.head))
		p.head, n = p.head[k:], n-k
		k = min(n, len(p.payload))
		p.payload, n = p.payload[k:], n-k
		if len(p.head)+len(p.payload) > 0 {
			return
		}
		*p = part{}
	}
	t.burst.written()
	t.firstPart, t.partCount = 0, 0
	t.releaseBuffers()
	t.framesWritten = t.framesQueued
	if t.firstBorrowedSeq.Load() != 0 {
		t.firstBorrowedSeq.Store(0)
	}
}

// idle says that nothing is begun or queued here.
func (t *transmitter) idle() bool {
	return t.framesWritten == t.framesQueued && len(t.control) == 0 && !t.bellDue && !t.awaitingAcks && len(t.importAnswers) == 0 && t.framesToPad != 0
}

// unwritten is how many bytes are not written.
func (t *transmitter) unwritten() (n int) {
	for _, p := range t.parts[t.firstPart:t.partCount] {
		n += len(p.head) + len(p.payload)
	}
	return n
}

// firstBorrowed is the first message of which there is anything left, [math.MaxUint64] for none.
func (t *transmitter) firstBorrowed() uint64 {
	for _, p := range t.parts[t.firstPart:t.partCount] {
		if p.seq != 0 {
			return p.seq
		}
	}
	return math.MaxUint64
}

// detachPayload copies what is left of payloads, whose memory is not the link's any more. That of an answer is exported memory,
// into which what comes over other links is stored meanwhile, as it is while the kernel takes it. It is asked for at the end of
// each import of a link, and copies only what it has not copied yet.
func (t *transmitter) detachPayload() {
	for i := range t.parts[t.firstPart:t.partCount] {
		p := &t.parts[t.firstPart+i]
		if p.copied || len(p.payload) == 0 {
			continue
		}
		own := make([]byte, len(p.payload))
		_ = shm.TryCopyUnchecked(own, p.payload) // of what cannot be read the message is an abort, or its export has ended
		p.payload, p.copied = own, true
	}
}

// flush writes what the socket takes of the frame under way.
func (s *stream) flush() (done bool) {
	t := &s.tx
	for t.framesWritten < t.framesQueued {
		if s.disconnected.Load() {
			return false
		}
		if t.quantumLeft < 0 { // and there may be room
			t.writeBlocked.Store(true)
			return false
		}
		n, err := t.sendParts(s.fd)
		if err != nil {
			if unix.Faulted(err) { // memory that could be read a moment ago
				s.h.sendFaulted()
			}
			s.connLost(s.connError(err))
			return false
		}
		if n == 0 {
			s.markWriteBlocked()
			return false
		}
	}
	return true
}

// maxBurst bounds how many long frames, of a chunk each, one pump writes before other links get a turn. A call counts as minPartsPerCall of them at least.
const maxBurst = 8 * minPartsPerCall

// pump writes all that goes before a sender's next frame, and says whether
// that is done.
func (s *stream) pump() (clear bool) {
	if s.disconnected.Load() {
		return false
	}
	for spent := 0; s.flush(); spent += minPartsPerCall {
		if spent+s.tx.burst.maxParts() > maxBurst {
			s.markWriteBlocked() // raises an event at once if there is room
			return false
		}
		if len(s.tx.importAnswers) > 0 && s.fd >= 0 {
			if !s.writeImportAnswer() {
				return false
			}
			continue
		}
		if !s.queueFrames() && len(s.tx.control) == 0 { // what is there is asked for by next
			return !s.tx.awaitingAcks
		}
		spent += max(s.tx.burst.weight(s.tx.partCount)-minPartsPerCall, 0)
	}
	return false
}

// queueFrames begins as many frames as one call can write, and says whether there are any.
func (s *stream) queueFrames() (any bool) {
	t := &s.tx
	if t.framesToPad == 0 {
		t.addPad()
		return true
	}
	for more := true; more; any = true {
		switch {
		case len(t.control) > 0:
			h := t.control[0]
			t.control = append(t.control[:0], t.control[1:]...)
			more = t.addFrame(&h, nil)
		case t.bellDue:
			t.bellDue = false
			more = t.addFrame(&wire.Header{Type: wire.Bell}, nil)
		default:
			pay, ok := s.h.nextFrame(&t.ownHeader)
			if !ok {
				return any
			}
			more = t.addFrame(&t.ownHeader, pay)
		}
	}
	return any
}

// sendControl queues a frame that goes before others, and sends what can be sent.
func (s *stream) sendControl(h wire.Header) {
	s.tmu.Lock()
	s.tx.control = append(s.tx.control, h)
	s.pump()
	s.tmu.Unlock()
}

// pumpNow sends what this side owes.
func (s *stream) pumpNow() {
	s.tmu.Lock()
	s.pump()
	s.tmu.Unlock()
}

// ringBell tells the peer process to look at the shared words and the ring.
func (s *stream) ringBell() {
	s.tmu.Lock()
	if s.tx.framesWritten < s.tx.framesQueued || len(s.tx.control) > 0 || len(s.tx.importAnswers) > 0 {
		s.tx.bellDue = true // goes with the frame under way
	} else if s.fd >= 0 {
		h := wire.Header{Type: wire.Bell}
		t := &s.tx
		bell := t.buf[:wire.HeaderSize]
		h.Put(bell, t.frameNumber)
		if n, err := t.io.Send(s.fd, bell, nil); err != nil {
			s.fail(s.connError(err))
		} else if n == 0 {
			t.bellDue = true // no room: it goes when there is
			s.markWriteBlocked()
		} else if t.frameNumber++; n < len(bell) {
			t.parts[0].head, t.partCount, t.framesQueued = bell[n:], 1, t.framesQueued+1
			s.markWriteBlocked()
		}
	}
	s.tmu.Unlock()
}

// maxPartsPerCall is how many long frames one call writes at most, and minPartsPerCall how many it always may.
const (
	maxPartsPerCall = unix.MaxPieces / 2
	minPartsPerCall = 4
)

// chunk is the longest payload of a frame where the far end is not near. One call writes as many bytes as its parts could have
// with that, and to a near end in as few frames as there are messages: where one ends a call to receive ends as well, and of 1 MiB
// in four frames a tenth less moves than of as much in one. So the longest of all is a whole load.
const chunk = wire.MaxChunk / maxPartsPerCall

// burstSizer is how many long frames may be begun together. What is begun is written before all else, so more of it makes short messages
// wait; but who has more to write leaves the socket full while it sees to acknowledgements, and begins with less of it
// half empty. So a connection whose far end is near, and takes a full load in no time, is given more of it.
type burstSizer struct {
	lowRTT     bool // and what is on its way is bounded, so that of several loads each takes the time that one is under way
	extraParts int  // parts beyond minPartsPerCall
	bytes      int  // of payload in the parts so far, or in those that are being written
	fullSince  time.Time
}

// minMeanPart is what the parts of a load have in the mean at least, as those of messages of 64 KiB, where its time says anything of a load of whole chunks.
const minMeanPart = 60 << 10

// The time that a full load takes: below the first one it may be twice as much, and above the second one half.
const (
	fastBurst = 200 * time.Microsecond
	slowBurst = 500 * time.Microsecond
)

// maxParts is how many the next load may have.
func (l *burstSizer) maxParts() int { return minPartsPerCall + l.extraParts }

// maxBytes is how many bytes of payload the next load may have.
func (l *burstSizer) maxBytes() int { return l.maxParts() * chunk }

// maxPayload is the longest payload of the next frame.
func (l *burstSizer) maxPayload() int {
	if l.lowRTT {
		return max(chunk, l.maxBytes()-l.bytes)
	}
	return chunk
}

// weight is how many parts a load of count of them is at least, each of a chunk.
func (l *burstSizer) weight(count int) int { return max(count, l.bytes/chunk) }

// addPart says whether another part may come behind count of them, of which the last one has a payload of size bytes.
func (l *burstSizer) addPart(count, size int) bool {
	l.bytes += size
	if count < l.maxParts() && l.maxBytes()-l.bytes >= chunk/2 { // a last word is in its header, so there may be a little room behind a full load
		return true
	}
	if l.lowRTT && l.bytes >= count*minMeanPart {
		l.fullSince = time.Now()
	}
	return false
}

// written notes that all that was begun is written.
func (l *burstSizer) written() {
	l.bytes = 0
	if l.fullSince.IsZero() {
		return
	}
	took := time.Since(l.fullSince)
	l.fullSince = time.Time{}
	n := l.maxParts()
	switch {
	case took < fastBurst:
		n = min(2*n, maxPartsPerCall)
	case took > slowBurst:
		n = max(n/2, minPartsPerCall)
	}
	l.extraParts = n - minPartsPerCall
}
