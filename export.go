package vmmc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/nodeconn"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/semaphore"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Notification is what a handler gets: which export a message with a
// notification went to, and its last word, as it was sent. A later message
// cannot change what the handler sees.
type Notification struct {
	Export *Export
	Offset int    // byte offset of the last word in the export
	Word   uint32 // its value
	// Where the last word lies: in the buffer, or where it was redirected to. It is that memory and no
	// copy: a later message may change it.
	At []byte

	// From is the process that sent it, as this node's daemon names it: no sender can pretend to be
	// another one. It may have ended.
	//
	// Experimental: it may change in any release.
	From ProcessID
}

// Export is a buffer that others may import (the manual's receive buffer, and its
// vmmc_exphandle_t). It lives until [Export.Close] or [Process.Close]. Offsets and
// sizes are in bytes.
type Export struct {
	p       *Process
	id      uint32
	mem     []byte
	rights  nodeproto.Rights
	handler func(Notification)

	discard  atomic.Bool
	notified atomic.Uint64

	redirect    *redirect.Exporter // nil: not redirectable
	targets     []*Memory
	manySenders bool
	redirShare  *redirectShare // with memoryTable.mu

	unmapped    bool
	sharePages  bool
	globalSpace bool
	allocation  *Memory // the allocation that contains mem; nil: memory not of Alloc
	allocOff    int     // offset of mem in allocation
	mappable    *Memory // allocation, if importers may map it; nil: stream only
	slot        uint32
	liveState   uint32      // value of the slot's state while the export lives
	closed      atomic.Bool // Reports whether state is exportClosing or later.

	permit []nodeproto.Permission
	label  []byte
	serial uint64 // unique in the process

	naming *semaphore.Semaphore       // the right to change the names; a holder asks the daemon
	names  []nodeproto.PublishRequest // what the daemon has agreed to. Guarded by memoryTable.mu.

	endMu  sync.Mutex        // one endExport at a time; taken before allocation.exportMu
	state  exportState       // Guarded by memoryTable.mu.
	grants map[uint32]*grant // Guarded by memoryTable.mu.
}

// exportState is how far an export has come.
//
//	new --> exported --> closing --> revoked --> ended
//	            |           ^
//	            v           |
//	         faulted -------+
//
// The next Close repeats the step that failed.
type exportState uint8

const (
	exportNew      exportState = iota // in no table; importers find nothing
	exportExported                    // importers may have grants
	exportFaulted                     // its memory cannot be accessed, and it is about to be closed
	exportClosing                     // grants are withdrawn, and pages replaced
	exportRevoked                     // importers cannot reach the memory any more
	exportEnded                       // the daemon has forgotten it
)

func (s exportState) String() string {
	return [...]string{"new", "exported", "faulted", "closing", "revoked", "ended"}[s]
}

var exportTransitions = state.Table[exportState]{
	exportNew:      {exportExported},
	exportExported: {exportFaulted, exportClosing},
	exportFaulted:  {exportClosing},
	exportClosing:  {exportRevoked},
	exportRevoked:  {exportEnded},
}

// setState changes the state, and the state word that mapped importers read. The word is odd while
// the export lives. memoryTable.mu is held.
func (e *Export) setState(to exportState) {
	exportTransitions.Check(e.state, to)
	e.state = to
	switch to {
	case exportExported:
		word := e.p.page.State(e.slot)
		e.liveState = word.Load() + 1
		word.Store(e.liveState)
	case exportClosing:
		e.closed.Store(true)
		// Before the pages are read: a sender that still finds the word unchanged after its last
		// word has that word in the copy.
		e.p.page.State(e.slot).Store(e.liveState + 1)
	}
}

