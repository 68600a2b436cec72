package mpi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"slices"
)

// segment is bytes that follow one another in the file, and their place in memory.
type segment struct {
	off  int64
	b    []byte
	at   int // in the buffer of the call
	rank int
}

func (s segment) end() int64 { return s.off + int64(len(s.b)) }

// sieveGap is how many bytes between two segments are read with them, rather than with a system call
// for each segment. Copying so many takes as long as the call.
const sieveGap = 4 << 10

// everywhere is beyond all bytes of a file.
const everywhere = math.MaxInt64

// move reads or writes segments. It returns the offset up to which this has happened: segments behind
// it were not touched. A read ends at the end of the file, without an error. Where segments that are
// written overlap, the bytes of the last rank count.
func (f *File) move(write bool, segs []segment) (upTo int64, err error) {
	byOffset := func(a, b segment) int { return cmp.Compare(a.off, b.off) }
	if !slices.IsSortedFunc(segs, byOffset) {
		slices.SortStableFunc(segs, byOffset)
	}
	gap := int64(0)
	if !write || f.hints.sieve != 0 && f.mode&ModeReadWrite != 0 {
		gap = sieveGap
	}
	for len(segs) > 0 {
		n, end, whole, apart := 1, segs[0].end(), true, true
		for ; n < len(segs) && segs[n].off-end <= gap; n++ {
			if segs[n].off > end && segs[n].end()-segs[0].off > f.hints.buffer {
				break
			}
			whole = whole && segs[n].off <= end
			apart = apart && segs[n].off >= end
			end = max(end, segs[n].end())
		}
		if upTo, err := f.moveGroup(write, segs[:n], end, whole, apart); upTo < end || err != nil {
			return upTo, err
		}
		segs = segs[n:]
	}
	return everywhere, nil
}

// moveGroup moves segments by one system call. end is the last one's, whole reports whether no bytes lie
// between them, and apart whether no two overlap.
func (f *File) moveGroup(write bool, segs []segment, end int64, whole, apart bool) (upTo int64, err error) {
	first, b := segs[0].off, segs[0].b
	if len(segs) > 1 {
		b = make([]byte, end-first)
	}
	var failed error
	if !write || !whole {
		n, err := f.os.ReadAt(b, first)
		switch {
		case err == nil || errors.Is(err, io.EOF):
		case write:
			return first, err
		default: // what was read before counts
			failed = err
		}
		if !write {
			end = first + int64(n)
		}
	}
	if write {
		if len(segs) > 1 {
			if !apart {
				segs = slices.Clone(segs)
				slices.SortStableFunc(segs, func(a, b segment) int { return cmp.Compare(a.rank, b.rank) })
			}
			for _, s := range segs {
				copy(b[s.off-first:], s.b)
			}
		}
		n, err := f.os.WriteAt(b, first)
		return first + int64(n), err
	}
	if len(segs) > 1 {
		for _, s := range segs {
			if s.off < end {
				copy(s.b, b[s.off-first:end-first])
			}
		}
	}
	return end, failed
}

// moved is the first place of a call's buffer that was not moved, of segments up to an offset.
func moved(segs []segment, upTo int64, most int) int {
	for _, s := range segs {
		if s.end() > upTo {
			most = min(most, s.at+int(max(0, upTo-s.off)))
		}
	}
	return most
}

// access is a read or a write of a rank: bytes of its view from pos on.
type access struct {
	call  string
	write bool
	buf   []byte
	v     *view
	pos   int64
}

func (a *access) bounds() (lo, hi int64) { return a.v.bounds(a.pos, int64(len(a.buf))) }

// between are the segments that lie between two offsets.
func (a *access) between(lo, hi int64, rank int) []segment {
	pieces := a.v.between(a.pos, int64(len(a.buf)), lo, hi)
	segs := make([]segment, len(pieces))
	for i, p := range pieces {
		segs[i] = segment{p.off, a.buf[p.at:][:p.n], p.at, rank}
	}
	return segs
}

// segmentsAtOnce bounds how many segments are made at a time.
const segmentsAtOnce = 4096

// transfer does an access by this rank alone. It returns how many bytes were moved.
func (f *File) transfer(ctx context.Context, a *access) (int, error) {
	if a.write && len(a.buf) > 0 {
		f.written()
	}
	n, at, bytes := len(a.buf), 0, int64(0) // at: where what was not tried yet begins
	var segs []segment
	flush := func() (more bool, err error) {
		upTo, err := f.move(a.write, segs)
		n = moved(segs, upTo, n)
		segs, bytes = segs[:0], 0
		return err == nil && (upTo == everywhere || !a.v.ordered), wrapSystem(a.call, err)
	}
	for p := range a.v.pieces(a.pos, int64(len(a.buf))) {
		if len(segs) == segmentsAtOnce || len(segs) > 0 && bytes+int64(p.n) > f.hints.buffer {
			if more, err := flush(); !more {
				return min(n, at), err
			}
			if ctx.Err() != nil {
				return min(n, at), &Error{Call: a.call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
			}
		}
		segs = append(segs, segment{p.off, a.buf[p.at:][:p.n], p.at, 0})
		bytes += int64(p.n)
		at = p.at + p.n
	}
	if len(segs) == 0 {
		return n, nil
	}
	_, err := flush()
	return n, err
}
