package model_test

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/manual"
)

// process is a process of the sequence.
type process struct {
	p        *vmmc.Process
	slot     int
	node     string
	name     string // the same whenever the sequence is
	id       vmmc.ProcessID
	closed   bool
	limit    int64 // of imported bytes; 0 for none
	used     int64
	level    int // of blocked notifications
	memories []*memory
	dest     manual.DestSpace // has its open imports
	space    []addressed      // all ranges of dest that ever were
}

var _ = declare(
	"calls", "Open", "Process.Close", "Alloc", "Memory.Close",
)

var _ = declare(
	"states", "a call on a closed process", "memory freed while it is exported", "a process closed with exports that others import",
)

// enter takes over the process in a slot of the world.
func (s *sequence) enter(i int) *process {
	real := s.w.slots[i]
	p := &process{p: real, slot: i, limit: limits[i], node: places[i], id: real.ID(), name: fmt.Sprintf("p%d", len(s.processes))}
	s.slots[i] = p
	s.processes = append(s.processes, p)
	return p
}

// open processes, of which there is at least one.
func (s *sequence) open() []*process {
	return slices.DeleteFunc(slices.Clone(s.slots), func(p *process) bool { return p == nil })
}

func (s *sequence) openProcess() {
	i := slices.Index(s.slots, nil)
	if i < 0 {
		return
	}
	p, err := s.w.open(places[i], vmmc.WithImportLimit(limits[i]), s.w.withEvents(i))
	s.expect("Open", err, ok)
	s.w.slots[i] = p
	e := s.enter(i)
	s.say("open %s on node %s", e.name, e.node)
	reach("calls", "Open")
	if e.p.Node().String() != e.node {
		s.fail("Node: it is not the node that it was opened at")
	}
	for _, o := range s.processes {
		if o != e && (o.id == e.id || o.id.PID == e.id.PID) {
			s.fail("Open: a process has the id of another one")
		}
	}
}

func (s *sequence) openBadly() {
	ctx, stop := s.within()
	defer stop()
	s.say("open where no node is")
	_, err := vmmc.Open(ctx, vmmc.WithSocket(filepath.Join(s.w.nowhere, "nobody")))
	s.expect("Open at no node", err, result{code: vmmc.ErrNoDaemon})
}

func (s *sequence) closeProcess() {
	s.leave(pick(s, s.open(), "process"))
}

// leave closes a process, unless it is the last.
func (s *sequence) leave(p *process) {
	if len(s.open()) < 2 {
		return
	}
	s.say("close %s", p.name)
	s.expect("Process.Close", p.p.Close(), ok)
	s.expect("Process.Close again", p.p.Close(), ok)
	reach("calls", "Process.Close")
	s.w.slots[p.slot], s.slots[p.slot] = nil, nil
	p.closed = true
	for _, l := range s.links {
		if len(l.pending) > 0 && l.from == p && l.to != p {
			reach("states", "a message under way when its sender is closed")
		}
		if len(l.pending) > 0 && l.to == p && l.from != p {
			reach("states", "a message under way when its receiver is closed")
		}
		if l.from == p || l.to == p {
			l.abandon()
		}
	}
	for _, im := range s.imports {
		if im.exp.owner == p && im.p != p && im.live() {
			reach("states", "a process closed with exports that others import")
		}
	}
	for _, e := range s.exports {
		if e.owner == p {
			e.closed = true
		}
	}
	s.exports = slices.DeleteFunc(s.exports, func(e *export) bool { return e.closed })
	p.memories = nil
	s.onClosed(p)
}

// onClosed makes calls on a process that is closed.
func (s *sequence) onClosed(p *process) {
	reach("states", "a call on a closed process")
	closed := result{code: vmmc.ErrClosed}
	_, err := p.p.Alloc(64)
	s.expect("Alloc of a closed process", err, closed)
	_, err = p.p.Export(1, make([]byte, 64))
	s.expect("Export of a closed process", err, closed)
	ctx, stop := s.within()
	defer stop()
	s.expect("WaitUntil of a closed process", p.p.WaitUntil(ctx, func() bool { return false }), closed)
	_, err = p.p.Import(ctx, p.id.Node, p.id.PID, 1)
	// Its connection to the daemon is closed, which is all that it knows.
	s.expect("Import of a closed process", err, closed, result{code: vmmc.ErrNoDaemon})
}

