package link

import (
	"math"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// A TCP socket sends an acknowledgement, a packet of its own, whenever more has come since the last one
// than the longest segment that it has seen, and takes that to be 536 bytes before it has seen a longer one
// (rcv_mss, in __tcp_ack_snd_check and tcp_cleanup_rbuf): for every fifth short message, though a
// waiter leaves them in the socket (see [receiver.settle]), and the other end's next send meets it. So there is one
// long segment on a connection by which short messages go.

// padAfter is how many short frames come before it: most connections carry fewer, or long ones anyway.
const padAfter = 32

// padding and its header are as long as all the short frames that a waiter leaves in the socket.
var padding [mostKept*(wire.HeaderSize+small) - wire.HeaderSize]byte

// pads begins a connection; due says whether it is one where that matters.
func (t *transmitter) pads(due bool) {
	t.toPad = -1
	if due {
		t.toPad = padAfter
	}
}

// pad adds it to nothing else: what is in parts behind it would be taken for copies ([transmitter.lent]).
func (t *transmitter) pad() {
	t.toPad = -1
	t.add(&wire.Header{Type: wire.Pad, Flags: wire.Skip, Seq: math.MaxUint64, Chunk: uint32(len(padding))}, padding[:])
}