// Export offers mem to other processes under id, which must be unique among this process's exports.
// len(mem) is the buffer's size in bytes: a positive multiple of the word, word-aligned in memory,
// and not overlapping another export. By default importers may read and write, and may be any
// process of the same user and session on any node; [Permit] changes that. The pages are made
// present at once. Then Export waits for an answer of this process's node, at most ten seconds.
//
// mem should be the whole of an allocation of [Process.Alloc]: importers on this node then map it
// ([SharePages] lets them map a part too). Any other memory works too, a slice of the Go heap
// included, but is reached through the stream: some microseconds a message instead of some
// nanoseconds, and this process does the copying, in the background. Importers can never reach
// beyond mem, in either case, unless an export of the same allocation has [SharePages]. mem stays
// the caller's; it must not be freed or reused for other purposes before [Export.Close]. Memory
// that is not of Alloc and is unmapped, protected or cut off all the same ends the export, with the
// event [ExportFault], when an importer's access finds that out; of Alloc's memory that is the
// program's end.
//
// It is the manual's vmmc_ExportRecvBuf. Errors: [ErrBadSize], [ErrBadAlignment],
// [ErrBufAlreadyExists], [ErrOverlappedBufs], [ErrNoMem], [ErrBadArg] for options that cannot be
// and for memory that this process itself cannot write, or with [ReadOnly] not read; [ErrNoDaemon],
// [ErrTimeout] if the node does not answer, [ErrClosed], [ErrNotInHandler].
func (p *Process) Export(id uint32, mem []byte, opts ...ExportOption) (*Export, error) {
	op := fmt.Sprintf("export %d bytes as buffer %d", len(mem), id)
	if err := inHandler(op); err != nil {
		return nil, err
	}
	switch {
	case len(mem) == 0:
		return nil, failf(op, ErrBadSize, "the size must be positive")
	case len(mem)%shm.WordSize != 0 || !shm.Aligned(mem):
		return nil, failf(op, ErrBadAlignment,
			"memory and size must be multiples of the word (%d bytes)", shm.WordSize)
	}
	o, err := exportOptionsOf(opts)
	if err != nil {
		return nil, fail(op, err)
	}
	names := make([]nodeproto.PublishRequest, len(o.names))
	for i, n := range o.names {
		if names[i], err = p.ownClaim(n.name, n.opts); err != nil {
			return nil, fail(op, err)
		}
	}
	e := p.newExport(id, mem, o)
	switch err := shm.Present(mem, e.rights&nodeproto.MayWrite != 0); {
	case errors.Is(err, shm.ErrForbidden):
		return nil, failf(op, ErrBadArg, "importers may do more with the memory than this process: %v. Map it for writing, or export it ReadOnly", err)
	case err != nil:
		return nil, &Error{Op: op, Code: ErrNoMem, Err: err}
	}
	if o.lock {
		if err := shm.Lock(mem); err != nil {
			return nil, &Error{Op: op, Code: ErrNoMem, Err: err}
		}
	}
	if err := p.memory.addExport(e, op); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(context.Background(), timeout.Control)
	defer stop()
	if _, _, err := nodeconn.Ask[nodeproto.Empty](ctx, &p.node, nodeproto.Export, e.announcement(), nil); err != nil {
		_ = e.endExport(false)
		return nil, fail(op, err)
	}
	for i, n := range o.names {
		if err := e.publishAs(ctx, n.name, names[i]); err != nil {
			e.abandon()
			return nil, err
		}
	}
	return e, nil
}

// abandon ends an export that its caller never gets, also if the daemon does not drop it.
func (e *Export) abandon() {
	if e.endExport(true) != nil {
		_ = e.endExport(false)
	}
}

// addExportLocked checks e against the other exports, bindings and targets, and enters it into the
// tables.
func (t *memoryTable) addExportLocked(e *Export, op string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.p.closed.Load() {
		return failf(op, ErrClosed, "the process is closed")
	}
	if t.exports[e.id] != nil {
		return failf(op, ErrBufAlreadyExists,
			"this process exports buffer %d already: close it first, or take another id", e.id)
	}
	if o := t.exportSpans.First(e.mem); o != nil {
		return failf(op, ErrOverlappedBufs, "the memory overlaps that of buffer %d", o.id)
	}
	if b := t.bindingOver(e.mem); b != nil {
		return failf(op, ErrOverlappedBufs,
			"the memory, or the rest of its pages, is bound to buffer %d of %v", b.im.id, b.im.peer)
	}
	for m := range t.allocations.Overlapping(e.mem) {
		if o := m.redirectOf; o != nil {
			return failf(op, ErrOverlappedBufs, "the memory is a redirection target of buffer %d", o.id)
		}
	}
	if err := t.admitTargets(e, op); err != nil {
		return err
	}
	if err := t.assignAllocation(e, op); err != nil {
		return err
	}
	if len(t.freeSlots) == 0 && t.slotsUsed == shmlayout.Slots {
		return failf(op, ErrNoMem, "a process can have %d exports at a time", shmlayout.Slots)
	}
	if err := e.seal(op); err != nil {
		return err
	}
	if n := len(t.freeSlots); n > 0 {
		e.slot, t.freeSlots = t.freeSlots[n-1], t.freeSlots[:n-1]
	} else {
		e.slot = t.slotsUsed
		t.slotsUsed++
	}
	t.lastSerial++
	e.serial = t.lastSerial
	e.setState(exportExported)
	t.insertExport(e)
	if invariant.Enabled {
		e.p.importers.checkTables()
	}
	return nil
}

// insertExport enters e into the tables, and removeExport removes it. mu is held.
func (t *memoryTable) insertExport(e *Export) {
	t.exports[e.id] = e
	t.exportSpans.Add(e.mem, e)
	for _, m := range e.targets {
		m.redirectOf = e
	}
	if e.redirect != nil {
		t.redirectable[e] = true
	}
}

