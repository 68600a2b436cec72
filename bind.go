package vmmc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/update"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Bind makes plain stores to mem appear in the import at byte offset off, and the
// words after it, by themselves (the SBL's SBL_Map): within microseconds while stores
// come. The first one after a while without takes longer, since all that is bound is
// looked at for less than a 100th of a processor then: 24 ms were measured for 1 GiB
// where the kernel tells what was stored to, and up to 33 s for 1 GiB that is compared,
// which takes a quarter of a second each time. [Binding.Flush] and [Binding.Store] do
// not wait for that look.
//
// mem is a piece of an allocation of [Process.Alloc], word-aligned, in whole words, and it is bound
// once: memory of the Go heap is refused, as is memory in whose pages an export lies. Stores
// through other mappings of it are not seen, nor is what a device puts there past this process
// (O_DIRECT, RDMA); what a system call copies there is. The pages are the library's: do not mremap,
// mprotect or unmap them. Several bindings may lie in one allocation, and any number of senders may
// bind memory to one buffer: only whole words that changed are carried over, so senders do not
// overwrite each other's words. Storing the value that is there already is no change. Words that
// change together may be seen in any order, and of several values that a word had in a short time
// only the last; see [FlagWords], [Binding.Flush] and [Binding.Store] for order, and
// docs/memory-model.md.
//
// A store never waits nor fails, whatever happens to the exporter; the first one to a page costs
// about a microsecond (0.9 were measured), others nothing. A goroutine of this process carries
// over; it sleeps when there is nothing to do. Bound memory has a copy, and takes as much memory
// again once it is in use; a binding of more than 32 KiB takes two descriptors. Where there are
// none, or the kernel cannot tell what was stored to, all of the memory is compared with the copy:
// [Binding.Stats] says so.
//
// Errors: [ErrBadSize], [ErrBadAlignment], [ErrBadProxyAddr] (mem reaches beyond the
// import), [ErrNoRights] (an import without write right), [ErrOverlappedBufs] (mem is
// bound already, or exported), [ErrBadArg] (memory that is not of Alloc, or options
// that cannot be), [ErrNoMem], [ErrRevoked], [ErrPeerGone], [ErrClosed],
// [ErrNotInHandler].
//
// Experimental: it may change in any release.
func (im *Import) Bind(mem []byte, off int, opts ...BindOption) (*Binding, error) {
	if link.InHandler() {
		return nil, im.opError("bind", len(mem), off, code.NotInHandler)
	}
	b, err := im.bind(mem, off, opts)
	if err != nil {
		return nil, im.opError("bind", len(mem), off, err)
	}
	return b, nil
}

func (im *Import) bind(mem []byte, off int, opts []BindOption) (*Binding, error) {
	if err := im.check(len(mem), off, nodeproto.MayWrite); err != nil {
		return nil, err
	}
	if !shm.Aligned(mem) {
		return nil, code.New(code.BadAlignment,
			"the memory does not begin at a word (%d bytes)", shm.WordSize)
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
	b.startMu.Lock()
	defer b.startMu.Unlock()
	if err := im.p.memory.addBinding(b); err != nil {
		return nil, err
	}
	if err = b.start(o); err == nil {
		err = im.enterBinding(b)
	}
	if err != nil {
		b.carrier = nil
		im.p.memory.removeBinding(b)
		return nil, err
	}
	im.p.log.Debug("memory bound",
		"exporter", im.peer, "buffer", im.id, "bytes", len(mem), "mode", b.Stats().Mode)
	return b, nil
}

func (b *Binding) start(o *bindOptions) (err error) {
	if o.alias {
		b.carrier, err = b.alias()
		return err
	}
	p := b.im.p
	b.updater, err = update.New(update.Config{
		Local: b.mem, Region: b.allocation.region, At: b.allocOff, Flags: o.flags, CompareOnly: o.compare, All: o.contents,
		Remote: remoteWriter{b}, Direct: b.direct, Duty: &p.duty, OnPassed: func() { b.tick.Advance(); p.engine.Wake() },
	})
	if err != nil {
		return code.New(code.NoMem, "no copy of the memory can be made: %v", err)
	}
	b.carrier = b.updater
	b.updater.Start()
	return nil
}

// addBinding adds the binding to the table, if its memory is free.
func (t *memoryTable) addBinding(b *Binding) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.im.p.closed.Load() {
		return code.New(code.Closed, "the process is closed")
	}
	if b.allocation, b.allocOff = t.allocationOf(b.mem); b.allocation == nil {
		return code.New(code.BadArg, "the memory is not of Process.Alloc: memory of the Go heap has no pages of its own that the system could watch")
	}
	for o := range t.bindings {
		if shm.Overlap(o.mem, b.mem) {
			return code.New(code.OverlappedBufs,
				"the memory is bound already, to buffer %d of %v: close that binding first", o.im.id, o.im.peer)
		}
	}
	if e := t.exportSpans.First(b.pages()); e != nil {
		return code.New(code.OverlappedBufs,
			"the memory, or the rest of its pages, is exported as buffer %d", e.id)
	}
	if e := b.allocation.redirectOf; e != nil {
		return code.New(code.OverlappedBufs, "the memory is a redirection target of buffer %d", e.id)
	}
	t.bindings[b] = struct{}{}
	return nil
}

