package shm

import (
	"bytes"
	"sync/atomic"
	"unsafe"
)

// A Twin is memory and a copy of it as of the last look. It finds the words that were stored to
// since.
//
// Every load of the memory is of one aligned word, or of two at once. What was loaded is both
// stored in the copy and given to the caller. So a word is never torn, and what differs from the
// copy has not been given to the caller: no store is skipped, whenever it happens. Values are
// compared, so storing the value that is already there is no change.
type Twin struct {
	local []byte
	copy  []byte
	store *Region
}

// NewTwin makes the copy. Pages of zeros take no memory in it. local is word-aligned, and its owner
// keeps it.
func NewTwin(local []byte) (*Twin, error) {
	at := int(uintptr(unsafe.Pointer(unsafe.SliceData(local))) % uintptr(PageSize))
	r, err := newPrivate(RoundUp(at + len(local)))
	if err != nil {
		return nil, err
	}
	t := &Twin{local: local, copy: r.Bytes()[at : at+len(local)], store: r} // as aligned as near is
	for at := 0; at < len(local); {
		_, at = t.Next(at, len(local)) // finds nothing in pages of zeros
	}
	return t, nil
}

// Len returns the length of the memory in bytes.
func (t *Twin) Len() int { return len(t.local) }

// Copied returns the copy between two offsets. It changes in Next and Set only.
func (t *Twin) Copied(from, to int) []byte { return t.copy[from:to] }

// Local returns the word of the memory at off.
func (t *Twin) Local(off int) *atomic.Uint32 { return Word(t.local, off) }

// At returns the word of the copy at off.
func (t *Twin) At(off int) uint32 { return *t.word(off) }

// Set makes the copy's word at off v.
func (t *Twin) Set(off int, v uint32) { *t.word(off) = v }

func (t *Twin) word(off int) *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(t.copy[off : off+WordSize])))
}

// Retire gives the copy back.
func (t *Twin) Retire() { t.store.Retire() }

// Next finds the first run of words in [at, end) that differ from the copy, and takes them over
// into it. Without one, from is end. Offsets are whole words.
func (t *Twin) Next(at, end int) (from, to int) {
	if at >= end {
		return end, end
	}
	near, copied := t.local[:end], t.copy[:end]
	for at < end {
		switch {
		case at%4096 == 0 && end-at >= 4096 && bytes.Equal(near[at:at+4096], copied[at:at+4096]):
			at += 4096
		case at%512 == 0 && end-at >= 512 && bytes.Equal(near[at:at+512], copied[at:at+512]):
			at += 512
		case at%64 == 0 && end-at >= 64 && bytes.Equal(near[at:at+64], copied[at:at+64]):
			at += 64
		default:
			if to := t.takeChanged(at, end); to != at {
				return at, to
			}
			at += WordSize
		}
	}
	return end, end
}

// block is what takeBlocks and putPast process in one step.
const block = 64

// takeChanged takes words over while they differ.
func (t *Twin) takeChanged(at, end int) int {
	p := unsafe.Pointer(unsafe.SliceData(t.local[:end]))
	q := unsafe.Pointer(unsafe.SliceData(t.copy[:end]))
	if at < end && uintptr(unsafe.Add(p, at))%8 != 0 {
		if !takeWord(unsafe.Add(p, at), unsafe.Add(q, at)) {
			return at
		}
		at += WordSize
	}
	for end-at >= block && uintptr(unsafe.Add(p, at))%16 == 0 {
		piece := min((end-at)/block*block, Piece)
		n := takeBlocks(unsafe.Add(p, at), unsafe.Add(q, at), piece)
		if at += n; n < piece {
			break
		}
	}
	for ; at+8 <= end; at += 8 {
		v, c := atomic.LoadUint64((*uint64)(unsafe.Add(p, at))), (*uint64)(unsafe.Add(q, at))
		d := v ^ *c
		if uint32(d) == 0 { // hosts are little-endian: the low half comes first
			return at
		}
		*c = v
		if d>>32 == 0 {
			return at + WordSize
		}
	}
	if at < end && takeWord(unsafe.Add(p, at), unsafe.Add(q, at)) {
		at += WordSize
	}
	return at
}

func takeWord(p, q unsafe.Pointer) (differed bool) {
	v, c := atomic.LoadUint32((*uint32)(p)), (*uint32)(q)
	differed = v != *c
	*c = v
	return differed
}

// PutWords copies whole words, each by a store of its own or of two at a time, so no reader sees
// half of one. Both sides are word-aligned and of the same length.
func PutWords(dst, src []byte) {
	n := len(src)
	_ = dst[:n]
	p, q := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	at := 0
	if n >= nonTemporalMin && (uintptr(p)|uintptr(q))%16 == 0 {
		at = n / block * block
		putPast(p, q, at)
	}
	if (uintptr(p)^uintptr(q))%8 == 0 {
		if uintptr(p)%8 != 0 && n > at {
			*(*uint32)(p) = *(*uint32)(q)
			at = WordSize
		}
		for ; at+32 <= n; at += 32 {
			d, s := (*[4]uint64)(unsafe.Add(p, at)), (*[4]uint64)(unsafe.Add(q, at))
			d[0], d[1], d[2], d[3] = s[0], s[1], s[2], s[3]
		}
		for ; at+8 <= n; at += 8 {
			*(*uint64)(unsafe.Add(p, at)) = *(*uint64)(unsafe.Add(q, at))
		}
	}
	for ; at < n; at += WordSize {
		*(*uint32)(unsafe.Add(p, at)) = *(*uint32)(unsafe.Add(q, at))
	}
}