func (t *memoryTable) removeExport(e *Export) {
	delete(t.exports, e.id)
	t.exportSpans.Remove(e.mem)
	for _, m := range e.targets {
		m.redirectOf = nil
	}
	delete(t.redirectable, e)
}

// ID is the buffer's id.
func (e *Export) ID() uint32 { return e.id }

// Size is the buffer's length in bytes.
func (e *Export) Size() int { return len(e.mem) }

// Bytes is the exported memory.
func (e *Export) Bytes() []byte { return e.mem }

// Close ends the export (vmmc_UnexportRecvBuf). It waits for no importer. When it returns, no other
// process can change or read the memory any more, not even an importer that bypasses the library
// and kept its mapping: the contents have moved to fresh pages at the same addresses. A mapped send
// that reported success before is in them; one on the stream may have been on its way still, and is
// not. Importers' calls return [ErrRevoked]. This process's own goroutines must not write to the
// memory while Close runs, nor to the rest of its first and last page. A handler of the buffer that
// is running goes on; none begins any more. While notifications of the buffer are queued because
// they are blocked, Close fails at once with [ErrBlockedNotifications] and the export stays as it
// is: unblock them and try again. In a handler it fails with [ErrNotInHandler].
//
// Besides, Close waits for the daemon to forget the export, for 10 s at most: a daemon that has
// ended is not waited for.
//
// Close needs no descriptor, mapping or address space that is not there already, and no file of a
// size that a limit could forbid. One limit can make it fail all the same: after mlockall(2) with
// MCL_FUTURE, an unprivileged process cannot replace pages once RLIMIT_MEMLOCK is used up. After an
// error, of the node's daemon mostly, the memory is still the export's, and importers' calls return
// [ErrRevoked] all the same: call Close again, which goes on where it failed. Closing twice is no
// error.
//
// Where exports share an allocation ([SharePages]), the whole pages of this one move. A page that
// it shares with another export that lives stays until that one is closed: what lies of this export
// there is still within reach of importers that bypass the library, and a send that was under way
// may change it after Close has returned. Exports that fill whole pages have no such page. Other
// exports of the allocation and their imports are not disturbed. Memory that has moved is not
// mapped any more when it is exported again, but goes by the stream, until an export of the whole
// allocation was closed: take another allocation. So it is with an allocation whose export was
// closed while the process had no descriptor or address space left.
func (e *Export) Close() error {
	op := fmt.Sprintf("close export of buffer %d", e.id)
	if err := inHandler(op); err != nil {
		return err
	}
	if e.p.engine.Blocked() && e.notificationsPending() {
		return failf(op, ErrBlockedNotifications, "%v", ErrBlockedNotifications)
	}
	if err := e.endExport(true); err != nil {
		return e.opError(op, err)
	}
	return nil
}

// endExport ends the export. The next call repeats a step that failed; until all steps are done the
// memory stays this export's and can be neither exported nor freed. The id becomes free only when
// the daemon has dropped this export.
func (e *Export) endExport(tell bool) error {
	e.endMu.Lock()
	defer e.endMu.Unlock()
	p := e.p
	p.memory.mu.Lock()
	s := e.state
	p.memory.mu.Unlock()
	if s == exportEnded {
		return nil
	}
	if s != exportRevoked {
		if err := e.revokeAll(); err != nil {
			return err
		}
	}
	if tell {
		if err := p.withdrawExport(e); err != nil {
			return err
		}
	}
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	e.setState(exportEnded)
	if p.memory.exports[e.id] == e {
		p.memory.removeExport(e)
	}
	p.memory.freeSlots = append(p.memory.freeSlots, e.slot)
	if invariant.Enabled {
		p.importers.checkTables()
	}
	return nil
}

// handleFault closes the export because its memory cannot be accessed any more: the program
// unmapped or protected it too early.
func (e *Export) handleFault(err error) {
	e.p.memory.mu.Lock()
	first := e.state == exportExported
	if first {
		e.setState(exportFaulted)
	}
	e.p.memory.mu.Unlock()
	if !first {
		return // closed by the program, or an earlier fault
	}
	why := failf(fmt.Sprintf("access buffer %d", e.id), ErrBadArg,
		"%v: it was unmapped, protected or cut off while it was exported; the export is closed", err)
	e.p.log.Error("an export's memory cannot be accessed", "buffer", e.id, "why", err)
	e.p.dispatchEvent(Event{Kind: ExportFault, Export: e, Err: why}, nil)
	_ = e.endExport(true) // Close repeats what fails here
}

