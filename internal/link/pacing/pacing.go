// Package pacing decides how much of a link's traffic shares a call, a frame or an
// acknowledgement. It is policy alone: it holds no lock, touches no socket, and its callers say
// when something was written.
package pacing

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// MaxParts is the number of long frames that one call writes at most. MinParts is the number that
// any call may write.
const (
	MaxParts = unix.MaxPieces / 2
	MinParts = 4
)

// Chunk is the longest payload of a frame unless the RTT is low. One call writes as many bytes as
// its parts could have with that. To a low-RTT peer they go in as few frames as there are messages:
// each frame ends a receive call, and of 1 MiB in four frames a tenth less per second arrives than
// of 1 MiB in one. So the longest payload of all is a whole burst.
const Chunk = wire.MaxChunk / MaxParts

// CoalesceBytes returns how many bytes of messages of the given size are coalesced: a chunk, or as
// many messages as any call may write if that is more. A longer message is sent by itself.
func CoalesceBytes(size uint64) uint64 {
	if size > Chunk {
		return Chunk
	}
	return max(Chunk, MinParts*size)
}

// AckStride returns how many bytes of messages of the given size share an acknowledgement while
// more of them come: its cost is small beside that of so much data. Two messages of 256 KiB share
// one; a longer message has its own.
func AckStride(size uint64) uint64 {
	if size > Chunk {
		return Chunk
	}
	return max(Chunk, 2*size)
}

// InFlight tracks the sizes of the last long asynchronous messages written.
type InFlight struct {
	recent [16]struct {
		seq uint64
		sum uint64 // of bytes up to it
	}
	n   uint64 // Number of messages.
	sum uint64
}

// Len returns how many messages were added.
func (f *InFlight) Len() uint64 { return f.n }

// Add records a message that is being written, with its number.
func (f *InFlight) Add(seq uint64, size int) {
	f.sum += uint64(size)
	at := &f.recent[f.n%uint64(len(f.recent))]
	at.seq, at.sum = seq, f.sum
	f.n++
}

// After returns the bytes of messages after acked, counting at least the last ones.
func (f *InFlight) After(acked uint64) (size uint64) {
	for k := range min(f.n, uint64(len(f.recent))) {
		at := &f.recent[(f.n-1-k)%uint64(len(f.recent))]
		if at.seq <= acked {
			return f.sum - at.sum
		}
		if k+1 == f.n { // the first message of all
			return f.sum
		}
		size = f.sum - at.sum
	}
	return size
}

// Burst adapts the number of long frames that are queued together. Queued frames are written before
// all others, so a large burst delays short messages. But a sender with more to write leaves the
// socket full while it handles acknowledgements, and with small bursts it leaves the socket half
// empty. So a low-RTT connection that takes a full burst at once is given a larger one.
type Burst struct {
	// The RTT is low and the bytes in flight are bounded, so each burst takes as long as the one
	// before it is in flight.
	LowRTT     bool
	ExtraParts int // Parts beyond MinParts.
	// Payload in the parts so far, or in those being written.
	Bytes     int
	FullSince time.Time // When the burst became full; zero: it did not.
}

// Full returns the largest burst of a low-RTT connection.
func Full() Burst { return Burst{LowRTT: true, ExtraParts: MaxParts - MinParts} }

// minMeanPart is the mean payload, that of 64 KiB messages, from which the time of a burst says
// anything about a burst of whole chunks.
const minMeanPart = 60 << 10

// The time of a full burst. Below fastBurst the burst is doubled, above slowBurst it is halved.
const (
	fastBurst = 200 * time.Microsecond
	slowBurst = 500 * time.Microsecond
)

// MaxParts returns how many parts the next burst may have.
func (b *Burst) MaxParts() int { return MinParts + b.ExtraParts }

// maxBytes returns how many payload bytes the next burst may have.
func (b *Burst) maxBytes() int { return b.MaxParts() * Chunk }

// MaxPayload returns the longest payload of the next frame.
func (b *Burst) MaxPayload() int {
	if b.LowRTT {
		return max(Chunk, b.maxBytes()-b.Bytes)
	}
	return Chunk
}

// Weight returns the weight of a burst of count parts, in chunks.
func (b *Burst) Weight(count int) int { return max(count, b.Bytes/Chunk) }

// AddPart counts a part with a payload of size bytes, the last of count, and reports whether
// another part may follow.
func (b *Burst) AddPart(count, size int) bool {
	b.Bytes += size
	// a last word travels in its header, so a full burst may leave a little room
	if count < b.MaxParts() && b.maxBytes()-b.Bytes >= Chunk/2 {
		return true
	}
	if b.LowRTT && b.Bytes >= count*minMeanPart {
		b.FullSince = time.Now()
	}
	return false
}

// Written records that the burst is written, and adapts the next one.
func (b *Burst) Written() {
	b.Bytes = 0
	if b.FullSince.IsZero() {
		return
	}
	took := time.Since(b.FullSince)
	b.FullSince = time.Time{}
	n := b.MaxParts()
	switch {
	case took < fastBurst:
		n = min(2*n, MaxParts)
	case took > slowBurst:
		n = max(n/2, MinParts)
	}
	b.ExtraParts = n - MinParts
}