// bindingOver returns a binding whose pages overlap mem, or nil. mu is held.
func (t *memoryTable) bindingOver(mem []byte) *Binding {
	for b := range t.bindings {
		if shm.Overlap(b.pages(), mem) {
			return b
		}
	}
	return nil
}

// pages returns the whole pages that contain the bound memory.
func (b *Binding) pages() []byte {
	return b.allocation.region.Bytes()[b.allocOff/shm.PageSize*shm.PageSize : shm.RoundUp(b.allocOff+len(b.mem))]
}

func (t *memoryTable) removeBinding(b *Binding) {
	t.mu.Lock()
	delete(t.bindings, b)
	t.mu.Unlock()
}

// enterBinding adds the binding to its import, whose end ends the binding.
func (im *Import) enterBinding(b *Binding) error {
	im.link.mu.Lock()
	err := im.checkAlive()
	if err == nil {
		err = im.link.requester.Err()
	}
	if err == nil {
		if im.bindings == nil {
			im.bindings = map[*Binding]struct{}{}
		}
		im.bindings[b] = struct{}{}
	}
	im.link.mu.Unlock()
	if err != nil {
		b.carrier.Fail(err)
		_ = b.finish()
		return err
	}
	if err := im.link.requester.Err(); err != nil { // the link's end may have looked before
		b.carrier.Fail(err)
	}
	return nil
}

// endBindings ends all bindings to the import, without waiting.
func (im *Import) endBindings(err error) (all []*Binding) {
	im.link.mu.Lock()
	for b := range im.bindings {
		all = append(all, b)
	}
	im.link.mu.Unlock()
	for _, b := range all {
		b.carrier.Fail(err)
	}
	return all
}

// Binding is automatic update: plain stores to local memory show up in an import by
// themselves. It lives until [Binding.Close], or the end of its import or process.
// Its methods may be called concurrently.
//
// Experimental: it may change in any release.
type Binding struct {
	im         *Import
	mem        []byte
	off        int // in the import
	allocation *Memory
	allocOff   int // offset of mem in allocation
	notify     bool
	direct     bool // propagation never waits

	startMu sync.Mutex      // held until carrier is set
	carrier carrier         // nil: Bind has failed
	updater *update.Binding // the carrier; nil with AliasPages
	tick    wait.EventCount // moves when a scan has passed, so that Flush can go on
	closing sync.Once
	err     error // of closing
}

// carrier propagates stores to the exporter.
type carrier interface {
	Fail(error)
	Err() error
	Ended() <-chan struct{}
}

// Close ends the binding: stores to the memory are ordinary ones from then on, and it
// may be bound or exported again. It does not flush. Closing twice is no error. In a
// notification handler it fails with [ErrNotInHandler].
func (b *Binding) Close() error {
	if link.InHandler() {
		return b.opError("close binding", code.NotInHandler)
	}
	return b.close()
}

func (b *Binding) close() error {
	b.closing.Do(func() {
		b.startMu.Lock() // the process may be closed while Bind is at work
		made := b.carrier != nil
		b.startMu.Unlock()
		if !made {
			return
		}
		b.carrier.Fail(code.Closed)
		b.err = b.finish()
		b.im.link.mu.Lock()
		delete(b.im.bindings, b)
		b.im.link.mu.Unlock()
		b.im.p.memory.removeBinding(b)
	})
	return b.err
}

// finish restores plain memory after the binding has ended.
func (b *Binding) finish() error {
	if b.updater != nil {
		<-b.updater.Gone()
		return nil
	}
	if err := b.unalias(); err != nil {
		return b.opError("close binding", err)
	}
	return nil
}

// Done is closed when the binding has ended and nothing is carried over any more:
// [Binding.Err] says why.
func (b *Binding) Done() <-chan struct{} { return b.carrier.Ended() }

// Err is nil as long as the binding lives, and then why it does not: [ErrRevoked],
// [ErrPeerGone], [ErrClosed].
func (b *Binding) Err() error {
	if err := b.carrier.Err(); err != nil {
		return b.opError("carry over", err)
	}
	return nil
}