// revokeAll revokes the export on all links and takes its pages away from importers. endMu is held.
func (e *Export) revokeAll() error {
	p := e.p
	if e.allocation != nil {
		e.allocation.exportMu.Lock()
		defer e.allocation.exportMu.Unlock()
	}
	p.memory.mu.Lock()
	if e.state != exportClosing { // else an earlier call has failed
		e.setState(exportClosing)
	}
	grants := e.grants
	e.grants = nil
	p.memory.mu.Unlock()
	for _, g := range grants {
		g.revoke()
	}
	p.engine.Wake() // waiters for its notifications
	if err := errors.Join(e.endRedirection(), e.renewPages()); err != nil {
		return err
	}
	p.memory.mu.Lock()
	e.setState(exportRevoked)
	p.memory.mu.Unlock()
	return nil
}

// withdrawExport makes the daemon drop a buffer. Without a daemon there is nothing to drop: the
// next daemon is not told of this export.
func (p *Process) withdrawExport(e *Export) error {
	if !p.node.Connected() {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), timeout.Control)
	defer stop()
	_, err := p.node.Latest().Call(ctx, nodeproto.Unexport, nodeproto.ExportRequest{ID: e.id, Serial: e.serial}, nil, nil)
	if errors.Is(err, code.NoDaemon) {
		return nil
	}
	return err
}

// announcement describes the export to the daemon.
func (e *Export) announcement() nodeproto.ExportRequest {
	return nodeproto.ExportRequest{ID: e.id, Size: len(e.mem), Rights: e.rights, Serial: e.serial, Permit: e.permit}
}

// addExport adds e while no pages of its allocation are moving: e may share a page with an export
// that is just ending.
func (t *memoryTable) addExport(e *Export, op string) error {
	t.mu.Lock()
	m, _ := t.allocationOf(e.mem)
	t.mu.Unlock()
	if m != nil {
		m.exportMu.Lock()
		defer m.exportMu.Unlock()
	}
	return t.addExportLocked(e, op)
}

// assignAllocation sets the allocation that contains e, and whether importers may map it. mu is
// held.
func (t *memoryTable) assignAllocation(e *Export, op string) error {
	e.allocation, e.allocOff = t.allocationOf(e.mem)
	if e.allocation == nil {
		if e.globalSpace {
			return failf(op, ErrBadArg, "the memory is not of Process.Alloc, which GlobalSpace says it is")
		}
		return nil
	}
	if !e.unmapped && !e.manySenders && e.wholeTargets() &&
		(e.sharePages || len(e.mem) == e.allocation.size) {
		e.mappable = e.allocation
	}
	return nil
}

// renewPages moves the contents of an ending export to fresh pages, so that importers that mapped
// the old ones lose access. Pages that a live export shares stay. The allocation's exportMu is
// held, and the library accesses e no more.
func (e *Export) renewPages() error {
	m := e.allocation
	whole := m != nil && len(e.mem) == m.size
	switch {
	case m == nil:
		return nil
	case whole && e.mappable != nil:
		return m.region.Renew("vmmc")
	case !m.region.Shared():
		return nil
	case whole: // an importer that once mapped a part reaches the whole allocation
		return m.region.Renew("vmmc")
	}
	from, to := e.ownPages()
	return m.region.RenewPart(from, to-from)
}

// ownPages returns the range of pages that e shares with no live export. Exports do not overlap, so
// only the first and the last page can be shared.
func (e *Export) ownPages() (from, to int) {
	from, to = e.allocOff/shm.PageSize*shm.PageSize, shm.RoundUp(e.allocOff+len(e.mem))
	first, last := from+shm.PageSize, to-shm.PageSize
	shareFirst, shareLast := false, false
	p := e.p
	p.memory.mu.Lock()
	for o := range p.memory.exportSpans.Overlapping(e.allocation.region.Bytes()[from:to]) {
		if o == e || o.closed.Load() {
			continue
		}
		end := o.allocOff + len(o.mem)
		shareFirst = shareFirst || o.allocOff < first && end > from
		shareLast = shareLast || o.allocOff < to && end > last
	}
	p.memory.mu.Unlock()
	if shareFirst {
		from = first
	}
	if shareLast {
		to = max(from, last)
	}
	return from, to
}

// newExport makes an export as its options say; it is in no table yet.
func (p *Process) newExport(id uint32, mem []byte, o *exportOptions) *Export {
	e := &Export{
		p: p, id: id, mem: mem[:len(mem):len(mem)], grants: map[uint32]*grant{},
		rights: o.rights, handler: o.handler, targets: o.targets, manySenders: o.manySenders,
		unmapped: o.unmapped, sharePages: o.sharePages, globalSpace: o.globalSpace, permit: o.permit, label: o.label,
		naming: semaphore.New(1),
	}
	if o.redirectable > 0 {
		e.redirect = redirect.NewExporter(p.engine.Wait, len(mem))
	}
	return e
}

// opError describes an error of a call on the export.
func (e *Export) opError(op string, err error) error {
	f := fail(op, err)
	f.ofExport = true
	return f
}
