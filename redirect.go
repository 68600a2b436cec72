package vmmc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/link/redirect"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
)

// PostRedir redirects what is sent to the bytes [off, off+len(to)) of the buffer
// to memory of the caller's choice (vmmc_PostRedir): byte off+i goes to to[i].
// off and len(to) are multiples of the word, to is aligned to words and overlaps
// no export. It affects data that arrives from now on: of a message that is just
// arriving the rest is redirected. Data that has arrived stays in the buffer.
// The first message of which anything is redirected ends it, later ones go to
// the buffer; what lies outside of the range always does. One redirection may be
// posted at a time, until [Export.EndRedir]. to belongs to the redirection until
// then. What [Import.WriteAt] writes is never redirected.
//
// Errors: [ErrNotRedirectable]; [ErrBadRbufState] when one is posted, or the
// export is closed; [ErrBadSize], [ErrBadAlignment], [ErrBadArg] for a range
// outside the buffer, [ErrOverlappedBufs].
//
// Experimental: it may change in any release.
func (e *Export) PostRedir(to []byte, off int) error {
	op := fmt.Sprintf("redirect %d bytes at %d of buffer %d", len(to), off, e.id)
	switch {
	case e.redirect == nil:
		return failf(op, ErrNotRedirectable, "buffer %d was not exported with Redirectable", e.id)
	case len(to) == 0:
		return failf(op, ErrBadSize, "the size must be positive")
	case (off|len(to))%shm.WordSize != 0 || !shm.Aligned(to):
		return failf(op, ErrBadAlignment,
			"offset, size and target must be multiples of the word (%d bytes)", shm.WordSize)
	case off < 0 || off > len(e.mem) || len(to) > len(e.mem)-off:
		return failf(op, ErrBadArg, "the buffer has %d bytes", len(e.mem))
	}
	e.p.memory.mu.Lock()
	closed := e.closed.Load()
	overlap := e.p.memory.exportSpans.First(to) != nil
	e.p.memory.mu.Unlock()
	switch {
	case closed:
		return failf(op, ErrBadRbufState, "the export is closed")
	case overlap:
		return failf(op, ErrOverlappedBufs, "the target overlaps an exported buffer")
	case !e.redirect.Post(uint64(off), to):
		return failf(op, ErrBadRbufState, "a redirection is posted already: end it first")
	}
	e.p.memory.mu.Lock()
	responders := e.responders() // once it is posted: a link that comes later finds it
	e.p.memory.mu.Unlock()
	for _, rs := range responders {
		rs.RecheckRedirect(e.redirect)
	}
	return nil
}

// responders returns the links of the export's importers. memoryTable.mu is held.
func (e *Export) responders() []*link.Responder {
	var responders []*link.Responder
	for _, g := range e.grants {
		if g.responder != nil {
			responders = append(responders, g.responder)
		}
	}
	return responders
}

// EndRedir ends the redirection (vmmc_EndRedir) and says that n bytes went to its
// target, from to[first] on; 0 when nothing was redirected. What arrives from now
// on goes to the buffer, also the rest of a message that is arriving. The target
// is the caller's own again.
//
// A mapped importer that is just copying is waited for, at most 16 KiB of it. On
// the context's error the redirection is still posted. [ErrPeerGone] comes with
// what was redirected when the importer died in the middle: then up to 16 KiB
// after these n bytes may have been written too, or, where it lives and has only
// lost its link, be written yet. [ErrBadRbufState] when nothing
// is posted or the export is closed; [ErrProtocol] when a mapped importer says
// what cannot be.
//
// Experimental: it may change in any release.
func (e *Export) EndRedir(ctx context.Context) (n, first int, err error) {
	op := fmt.Sprintf("end the redirection of buffer %d", e.id)
	if ctx == nil {
		return 0, 0, e.opError(op, errNilContext)
	}
	if e.redirect == nil {
		return 0, 0, failf(op, ErrNotRedirectable, "buffer %d was not exported with Redirectable", e.id)
	}
	un, ufirst, ok, err := e.redirect.End(ctx)
	switch {
	case !ok:
		return 0, 0, failf(op, ErrBadRbufState, "no redirection is posted")
	case err != nil:
		return int(un), int(ufirst), e.opError(op, err)
	}
	return int(un), int(ufirst), nil
}

