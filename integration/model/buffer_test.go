package model_test

import (
	"slices"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
)

type rights int

const (
	mayRead rights = 1 << iota
	mayWrite
)

// export is a buffer that a process exports.
type export struct {
	owner    *process
	e        *vmmc.Export
	id       uint32
	mem      *memory
	off, n   int // in mem
	rights   rights
	mappable bool
	handler  bool
	discards bool
	awaited  bool                   // a notification is waited for while they are blocked
	ran      int                    // notifications
	script   atomic.Pointer[script] // what one notification's handler does
	closed   bool

	named    *memory             // a mapped importer has it mapped, too; nil: the export is not redirectable
	other    *memory             // its messages go by the stream for it
	end      *memory             // a word: the end of data and 4, or 0
	many     bool                // several processes may import it
	lets     func(*process) bool // import it; nil: all
	bad      []result            // what is wrong with its options
	stranger bool                // a process of another session may import it
	pinned   *process            // the one that did
	posted   *posting
}

// alone reports whether one process only may import the export.
func (e *export) alone() bool { return e.named != nil && !e.many }

var _ = declare(
	"calls", "Export", "Export.Close",
)

var _ = declare(
	"states", "a whole allocation exported", "part of an allocation exported", "an export that is never mapped",
	"an id exported again", "an export closed with live imports", "a message that its export's end kept out", "a memory exported again with other rights",
)

// ids are few, so that exports and imports have the same.
const ids = 3

// sizes of allocations: around a page, and around what travels in one piece.
var sizes = []int{64, 4096, 4, 600 << 10, 8192, 4100, 8, 12288, 256<<10 + 8, 64<<10 + 4, 1024}

func (s *sequence) export() {
	p := pick(s, s.open(), "process")
	var m *memory
	if n := len(p.memories); n > 0 && (n >= 6 || s.below(3, "old memory") > 0) {
		if m = pick(s, p.memories, "memory"); m.aside != nil && m == m.aside.other {
			return // it may be written to
		}
	} else {
		heap := !raceEnabled && s.rarely(5, "heap") // see docs/memory-model.md on the race detector
		m = s.allocate(p, pick(s, sizes, "size"), heap)
	}
	e := &export{owner: p, id: uint32(1 + s.below(ids, "id")), mem: m, rights: mayRead | mayWrite}
	size, half := len(m.real), len(m.real)/8*4
	e.n = size
	switch s.below(12, "range") {
	case 5, 6:
		e.off, e.n = 0, half
	case 7, 8:
		e.off, e.n = half, size-half
	case 9:
		e.off, e.n = half, 0
	case 10:
		e.off, e.n = 1, min(64, size)-4
	case 11:
		e.off, e.n = 0, size-2
	}
	var opts []vmmc.ExportOption
	switch s.below(6, "rights") {
	case 1:
		opts = append(opts, vmmc.ReadWrite())
	case 4:
		e.rights = mayRead
		opts = append(opts, vmmc.ReadOnly())
	case 5:
		e.rights = mayWrite
		opts = append(opts, vmmc.WriteOnly())
	}
	e.mappable = m.alloc != nil && e.n == size
	share := m.alloc != nil && e.n > 0 && e.n < size && s.below(2, "share") == 1
	if share {
		e.mappable = true
		opts = append(opts, vmmc.SharePages())
	}
	if s.rarely(4, "unmapped") {
		e.mappable = false
		opts = append(opts, vmmc.Unmapped())
	}
	opts = append(opts, s.permit(e)...)
	opts = append(opts, s.shelter(e)...)
	if !share && e.rights != mayRead && s.below(3, "redirectable") == 1 && len(p.memories) < 8 && e.n >= 64 && len(s.exportFaults(e)) == 0 {
		opts = append(opts, s.withTargets(e)...)
	}
	if e.handler = s.below(2, "handler") == 0; e.handler {
		opts = append(opts, s.handlerOf(e))
		if e.rights == mayRead { // nothing would ever run it
			e.bad = results(vmmc.ErrBadArg)
		}
	}
	s.offer(e, opts)
}

// withTargets makes an export redirectable.
func (s *sequence) withTargets(e *export) (opts []vmmc.ExportOption) {
	var first *process
	for _, a := range s.awaited {
		if a.owner == e.owner && a.id == e.id {
			// Which of several processes that wait for it gets it? One that has ended
			// may, for a moment.
			e.many = e.many || first != nil && first != a.p || a.p.closed
			first = a.p
		}
	}
	// Nor may one have it for a moment that has given up.
	e.many = e.many || slices.Contains(s.stale, stale{e.owner, e.id})
	if rare := s.rarely(4, "many senders"); e.many || rare {
		e.many = true
		e.mappable = false
		opts = append(opts, vmmc.ManySenders())
	}
	e.named, e.other = s.allocate(e.owner, e.n, false), s.allocate(e.owner, e.n+64, false)
	e.named.aside, e.other.aside = e, e
	e.end = &memory{name: "end of data", base: make([]byte, 4)}
	return append(opts, vmmc.Redirectable(e.named.alloc))
}

