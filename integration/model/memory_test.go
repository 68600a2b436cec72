package model_test

import (
	"bytes"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// memory is some memory of a process, and what the model knows of its bytes.
type memory struct {
	owner  *process
	name   string
	real   []byte
	alloc  *vmmc.Memory // nil: of the Go heap
	base   []byte       // what it holds, but for the log
	aside  *export      // that it is a redirection target of
	shared bool         // a part of it was exported to be mapped
	rights rights       // it was exported with before
	forks  []*fork      // for gets in progress
	log    []*write     // what may or may not be in it, in the order of the calls
}

// write is a change that a call has made to a memory, or may make.
type write struct {
	off    int // in the memory
	data   []byte
	by     *link // nil: its owner
	order  int   // among the writes of by
	began  int   // times of the model's clock
	done   int   // it is in its place, or will never be, from then on; 0: not known
	sure   bool  // it is made, at some time; else it may never be
	exp    *export
	mem    *memory
	copied *write     // in a fork: what it is a copy of
	last   *vmmc.Word // where its last word is stored last; nil: no such promise
}

func (w *write) end() int { return w.off + len(w.data) }

func (w *write) overlaps(o *write) bool { return w.off < o.end() && o.off < w.end() }

// before reports whether w is in its place before o is, whatever the timing.
func (w *write) before(o *write) bool {
	return w.done != 0 && w.done < o.began || w.by != nil && w.by == o.by && w.order < o.order
}

// hides reports whether w, where it is, leaves nothing of what was there before it.
func (w *write) hides() bool { return w.sure && w.done != 0 }

// add enters a write.
func (m *memory) add(w *write) {
	m.enter(w)
	m.compact()
}

func (m *memory) enter(w *write) {
	m.log = append(m.log, w)
	for _, f := range m.forks {
		if w.by == nil || w.by != f.by || w.order <= f.order { // a get does not see what its process sends later
			f.since = append(f.since, w)
		}
	}
}

// compact moves what is certain from the log to the base.
func (m *memory) compact() {
	for i := 0; i < len(m.log); {
		w := m.log[i]
		if !w.hides() || slices.ContainsFunc(m.log, func(o *write) bool { return o != w && o.overlaps(w) && !w.before(o) }) {
			i++
			continue
		}
		copy(m.base[w.off:], w.data)
		m.log = slices.Delete(m.log, i, i+1)
		i = 0
	}
}

// sources are all that bytes from off to end may have come from, where no write
// begins or ends between: each as it would be there.
func (m *memory) sources(off, end int) (out [][]byte) {
	var here []*write
	for _, w := range m.log {
		if w.off <= off && end <= w.end() {
			here = append(here, w)
		}
	}
	hidden := func(w *write) bool {
		return slices.ContainsFunc(here, func(o *write) bool { return o != w && o.hides() && (w == nil || w.before(o)) })
	}
	if !hidden(nil) {
		out = append(out, m.base[off:end])
	}
	for _, w := range here {
		if !hidden(w) {
			out = append(out, w.data[off-w.off:end-w.off])
		}
	}
	return out
}

// wrong finds the first byte of got, read at off, that cannot be there. What else
// may be there is in since.
func (m *memory) wrong(got []byte, off int, since ...*write) (at int, bad bool) {
	end := off + len(got)
	edges := []int{off, end}
	for _, w := range slices.Concat(m.log, since) {
		for _, e := range []int{w.off, w.end()} {
			if off < e && e < end {
				edges = append(edges, e)
			}
		}
	}
	slices.Sort(edges)
	for i, to := range edges[1:] {
		from := edges[i]
		sources := m.sources(from, to)
		for _, w := range since {
			if w.off <= from && to <= w.end() {
				sources = append(sources, w.data[from-w.off:to-w.off])
			}
		}
		if k := foreign(got[from-off:to-off], sources); k >= 0 {
			return from + k, true
		}
	}
	return 0, false
}

// foreign finds the first byte that comes from none of the sources; -1 for none.
func foreign(got []byte, sources [][]byte) int {
	for _, s := range sources {
		if bytes.Equal(got, s) {
			return -1
		}
	}
next:
	for i, b := range got {
		for _, s := range sources {
			if s[i] == b {
				continue next
			}
		}
		return i
	}
	return -1
}

// adopt takes for certain what was seen where nothing can change any more.
func (m *memory) adopt(got []byte) {
	open := func(w *write) bool { return w.done == 0 }
	for again := true; again; {
		again = false
		for _, w := range m.log {
			if !open(w) && slices.ContainsFunc(m.log, func(o *write) bool { return o.overlaps(w) && open(o) }) {
				was := open
				open = func(o *write) bool { return o == w || was(o) }
				again = true
			}
		}
	}
	m.log = slices.DeleteFunc(m.log, func(w *write) bool {
		if open(w) {
			return false
		}
		copy(m.base[w.off:w.end()], got[w.off:w.end()])
		return true
	})
}

// ambiguous reports whether timing decides what bytes from off to end are.
func (m *memory) ambiguous(off, end int) bool {
	return slices.ContainsFunc(m.log, func(w *write) bool { return w.off < end && off < w.end() })
}

// telling reports whether finding v at byte i means that w has arrived: nothing
// else puts it there.
func (m *memory) telling(w *write, i int, v uint32) bool {
	if w.last == nil || w.done != 0 || i != w.end()-4 || le(w.data[len(w.data)-4:]) != v || le(m.base[i:]) == v {
		return false
	}
	return !slices.ContainsFunc(m.log, func(o *write) bool {
		return o != w && o.off <= i && i+4 <= o.end() && le(o.data[i-o.off:]) == v
	})
}

func le(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
