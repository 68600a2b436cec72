package link

import (
	"math"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// At low RTT the unacknowledged bytes lie in memory for which the CPUs of both ends share a cache,
// as long as there are few. TCP allows more: a faster sender fills megabytes of buffers, and from
// then on each byte is written to memory and read from there. Two megabytes per RTT are then more
// than a connection carries, and as much as eight messages of 256 KiB and their headers need. At
// higher RTT that could be too little, and TCP adapts by itself. Where net.core.wmem_max allows
// less, less is in flight and our bound has no effect.
const (
	// RTT up to which it is low; two megabytes in it are 40 GB/s.
	lowRTTLimit      = 50 * time.Microsecond
	lowRTTSendBuffer = 1056 << 10 // Twice that may be in flight.
)

// tuneForRTT bounds the bytes in flight on a new connection at low RTT, and turns pacing off: a
// sender that spreads data over the RTT by timers, as BBR does, is a half to a quarter as fast.
// Other connections have the system's congestion control.
func (t *transmitter) tuneForRTT(fd int) {
	if rtt := unix.RoundTrip(fd); rtt > 0 && rtt <= lowRTTLimit {
		t.burst.LowRTT = true
		unix.BoundSend(fd, lowRTTSendBuffer)
		unix.Unpace(fd)
		return
	}
	unix.Pace(fd)
}

// A TCP socket sends an acknowledgement, a packet of its own, whenever more data than the longest
// segment seen so far has arrived since the last one. It assumes 536 bytes until it has seen a
// longer segment (rcv_mss, in __tcp_ack_snd_check and tcp_cleanup_rbuf). That is every fifth short
// message, although a waiter leaves them in the socket (see [receiver.consumeIfDue]), and it meets
// the peer's next send. So a connection for short messages carries one long segment.

// padAfter is how many short frames precede the pad: most connections carry fewer, or long ones
// anyway.
const padAfter = 32

// padding and its header are as long as all the short frames that a waiter leaves in the socket.
var padding [maxPeeks*(wire.HeaderSize+maxInline) - wire.HeaderSize]byte

// startPadCount begins a connection. due reports whether it needs a pad.
func (t *transmitter) startPadCount(due bool) {
	t.framesToPad = -1
	if due {
		t.framesToPad = padAfter
	}
}

// addPad queues the pad alone: parts behind it would be taken for copies (see
// [transmitter.firstBorrowed]).
func (t *transmitter) addPad() {
	t.framesToPad = -1
	t.addFrame(&wire.Header{Type: wire.Pad, Flags: wire.Skip, Seq: math.MaxUint64, Chunk: uint32(len(padding))}, padding[:])
}
