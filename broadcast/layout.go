package broadcast

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc"
)

// The letterbox is exported under the name. Any process that may read the log can write to it, so
// nothing but the magic is read there, by new readers.
const (
	magicOff      = 0  // 8 bytes
	bellOff       = 60 // a word: that of readers' notifications
	letterboxSize = 64

	magic = "vmmcbc\x00\x02"
)

// The log is the writer's, and read-only for readers: a header and the ring. The bytes of the log
// from position first to position tail are in the ring, the byte of position i at i modulo the
// ring's size.
//
// An append moves first behind all that it overwrites, writes the entry, and then stores tail. A
// reader gets tail, copies what lies before it, and then gets first: if that is beyond what it has
// copied, the copy may be torn and is dropped.
//
// A get reads the last of its words first, and no two at once. Both positions have two words, and
// the order of these has a get that meets a carry err on the safe side. That of first, whose low
// half is read first, is never lower than first was then. That of tail, whose high half is read
// first, is never higher than tail is; where it is wrong by a carry, 4 GiB were appended meanwhile,
// and first tells the reader (docs/models: broadcast).
const (
	firstHighOff = 0
	firstLowOff  = 4
	tailLowOff   = 64 // on a cache line of its own: stored by each append
	tailHighOff  = 68
	startLowOff  = 128 // where the log began; it does not change
	startHighOff = 132
	logHeader    = 256

	closedBit = 1 // of tail: positions are multiples of 4
)

// An entry begins at a multiple of 4: its length, a check of its position and length, and its
// bytes, padded to words. Entries lie without gaps, also over the ring's end.
const (
	lengthOff   = 0
	checkOff    = 4
	entryHeader = 8
)

// A desk is the writer's export for one reader.
const (
	logIDOff   = 0  // a word: the id of the log's export
	logSizeOff = 4  // a word: the logarithm of the ring's size
	armedOff   = 64 // a word of the reader: the number of its last request to be rung
	endedOff   = 68 // a word of the reader: 1 when it has read all of a closed log
	deskSize   = 72
)

// A reader's export has the writer's answer to its dial, and what the writer rings with: the number
// of the request, and maybe the entry that was appended, in front of it. The writer rings once for
// each number. So it writes here only between a request and the reader's next one.
const (
	pushOff    = 64
	pushSize   = 4096
	trailerOff = pushOff + pushSize // the position of the entry (low and high half), its bytes, the number
	bellAt     = 12                 // in the trailer
	trailer    = 16
	readerSize = trailerOff + trailer
)

const wordSize = 4

// ring is where positions lie.
type ring struct {
	size uint64 // a power of two
}

// The bounds of a ring's logarithm.
const (
	minShift = 12
	maxShift = 30
)

// maxEntry is the length of the longest entry.
func (r ring) maxEntry() int { return int(r.size/8) - entryHeader }

// step is how many bytes are given up at a time, at least, when the ring is full. So a reader that
// goes on with the oldest entry has some time to read it.
func (r ring) step() uint64 { return r.size / 16 }

// parts returns where n bytes at a position lie: n1 bytes at off, and the rest at the ring's
// beginning.
func (r ring) parts(pos uint64, n int) (off, n1 int) {
	off = int(pos & (r.size - 1))
	return off, min(n, int(r.size)-off)
}

// words is how many bytes the words of n bytes have.
func words(n int) int { return (n + wordSize - 1) / wordSize * wordSize }

// entrySize is how many bytes of the log an entry of n bytes takes.
func entrySize(n int) int { return entryHeader + words(n) }

// check is the check of an entry. It tells positions at which entries begin from others.
func check(pos uint64, n uint32) uint32 {
	return uint32((pos^uint64(n)<<32)*0x9E3779B97F4A7C15>>32) ^ 0x656E7472
}

// putHeader writes an entry's header.
func putHeader(b []byte, pos uint64, n int) {
	binary.NativeEndian.PutUint32(b[lengthOff:], uint32(n))
	binary.NativeEndian.PutUint32(b[checkOff:], check(pos, uint32(n)))
}

