package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// The export begins with a prefix that does not change: what follows here, the texts of the keys'
// and the values' layouts, and a checksum of both. Buckets come behind it.
const (
	magicOff     = 0  // 8 bytes
	seedOff      = 8  // 16 bytes
	homesOff     = 24 // 4 bytes: how many buckets keys are hashed to
	overflowOff  = 28 // 4 bytes: how many there are besides
	keyTextOff   = 32 // 4 bytes: the text's length
	valueTextOff = 36 // 4 bytes
	capacityOff  = 40 // 8 bytes
	textsOff     = 48

	magic   = "vmmctb\x00\x01"
	maxText = 1 << 20
)

// Behind the prefix is the log of changes, for replicas: how many changes there were, and for each
// of the last ones the home that it was in. The count's last word is swapped when the change and
// its home are there; a get reads it first, and finds the other two of the same change if low is
// the same.
const (
	lowOff   = 0 // 4 bytes: the low half of the count
	highOff  = 4 // 4 bytes: its high half
	countOff = 8 // 4 bytes: the low half again, stored last
	countEnd = 12
	homesLog = 16      // 4 bytes each
	logged   = 1 << 12 // homes
	logSize  = homesLog + 4*logged
)

// A bucket has slots, two heads, and the word that commits. A slot is free, or has an entry:
//
//	bucket | slot 0 | ... | slot 7 | head 0 | head 1 | unused word | committed |
//	slot   | version | key | value | checksum |
//	head   | version | home | next | moves | moved | tags | checksum |
//
// A bucket's version counts its changes. A change writes an entry into a free slot, then the head
// that has the older version, and then swaps the committed word, which is the version's last 32
// bits. The head of a committed version is valid, and so are the slots in which it has a tag, until
// the next change but one begins. A get reads the committed word first (docs/models: table).
const (
	slots = 8 // of which one at least is free

	versionOff = 0  // 8 bytes, of a head and of a slot
	homeOff    = 8  // 4 bytes: the bucket that keys here are hashed to
	nextOff    = 12 // 4 bytes: the bucket where keys of the same home follow, or 0
	movesOff   = 16 // 8 bytes, of a home: how many entries have been moved to earlier buckets
	movedOff   = 24 // 8 bytes: the home's moves when an entry was moved from here, or from behind
	tagsOff    = 32 // 4 bytes for each slot: of its key's hash, or 0 for a free one
	headSumOff = tagsOff + 4*slots
	headSize   = headSumOff + 8

	keyOff = 8 // in a slot

	wordSize  = 4
	sumSize   = 8
	noHome    = math.MaxUint32 // of an overflow bucket that no home has
	perBucket = slots - 1      // entries of a bucket
)

// geometry is how a table lies in memory.
type geometry struct {
	key, value int // bytes
	valueOff   int // in a slot
	sumOff     int // in a slot
	slot       int // bytes of a slot
	heads      int // where a bucket's heads begin
	tail       int // bytes of the heads and what follows
	bucket     int // bytes of a bucket

	log             int // where the log begins
	first           int // where bucket 0 begins
	homes, overflow uint32
	capacity        int
}

func round8(n int) int { return (n + 7) / 8 * 8 }

func newGeometry(key, value int) geometry {
	g := geometry{key: key, value: value}
	g.valueOff = keyOff + round8(key)
	g.sumOff = g.valueOff + round8(value)
	g.slot = g.sumOff + sumSize
	g.heads = slots * g.slot
	g.tail = 2*headSize + 2*wordSize
	g.bucket = g.heads + g.tail
	return g
}

// maxSize is how many bytes a table may have.
const maxSize uint64 = 1 << 46

// setCapacity chooses the number of buckets. A home is two thirds full on average. As entries are
// moved when others are deleted, all buckets of a home but its last one are full: so there are
// overflow buckets for any distribution of the keys.
func (g *geometry) setCapacity(n int) error {
	if n < 1 || n > math.MaxInt32 {
		return fmt.Errorf("a capacity of %d: at least 1, and at most %d", n, math.MaxInt32)
	}
	g.capacity = n
	g.homes = uint32((3*uint64(n)/2 + perBucket - 1) / perBucket)
	g.overflow = uint32((uint64(n) + perBucket - 1) / perBucket)
	if uint64(g.bucket) > maxSize/(uint64(g.homes)+uint64(g.overflow)) {
		return fmt.Errorf("a capacity of %d entries of %d bytes: at most %d bytes", n, g.slot, maxSize)
	}
	return nil
}

// size is that of the export.
func (g *geometry) size() int { return g.first + (int(g.homes)+int(g.overflow))*g.bucket }

// offset is where a bucket begins.
func (g *geometry) offset(b uint32) int { return g.first + int(b)*g.bucket }

// home returns the bucket that a hash belongs to.
func (g *geometry) home(hash uint64) uint32 { return uint32(hash >> 32 * uint64(g.homes) >> 32) }

// tag returns the tag of a hash.
func tag(hash uint64) uint32 { return max(uint32(hash), 1) }

// head is a bucket's head.
type head struct {
	version      uint64
	home, next   uint32
	moves, moved uint64
	tags         [slots]uint32
}

// entries is how many slots have an entry.
func (h *head) entries() (n int) {
	for _, t := range h.tags {
		if t != 0 {
			n++
		}
	}
	return n
}

// free returns a free slot. Slots take turns, so that readers find old entries for long.
func (h *head) free() int {
	for i := range h.tags {
		if i = (int(h.version%slots) + i) % slots; h.tags[i] == 0 {
			return i
		}
	}
	panic("table: a bucket without a free slot")
}