// DataEnd is the byte offset in the buffer of the last word of the message that
// arrived last, also of a redirected one (vmmc_DataEnd). ok is false when none
// arrived since the export was made or [Export.ClearDataEnd] was called
// (vmmcErr_NoSuchError), and always when the buffer is not redirectable. It is
// stored after the message. [Import.WriteAt] and the atomics do not change it.
//
// Experimental: it may change in any release.
func (e *Export) DataEnd() (off int, ok bool) {
	if e.redirect == nil {
		return 0, false
	}
	end, ok := e.redirect.DataEnd()
	if !ok {
		return 0, false
	}
	return int(end), true
}

// ClearDataEnd makes [Export.DataEnd] report nothing until the next message
// (vmmc_ClearDataEnd). On a buffer that is not redirectable, or closed, it does
// nothing.
//
// Experimental: it may change in any release.
func (e *Export) ClearDataEnd() {
	if e.redirect != nil {
		e.redirect.ClearEnd()
	}
}

// redirectShare holds the pages shared with the one importer that has a redirectable export mapped.
type redirectShare struct {
	peer   nodeproto.ProcessID
	number uint32
	pages  *redirect.Shared
	gone   atomic.Bool
}

// admitTargets checks the allocations that a mapped importer may be redirected to. mu is held.
func (t *memoryTable) admitTargets(e *Export, op string) error {
	if n := len(e.targets); n > nodeproto.MaxTargets {
		return failf(op, ErrBadArg, "%d redirection targets, there can be %d: make one large allocation a target, and redirect to parts of it", n, nodeproto.MaxTargets)
	}
	for _, m := range e.targets {
		if m == nil || m.p != e.p || !t.owns(m) {
			return failf(op, ErrBadArg, "a redirection target is not memory of this process's Alloc")
		}
		if shm.Overlap(m.Bytes(), e.mem) || t.exportSpans.First(m.Bytes()) != nil || m.redirectOf != nil {
			return failf(op, ErrOverlappedBufs,
				"a redirection target is exported, or a target of another export")
		}
		if t.bindingOver(m.Bytes()) != nil {
			return failf(op, ErrOverlappedBufs, "a redirection target is bound to an import")
		}
	}
	return nil
}

// seal fixes the memories of an export before the first descriptor leaves:
// importers can neither shrink them under us nor, on a read-only export, write.
// All of them are looked at first, since seals cannot be taken back.
func (e *Export) seal(op string) error {
	readOnly := e.rights&nodeproto.MayWrite == 0
	var err error
	if e.mappable != nil {
		err = e.mappable.region.Sealable(readOnly)
	}
	for _, m := range e.targets {
		err = cmp.Or(err, m.region.Sealable(false))
	}
	if err == nil && e.mappable != nil {
		err = e.mappable.region.Seal(readOnly)
	}
	for _, m := range e.targets {
		if err == nil {
			err = m.region.Seal(false)
		}
	}
	if err != nil {
		return &Error{Op: op, Code: ErrBadArg, Err: err}
	}
	return nil
}

// wholeTargets reports whether importers can be given all pages of the targets;
// those of a memory that was exported before may have moved (see [Export.Close]).
func (e *Export) wholeTargets() bool {
	for _, m := range e.targets {
		if !m.region.Whole() {
			return false
		}
	}
	return true
}

// mayImport keeps a second process from a redirectable buffer; memoryTable.mu is held.
func (e *Export) mayImport(id nodeproto.ProcessID) error {
	if e.redirect == nil || e.manySenders {
		return nil
	}
	for _, g := range e.grants {
		if g.peer.id != id {
			return code.New(code.NoRights,
				"buffer %d is redirectable and imported by another process already", e.id)
		}
	}
	return nil
}