// parseHeader returns the length of the entry of a position, which may not be one.
func (r ring) parseHeader(b []byte, pos uint64) (n int, err error) {
	length := binary.NativeEndian.Uint32(b[lengthOff:])
	switch {
	case binary.NativeEndian.Uint32(b[checkOff:]) != check(pos, length):
		return 0, fmt.Errorf("no entry begins at position %d", pos)
	case uint64(length) > uint64(r.maxEntry()):
		return 0, fmt.Errorf("the entry at position %d has %d bytes, more than the ring takes", pos, length)
	}
	return int(length), nil
}

// pairOf returns what is stored at 8 bytes of which the first word is a and the second one b.
func pairOf(a, b uint32) uint64 {
	var w [8]byte
	binary.NativeEndian.PutUint32(w[:], a)
	binary.NativeEndian.PutUint32(w[wordSize:], b)
	return binary.NativeEndian.Uint64(w[:])
}

// position returns that whose halves are at two offsets of b.
func position(b []byte, low, high int) uint64 {
	return uint64(binary.NativeEndian.Uint32(b[high:]))<<32 | uint64(binary.NativeEndian.Uint32(b[low:]))
}

// ErrEnded says that the writer has closed the log, and that this reader has read all of it.
//
// Experimental: it may change in any release.
var ErrEnded = errors.New("the log has ended: its writer has closed it, and all entries were read")

// Overrun is the error of a reader whose next entries were overwritten before it has read them. It
// goes on with the oldest entry.
//
// Experimental: it may change in any release.
type Overrun struct {
	Lost uint64 // how many bytes of the log: positions that the reader has skipped
}

// Error returns the whole of it in one line.
func (o *Overrun) Error() string {
	return fmt.Sprintf("overrun: %d bytes of the log were overwritten before they were read", o.Lost)
}

// Option changes what [NewWriter] does.
//
// Experimental: it may change in any release.
type Option func(*options)

type options struct {
	readers int
	export  []vmmc.ExportOption // of all exports
	permit  []vmmc.ExportOption // of the letterbox and the log
	start   func() uint64       // where the log begins
}

// randomStart is where a log begins: another one hardly has positions near it.
func randomStart() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.NativeEndian.Uint64(b[:]) >> 2 &^ (wordSize - 1)
}

var defaults = options{readers: 1024, start: randomStart}

// MaxReaders is how many readers there may be at a time; without it that is 1,024. [NewReader] of
// the next one fails with [vmmc.ErrNoMem]. Each costs the writer a page of memory.
//
// Experimental: it may change in any release.
func MaxReaders(n int) Option { return func(o *options) { o.readers = n } }

// Permit lets exactly the processes read that match one of perms, as [vmmc.Permit] does. A process
// that may read can also keep others from becoming readers later.
//
// Experimental: it may change in any release.
func Permit(perms ...vmmc.Permission) Option {
	return func(o *options) { o.permit = append(o.permit, vmmc.Permit(perms...)) }
}

// Start is where a reader begins: [Oldest], [Newest] or [At].
//
// Experimental: it may change in any release.
type Start uint64

const (
	// Oldest begins with the oldest entry that is there.
	//
	// Experimental: it may change in any release.
	Oldest Start = 0
	// Newest begins with the first entry that is appended after [NewReader] was called.
	//
	// Experimental: it may change in any release.
	Newest Start = 1<<64 - 1
)

// At begins with the entry of a position, which [Writer.Append] and [Reader.Next] return. If that
// was overwritten, the first read returns an [Overrun]. A position is one of its writer's log.
// Where no entry of the log begins, the error of NewReader or of the first read is
// [vmmc.ErrBadArg]. So it is with a position of an earlier writer's log of the same name: each log
// begins at a random position, and that another log's is in a GiB of it has a chance of 1 in 2^32.
// After [vmmc.ErrPeerGone] begin with [Oldest].
//
// Experimental: it may change in any release.
func At(pos uint64) Start {
	// The two highest positions would become Oldest and Newest. No entry begins there, nor at the one
	// that takes their place.
	return Start(min(pos, 1<<64-3) + 1)
}
