package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// SharePages lets importers on this node map the memory also where it is only a
// part of an allocation of [Process.Alloc], so that several exports can lie in
// one. The memory is then no longer protected by itself: an importer that
// bypasses the library reaches the whole allocation, with the rights of this
// export, and goes on doing so after its import and this export are closed,
// until the allocation is closed. The library itself keeps to the bounds, always.
//
// Importers that are not trusted so far should get an export that begins at a
// page ([PageSize]), fills whole pages and is the only one of its allocation: one
// allocation per purpose, which needs no SharePages. (The manual for SHRIMP gives
// the same advice, where hardware guards whole pages only.)
//
// All exports of an allocation that are mapped are writable, or all are
// [ReadOnly]; else Export fails with [ErrBadArg]. For other memory, and beside
// [Unmapped], SharePages does nothing.
func SharePages() ExportOption { return func(o *exportOptions) { o.share = true } }

// GlobalSpace declares that the memory lies in an allocation of [Process.Alloc],
// the kind that importers can map (the manual's BUF_GLOBAL_SPACE). If it does
// not, Export fails with [ErrBadArg]. Without it, any memory is accepted.
func GlobalSpace() ExportOption { return func(o *exportOptions) { o.global = true } }

// home finds the allocation that b lies in, and where; p.mu is held.
func (p *Process) home(b []byte) (*Memory, int) {
	if m := p.memories.First(b); m != nil {
		if off, ok := shm.Within(m.Bytes(), b); ok {
			return m, off
		}
	}
	return nil, 0
}

// begin puts e into the tables when no pages of its allocation are moving: e may
// share one with an export that is just ending.
func (p *Process) begin(e *Export, op string) error {
	p.mu.Lock()
	m, _ := p.home(e.mem)
	p.mu.Unlock()
	if m != nil {
		m.changing.Lock()
		defer m.changing.Unlock()
	}
	return p.admit(e, op)
}

// house says which allocation e lies in, and whether importers may map it; p.mu
// is held.
func (p *Process) house(e *Export, op string) error {
	e.home, e.off = p.home(e.mem)
	if e.home == nil {
		if e.global {
			return failf(op, ErrBadArg, "the memory is not of Process.Alloc, which GlobalSpace says it is")
		}
		return nil
	}
	if !e.unmapped && !e.many && e.wholeTargets() && (e.share || len(e.mem) == e.home.size) {
		e.memory = e.home
	}
	return nil
}

// renew takes the pages of an export that ends away from whoever has mapped
// them, as far as they are not also those of another export that lives. The
// home's changing is held, and nothing reaches e any more by the library.
func (e *Export) renew() error {
	m := e.home
	whole := m != nil && len(e.mem) == m.size
	switch {
	case m == nil:
		return nil
	case whole && e.memory != nil:
		return m.region.Renew("vmmc")
	case !m.region.Shared():
		return nil
	case whole: // whoever mapped a part once reaches it all
		return m.region.Renew("vmmc")
	}
	from, to := e.ownPages()
	return m.region.RenewPart(from, to-from)
}

// ownPages are the pages that e lies in and no other export that lives does.
// Exports do not overlap, so only the first and the last can be shared.
func (e *Export) ownPages() (from, to int) {
	from, to = e.off/shm.PageSize*shm.PageSize, shm.RoundUp(e.off+len(e.mem))
	first, last := from+shm.PageSize, to-shm.PageSize
	shareFirst, shareLast := false, false
	p := e.p
	p.mu.Lock()
	for o := range p.laid.Overlapping(e.home.region.Bytes()[from:to]) {
		if o == e || o.closed.Load() {
			continue
		}
		end := o.off + len(o.mem)
		shareFirst = shareFirst || o.off < first && end > from
		shareLast = shareLast || o.off < to && end > last
	}
	p.mu.Unlock()
	if shareFirst {
		from = first
	}
	if shareLast {
		to = max(from, last)
	}
	return from, to
}

// located says whether a grant's place in a memory can be.
func located(g *local.Grant) bool {
	return !g.Mapped || g.Offset >= 0 && g.Offset%shm.WordSize == 0 && int64(g.Memory) <= maxSize && g.Offset <= g.Memory-g.Size
}