// faults are what may be wrong with an export.
func (s *sequence) exportFaults(e *export) (out []result) {
	if e.n == 0 {
		return results(vmmc.ErrBadSize)
	}
	out = append(out, e.bad...)
	must, _ := s.sealFaults(e)
	out = append(out, must...)
	if e.off%4 != 0 || e.n%4 != 0 {
		out = append(out, results(vmmc.ErrBadAlignment)...)
	}
	for _, o := range s.exports {
		if o.owner == e.owner && o.id == e.id {
			out = append(out, results(vmmc.ErrBufAlreadyExists)...)
		}
		if o.mem == e.mem && o.off < e.off+e.n && e.off < o.off+o.n || o.named == e.mem {
			out = append(out, results(vmmc.ErrOverlappedBufs)...)
		}
	}
	return out
}

func (s *sequence) offer(e *export, opts []vmmc.ExportOption) {
	s.say("%s: export %d bytes at %d of %s as %d, rights %d, mappable %v, handler %v", e.owner.name, e.n, e.off, e.mem.name, e.id, e.rights, e.mappable, e.handler)
	mem := e.mem.real[e.off : e.off+e.n : e.off+e.n]
	real, err := e.owner.p.Export(e.id, mem, opts...)
	faults := s.exportFaults(e)
	if len(faults) > 0 {
		s.expect("Export", err, faults...)
		return
	}
	_, may := s.sealFaults(e)
	if s.expect("Export", err, append(may, ok)...) != ok {
		if e.named != nil {
			e.named.aside, e.other.aside = nil, nil
		}
		return // the memory's rights are what they were
	}
	reach("calls", "Export")
	e.e = real
	e.mem.shared = e.mem.shared || e.mappable && e.n < len(e.mem.real)
	if real.ID() != e.id || real.Size() != e.n || &real.Bytes()[0] != &mem[0] {
		s.fail("Export: it has another id, size or memory")
	}
	switch {
	case e.mappable && e.n == len(e.mem.real):
		reach("states", "a whole allocation exported")
	case e.mem.alloc != nil && e.n < len(e.mem.real):
		reach("states", "part of an allocation exported")
	case e.mem.alloc != nil:
		reach("states", "an export that is never mapped")
	}
	for _, im := range s.imports {
		if im.exp.owner == e.owner && im.exp.id == e.id {
			reach("states", "an id exported again")
		}
	}
	if e.mappable {
		if m := e.mem; m.rights != 0 && m.rights != e.rights {
			reach("states", "a memory exported again with other rights")
		}
		e.mem.rights = e.rights
	}
	s.exports = append(s.exports, e)
	s.arrivals(e)
}

func (s *sequence) closeExport() {
	if len(s.exports) == 0 {
		return
	}
	s.unexport(pick(s, s.exports, "export"))
}

func (s *sequence) unexport(e *export) {
	s.say("%s: close export %d", e.owner.name, e.id)
	for _, q := range slices.Clone(s.requests) {
		if e.mem.shared && q.im.exp == e && q.im.mapped {
			s.await(q) // else what is being copied now would go on after this
		}
	}
	if e.owner.level > 0 {
		s.closeBlocked(e)
	} else {
		s.expect("Export.Close", e.e.Close(), ok)
	}
	s.expect("Export.Close again", e.e.Close(), ok)
	reach("calls", "Export.Close")
	e.closed = true
	s.exports = slices.DeleteFunc(s.exports, func(o *export) bool { return o == e })
	for _, l := range s.links {
		if l.under(e) {
			reach("states", "a message under way when its export is closed")
		}
	}
	s.dropRedir(e)
	under := alone(s.cut(e))
	for _, im := range s.imports {
		if im.exp == e && !im.closed && !im.p.closed {
			reach("states", "an export closed with live imports")
			break
		}
	}
	s.observe(e.mem)
	s.missing(under)
	if e.named != nil {
		s.observe(e.named)
		s.observe(e.other)
		e.named.aside, e.other.aside = nil, nil
	}
}

// dropRedir leaves open what a redirection that its export ends has taken.
func (s *sequence) dropRedir(e *export) {
	p := e.posted
	if e.posted = nil; p == nil {
		return
	}
	reach("redirection", "its export closed")
	if m := p.claimed; m != nil && m.done == 0 {
		a, b := p.overlap(m)
		m.again(func() { m.doubtful(p, a, b); m.renew() })
	}
}

// alone are the messages whose last word nothing else may have overwritten.
func alone(under []*message) []*message {
	return slices.DeleteFunc(under, func(m *message) bool {
		return !m.sure || m.raw || len(m.ws) != 1 || slices.ContainsFunc(m.ws[0].mem.log, func(o *write) bool {
			w := m.ws[0]
			return o != w && o.off < w.end() && w.end()-4 < o.end()
		})
	})
}

// missing finds the messages that were under way when their export was closed and
// never arrived: a call that later claims that one arrived is wrong.
func (s *sequence) missing(under []*message) {
	for _, m := range under {
		w := m.ws[0] // in the memory of the export, or of its redirection
		if le(w.mem.real[w.end()-4:]) != le(m.data[len(m.data)-4:]) {
			reach("states", "a message that its export's end kept out")
			m.lost, m.im.lost = true, true
		}
	}
}
