package link

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxInline is the longest payload that is copied beside its header.
const maxInline = 448

// transmitter writes frames one after another. Guarded by tmu.
type transmitter struct {
	io  unix.IO
	buf [wire.HeaderSize + maxInline]byte
	// Replaces buf while many short frames are unwritten.
	bigBuf        *[bufferSize]byte
	parts         [pacing.MaxParts]part
	stagedPayload *[wire.MaxChecked]byte // The copy of a checked payload, while unwritten.
	// Headers of the parts but the first, while any are in use.
	headBufs      *[pacing.MaxParts - 1][wire.HeaderSize + maxInline]byte
	burst         pacing.Burst  // Number of parts per call.
	checksum      bool          // Payloads have checksums. Set before the start.
	cipher        *cipherWriter // nil: not encrypted.
	firstPart     int           // The part that is being written.
	partCount     int           // Parts in use, written ones included.
	framesQueued  uint64        // Frames queued in all.
	framesWritten uint64        // Frames written whole.
	// Number of the next frame on this connection, modulo 2^32.
	frameNumber uint32
	control     []wire.Header // Frames that go before all others.
	// Short frames until a pad is due. 0: it is due; negative: none will be.
	framesToPad int
	bellDue     bool // A bell is owed.
	// nextFrame has more but waits for acknowledgements.
	awaitingAcks  bool
	importAnswers []importAnswer // Answers to imports, oldest first.
	// Header of this side's own frames; a field so that it is not allocated.
	ownHeader  wire.Header
	writeEvent wait.EventCount // Advances when the socket has room again.

	// The last long message to a low-RTT peer. Grows under tmu.
	lastBulkSeq atomic.Uint64
	// The first message of which payload may be unwritten, or 0. Stored under tmu.
	firstBorrowedSeq atomic.Uint64
	// The socket has no room for what is unwritten. Stored under tmu.
	writeBlocked atomic.Bool
	// Goroutines that write between their polls. Stored under tmu.
	activeWriters atomic.Int32
	writeArmed    bool // A write event will come or is in flight.
	// tryFlush is writing: markWriteBlocked must not arm.
	flushing bool
	// Bytes left of the write quantum; see pumpQuantum. 0: no bound; negative: used up.
	quantumLeft int
}

// part is the unwritten rest of some frames, and of the last one's payload.
type part struct {
	head []byte // A copy.
	// The sender's or exporter's memory, if it is long.
	payload []byte
	// The message it belongs to, which cannot have arrived yet; of a signal, the word's message. 0:
	// the part holds copies only, and more may be appended.
	seq    uint64
	copied bool // payload is a copy.
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

// reset discards the state of a lost connection.
func (t *transmitter) reset() {
	t.discard()
	t.framesWritten, t.frameNumber = t.framesQueued, 0
	t.firstBorrowedSeq.Store(0)
	t.writeBlocked.Store(false)
	t.bellDue, t.writeArmed = false, false
	t.burst = pacing.Burst{}
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

// maxPayload returns the longest payload of the next frame.
func (t *transmitter) maxPayload() int {
	if t.checksum {
		return wire.MaxChecked
	}
	return t.burst.MaxPayload()
}

var stagePool = sync.Pool{New: func() any { return new([wire.MaxChecked]byte) }}

// stageChecked copies a checked payload, so that the bytes sent are those summed even if the memory
// is written to meanwhile. A short payload is copied behind its header.
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

// headPool serves links that write several long frames in one call. An idle link holds none.
var headPool = sync.Pool{New: func() any { return new([pacing.MaxParts - 1][wire.HeaderSize + maxInline]byte) }}

// putHeader encodes the header of the next frame, and numbers it. All frames pass here.
func (t *transmitter) putHeader(h *wire.Header, b []byte) {
	h.Put(b, t.frameNumber)
	t.frameNumber++
}

// sentAlone records that the socket has taken n bytes of a frame that was not queued. The rest is
// queued. If it is all of the frame, the frame is not sent and its number is free again.
func (t *transmitter) sentAlone(frame []byte, n int) {
	switch {
	case n == 0:
		t.frameNumber--
	case n < len(frame):
		t.parts[0].head, t.partCount, t.framesQueued = frame[n:], 1, t.framesQueued+1
	}
}

// addFrame queues a frame behind those that are about to be written, and reports whether another
// one may follow in the same call. Long payloads are not copied. One call for several frames is
// faster than one call each.
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
			t.headBufs = headPool.Get().(*[pacing.MaxParts - 1][wire.HeaderSize + maxInline]byte)
		}
		p.head = t.headBufs[t.partCount-2][:size]
	case at == 0:
		p.head = t.buf[:size]
	case at+size <= cap(p.head):
		p.head = p.head[:at+size]
	default: // only buf can overflow
		t.bigBuf = bufferPool.Get().(*[bufferSize]byte)
		p.head = t.bigBuf[:copy(t.bigBuf[:], p.head)+size]
	}
	if t.checksum {
		payload = t.stageChecked(h, p.head[at+wire.HeaderSize:], payload)
	}
	t.putHeader(h, p.head[at:])
	if !whole {
		p.payload, p.seq = payload, h.Seq
		if t.burst.LowRTT && h.Type == wire.Data {
			t.lastBulkSeq.Store(h.Seq)
		}
		return !t.checksum && t.burst.AddPart(t.partCount, len(payload))
	}
	// the payload of an answer is memory that others write to
	shm.CopyUnchecked(p.head[at+wire.HeaderSize:], payload)
	return t.partCount == 1 && (t.bigBuf == nil || len(p.head)+len(t.buf) <= len(t.bigBuf))
}

