package vmmc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// maxSize bounds the size that an exporter may claim for its buffer.
const maxSize = 1 << 46

// Import is a handle to another process's exported memory (the manual's
// vmmc_imphandle_t). Offsets and sizes are in bytes. It lives until [Import.Close],
// the end of the export, or that of the exporter.
type Import struct {
	p      *Process
	link   *exporterLink
	peer   ProcessID
	id     uint32
	handle uint32
	size   int
	rights nodeproto.Rights // and [nodeproto.Unheard]
	label  []byte           // of the export

	mapped        *link.Mapped // nil: data goes through the stream
	claims        uint32       // number of the link's claims entry; 0: not redirectable
	releaseClaims sync.Once    // releases claims, once
	ended         atomic.Bool  // reports whether calls fail with cause; stored after the next two
	closed        atomic.Bool  // reports whether Close was called; stored after cause
	cause         atomic.Pointer[error]
	requests      link.Cancellation
	lastDelivered atomic.Uint64 // the last stream message that can have been delivered before the end

	endCause atomic.Pointer[error] // the first reason of the end; stored before finish
	done     chan struct{}         // closed by finish
	finished atomic.Bool           // reports whether finish was called

	named    *importName           // nil: imported by id
	state    importState           // Guarded by link.mu.
	lost     bool                  // reports whether state has been importLost. Guarded by link.mu.
	bindings map[*Binding]struct{} // Guarded by link.mu.
}

// importState is how far an import has come.
//
//	     the link ends         the exporter ends the export
//	lost <------------- open ------------------------------> revoked
//	  |                  |                                      |
//	  | Close            | Close                                | Close
//	  v                  v                                      v
//	  +-------------> closing <---------------------------------+
//	                     |
//	                     | queued messages are cancelled
//	                     v
//	                  closed
//
// The calls of a lost import fail with the link's error.
type importState uint8

const (
	importOpen importState = iota
	importLost
	importRevoked
	importClosing
	importClosed
)

func (s importState) String() string {
	return [...]string{"open", "lost", "revoked", "closing", "closed"}[s]
}

var importTransitions = state.Table[importState]{
	importOpen:    {importLost, importRevoked, importClosing},
	importLost:    {importClosing},
	importRevoked: {importClosing},
	importClosing: {importClosed},
}

// setState changes the state. An import that is revoked or closed makes calls, also those that
// wait, fail with the first cause. lastDelivered is the last message that arrived before the end.
// link.mu is held.
func (im *Import) setState(to importState, cause error, lastDelivered uint64) {
	importTransitions.Check(im.state, to)
	im.state = to
	if cause != nil {
		im.endCause.CompareAndSwap(nil, &cause)
	}
	im.lost = im.lost || to == importLost
	if to == importClosed && im.ended.Load() {
		im.closed.Store(true)
		im.p.engine.Wake()
	}
	if to != importRevoked && to != importClosed || im.ended.Load() {
		return
	}
	im.lastDelivered.Store(min(im.lastDelivered.Load(), lastDelivered))
	im.cause.Store(&cause)
	im.closed.Store(to == importClosed)
	im.ended.Store(true)
	if im.lost { // messages of the exporter may still arrive: the association's end finishes it
		im.p.engine.Wake()
		return
	}
	im.finish()
}

// finish closes Done and wakes waiters. That of a lost import is called when its association is
// over. It may be called under any lock that setState may be called under.
func (im *Import) finish() {
	if !im.finished.Swap(true) {
		close(im.done)
	}
	im.p.engine.Wake()
}

// Done is closed when the import has ended: it was closed, its export was, or the link with the
// exporter has ended, mostly as the exporter is gone. [Import.Err] says which. In the last case
// every message and atomic of the exporter that arrives at all has arrived, and Done is closed
// before [PeerGone] is run. That may be 10 s after calls have begun to fail, also if [Import.Close]
// is called meanwhile: messages that are under way from the exporter are awaited.
//
// Experimental: it may change in any release.
func (im *Import) Done() <-chan struct{} { return im.done }

