package vmmc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Redirectable lets messages to the buffer be redirected by [Export.PostRedir]
// (the manual's BUF_REDIRECTABLE, section 7). One process may import the buffer,
// as often as it likes; see [ManySenders].
//
// Where messages come over the stream, they are redirected into any memory. An
// importer that has the buffer mapped places the data itself: it can be
// redirected only into targets, whole allocations of [Process.Alloc] that are
// not exported, which the importing process maps too and can write to as long as
// the export lives. A redirection to other memory redirects nothing of a mapped
// importer's messages, and says so.
func Redirectable(targets ...*Memory) ExportOption {
	return func(e *Export) {
		e.redirect = link.NewRedirect(e.p.engine)
		e.targets = targets
	}
}

// ManySenders lets more than one process import a redirectable buffer, which must
// trust each other: whose message comes first is redirected. All of them use the
// stream, on one node too.
func ManySenders() ExportOption { return func(e *Export) { e.many = true } }

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
func (e *Export) PostRedir(off int, to []byte) error {
	op := fmt.Sprintf("redirect %d bytes at %d of buffer %d", len(to), off, e.id)
	switch {
	case e.redirect == nil:
		return failf(op, ErrNotRedirectable, "buffer %d was not exported with Redirectable", e.id)
	case len(to) == 0:
		return failf(op, ErrBadSize, "the size must be positive")
	case (off|len(to))%shm.WordSize != 0 || !shm.Aligned(to):
		return failf(op, ErrBadAlignment, "offset, size and target must be multiples of the word (%d bytes)", shm.WordSize)
	case off < 0 || off > len(e.mem) || len(to) > len(e.mem)-off:
		return failf(op, ErrBadArg, "the buffer has %d bytes", len(e.mem))
	}
	e.p.mu.Lock()
	closed := e.closed.Load()
	overlap := false
	for _, o := range e.p.exports {
		overlap = overlap || shm.Overlap(o.mem, to)
	}
	links := e.links()
	e.p.mu.Unlock()
	switch {
	case closed:
		return failf(op, ErrBadRbufState, "the export is closed")
	case overlap:
		return failf(op, ErrOverlappedBufs, "the target overlaps an exported buffer")
	case !e.redirect.Post(uint64(off), to, links):
		return failf(op, ErrBadRbufState, "a redirection is posted already: end it first")
	}
	return nil
}

