package link

import (
	"math"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Where the far end is near, what is on its way, and not acknowledged, is in memory that both ends' processors share a cache for, as long as it is
// not much. TCP lets it be more: a sender that is the faster one fills megabytes of buffers, and from then on each byte is
// written to memory and read from there. Two megabytes in the time of a round trip are then more than a connection carries, and what eight messages of
// 256 KiB and their headers need; farther away it would be too little, and TCP finds out by itself what is not. A system that lets nobody have so
// much (net.core.wmem_max) has less on its way, and no bound of ours is missed.
const (
	lowRTTLimit      = 50 * time.Microsecond // of a round trip; two megabytes in it are 40 GB/s
	lowRTTSendBuffer = 1056 << 10            // twice that may be on its way
)

// tuneForRTT bounds what is on its way on a connection that has just begun, where the far end is near, and has it leave at once: a sender that
// spreads it over the round trip by timers, as BBR does, is a half to a quarter as fast. A connection farther away has the system's congestion control.
func (s *stream) tuneForRTT() {
	if t := unix.RoundTrip(s.fd); t > 0 && t <= lowRTTLimit {
		s.tx.burst.lowRTT = true
		unix.BoundSend(s.fd, lowRTTSendBuffer)
		unix.Unpace(s.fd)
		return
	}
	unix.Pace(s.fd)
}

// bulkInFlight says whether a long message to a near end is not acknowledged yet: it will be before long, or makes room in the socket.
func (s *stream) bulkInFlight() bool {
	rq, ok := s.h.(*Requester)
	return ok && s.tx.lastBulkSeq.Load() > rq.ackedSeq.Load()
}

// A TCP socket sends an acknowledgement, a packet of its own, whenever more has come since the last one
// than the longest segment that it has seen, and takes that to be 536 bytes before it has seen a longer one
// (rcv_mss, in __tcp_ack_snd_check and tcp_cleanup_rbuf): for every fifth short message, though a
// waiter leaves them in the socket (see [receiver.settle]), and the other end's next send meets it. So there is one
// long segment on a connection by which short messages go.

// padAfter is how many short frames come before it: most connections carry fewer, or long ones anyway.
const padAfter = 32

// padding and its header are as long as all the short frames that a waiter leaves in the socket.
var padding [maxPeeks*(wire.HeaderSize+maxInline) - wire.HeaderSize]byte

// startPadCount begins a connection; due says whether it is one where that matters.
func (t *transmitter) startPadCount(due bool) {
	t.framesToPad = -1
	if due {
		t.framesToPad = padAfter
	}
}

// addPad adds it to nothing else: what is in parts behind it would be taken for copies ([transmitter.lent]).
func (t *transmitter) addPad() {
	t.framesToPad = -1
	t.addFrame(&wire.Header{Type: wire.Pad, Flags: wire.Skip, Seq: math.MaxUint64, Chunk: uint32(len(padding))}, padding[:])
}