// Flush returns when all that was stored to the bound memory before it was called, by
// this goroutine or what it has synchronised with, has arrived at the exporter, and
// all that this process sent it before as well ([Import.Fence]). What this process
// sends afterwards comes after it. Errors: the context's; what has ended the binding,
// see [Binding.Err]; [ErrNotInHandler]. After the context's error it may have arrived
// or not, and will if nothing ends the binding.
func (b *Binding) Flush(ctx context.Context) error {
	if link.InHandler() {
		return b.opError("flush", code.NotInHandler)
	}
	if ctx == nil {
		return b.opError("flush", errNilContext)
	}
	err := b.flush(ctx)
	if err == nil {
		err = b.im.Fence(ctx)
	}
	if err != nil {
		return b.opError("flush", err)
	}
	return nil
}

func (b *Binding) flush(ctx context.Context) error {
	if b.updater == nil {
		return b.wakeExporter()
	}
	n, err := b.updater.Request(ctx)
	for err == nil && b.updater.Passed() < n {
		tick := b.tick.Load()
		if b.updater.Passed() >= n {
			break
		}
		if err = b.carrier.Err(); err == nil {
			err = b.im.p.engine.Wait(ctx, wait.Cond{Word: b.tick.Word(), Old: tick, LocalOnly: true})
		}
	}
	return err
}

// Store stores v at byte offset off of the bound memory, and at the far end at once: it waits for
// no order, so data that was stored before may come after it, and for nothing but what is being
// carried over just then. Storing the value that is there already sends it all the same. When it
// fails, the word is stored here, or not if nothing can be carried over any more. Errors are those
// of [Import.Send] for a word, and [ErrNotInHandler] for a binding with [NotifyUpdates].
func (b *Binding) Store(ctx context.Context, off int, v uint32) error {
	if ctx == nil {
		return b.opError(fmt.Sprintf("store word %d", off), errNilContext)
	}
	err := b.store(ctx, off, v)
	if err != nil {
		return b.opError(fmt.Sprintf("store word %d", off), err)
	}
	return nil
}

// Word is the bound word at byte offset off, as an atomic: flags are to be stored by
// one. It is carried over as any other store. It must not be used after the memory is
// closed. The errors are [ErrBadAlignment] and [ErrBadProxyAddr].
func (b *Binding) Word(off int) (*atomic.Uint32, error) {
	if err := b.checkWord(off); err != nil {
		return nil, b.opError(fmt.Sprintf("word %d", off), err)
	}
	return shm.Word(b.mem, off), nil
}

// opError describes an error of a call on the binding.
func (b *Binding) opError(what string, err error) error {
	return b.im.opError(what+": bound", len(b.mem), b.off, err)
}

// BindMode is how a binding finds what was stored.
//
// Experimental: it may change in any release.
type BindMode uint8

// The modes.
//
// Experimental: they may change in any release.
const (
	BindWatch   BindMode = iota + 1 // the kernel tells which pages were stored to
	BindCompare                     // all of the memory is compared with a copy
	BindAlias                       // nothing to find: the memory is the exporter's ([AliasPages])
)