// links are those of the importers; p.mu is held.
func (e *Export) links() []*link.In {
	var links []*link.In
	for _, g := range e.grants {
		if g.in != nil {
			links = append(links, g.in)
		}
	}
	return links
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
func (e *Export) EndRedir(ctx context.Context) (n, first int, err error) {
	op := fmt.Sprintf("end the redirection of buffer %d", e.id)
	if e.redirect == nil {
		return 0, 0, failf(op, ErrNotRedirectable, "buffer %d was not exported with Redirectable", e.id)
	}
	un, ufirst, ok, err := e.redirect.End(ctx)
	switch {
	case !ok:
		return 0, 0, failf(op, ErrBadRbufState, "no redirection is posted")
	case err != nil:
		return int(un), int(ufirst), fail(op, err)
	}
	return int(un), int(ufirst), nil
}

// DataEnd is the byte offset in the buffer of the last word of the message that
// arrived last, also of a redirected one (vmmc_DataEnd). ok is false when none
// arrived since the export was made or [Export.ClearDataEnd] was called
// (vmmcErr_NoSuchError), and always when the buffer is not redirectable. It is
// stored after the message.
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

// ClearDataEnd forgets it (vmmc_ClearDataEnd).
func (e *Export) ClearDataEnd() {
	if e.redirect != nil {
		e.redirect.ClearEnd()
	}
}

// sharing is what the one importer that has a redirectable export mapped was
// given for it.
type sharing struct {
	peer   local.ProcessID
	number uint32
	pages  *link.Shared
	gone   atomic.Bool
}

// admitTargets checks the memories that a mapped importer may be redirected to;
// p.mu is held.
func (p *Process) admitTargets(e *Export, op string) error {
	for _, m := range e.targets {
		if m == nil || m.p != p || !p.has(m) {
			return failf(op, ErrBadArg, "a redirection target is not memory of this process's Alloc")
		}
		if shm.Overlap(m.Bytes(), e.mem) || p.exported(m.Bytes()) != nil || p.targetOf(m) != nil {
			return failf(op, ErrOverlappedBufs, "a redirection target is exported, or a target of another export")
		}
		if err := m.region.Seal(false); err != nil {
			return &Error{Op: op, Code: ErrBadArg, Err: err}
		}
	}
	return nil
}

func (p *Process) has(m *Memory) bool {
	for _, o := range p.memories {
		if o == m {
			return true
		}
	}
	return false
}

// exported finds an export that overlaps b; p.mu is held.
func (p *Process) exported(b []byte) *Export {
	for _, o := range p.exports {
		if shm.Overlap(o.mem, b) {
			return o
		}
	}
	return nil
}

// targetOf finds the export that m is a redirection target of; p.mu is held.
func (p *Process) targetOf(m *Memory) *Export {
	for _, o := range p.exports {
		for _, t := range o.targets {
			if t == m {
				return o
			}
		}
	}
	return nil
}

// mayImport keeps a second process from a redirectable buffer; p.mu is held.
func (e *Export) mayImport(id local.ProcessID) error {
	if e.redirect == nil || e.many {
		return nil
	}
	for _, g := range e.grants {
		if g.peer.id != id {
			return code.New(code.NoRights, "buffer %d is redirectable and imported by another process already", e.id)
		}
	}
	return nil
}

// shareRedirection gives the descriptors of what a mapped importer needs beside the memory;
// p.mu is held.
func (e *Export) shareRedirection(id local.ProcessID, g *local.Grant) ([]int, error) {
	s := e.shared
	if s == nil || s.peer != id || s.gone.Load() {
		e.unshare()
		post, err := page.NewPost()
		if err != nil {
			return nil, err
		}
		claim, err := page.NewClaim()
		if err != nil {
			post.Retire()
			return nil, err
		}
		s = &sharing{peer: id, number: e.p.number(), pages: &link.Shared{Post: post, Claim: claim}}
		s.pages.Gone = s.gone.Load
		for _, m := range e.targets {
			s.pages.Targets = append(s.pages.Targets, m.Bytes())
		}
		e.shared = s
		e.redirect.Share(s.pages)
	}
	regions := []*shm.Region{s.pages.Post.Region, s.pages.Claim.Region}
	for _, m := range e.targets {
		regions = append(regions, m.region)
		g.Targets = append(g.Targets, m.size)
	}
	g.Claims = s.number
	return descriptors(regions...)
}

// unshare takes the pages back from an importer that is no more; p.mu is held.
func (e *Export) unshare() {
	if s := e.shared; s != nil {
		e.shared = nil
		s.gone.Store(true)
		e.redirect.Share(nil) // which gives them back
	}
}

// importerLost is called when a link has ended; p.mu is held.
func (e *Export) importerLost(id local.ProcessID) {
	if s := e.shared; s != nil && s.peer == id {
		s.gone.Store(true)
	}
}

// endRedirection takes down what redirection needs; the importers were told.
func (e *Export) endRedirection(links []*link.In) error {
	if e.redirect == nil {
		return nil
	}
	e.redirect.Drop(links)
	e.p.mu.Lock()
	e.unshare()
	e.p.mu.Unlock()
	var err error
	for _, m := range e.targets {
		err = errors.Join(err, m.region.Renew("vmmc"))
	}
	return err
}

// takeClaims makes the importer's side of a redirectable export that is mapped,
// or takes the one that an earlier import of it has made. It owns fds.
func (l *outLink) takeClaims(g *local.Grant, fds []int) (*link.Claims, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[g.Claims]; c != nil {
		closeAll(fds)
		return c, nil
	}
	post, err := page.OpenPost(fds[0])
	if err != nil {
		closeAll(fds[1:])
		return nil, err
	}
	claim, err := page.OpenClaim(fds[1])
	if err != nil {
		closeAll(fds[2:])
		post.Retire()
		return nil, err
	}
	c := link.NewClaims(post, claim)
	for i, fd := range fds[2:] {
		r, err := shm.Open(fd, shm.RoundUp(g.Targets[i]), true)
		if err != nil {
			closeAll(fds[3+i:])
			c.Retire()
			return nil, err
		}
		c.AddTarget(r, g.Targets[i])
	}
	if l.claims == nil { // the link has ended
		c.Retire()
		return nil, l.out.Err()
	}
	l.claims[g.Claims] = c
	return c, nil
}
