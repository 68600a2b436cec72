package mpi

import (
	"cmp"
	"context"
	"io"
	"iter"
	"math"
	"slices"
	"sort"
)

// view says which bytes of a file a rank sees: those of items of a file type, one item after another
// from disp on. It does not change.
type view struct {
	disp    int64
	etype   Datatype
	file    Datatype
	before  []int // bytes of an item before each of its runs
	ordered bool  // reports whether no item has bytes before those of an earlier item
}

// piece is bytes that follow one another both in the file and in the buffer.
type piece struct {
	off   int64 // in the file
	at, n int   // in the buffer
}

// bytesView is the view of a file that was just opened.
func bytesView() *view {
	d := Datatype{[]run{{0, 1}}, 1, 0, 1}
	return &view{etype: d, file: d, before: []int{0}, ordered: true}
}

// maxDisp is the greatest displacement: no sum of it and of the first item's bounds is too large.
const maxDisp int64 = math.MaxInt64 - 2*math.MaxInt32

func newView(call string, disp int64, etype, file Datatype) (*view, error) {
	switch {
	case disp < 0 || disp > maxDisp:
		return nil, fail(call, "disp", ErrArg, "it is %d, want 0 to %d", disp, maxDisp)
	case etype.size == 0:
		return nil, fail(call, "etype", ErrType, "it has no bytes")
	case file.size == 0 || file.size%etype.size != 0:
		return nil, fail(call, "filetype", ErrType, "it has %d bytes, which is no whole number of elementary items of %d",
			file.size, etype.size)
	case file.ub <= file.lb:
		return nil, fail(call, "filetype", ErrType, "its extent is %d, want 1 or more", file.ub-file.lb)
	}
	v := &view{disp: disp, etype: etype, file: file, before: make([]int, len(file.runs))}
	size, end := 0, 0
	for i, r := range file.runs {
		if r.at < end {
			return nil, fail(call, "filetype", ErrType, "its bytes from %d on are not behind those before them, which end at %d",
				r.at, end)
		}
		v.before[i] = size
		size, end = size+r.n, r.at+r.n
	}
	v.ordered = end-file.runs[0].at <= file.ub-file.lb
	return v, nil
}

// extent is how far items are apart in the file.
func (v *view) extent() int64 { return int64(v.file.ub - v.file.lb) }

// start is where the first item begins.
func (v *view) start() int64 { return v.disp + int64(v.file.runs[0].at) }

// span is how many bytes lie between the beginning of an item's first run and the end of its last.
func (v *view) span() int64 {
	last := v.file.runs[len(v.file.runs)-1]
	return int64(last.at + last.n - v.file.runs[0].at)
}

// place is how many bytes of the view lie before an offset, in elementary items. It checks that n
// bytes from there on have offsets in the file.
func (v *view) place(call string, off int64, n int) (int64, error) {
	size, item := int64(v.etype.size), int64(v.file.size)
	room := math.MaxInt64 - v.start() - v.span()
	switch {
	case off < 0:
		return 0, fail(call, "offset", ErrArg, "it is %d, want 0 or more", off)
	case n%v.etype.size != 0:
		return 0, fail(call, "buf", ErrType, "it has %d bytes, which is no whole number of elementary items of %d", n, size)
	case room < 0 || off > (math.MaxInt64-int64(n))/size || (off*size+int64(n))/item > room/v.extent():
		return 0, fail(call, "offset", ErrArg, "%d bytes from item %d on lie beyond the largest file", n, off)
	}
	return off * size, nil
}

// offset is where a byte of the view lies in the file.
func (v *view) offset(pos int64) int64 {
	item, in := pos/int64(v.file.size), int(pos%int64(v.file.size))
	i := v.runOf(in)
	return v.disp + item*v.extent() + int64(v.file.runs[i].at+in-v.before[i])
}

// runOf is the run of an item that has a byte of it.
func (v *view) runOf(in int) int {
	return sort.Search(len(v.before), func(i int) bool { return v.before[i] > in }) - 1
}

// position is the first byte of the view from which on no byte lies before an offset in the file.
// If the view is ordered it is the number of bytes that lie before the offset.
func (v *view) position(off int64) int64 {
	x := off - v.start()
	if x <= 0 {
		return 0
	}
	item := (x - 1) / v.extent()
	in := x - item*v.extent() // of the item's bytes those before it
	base := int64(v.file.runs[0].at)
	i := sort.Search(len(v.file.runs), func(i int) bool { return int64(v.file.runs[i].at)-base >= in }) - 1
	r := v.file.runs[i]
	return item*int64(v.file.size) + int64(v.before[i]) + min(int64(r.n), in-int64(r.at)+base)
}

// pieces are n bytes of the view from a byte on, in their order. Neighbours are joined.
func (v *view) pieces(pos, n int64) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		if n == 0 {
			return
		}
		runs := v.file.runs
		if len(runs) == 1 && int64(runs[0].n) == v.extent() {
			yield(piece{v.start() + pos, 0, int(n)})
			return
		}
		item, in := pos/int64(v.file.size), int(pos%int64(v.file.size))
		i := v.runOf(in)
		skip := in - v.before[i]
		var now piece
		for at := 0; at < int(n); {
			r := runs[i]
			k := min(r.n-skip, int(n)-at)
			off := v.disp + item*v.extent() + int64(r.at+skip)
			if now.n > 0 && now.off+int64(now.n) == off {
				now.n += k
			} else {
				if now.n > 0 && !yield(now) {
					return
				}
				now = piece{off, at, k}
			}
			at, skip = at+k, 0
			if i++; i == len(runs) {
				i, item = 0, item+1
			}
		}
		yield(now)
	}
}