// buildFrame makes the single frame of a message in b.
func (t *transmitter) buildFrame(b []byte, m *Message, size int, seq uint64, serial uint32) []byte {
	b = b[:wire.HeaderSize+size]
	n := wire.HeaderSize + copy(b[wire.HeaderSize:], m.Src)
	for _, p := range m.More {
		n += copy(b[n:], p)
	}
	h := wire.Header{Type: wire.Data, Handle: m.Handle, Seq: seq, Serial: serial, Off: m.Off, Size: uint64(size)}
	if m.Bytes {
		h.Flags = wire.Bytes
	}
	pay := m.finishHeader(&h, size, b[wire.HeaderSize:])
	h.Chunk = uint32(len(pay))
	if t.checksum {
		h.Sum = wire.Sum(0, pay)
	}
	t.putHeader(&h, b)
	n = wire.HeaderSize + len(pay)
	return b[:n:n]
}

// sendParts makes one send call. It returns the number of bytes that the socket took.
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

// consume records that the socket has taken n bytes more.
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
	t.burst.Written()
	t.firstPart, t.partCount = 0, 0
	t.releaseBuffers()
	t.framesWritten = t.framesQueued
	if t.firstBorrowedSeq.Load() != 0 {
		t.firstBorrowedSeq.Store(0)
	}
}

// cipherWriter is a cipher with memory for its arguments. The compiler cannot know that a call
// through an interface keeps none of them, so they would be allocated.
type cipherWriter struct {
	Cipher
	pieces [unix.MaxPieces][]byte
}

// encrypt makes one call for all parts.
func (t *transmitter) encrypt(fd int) (n int, err error) {
	c, k := t.cipher, 0
	for i := range t.parts[t.firstPart:t.partCount] {
		p := &t.parts[t.firstPart+i]
		c.pieces[k], c.pieces[k+1] = p.head, p.payload
		k += 2
	}
	n, err = c.Send(fd, c.pieces[:k]...)
	clear(c.pieces[:k])
	return n, err
}

// idle reports whether nothing is queued or owed here.
func (t *transmitter) idle() bool {
	return t.framesWritten == t.framesQueued && len(t.control) == 0 && !t.bellDue && !t.awaitingAcks &&
		len(t.importAnswers) == 0 && t.framesToPad != 0
}

// unwritten returns the number of unwritten bytes.
func (t *transmitter) unwritten() (n int) {
	for _, p := range t.parts[t.firstPart:t.partCount] {
		n += len(p.head) + len(p.payload)
	}
	return n
}

// firstBorrowed returns the first message of which payload is unwritten, or [math.MaxUint64].
func (t *transmitter) firstBorrowed() uint64 {
	for _, p := range t.parts[t.firstPart:t.partCount] {
		if p.seq != 0 {
			return p.seq
		}
	}
	return math.MaxUint64
}

// detachPayload copies the unwritten payloads, whose memory the link may not use any more. The
// payload of an answer is exported memory that other links store into meanwhile, as they do while
// the kernel reads it. detachPayload runs at the end of each import of a link and copies only what
// it has not copied yet.
func (t *transmitter) detachPayload() {
	for i := range t.parts[t.firstPart:t.partCount] {
		p := &t.parts[t.firstPart+i]
		if p.copied || len(p.payload) == 0 {
			continue
		}
		own := make([]byte, len(p.payload))
		// if the memory cannot be read, the message is an abort or its export has ended
		_ = shm.TryCopyUnchecked(own, p.payload)
		p.payload, p.copied = own, true
	}
}

// chunk is the longest payload of a frame unless the RTT is low.
const chunk = pacing.Chunk