// allocate makes a memory: of the library, or of the Go heap.
func (s *sequence) allocate(p *process, size int, heap bool) *memory {
	m := &memory{owner: p, name: fmt.Sprintf("%s.m%d", p.name, s.tick()), base: make([]byte, size)}
	if heap {
		m.real = make([]byte, size)
	} else {
		a, err := p.p.Alloc(size)
		s.expect("Alloc", err, ok)
		reach("calls", "Alloc")
		m.alloc, m.real = a, a.Bytes()
	}
	s.say("%s: %d bytes, of the Go heap: %v", m.name, size, heap)
	if len(m.real) != size {
		s.fail("Alloc: not as many bytes as were asked for")
	}
	p.memories = append(p.memories, m)
	s.observe(m) // zeroed
	return m
}

func (s *sequence) allocateBadly() {
	p := pick(s, s.open(), "process")
	n := pick(s, []int{0, -4, 3, 4097, 1 << 50}, "size")
	s.say("%s: allocate %d bytes", p.name, n)
	allowed := result{code: vmmc.ErrBadSize}
	switch {
	case n%4 != 0:
		allowed.code = vmmc.ErrBadAlignment
	case n > 0:
		allowed.code = vmmc.ErrNoMem
	}
	_, err := p.p.Alloc(n)
	s.expect("Alloc", err, allowed)
	_, err = p.p.Export(99, make([]byte, 64), vmmc.GlobalSpace())
	s.expect("Export of memory that is not global", err, result{code: vmmc.ErrBadArg})
	reach("states", "memory declared to be what it is not")
}

// free gives a memory back.
func (s *sequence) free() {
	p := pick(s, s.open(), "process")
	if len(p.memories) == 0 {
		return
	}
	s.release(pick(s, p.memories, "memory"))
}

func (s *sequence) release(m *memory) {
	s.say("free %s", m.name)
	exported := slices.ContainsFunc(s.exports, func(e *export) bool { return e.mem == m || e.named == m })
	if m.aside != nil && !exported {
		return // it may be written to
	}
	if m.alloc == nil {
		if exported {
			return // it stays the caller's, which must keep it
		}
	} else {
		reach("calls", "Memory.Close")
		if exported {
			reach("states", "memory freed while it is exported")
			s.expect("Memory.Close", m.alloc.Close(), result{code: vmmc.ErrBadRbufState})
			return
		}
		s.observe(m)
		s.expect("Memory.Close", m.alloc.Close(), ok)
		s.expect("Memory.Close again", m.alloc.Close(), ok)
	}
	p := m.owner
	p.memories = slices.DeleteFunc(p.memories, func(o *memory) bool { return o == m })
}

// observe compares a memory with the model.
func (s *sequence) observe(m *memory) {
	s.learn(m)
	got := slices.Clone(m.real)
	if at, bad := m.wrong(got, 0); bad {
		s.mismatch(m, at, got[at])
		s.fail("the memory holds what it cannot hold")
	}
	m.adopt(got)
}

// learn looks for the last words of messages under way. A reader that sees the last word
// of a message may rely on all of it, and on all that was sent before it.
func (s *sequence) learn(m *memory) {
	for _, w := range slices.Clone(m.log) {
		if w.last != nil && m.telling(w, w.end()-4, w.last.Load()) {
			s.seen(w)
		}
	}
}

// seen notes that a message has arrived, as its last word was seen.
func (s *sequence) seen(w *write) {
	reach("states", "a message seen before its fence")
	if w.sure {
		s.arrive(w.by, w.order)
	}
}

// mismatch records what is wrong with a byte.
func (s *sequence) mismatch(m *memory, at int, got byte) {
	s.say("%s: byte %d is %#x; the base has %#x", m.name, at, got, m.base[at])
	for _, w := range m.log {
		if w.off <= at && at < w.end() {
			by := "its owner"
			if w.by != nil {
				by = fmt.Sprintf("%s, its %d.", w.by.from.name, w.order)
			}
			s.say("  %#x by %s, began %d, done %d, sure %v", w.data[at-w.off], by, w.began, w.done, w.sure)
		}
	}
}
