package via

import "encoding/binary"

// A link joins two NICs. Each of them has a buffer for the other one: words that the peer stores,
// what it reads once, and a ring of the peer's messages (docs/decisions/0030).
const (
	headOff    = 64  // a word: the position behind the peer's last message
	takenOff   = 128 // a word: how far the peer has taken this NIC's messages
	infoOff    = 192 // what the peer reads once
	infoSize   = 64
	ringOff    = 4096
	ringSize   = 256 << 10
	bufferSize = ringOff + ringSize

	magic = "vmmcvia\x02"

	numberOff   = 8 // in the information: the NIC's number
	ringSizeOff = 12
)

// Positions count bytes, modulo 2^32. Messages begin at multiples of 32.
const (
	headerSize  = 32
	align       = 32
	maxFragment = 32 << 10 // without a target
	// Room for errors, which go before all else: one of each connection.
	reserve = maxVIs * headerSize
)

// The kinds of messages.
const (
	kindPad        = iota // no message: the next one is at the ring's beginning
	kindSend              // a fragment of a SEND
	kindBreak             // the sender's VI is in state Error
	kindDisconnect        // the sender's VI was disconnected
	kindRequest           // a request for a connection
	kindCancel            // of a request
	kindReply             // to a request
	kindWrite             // a fragment of an RDMA write; the first one begins with a target
	kindRead              // an RDMA read: a target
	kindData              // a fragment of what was read
	kindGrant             // a region that the receiver's VI may use directly
)

const (
	flagFirst       = 1 << iota // the first fragment
	flagImmediate               // the header has immediate data
	flagAcknowledge             // tell soon how far messages were taken
	flagDirect                  // of a write: its data is in place
	flagPeer                    // of a request: it is for a VI that requests the same
)

// header is that of a message.
type header struct {
	kind, flags uint8
	conn        uint32 // the receiver's number of the connection
	size, total uint32 // of the fragment, of the transfer
	immediate   uint32
	number      uint32 // of the transfer on its connection
	taken       uint32 // how far the sender has taken the receiver's messages
	status      uint32
}

func (h *header) encode(b []byte) {
	_ = b[headerSize-1]
	b[0], b[1], b[2], b[3] = h.kind, h.flags, 0, 0
	for i, v := range [...]uint32{h.conn, h.size, h.total, h.immediate, h.number, h.taken, h.status} {
		binary.LittleEndian.PutUint32(b[4+4*i:], v)
	}
}

func (h *header) decode(b []byte) {
	_ = b[headerSize-1]
	h.kind, h.flags = b[0], b[1]
	for i, p := range [...]*uint32{
		&h.conn, &h.size, &h.total, &h.immediate, &h.number, &h.taken, &h.status,
	} {
		*p = binary.LittleEndian.Uint32(b[4+4*i:])
	}
}

// padded is how much of the ring n bytes take.
func padded(n int) int { return (n + align - 1) &^ (align - 1) }

func encodeAttributes(b []byte, a VIAttributes) []byte {
	flags := uint32(a.Level)
	if a.EnableRDMAWrite {
		flags |= enablesWrite
	}
	if a.EnableRDMARead {
		flags |= enablesRead
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	return binary.LittleEndian.AppendUint32(b, uint32(a.MaxTransferSize))
}

const attributesSize = 8

// Bits beside the level.
const (
	enablesWrite = 1 << 16
	enablesRead  = 1 << 17
)

// decodeAttributes reports whether b begins with attributes, and returns what is behind them.
func decodeAttributes(b []byte) (a VIAttributes, rest []byte, ok bool) {
	if len(b) < attributesSize {
		return a, nil, false
	}
	flags := binary.LittleEndian.Uint32(b)
	a.Level = Level(flags)
	a.EnableRDMAWrite, a.EnableRDMARead = flags&enablesWrite != 0, flags&enablesRead != 0
	a.MaxTransferSize = int(int32(binary.LittleEndian.Uint32(b[4:])))
	return a, b[attributesSize:], true
}

func encodeAddress(b []byte, a Address) []byte {
	b = append(b, a.Host[:]...)
	b = append(b, byte(len(a.Discriminator)))
	return append(b, a.Discriminator...)
}

// decodeAddress reports whether b begins with an address, and returns what is behind it.
func decodeAddress(b []byte) (a Address, rest []byte, ok bool) {
	head := len(a.Host) + 1
	if len(b) < head {
		return a, nil, false
	}
	n := int(b[head-1])
	if n > maxDiscriminator || len(b) < head+n {
		return a, nil, false
	}
	copy(a.Host[:], b)
	a.Discriminator = string(b[head : head+n])
	return a, b[head+n:], true
}