// shareRedirection gives the descriptors of what a mapped importer needs beside the memory;
// memoryTable.mu is held.
func (e *Export) shareRedirection(id nodeproto.ProcessID, g *nodeproto.Grant) ([]int, error) {
	s := e.redirShare
	if s == nil || s.peer != id || s.gone.Load() {
		e.unshare()
		post, err := shmlayout.NewPost()
		if err != nil {
			return nil, err
		}
		claim, err := shmlayout.NewClaim()
		if err != nil {
			post.Retire()
			return nil, err
		}
		s = &redirectShare{peer: id, number: e.p.importers.nextHandle(), pages: &redirect.Shared{Post: post, Claim: claim}}
		s.pages.LinkEnded = s.gone.Load
		for _, m := range e.targets {
			s.pages.Targets = append(s.pages.Targets, m.Bytes())
		}
		e.redirShare = s
		e.redirect.Share(s.pages)
	}
	regions := []*shm.Region{s.pages.Post.Region, s.pages.Claim.Region}
	for _, m := range e.targets {
		regions = append(regions, m.region)
		g.Targets = append(g.Targets, m.size)
	}
	g.Claims = s.number
	return dupDescriptors(regions...)
}

// unshare withdraws the shared pages from an importer that is gone. memoryTable.mu is held.
func (e *Export) unshare() {
	if s := e.redirShare; s != nil {
		e.redirShare = nil
		s.gone.Store(true)
		e.redirect.Share(nil) // which gives them back
	}
}

// importerLost marks the shared pages of an importer whose link has ended. memoryTable.mu is held.
func (e *Export) importerLost(id nodeproto.ProcessID) {
	if s := e.redirShare; s != nil && s.peer == id {
		s.gone.Store(true)
	}
}

// endRedirection releases what redirection needs, after the importers' grants were revoked.
func (e *Export) endRedirection() error {
	if e.redirect == nil {
		return nil
	}
	e.redirect.Drop()
	e.p.memory.mu.Lock()
	e.unshare()
	e.p.memory.mu.Unlock()
	var err error
	for _, m := range e.targets {
		err = errors.Join(err, m.region.Renew("vmmc"))
	}
	return err
}

// takeClaims makes the importer's side of a redirectable export that is mapped,
// or takes the one that an earlier import of it has made. It owns fds.
func (l *exporterLink) takeClaims(
	t *exporters, g *nodeproto.Grant, fds []int,
) (*redirect.Claims, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[g.Claims]; c != nil {
		closeAll(fds)
		c.users++
		return c.Claims, nil
	}
	post, err := shmlayout.OpenPost(fds[0])
	if err != nil {
		closeAll(fds[1:])
		return nil, err
	}
	claim, err := shmlayout.OpenClaim(fds[1])
	if err != nil {
		closeAll(fds[2:])
		post.Retire()
		return nil, err
	}
	c := redirect.NewClaims(post, claim)
	for i, fd := range fds[2:] {
		r, err := shm.Open(fd, shm.RoundUp(g.Targets[i]), true)
		if err != nil {
			closeAll(fds[3+i:])
			c.Retire()
			return nil, err
		}
		t.keepOutOfDumps(r)
		c.AddTarget(r, g.Targets[i])
	}
	if l.claims == nil { // the link has ended
		c.Retire()
		return nil, l.requester.Err()
	}
	l.claims[g.Claims] = &claims{Claims: c, users: 1}
	return c, nil
}

// claims are an importer's side of a redirectable export, with the number of imports that use it.
type claims struct {
	*redirect.Claims
	users int
}

// dropClaims releases claims that no import uses any more, once no message to them is in flight. An
// import made meanwhile reuses them.
func (l *exporterLink) dropClaims(m *member, number uint32) {
	l.mu.Lock()
	c := l.claims[number]
	last := false
	if c != nil {
		c.users--
		last = c.users == 0
	}
	l.mu.Unlock()
	if !last {
		return
	}
	m.begin(func() { // in a closed process the link's end releases all claims
		c.WhenIdle(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if c.users == 0 && l.claims[number] == c {
				delete(l.claims, number)
				c.Retire()
			}
		})
	})
}
