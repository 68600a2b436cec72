package mpi

import "encoding/binary"

// All layouts are in this file. All numbers are little-endian, because C reads the same memory. An
// index is never a pointer, and index 0 is none.
//
// # Block: what a module exports for all other ranks
//
//	0      magic, 8 bytes
//	8      bytes of a ring, u32
//	12     ranks of the job, u32
//	64     bell: 1 more than the rank that has called last, or, of a rank that takes no packets, so much
//	       and the ranks of the job. Written after the call.
//	4,096  call of rank 0, u32, then that of rank 1, and so on: the number of the lane that this rank
//	       writes to. 1: that rank takes no packets any more.
//
// # Lane: what a module exports for one other rank, when the two connect
//
//	0      magic, 8 bytes
//	8      bytes of a ring, u32
//	12     ranks of the job, u32
//	64     head: the position behind the last packet, in bytes modulo 2^32. Written after the packet.
//	128    taken: the position behind the last packet that the writer has taken from this rank
//	4,096  the ring
//
// # Packet: a header and its payload, at a multiple of 64 bytes. It never wraps: a pad goes before it.
//
//	0   kind, u8; flags, u8; 2 bytes of 0
//	4   bytes of the payload, u32
//	8   context, u64
//	16  rank of the sender in the communicator, i32
//	20  tag, i32
//	24  bytes of the message, u64
//	32  the sender's request, u32
//	36  the receiver's request, u32
//	40  taken, as in the lane, u32; module via: the receives for this rank's packets that were posted again
//	44  matched: cells of the opposite direction whose messages were matched, modulo 2^32
//	48  number of the packet on this lane, or of this connection, modulo 2^32, u32
//	52  12 bytes of 0
//
// # Presence: what module via exports for all other ranks
//
//	0   magic, 8 bytes
//	8   ranks of the job, u32
//	16  key, u64: a rank that asks for a connection names it
//	32  bell: 1 more than the rank that has last refused this one. Written after that rank's word.
//	64  a word for each rank: not 0 when that rank takes no packets of this one any more. 64 bytes each.
//
// # Zone: where module via writes payloads of data by RDMA, of the packets with flagPut in their order
//
//	0       the first payload, the ninth, and so on
//	65,536  the second payload, and so on: 8 of them
//
// A packet with kindZone has the zone's address as context, its size as the message's, and its handle as
// the receiver's request.
//
// # Match queues: two lists in each bucket, over entries of 64 bytes, in chunks
//
//	0      magic, 8 bytes
//	8      first free entry, u32; entries that were ever used, u32
//	64     64 buckets: first and last of the posted, first and last of the unexpected, 4 times u32
//	4,096  entry 64, and so on
//
// Entry:
//
//	0   next, previous: u32 each
//	8   context, u64
//	16  source, i32; tag, i32
//	24  bytes of the message, u64
//	32  kind, u32: 1 posted, 2 eager, 3 rendezvous
//	36  rank in the job that has sent it, u32
//	40  request, u32: of the receive; of a rendezvous the sender's
//	44  first cell, u32, of an eager message
//	48  16 bytes of 0
//
// # Cells: payloads of unexpected eager messages, 512 bytes each, the first one is not used
//
//	0  next, u32
//	4  508 bytes
const (
	magic     = "vmmcmpi\x01"
	blockHead = 4096
	ringAtBlk = 8
	sizeAtBlk = 12
	bellAt    = 64
	callSize  = 4

	headOff  = 64
	takenOff = 128
	laneHead = 4096

	keyAt          = 16
	presenceBellAt = 32
	presenceAt     = 64
	presenceLen    = 64

	packetAlign = 64
	headerSize  = 64

	buckets    = 64
	bucketsAt  = 64
	bucketSize = 16
	freeAt     = 8
	usedAt     = 12
	entrySize  = 64
	firstEntry = 4096 / entrySize
	chunkSize  = 256 << 10
	perChunk   = chunkSize / entrySize

	cellSize = 512
	cellData = cellSize - 4
)

// window is how many cells the unexpected eager messages of one rank take at most at another one.
const window = 256

// maxAsked is how many envelopes without data one rank has at another one at most, each of which takes
// an entry of 64 bytes there. Later ones wait at the sender.
const maxAsked = 1 << 16

// MaxEager is the longest message that is sent without asking the receiver.
const MaxEager = 8 << 10

// ringSize is the size of each ring: all ranks compute the same one.
func ringSize(ranks int) int {
	if ranks <= 32 {
		return 256 << 10
	}
	return 64 << 10
}

// refusal is the call of a rank that takes no packets any more. The numbers of lanes,
// which pair.Export gives, are larger.
const refusal = 1

// callAt is where a rank calls.
func callAt(rank int) int { return blockHead + rank*callSize }

func padded(n int) int { return (n + packetAlign - 1) &^ (packetAlign - 1) }

// cellsOf is how many cells an eager message takes.
func cellsOf(n int) uint32 { return uint32(max(1, (n+cellData-1)/cellData)) }

// The kinds of packets.
const (
	kindPad       = iota + 1
	kindEager     // a whole message
	kindRTS       // a message that waits for the receiver: no payload
	kindCTS       // the receiver has matched it
	kindData      // a piece of a message that was matched
	kindNoop      // nothing but the header's counters
	kindWithdraw  // the sender takes an RTS back, unless it was matched
	kindWithdrawn // the receiver has forgotten that RTS: no receive has matched it
	kindPing      // asks for an answer
	kindPong      // the answer
	kindCredit    // module via: nothing but the receives that were posted again
	kindRevoke    // the communicator is revoked; payload: its ranks in the job, u32 each; none: all ranks
	kindZone      // module via: where the receiver of this may write data: address, bytes, and handle
)

// flagPut in a packet of data says that the payload was written to the receiver's zone.
const flagPut = 2

// flagDiscard in a CTS says that the receiver takes no data: its buffer is too short.
const flagDiscard = 1

// Header is what a packet begins with.
type Header struct {
	kind, flags    uint8
	size           uint32
	context        uint64
	source, tag    int32
	length         uint64
	sreq, rreq     uint32
	taken, matched uint32
	number         uint32
}

func (h *Header) encode(b []byte) {
	b = b[:headerSize]
	le := binary.LittleEndian
	le.PutUint32(b, uint32(h.kind)|uint32(h.flags)<<8)
	le.PutUint32(b[4:], h.size)
	le.PutUint64(b[8:], h.context)
	le.PutUint32(b[16:], uint32(h.source))
	le.PutUint32(b[20:], uint32(h.tag))
	le.PutUint64(b[24:], h.length)
	le.PutUint32(b[32:], h.sreq)
	le.PutUint32(b[36:], h.rreq)
	le.PutUint32(b[40:], h.taken)
	le.PutUint32(b[44:], h.matched)
	le.PutUint64(b[48:], uint64(h.number))
	le.PutUint64(b[56:], 0)
}

func (h *Header) decode(b []byte) {
	b = b[:headerSize]
	le := binary.LittleEndian
	h.kind, h.flags = b[0], b[1]
	h.size = le.Uint32(b[4:])
	h.context = le.Uint64(b[8:])
	h.source, h.tag = int32(le.Uint32(b[16:])), int32(le.Uint32(b[20:]))
	h.length = le.Uint64(b[24:])
	h.sreq, h.rreq = le.Uint32(b[32:]), le.Uint32(b[36:])
	h.taken, h.matched = le.Uint32(b[40:]), le.Uint32(b[44:])
	h.number = le.Uint32(b[48:])
}