// String is "watch", "compare" or "alias".
func (m BindMode) String() string {
	switch m {
	case BindWatch:
		return "watch"
	case BindCompare:
		return "compare"
	case BindAlias:
		return "alias"
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// BindingStats is what a binding has done so far.
//
// Experimental: it may change in any release.
type BindingStats struct {
	Mode     BindMode
	Reason   string // why not BindWatch
	Path     Path
	Messages uint64 // runs of words carried over
	Words    uint64 // in them
	Passes   uint64 // looks at what is hot
	Scans    uint64 // questions to the kernel
}

// Stats may be called at any time, also after Close.
func (b *Binding) Stats() BindingStats {
	out := BindingStats{Mode: BindAlias, Reason: "asked for", Path: b.im.Path()}
	if b.updater == nil {
		return out
	}
	s := b.updater.Stats()
	out.Messages, out.Words, out.Passes, out.Scans = s.Messages, s.Words, s.Passes, s.Scans
	out.Mode, out.Reason = BindWatch, ""
	if !s.Watched {
		out.Mode, out.Reason = BindCompare, s.Why.Error()
	}
	return out
}

// remoteWriter writes the changes of a binding to its import.
type remoteWriter struct{ b *Binding }

// Put writes a run of words.
func (f remoteWriter) Put(ctx context.Context, off int, words []byte) error {
	b := f.b
	im := b.im
	off += b.off
	switch {
	case im.mapped == nil:
		return im.sendStream(ctx, link.Message{Off: uint64(off), Src: words, Notify: b.notify && im.notifiable(), NoAckWait: true})
	case b.notify && im.notifiable():
		return im.attributeError(im.mapped.SendNotify(ctx, off, words))
	case b.notify:
		return im.attributeError(im.mapped.Send(ctx, off, words))
	}
	return im.attributeError(im.mapped.Update(ctx, off, words))
}

// Publish writes a flag, atomically.
func (f remoteWriter) Publish(ctx context.Context, off int, flag []byte) error {
	if !f.b.direct {
		return f.Put(ctx, off, flag) // the last word of a message is stored atomically
	}
	return f.b.im.attributeError(f.b.im.mapped.UpdateWord(ctx, f.b.off+off, flag))
}

// Done wakes waiters at the exporter.
func (f remoteWriter) Done() error {
	if !f.b.direct {
		return nil // each message wakes them itself
	}
	return f.b.im.attributeError(f.b.im.mapped.Updated())
}

// checkWord returns an error unless there is a bound word at off.
func (b *Binding) checkWord(off int) error {
	switch {
	case off < 0 || off > len(b.mem)-shm.WordSize:
		return code.New(code.BadProxyAddr, "the memory has %d bytes", len(b.mem))
	case off%shm.WordSize != 0:
		return code.New(code.BadAlignment,
			"the offset is not a multiple of the word (%d bytes)", shm.WordSize)
	}
	return nil
}

func (b *Binding) store(ctx context.Context, off int, v uint32) error {
	if err := b.checkWord(off); err != nil {
		return err
	}
	if b.notify && link.InHandler() {
		return code.NotInHandler
	}
	if b.updater == nil {
		if err := b.carrier.Err(); err != nil {
			return err
		}
		shm.Word(b.mem, off).Store(v)
		return b.wakeExporter()
	}
	send := func(word []byte) error {
		err := remoteWriter{b}.Publish(ctx, off, word)
		if err == nil {
			err = remoteWriter{b}.Done()
		}
		return err
	}
	return b.updater.Store(ctx, off, v, send, func(err error) bool { return errors.Is(err, code.OutcomeUnknown) })
}

// aliasCarrier is the carrier of AliasPages: the memory is the exporter's buffer itself.
type aliasCarrier struct {
	once  sync.Once
	cause error // set before ended is closed
	ended chan struct{}
}

// Fail ends the binding, once.
func (a *aliasCarrier) Fail(err error) {
	a.once.Do(func() {
		a.cause = err
		close(a.ended)
	})
}

// Err returns why the binding has ended, or nil.
func (a *aliasCarrier) Err() error {
	select {
	case <-a.ended:
		return a.cause
	default:
		return nil
	}
}

// Ended returns a channel that is closed when the binding has ended.
func (a *aliasCarrier) Ended() <-chan struct{} { return a.ended }

// alias maps the exporter's pages in place of the memory's own.
func (b *Binding) alias() (carrier, error) {
	im := b.im
	if im.mapped == nil {
		return nil, code.New(code.BadArg, "AliasPages, and the import goes by the stream: its memory is on another node, or its exporter lets nobody map it")
	}
	if !im.mapped.Direct() {
		return nil, code.New(code.BadArg,
			"AliasPages, and the export is redirectable: stores cannot be redirected")
	}
	r, at := im.mapped.Pages()
	whole := len(b.mem)%shm.PageSize == 0 ||
		b.allocOff+len(b.mem) == b.allocation.size && b.off+len(b.mem) == im.size
	if b.allocOff%shm.PageSize != 0 || (at+b.off)%shm.PageSize != 0 || !whole {
		return nil, code.New(code.BadArg, "AliasPages, and %d bytes at %d of their allocation, bound to those at %d of the exporter's pages, are not whole pages (%d bytes)", len(b.mem), b.allocOff, at+b.off, shm.PageSize)
	}
	if !b.allocation.region.Whole() {
		return nil, code.New(code.BadArg, "AliasPages, and pages of the memory have moved when an export of a part of it was closed: take another allocation")
	}
	err := b.allocation.region.Alias(b.allocOff, r, at+b.off, shm.RoundUp(len(b.mem)))
	if errors.Is(err, os.ErrClosed) {
		err = code.PeerGone
	}
	if err != nil {
		return nil, err
	}
	return &aliasCarrier{ended: make(chan struct{})}, nil
}

func (b *Binding) unalias() error {
	return b.allocation.region.Unalias(b.allocOff, shm.RoundUp(len(b.mem)))
}

// wakeExporter wakes waiters at the exporter after stores to an alias.
func (b *Binding) wakeExporter() error {
	if err := b.carrier.Err(); err != nil {
		return err
	}
	return b.im.attributeError(b.im.mapped.Updated())
}