// PeerDone is closed when the exporter has ended or cannot be reached any more, and every message and
// atomic of it that arrives at all has arrived. Unlike [Import.Done] it stays open when only the
// import or the export has ended. Unlike [PeerGone] it waits for no handler, and not for
// [Process.UnblockNotifications]. The end of this process closes it, too.
//
// Experimental: it may change in any release.
func (im *Import) PeerDone() <-chan struct{} { return im.link.assoc.done }

// Err is nil as long as the import lives, and then why it does not: [ErrRevoked], [ErrClosed], or
// why the link has ended, mostly [ErrPeerGone]. It is there as soon as calls fail, which may be
// before [Import.Done] is closed. It may change until then, and not later.
//
// Experimental: it may change in any release.
func (im *Import) Err() error {
	err := im.link.requester.Err()
	if im.mapped != nil && err == nil {
		err = im.mapped.Alive()
	}
	if cause := im.endCause.Load(); cause != nil {
		err = *cause
	}
	if err == nil {
		return nil
	}
	return im.opError("import", 0, 0, err)
}

// Import imports buffer id of process pid on a node (vmmc_ImportRecvBuf). It waits, for as long as
// the context allows, until the buffer is exported. A process of another user or session may not
// always wait, see [Permit]. One buffer may be imported several times, and a process may import its
// own.
//
// Errors: [ErrNoSuchNode] and [ErrNoSuchProcess] at once, the latter also when
// the process ends while this waits; [ErrNoRights] at once; [ErrUnreachable] when the
// node does not answer; [ErrTimeout] or [ErrCanceled] when the context ends;
// [ErrNoPhysDestSpace] beyond what [WithImportLimit] allows; [ErrNoDaemon];
// [ErrClosed]; [ErrNotInHandler].
func (p *Process) Import(ctx context.Context, node NodeID, pid PID, id uint32) (*Import, error) {
	peer := ProcessID{node, pid}
	op := fmt.Sprintf("import buffer %d", id)
	if err := inHandler(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		f := fail(op, errNilContext)
		f.Peer = peer.String()
		return nil, f
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(p.ctx, stop)() // Close ends a dial, too
	im, err := p.importRetrying(ctx, func() (*Import, error) {
		return p.importBuffer(ctx, importTarget{peer: peer, id: id})
	})
	if err != nil {
		err = p.interrupted(ctx, err)
		f := fail(op, err)
		f.Peer = peer.String()
		if (f.Code == ErrTimeout || f.Code == ErrCanceled) && ctx.Err() != nil {
			f.Err = fmt.Errorf("nobody exports it, or its node does not answer: %w", err)
		}
		return nil, f
	}
	return im, nil
}

// importTarget is the export that is to be imported. If it was found by its name, no other one that
// has its address by now will do.
type importTarget struct {
	peer  ProcessID
	id    uint32
	named *importName      // nil: not by a name
	found *nodeproto.Found // of a name of this node
	grant *nodeproto.Grant // of one of another node, which has granted it already
}

// check refuses a grant of another export than was found.
func (t *importTarget) check(g *nodeproto.Grant) error {
	if f := t.found; f != nil && (g.Exporter.Incarnation != f.Incarnation || g.Slot != f.Slot || g.State != f.State) {
		return code.New(code.BadRbufState, "another export has taken the place of the one that had the name")
	}
	return nil
}

// maxImportPause bounds the pause before an import is repeated.
const maxImportPause = 250 * time.Millisecond

// importRetrying repeats an import that failed for a temporary reason: the grant ended with an
// older link, or a daemon died during the import. It retries for timeout.Control, the time that a
// restarted daemon may need.
func (p *Process) importRetrying(
	ctx context.Context, attempt func() (*Import, error),
) (im *Import, err error) {
	var since time.Time
	broken := 0
	for pause := time.Millisecond; ; pause = min(2*pause, maxImportPause) {
		im, err = attempt()
		lost := errors.As(err, new(interruptedError))
		if lost {
			broken++
		}
		switch {
		case lost && broken < 4: // more often is not a dying daemon
		case errors.Is(err, code.BadRbufState), !lost && broken > 0 && errors.Is(err, code.Unreachable):
		default:
			return im, err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) > timeout.Control {
			return nil, err
		}
		if !timeout.Sleep(ctx, pause) {
			return nil, fmt.Errorf("%w: %w", timeout.Ended(ctx), err)
		}
	}
}

func (p *Process) importBuffer(ctx context.Context, target importTarget) (*Import, error) {
	peer, id := target.peer, target.id
	if target.grant == nil { // else one more error would have to give it back
		if err := p.checkOpen(ctx); err != nil {
			return nil, err
		}
	}
	var l *exporterLink
	var g nodeproto.Grant
	var fds []int
	direct := false
	if target.grant != nil {
		g = *target.grant
	} else if l, g, fds, direct = p.exporters.importOnLink(ctx, peer, id); !direct {
		var err error
		if l, g, fds, err = p.exporters.importFromNode(ctx, target); err != nil {
			return nil, err
		}
	}
	attributeDescriptors(g.Exporter, fds)
	linked := l != nil
	releaseGrant := func() {
		if linked {
			l.requester.Detach(g.Handle)
		} else {
			p.exporters.releaseGrant(ctx, g)
		}
	}
	want := 0
	if g.Mapped {
		want = 1
		if g.Claims != 0 {
			want += 2 + len(g.Targets)
		}
	}
	if g.Size <= 0 || int64(g.Size) > maxSize || len(fds) != want || g.Slot >= shmlayout.Slots || !validOffset(&g) {
		closeAll(fds)
		return nil, code.New(code.Protocol, "a grant of %d bytes with %d descriptors", g.Size, len(fds))
	}
	err := errors.Join(g.CheckLabel(), target.check(&g))
	if err == nil {
		err = p.importBudget.reserve(g.Size)
	}
	if err != nil {
		closeAll(fds)
		releaseGrant()
		return nil, err
	}
	kept := false
	defer func() {
		if !kept {
			p.importBudget.release(g.Size)
		}
	}()
	if !linked {
		if l, err = p.exporters.acquireLink(ctx, g.Exporter); err != nil {
			closeAll(fds)
			releaseGrant()
			return nil, err
		}
	}
	if !direct && g.Lost < l.grantsLost {
		closeAll(fds)
		l.requester.Detach(g.Handle)
		return nil, code.New(code.BadRbufState, "the grant went with a link that has ended meanwhile: import again")
	}
	im := &Import{p: p, link: l, peer: peer, id: id, handle: g.Handle, size: g.Size, rights: g.Rights, label: g.Label, named: target.named, done: make(chan struct{})}
	im.lastDelivered.Store(math.MaxUint64)
	if g.Mapped {
		reg, at, err := shm.OpenPart(fds[0], g.Memory, g.Offset, g.Size, g.Rights&nodeproto.MayWrite != 0)
		if err != nil {
			closeAll(fds[1:])
			l.requester.Detach(g.Handle)
			return nil, err
		}
		p.exporters.keepOutOfDumps(reg)
		im.mapped = link.NewMapped(l.requester, g.Handle, reg, at, g.Size, g.Slot, g.State, g.Place)
		im.mapped.LocallyClosed, im.mapped.Done = &im.closed, im.done
		im.mapped.Ended, im.mapped.Fast = &im.ended, g.Claims == 0 && g.Rights&nodeproto.MayWrite != 0
		im.mapped.FastNotify = im.mapped.Fast && im.notifiable()
		if g.Claims != 0 {
			c, err := l.takeClaims(&p.exporters, &g, fds[1:])
			if err != nil {
				im.unmap()
				l.requester.Detach(g.Handle)
				return nil, err
			}
			im.mapped.Claims, im.claims = c, g.Claims
		}
	}
	if err := l.addImport(im); err != nil {
		im.unmap()
		return nil, err
	}
	kept = true
	return im, nil
}

// keepOutOfDumps excludes another process's memory from this one's core dumps, unless
// WithImportsDumped was given.
func (t *exporters) keepOutOfDumps(r *shm.Region) {
	if t.dumpImports {
		return
	}
	if err := r.DontDump(); err != nil {
		t.log.Warn("imported memory will be in core dumps of this process", "why", err)
	}
}

// Size is the buffer's length in bytes.
func (im *Import) Size() int { return im.size }

// Exporter is the process that the buffer belongs to.
func (im *Import) Exporter() ProcessID { return im.peer }

// ID is the buffer's id at its exporter.
func (im *Import) ID() uint32 { return im.id }

// Label is a copy of the label that the export was given by [WithLabel], empty if it was given none
// or if a daemon between the two processes is of a version that knows no labels. After
// [Import.Rejoin] the new import has the new export's label.
//
// Experimental: it may change in any release.
func (im *Import) Label() []byte { return slices.Clone(im.label) }

// notifiable reports whether the export runs a handler. Without one, a notification takes no
// credit.
func (im *Import) notifiable() bool { return im.rights&nodeproto.Unheard == 0 }

// Path is how an import's data travels.
type Path uint8

// The paths.
const (
	PathMapped Path = iota + 1 // stores into the exporter's pages, on one node
	PathStream                 // frames on a socket
)

// String is "mapped" or "stream", and "" for the zero Path.
func (p Path) String() string {
	switch p {
	case 0:
		return ""
	case PathMapped:
		return "mapped"
	case PathStream:
		return "stream"
	}
	return fmt.Sprintf("path %d", uint8(p))
}

// Path is how data travels.
func (im *Import) Path() Path {
	if im.mapped != nil {
		return PathMapped
	}
	return PathStream
}

// Mapped is the exporter's memory where data travels by [PathMapped], and nil otherwise. It is for programs
// that share it with the exporter: no call notices the end of the export, from which on what is stored
// there goes nowhere. A store to an import without the right to write ends the program. Stores are not
// redirected. It must not be used after Close.
//
// Experimental: it may change in any release.
func (im *Import) Mapped() []byte {
	if im.mapped == nil {
		return nil
	}
	return im.mapped.Bytes()
}

// Close ends the import (vmmc_UnimportRecvBuf). Calls that are under way on other goroutines end in
// an error or go nowhere: their memory is free when they have returned. Close ends each request that is
// not over, even if the exporter is stopped; what of it has arrived is unknown. Close waits neither for
// the exporter, which is told and need not answer, nor for the daemon. Closing twice is no error. In a
// notification handler it fails with [ErrNotInHandler].
func (im *Import) Close() error {
	if link.InHandler() {
		return im.opError("close import", 0, 0, code.NotInHandler)
	}
	l := im.link
	l.mu.Lock()
	was := im.state
	first := l.removeImport(im)
	l.mu.Unlock()
	if first {
		lastDelivered := l.requester.Cancel(im.handle) // not under l.mu, it copies messages
		l.mu.Lock()
		im.setState(importClosed, link.ErrClosed, lastDelivered)
		l.mu.Unlock()
		for _, b := range im.endBindings(link.ErrClosed) {
			_ = b.close()
		}
		im.unmap()
		l.requester.CancelRequests(im.handle, &im.ended, &im.requests) // after unmap: copies see the end
		l.requester.Detach(im.handle)
		im.p.importBudget.release(im.size)
		im.p.log.Debug("import closed", "exporter", im.peer, "buffer", im.id, "was", was.String())
	}
	return nil
}

func (im *Import) unmap() {
	if im.mapped != nil {
		im.mapped.Close()
	}
	if im.claims != 0 {
		im.releaseClaims.Do(func() { im.link.dropClaims(&im.p.member, im.claims) })
	}
}

// opError wraps an error of an operation on the import. One that its end caused becomes the cause.
func (im *Import) opError(what string, n, off int, err error) *Error {
	err = im.attributeError(err)
	f := fail(fmt.Sprintf("%s %d bytes at %d of buffer %d (%d bytes)", what, n, off, im.id, im.size), err)
	f.Peer, f.Path, f.Link = im.peer.String(), im.Path(), im.link.id
	return f
}

// budget counts bytes against a limit.
type budget struct {
	limit int64 // 0: none

	mu   sync.Mutex
	used int64
}

// reserve reserves n bytes, all or nothing.
func (b *budget) reserve(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit != 0 && int64(n) > b.limit-b.used {
		return code.New(code.NoPhysDestSpace, "its %d bytes and the %d that are imported exceed the limit of %d: close imports, or raise WithImportLimit", n, b.used, b.limit)
	}
	b.used += int64(n)
	return nil
}

// release returns what reserve took.
func (b *budget) release(n int) {
	b.mu.Lock()
	b.used -= int64(n)
	b.mu.Unlock()
}

// validOffset reports whether a mapped grant's range lies within the exporter's memory.
func validOffset(g *nodeproto.Grant) bool {
	return !g.Mapped || g.Offset >= 0 && g.Offset%shm.WordSize == 0 && int64(g.Memory) <= maxSize && g.Offset <= g.Memory-g.Size
}

// reportRevocation follows the change of the state to revoked.
func (im *Import) reportRevocation(err error) {
	im.endBindings(err)
	why := im.opError("import", 0, 0, err)
	exporter := nodeproto.ProcessID{Node: im.peer.Node.name, PID: uint32(im.peer.PID)}
	im.p.reportToNode(nodeproto.LinkEvent{Kind: nodeproto.ImportRevoked, Peer: exporter, Imports: true}, why)
	im.p.dispatchEvent(Event{Kind: ImportRevoked, Peer: im.peer, Import: im, Err: why}, nil)
}

// Rejoin is the way back after an import has ended that its own process has not closed: its
// exporter has closed the export and made it again, or the link has failed. It imports the buffer
// of the same id from the same process again, waits for it as [Process.Import] does, and closes the
// old import. A process that was started again has another number, which [Import.RejoinAt] takes.
// An import by a name ([Process.ImportName]) is made by that name again, and so finds a process
// that was started again; of several that have the name ([InSet]) it may find another one.
//
// The new import has the length of the old one and all of its rights, or the error is
// [ErrStaleImport]: then it is another buffer, which the program may import if it knows what to do
// with it. Permissions are checked as for any import. Nothing that was sent on the old import is
// sent again: what its calls returned holds. Requests of the old one that are not over end as
// [Import.Close] says. The new one has no bindings: bind again, which sends
// the whole of the bound memory. Handlers are the exporter's and need nothing.
//
// An import that has not ended is returned as it is. The errors are those of [Process.Import], and
// [ErrClosed] for an import that its own process has closed.
//
// Experimental: it may change in any release.
func (im *Import) Rejoin(ctx context.Context) (*Import, error) {
	return im.rejoin(ctx, im.peer, im.named)
}

// RejoinAt is [Import.Rejoin] from another process, which has taken the place of the exporter. It
// is for the program to know which that is.
//
// Experimental: it may change in any release.
func (im *Import) RejoinAt(ctx context.Context, peer ProcessID) (*Import, error) {
	return im.rejoin(ctx, peer, nil)
}

// rejoin imports by a name, or from a peer if there is none.
func (im *Import) rejoin(
	ctx context.Context, peer ProcessID, named *importName,
) (again *Import, err error) {
	op := fmt.Sprintf("rejoin buffer %d (%d bytes)", im.id, im.size)
	if err := inHandler(op); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, im.rejoinError(op, peer, errNilContext)
	}
	im.link.mu.Lock()
	s := im.state
	im.link.mu.Unlock()
	switch {
	case s == importClosing || s == importClosed:
		return nil, im.rejoinError(op, peer, link.ErrClosed)
	case s == importOpen && peer == im.peer && im.alive():
		return im, nil
	}
	if named != nil {
		again, err = im.p.importName(ctx, named)
	} else {
		again, err = im.p.Import(ctx, peer.Node, peer.PID, im.id)
	}
	if err != nil {
		return nil, im.rejoinError(op, peer, err)
	}
	if again.size != im.size || im.rights&^again.rights != 0 {
		err := code.New(code.StaleImport, "it has %d bytes and rights %#x now, and had %d and %#x: import it as what it is", again.size, again.rights, im.size, im.rights)
		return nil, im.rejoinError(op, peer, errors.Join(err, again.Close()))
	}
	if err := im.Close(); err != nil {
		return nil, im.rejoinError(op, peer, errors.Join(err, again.Close()))
	}
	return again, nil
}

// alive reports whether neither the end of the export nor that of the link is under way.
func (im *Import) alive() bool {
	if im.mapped != nil {
		return im.mapped.Alive() == nil
	}
	return im.link.requester.Err() == nil
}

func (im *Import) rejoinError(op string, peer ProcessID, err error) error {
	f := fail(op, err)
	f.Peer = peer.String()
	return f
}

// Name is the name that [Process.ImportName] was given, and "" for another import.
//
// Experimental: it may change in any release.
func (im *Import) Name() string {
	if im.named == nil {
		return ""
	}
	return im.named.text
}