// put writes a head of bucket b.
func (h *head) put(dst []byte, s *secret, b uint32) {
	binary.NativeEndian.PutUint64(dst[versionOff:], h.version)
	binary.NativeEndian.PutUint32(dst[homeOff:], h.home)
	binary.NativeEndian.PutUint32(dst[nextOff:], h.next)
	binary.NativeEndian.PutUint64(dst[movesOff:], h.moves)
	binary.NativeEndian.PutUint64(dst[movedOff:], h.moved)
	for i, t := range h.tags {
		binary.NativeEndian.PutUint32(dst[tagsOff+4*i:], t)
	}
	binary.NativeEndian.PutUint64(dst[headSumOff:], s.sum(uint64(b), dst[:headSumOff]))
}

// get reads a head.
func (h *head) get(src []byte) {
	h.version = binary.NativeEndian.Uint64(src[versionOff:])
	h.home = binary.NativeEndian.Uint32(src[homeOff:])
	h.next = binary.NativeEndian.Uint32(src[nextOff:])
	h.moves = binary.NativeEndian.Uint64(src[movesOff:])
	h.moved = binary.NativeEndian.Uint64(src[movedOff:])
	for i := range h.tags {
		h.tags[i] = binary.NativeEndian.Uint32(src[tagsOff+4*i:])
	}
}

// isHead reports whether src is a whole head of bucket b.
func isHead(src []byte, s *secret, b uint32) bool {
	return binary.NativeEndian.Uint64(src[headSumOff:]) == s.sum(uint64(b), src[:headSumOff])
}

// slotSalt is what the checksum of a slot begins with.
func slotSalt(b uint32, i int) uint64 { return 1<<63 | uint64(b)*slots + uint64(i) }

// sealSlot writes the checksum of slot i of bucket b.
func (g *geometry) sealSlot(slot []byte, s *secret, b uint32, i int) {
	sum := s.sum(slotSalt(b, i), slot[:g.sumOff])
	binary.NativeEndian.PutUint64(slot[g.sumOff:], sum)
}

// isSlot reports whether slot i of bucket b is whole.
func (g *geometry) isSlot(slot []byte, s *secret, b uint32, i int) bool {
	return binary.NativeEndian.Uint64(slot[g.sumOff:]) == s.sum(slotSalt(b, i), slot[:g.sumOff])
}

// prefixSize is how many bytes the prefix has.
func prefixSize(keyText, valueText int) int {
	return round8(textsOff+keyText+valueText) + sumSize
}

// behind sets where log and buckets begin behind a prefix.
func (g *geometry) behind(prefix int) {
	g.log = (prefix + 63) / 64 * 64
	g.first = (g.log + logSize + 63) / 64 * 64
}

// putPrefix writes the prefix.
func (g *geometry) putPrefix(b []byte, seed [2]uint64, keyText, valueText string) {
	copy(b[magicOff:], magic)
	binary.NativeEndian.PutUint64(b[seedOff:], seed[0])
	binary.NativeEndian.PutUint64(b[seedOff+8:], seed[1])
	binary.NativeEndian.PutUint32(b[homesOff:], g.homes)
	binary.NativeEndian.PutUint32(b[overflowOff:], g.overflow)
	binary.NativeEndian.PutUint32(b[keyTextOff:], uint32(len(keyText)))
	binary.NativeEndian.PutUint32(b[valueTextOff:], uint32(len(valueText)))
	binary.NativeEndian.PutUint64(b[capacityOff:], uint64(g.capacity))
	copy(b[textsOff:], keyText+valueText)
	n := prefixSize(len(keyText), len(valueText)) - sumSize
	s := newSecret(seed)
	binary.NativeEndian.PutUint64(b[n:], s.sum(0, b[:n]))
}

var errNoTable = errors.New("what it names is no table")

// textLengths reads those of a prefix, whose exporter may not be a table's owner. The export has
// size bytes.
func textLengths(b []byte, size int) (keyText, valueText int, err error) {
	if string(b[magicOff:magicOff+len(magic)]) != magic {
		return 0, 0, errNoTable
	}
	keys := binary.NativeEndian.Uint32(b[keyTextOff:])
	values := binary.NativeEndian.Uint32(b[valueTextOff:])
	if keys > maxText || values > maxText || prefixSize(int(keys), int(values)) > size {
		return 0, 0, errNoTable
	}
	return int(keys), int(values), nil
}

// usePrefix takes what a prefix says, whose texts are those of the keys and values here. The export
// has size bytes.
func (g *geometry) usePrefix(b []byte, size int) (seed [2]uint64, err error) {
	seed[0] = binary.NativeEndian.Uint64(b[seedOff:])
	seed[1] = binary.NativeEndian.Uint64(b[seedOff+8:])
	s, n := newSecret(seed), len(b)-sumSize
	g.homes = binary.NativeEndian.Uint32(b[homesOff:])
	g.overflow = binary.NativeEndian.Uint32(b[overflowOff:])
	g.behind(len(b))
	capacity := binary.NativeEndian.Uint64(b[capacityOff:])
	g.capacity = int(min(capacity, math.MaxInt32))
	buckets := uint64(g.homes) + uint64(g.overflow)
	switch {
	case binary.NativeEndian.Uint64(b[n:]) != s.sum(0, b[:n]), capacity != uint64(g.capacity),
		g.homes == 0, g.overflow == 0:
		return seed, errNoTable
	case buckets > uint64(size)/uint64(g.bucket), g.size() > size:
		return seed, errNoTable
	}
	return seed, nil
}

// committed reads the committed word, behind a bucket's heads.
func committed(heads []byte) uint32 { return shm.LastWord(heads) }

// headAt returns the head that has a version with these last bits.
func headAt(heads []byte, version uint32) []byte {
	at := int(version&1) * headSize
	return heads[at : at+headSize]
}