// between are those of n bytes of the view from a byte on that lie between two offsets in the file, in
// the order of the file.
func (v *view) between(pos, n, lo, hi int64) []piece {
	if v.ordered {
		first := min(max(v.position(lo), pos), pos+n)
		last := min(max(v.position(hi), first), pos+n)
		out := slices.Collect(v.pieces(first, last-first))
		for i := range out {
			out[i].at += int(first - pos)
		}
		return out
	}
	var out []piece
	for p := range v.pieces(pos, n) {
		from, to := max(p.off, lo), min(p.off+int64(p.n), hi)
		if from < to {
			out = append(out, piece{from, p.at + int(from-p.off), int(to - from)})
		}
	}
	slices.SortStableFunc(out, func(a, b piece) int { return cmp.Compare(a.off, b.off) })
	return out
}

// bounds are offsets in the file between which n bytes of the view from a byte on lie.
func (v *view) bounds(pos, n int64) (lo, hi int64) {
	switch {
	case n == 0:
		return 0, 0
	case v.ordered:
		return v.offset(pos), v.offset(pos+n-1) + 1
	}
	size := int64(v.file.size)
	return v.start() + pos/size*v.extent(), v.start() + (pos+n-1)/size*v.extent() + v.span()
}

// SetView says which bytes of the file this rank sees, and in which items it counts (MPI_File_set_view
// with data representation "native", chapter I/O). It is a collective. The rank sees the bytes of items
// of filetype, one item after another, from byte disp of the file on. Offsets and file pointers count
// items of etype, of which filetype is made. All file pointers become 0. Ranks may give other disps and
// other filetypes, but the same size of etype. Requests that were begun before keep the view they have.
//
// Errors, at all ranks: [ErrArg] if disp is negative; [ErrType] if filetype is no whole number of items
// of etype, or if its bytes are not in the order of the file; [ErrNotSame].
//
// Experimental: it may change in any release.
func (f *File) SetView(ctx context.Context, disp int64, etype, filetype Datatype) (err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_set_view"
	if err := f.enter(call, ctx); err != nil {
		return err
	}
	defer f.leave()
	v, err := newView(call, disp, etype, filetype)
	if err := f.same(ctx, call, "etype", int64(etype.size), err); err != nil {
		return err
	}
	err = nil
	if f.c.rank == 0 {
		_, err = f.control.swap(context.WithoutCancel(ctx), 8, pointerAt, 0)
	}
	if err := f.agree(ctx, call, wrapMemory(call, err)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.v, f.pointer = v, 0
	return nil
}

// View is what SetView has said, and after FileOpen single bytes from byte 0 on (MPI_File_get_view,
// chapter I/O).
//
// Experimental: it may change in any release.
func (f *File) View() (disp int64, etype, filetype Datatype) {
	v := f.seen()
	return v.disp, v.etype, v.file
}

func (f *File) seen() *view {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.v
}

// ByteOffset is where an offset of the view, in items of etype, lies in the file
// (MPI_File_get_byte_offset, chapter I/O). [ErrArg]: it is negative, or beyond the largest file.
//
// Experimental: it may change in any release.
func (f *File) ByteOffset(off int64) (_ int64, err error) {
	defer func() { err = f.raise(err) }()
	v := f.seen()
	pos, err := v.place("MPI_File_get_byte_offset", off, 0)
	if err != nil {
		return 0, err
	}
	return v.offset(pos), nil
}

// sought is where a seek goes to, in items of etype.
func (f *File) sought(call string, v *view, now, off int64, whence int) (int64, error) {
	base := int64(0)
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		base = now
	case io.SeekEnd:
		st, err := f.os.Stat()
		if err != nil {
			return 0, wrapSystem(call, err)
		}
		size := int64(v.etype.size)
		base = (v.position(st.Size()) + size - 1) / size
	default:
		return 0, fail(call, "whence", ErrArg, "it is %d, want io.SeekStart, io.SeekCurrent or io.SeekEnd", whence)
	}
	if off > 0 && base > math.MaxInt64-off || base+off < 0 {
		return 0, fail(call, "offset", ErrArg, "%d items from item %d on is before the view, or beyond the largest file", off, base)
	}
	return base + off, nil
}

// Seek moves the individual file pointer, in items of etype, as [io.Seeker] does (MPI_File_seek,
// chapter I/O). io.SeekEnd is the first item from which on the view has no byte of the file.
//
// Errors, which leave the pointer where it was: [ErrArg]; [ErrUnsupportedOperation] with
// ModeSequential.
//
// Experimental: it may change in any release.
func (f *File) Seek(off int64, whence int) (_ int64, err error) {
	defer func() { err = f.raise(err) }()
	const call = "MPI_File_seek"
	if err := f.enter(call, context.Background()); err != nil {
		return 0, err
	}
	defer f.leave()
	if f.mode&ModeSequential != 0 {
		return 0, f.sequential(call)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	to, err := f.sought(call, f.v, f.pointer, off, whence)
	if err != nil {
		return f.pointer, err
	}
	f.pointer = to
	return to, nil
}

// Position is the individual file pointer, in items of etype (MPI_File_get_position, chapter I/O).
//
// Experimental: it may change in any release.
func (f *File) Position() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pointer
}
