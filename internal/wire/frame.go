// Package wire encodes what is sent on a data link: the hello by which two processes prove to each
// other that they hold the link's key, and the frames that follow. It does no input or output.
// Numbers are little-endian; only little-endian 64-bit hosts take part, so payloads need no
// conversion.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// HeaderSize is the size of a frame's header: one cache line.
const HeaderSize = 64

// MaxChunk is the most payload that one frame carries. Larger messages are sent in several frames,
// so that acknowledgements and replies need not wait long.
const MaxChunk = 4 << 20

// Type is the kind of a frame.
type Type uint8

// The frames. "I" is sent by the importing process to the exporting one, "E" in the other
// direction.
const (
	Data  Type = iota + 1 // I: a chunk of a message; Seq, Off, Size, Chunk, Word
	Get                   // I: ask for Size bytes at Off; Seq
	Reply                 // E: a chunk of what Get Seq asked for; Off counts from the message's start
	Ack                   // E: all up to Ack is applied; Credits returned in all
	Nak                   // E: message Seq was refused, which counts as applied; Code
	// Both: a goroutine sleeps; look at the shared words (same node only).
	Bell
	Revoke // E: the import Handle is no more; Code; Ack: the last message applied before
	Detach // I: the import Handle was closed
	Abort  // I: message Seq ends here, its last word is not stored
	Ping   // I: acknowledge at once
	Atomic // I: change Size (4 or 8) bytes at Off; Seq; operands
	Result // E: what was there before Atomic Seq, in Off
	Import // I: let this process import buffer Handle; Serial (same node only)
	Grant  // E: the answer to Import Serial, see [Granted]; a descriptor may go with it
	// Both: this side ends the link; it must not be resumed. Code says why.
	Bye
	Pad // both: nothing, and its payload goes nowhere; with Skip
	numTypes
)

// Flags of a frame.
const (
	Last   uint8 = 1 << iota // the message's last chunk: Word is its last word (unless Bytes)
	Notify                   // run the handler; Serial
	Bytes                    // any length and alignment, no last word
	// Acknowledge as soon as this is applied, or with what is arriving already.
	AckNow
	// A receiver that does not know this type skips it.
	Skip
	// With AckNow: unacknowledged data is worth two acknowledgements, so this one may wait a moment
	// for more. A receiver that does not know the flag acknowledges.
	Shared
)

// Codes of Nak and Revoke.
const (
	CodeRevoked   uint32 = iota + 1 // the export was closed
	CodeRights                      // not allowed by the export's rights
	CodeAlignment                   // the export's memory is not aligned for this
)

// Codes of Bye. One that a receiver does not know is like none.
const (
	ByeUnsaid   uint32 = iota
	ByeLeaves          // the process closes all its links
	ByeOther           // the other link between the two processes has ended
	ByeProtocol        // the sender of Bye has received a breach of the protocol
	ByeDown            // the node of one of the two was taken down
)

// Op is what an Atomic does.
type Op uint32

// The atomics.
const (
	FetchAdd Op = iota + 1
	Swap
	CompareAndSwap
	numOps
)

// SetOperands stores an atomic's operation and operands in fields that other frames use otherwise.
func (h *Header) SetOperands(op Op, a, b uint64) {
	h.Word, h.Ack, h.Credits, h.Serial = uint32(op), a, uint32(b), uint32(b>>32)
}

// Operands returns them: what to add or store, and the expected value.
func (h *Header) Operands() (op Op, a, b uint64) {
	return Op(h.Word), h.Ack, uint64(h.Credits) | uint64(h.Serial)<<32
}

// Header is the beginning of every frame. With Last and not Bytes the payload is four bytes shorter
// than the chunk's share of the message: the last word is in Word, so that the receiver can store
// the rest first and that word after all else.
type Header struct {
	Type    Type
	Flags   uint8
	Handle  uint32 // which import, as the exporter numbered it
	Seq     uint64 // the message's number on this link, from 1
	Off     uint64 // byte offset in the export of this chunk
	Size    uint64 // bytes of the whole message
	Chunk   uint32 // payload bytes that follow this header
	Word    uint32 // the message's last word, or a code
	Ack     uint64 // total of messages applied
	Credits uint32 // total of notification credits returned, modulo 2^32
	Serial  uint32 // number of this notification on the link, modulo 2^32
	Sum     uint32 // of the payload, see [Sum], on a link that is checked; else 0
}

// ErrFrame is the error of every malformed frame.
var ErrFrame = errors.New("malformed frame")

// ErrCorrupt is in addition the error of a frame whose checksum does not match: its sender may have
// followed all rules.
var ErrCorrupt = errors.New("damaged on its way")

// MaxChecked is the most payload of a frame on a link with checksums. Both sides copy it to a
// buffer of their own to check it: memory that others write to could differ by the time it is sent.
const MaxChecked = 64 << 10

// Sum returns the checksum of a payload that follows one whose checksum is sum. The checksum of
// none is 0.
func Sum(sum uint32, payload []byte) uint32 { return crc32.Update(sum, castagnoli, payload) }

