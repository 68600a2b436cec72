package vmmc

import (
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/update"
)

// Bind makes plain stores to mem appear in the import at byte offset off, and the
// words after it, by themselves (the SBL's SBL_Map): within microseconds while stores
// come. The first one after a while without takes longer, since all that is bound is
// looked at for less than a 100th of a processor then: 24 ms were measured for 1 GiB
// where the kernel tells what was stored to, and up to 33 s for 1 GiB that is compared,
// which takes a quarter of a second each time. [Binding.Flush] and [Binding.Store] do
// not wait for that look.
//
// mem is a piece of an allocation of [Process.Alloc], word-aligned, in whole words,
// and it is bound once: memory of the Go heap is refused, as is memory in whose pages
// an export lies. Stores through other mappings of it are not seen, nor is what a device
// puts there past this process (O_DIRECT, RDMA); what a system call copies there is. The
// pages are the library's: do not mremap, mprotect or unmap them. Several bindings
// may lie in one allocation, and any number of senders may bind memory to one buffer:
// only words that changed are carried over, whole, so nobody overwrites another's
// words. Storing the value that is there already is no change. Words that change
// together may be seen in any order, and of several values that a word had in a short
// time only the last; see [FlagWords], [Binding.Flush] and [Binding.Store] for order,
// and docs/memory-model.md.
//
// A store never waits for anybody, nor fails, whatever becomes of the far end; the
// first one to a page costs about a microsecond (0.9 were measured), others nothing. A goroutine of this
// process carries over; it sleeps when there is nothing to do. Bound memory has a
// copy, and takes as much memory again once it is in use; a binding of more than 32 KiB
// takes two descriptors. Where there are none, or the kernel cannot tell what was stored
// to, all of the memory is compared with the copy: [Binding.Stats] says so.
//
// Errors: [ErrBadSize], [ErrBadAlignment], [ErrBadProxyAddr] (mem reaches beyond the
// import), [ErrNoRights] (an import without write right), [ErrOverlappedBufs] (mem is
// bound already, or exported), [ErrBadArg] (memory that is not of Alloc, or options
// that cannot be), [ErrNoMem], [ErrRevoked], [ErrPeerGone], [ErrClosed],
// [ErrNotInHandler].
func (im *Import) Bind(mem []byte, off int, opts ...BindOption) (*Binding, error) {
	if link.InHandler() {
		return nil, im.failed("bind", len(mem), off, code.NotInHandler)
	}
	b, err := im.bind(mem, off, opts)
	if err != nil {
		return nil, im.failed("bind", len(mem), off, err)
	}
	return b, nil
}

func (im *Import) bind(mem []byte, off int, opts []BindOption) (*Binding, error) {
	if err := im.check(len(mem), off, local.MayWrite); err != nil {
		return nil, err
	}
	if !shm.Aligned(mem) {
		return nil, code.New(code.BadAlignment, "the memory does not begin at a word (%d bytes)", shm.WordSize)
	}
	o, err := bindOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	if err := o.check(len(mem)); err != nil {
		return nil, err
	}
	b := &Binding{im: im, mem: mem[:len(mem):len(mem)], off: off, notify: o.notify}
	b.direct = im.mapped != nil && im.mapped.Direct() && !o.notify
	b.making.Lock()
	defer b.making.Unlock()
	if err := im.p.bindMemory(b); err != nil {
		return nil, err
	}
	if err = b.begin(o); err == nil {
		err = im.enterBinding(b)
	}
	if err != nil {
		b.carrier = nil
		im.p.unbind(b)
		return nil, err
	}
	im.p.log.Debug("memory bound", "exporter", im.peer, "buffer", im.id, "bytes", len(mem), "mode", b.Stats().Mode)
	return b, nil
}

func (b *Binding) begin(o *bindOptions) (err error) {
	if o.alias {
		b.carrier, err = b.alias()
		return err
	}
	p := b.im.p
	b.u, err = update.New(update.Config{
		Local: b.mem, Region: b.home.region, At: b.at, Flags: o.flags, CompareOnly: o.compare, All: o.contents,
		Remote: far{b}, Direct: b.direct, Duty: &p.duty, OnPassed: func() { b.tick.Advance(); p.engine.Wake() },
	})
	if err != nil {
		return code.New(code.NoMem, "no copy of the memory can be made: %v", err)
	}
	b.carrier = b.u
	b.u.Start()
	return nil
}

// bindMemory enters the binding in the process's table, if its memory is free.
func (p *Process) bindMemory(b *Binding) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return code.New(code.Closed, "the process is closed")
	}
	if b.home, b.at = p.home(b.mem); b.home == nil {
		return code.New(code.BadArg, "the memory is not of Process.Alloc: memory of the Go heap has no pages of its own that the system could watch")
	}
	for o := range p.bindings {
		if shm.Overlap(o.mem, b.mem) {
			return code.New(code.OverlappedBufs, "the memory is bound already, to buffer %d of %v: close that binding first", o.im.id, o.im.peer)
		}
	}
	if e := p.laid.First(b.pages()); e != nil {
		return code.New(code.OverlappedBufs, "the memory, or the rest of its pages, is exported as buffer %d", e.id)
	}
	if e := b.home.target; e != nil {
		return code.New(code.OverlappedBufs, "the memory is a redirection target of buffer %d", e.id)
	}
	p.bindings[b] = struct{}{}
	return nil
}

// bound finds a binding whose pages mem has a part in; p.mu is held.
func (p *Process) bound(mem []byte) *Binding {
	for b := range p.bindings {
		if shm.Overlap(b.pages(), mem) {
			return b
		}
	}
	return nil
}

// pages are those that the memory lies in.
func (b *Binding) pages() []byte {
	return b.home.region.Bytes()[b.at/shm.PageSize*shm.PageSize : shm.RoundUp(b.at+len(b.mem))]
}

func (p *Process) unbind(b *Binding) {
	p.mu.Lock()
	delete(p.bindings, b)
	p.mu.Unlock()
}

// enterBinding makes the import's end the binding's.
func (im *Import) enterBinding(b *Binding) error {
	im.l.mu.Lock()
	err := im.alive()
	if err == nil {
		err = im.l.out.Err()
	}
	if err == nil {
		if im.bindings == nil {
			im.bindings = map[*Binding]struct{}{}
		}
		im.bindings[b] = struct{}{}
	}
	im.l.mu.Unlock()
	if err != nil {
		b.carrier.Fail(err)
		_ = b.finish()
		return err
	}
	if err := im.l.out.Err(); err != nil { // the link's end may have looked before
		b.carrier.Fail(err)
	}
	return nil
}

// endBindings ends all bindings to the import. It waits for nothing.
func (im *Import) endBindings(err error) (all []*Binding) {
	im.l.mu.Lock()
	for b := range im.bindings {
		all = append(all, b)
	}
	im.l.mu.Unlock()
	for _, b := range all {
		b.carrier.Fail(err)
	}
	return all
}