// Corrupt returns the error of a frame whose payload has another checksum, sum.
func (h *Header) Corrupt(sum uint32) error {
	return fmt.Errorf("%w, %w: %d bytes of message %d at %d have checksum %#x, sent was %#x",
		ErrFrame, ErrCorrupt, h.Chunk, h.Seq, h.Off, sum, h.Sum)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put writes h to b, which has at least [HeaderSize] bytes. n is the frame's number, modulo 2^32,
// among those in its direction on its connection, from 0. The number is not written: the checksum
// begins with it, so that after a frame that the network has lost, repeated or moved the frame in
// its place counts as damaged. Two numbers never have the same checksum for the same header.
func (h *Header) Put(b []byte, n uint32) {
	b = b[:HeaderSize]
	le := binary.LittleEndian
	b[0], b[1] = byte(h.Type), h.Flags
	le.PutUint16(b[2:], HeaderSize)
	le.PutUint32(b[4:], h.Handle)
	le.PutUint64(b[8:], h.Seq)
	le.PutUint64(b[16:], h.Off)
	le.PutUint64(b[24:], h.Size)
	le.PutUint32(b[32:], h.Chunk)
	le.PutUint32(b[36:], h.Word)
	le.PutUint64(b[40:], h.Ack)
	le.PutUint32(b[48:], h.Credits)
	le.PutUint32(b[52:], h.Serial)
	le.PutUint32(b[56:], h.Sum)
	le.PutUint32(b[60:], crc32.Update(n, castagnoli, b[:60]))
}

// Parse reads a header from b, which has at least [HeaderSize] bytes, and checks all that can be
// checked without knowing the link. First it checks that the header is undamaged and that of frame
// n, as for Put.
func (h *Header) Parse(b []byte, n uint32) error {
	b = b[:HeaderSize]
	le := binary.LittleEndian
	if sum := crc32.Update(n, castagnoli, b[:60]); sum != le.Uint32(b[60:]) {
		return fmt.Errorf("%w, %w: what should be the header of frame %d has checksum %#x, sent was %#x",
			ErrFrame, ErrCorrupt, n, sum, le.Uint32(b[60:]))
	}
	return h.ParseStored(b)
}

// ParseStored is Parse of a header that this process has retained since Put, whatever its number.
func (h *Header) ParseStored(b []byte) error {
	b = b[:HeaderSize]
	le := binary.LittleEndian
	*h = Header{
		Type: Type(b[0]), Flags: b[1],
		Handle: le.Uint32(b[4:]), Seq: le.Uint64(b[8:]), Off: le.Uint64(b[16:]), Size: le.Uint64(b[24:]),
		Chunk: le.Uint32(b[32:]), Word: le.Uint32(b[36:]), Ack: le.Uint64(b[40:]),
		Credits: le.Uint32(b[48:]), Serial: le.Uint32(b[52:]), Sum: le.Uint32(b[56:]),
	}
	if n := le.Uint16(b[2:]); n != HeaderSize {
		return fmt.Errorf("%w: header of %d bytes, want %d", ErrFrame, n, HeaderSize)
	}
	if h.Chunk > MaxChunk {
		return fmt.Errorf("%w: chunk of %d bytes, at most %d", ErrFrame, h.Chunk, MaxChunk)
	}
	if (h.Type == 0 || h.Type >= numTypes) && h.Flags&Skip == 0 {
		return fmt.Errorf("%w: unknown type %d", ErrFrame, h.Type)
	}
	if h.Chunk > 0 && h.Known() && h.Type != Data && h.Type != Reply && h.Type != Pad {
		return fmt.Errorf("%w: type %d carries %d bytes of payload, it must carry none",
			ErrFrame, h.Type, h.Chunk)
	}
	switch h.Type {
	case Data, Get, Reply:
		return h.checkRange()
	case Atomic:
		return h.checkAtomic()
	}
	return nil
}

func (h *Header) checkAtomic() error {
	switch {
	case h.Word == 0 || h.Word >= uint32(numOps):
		return fmt.Errorf("%w: unknown atomic %d", ErrFrame, h.Word)
	case h.Size != 4 && h.Size != 8, h.Off%h.Size != 0, h.Off+h.Size < h.Off:
		return fmt.Errorf("%w: atomic of %d bytes at %d", ErrFrame, h.Size, h.Off)
	}
	return nil
}

// Span returns how many bytes of the message this chunk stands for.
func (h *Header) Span() uint64 {
	if h.Flags&Last != 0 && h.Flags&Bytes == 0 {
		return uint64(h.Chunk) + 4
	}
	return uint64(h.Chunk)
}

// Known reports whether this version knows the frame's type. The payload of an unknown frame is
// skipped.
func (h *Header) Known() bool { return h.Type > 0 && h.Type < numTypes }

func (h *Header) checkRange() error {
	span := h.Span()
	if h.Type == Get {
		span = h.Size
	}
	switch {
	case h.Size == 0 || span == 0 || span > h.Size:
		return fmt.Errorf("%w: chunk of %d bytes in a message of %d", ErrFrame, span, h.Size)
	case h.Off+h.Size < h.Off || h.Off+span < h.Off:
		return fmt.Errorf("%w: offset %d and size %d overflow", ErrFrame, h.Off, h.Size)
	case h.Flags&Bytes == 0 && (h.Off|h.Size|uint64(h.Chunk))%4 != 0:
		return fmt.Errorf("%w: offset %d, size %d, chunk %d are not whole words",
			ErrFrame, h.Off, h.Size, h.Chunk)
	}
	return nil
}
