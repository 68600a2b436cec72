package vmmc

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Redirectable lets messages to the buffer be redirected by [Export.PostRedir]
// (the manual's BUF_REDIRECTABLE, section 7). One process may import the buffer,
// as often as it likes; see [ManySenders].
//
// Messages are redirected into any memory. An importer that has the buffer mapped
// copies the data itself into targets: whole allocations of [Process.Alloc] that
// are not exported, which the importing process maps too and can write to as long
// as the export lives. While a redirection to other memory is posted, the importer
// sends the message that meets its range by the stream instead, and this process
// copies it: that costs some microseconds, as between nodes. There can be 29
// targets, beyond that Export fails with [ErrBadArg]. Where pages of a target have
// moved, as [Export.Close] says, importers use the stream for all messages.
func Redirectable(targets ...*Memory) ExportOption {
	targets = slices.Clone(targets) // the caller may use its own again
	return func(o *exportOptions) { o.redirectable, o.targets = o.redirectable+1, targets }
}

// ManySenders lets more than one process import a redirectable buffer, which must
// trust each other: whose message comes first is redirected. All of them use the
// stream, on one node too. Without [Redirectable] it means nothing, and Export fails with [ErrBadArg].
func ManySenders() ExportOption { return func(o *exportOptions) { o.many = true } }

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
	overlap := e.p.laid.First(to) != nil
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
func (e *Export) links() []*link.Responder {
	var links []*link.Responder
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
	if ctx == nil {
		return 0, 0, e.failed(op, errNilContext)
	}
	if e.redirect == nil {
		return 0, 0, failf(op, ErrNotRedirectable, "buffer %d was not exported with Redirectable", e.id)
	}
	un, ufirst, ok, err := e.redirect.End(ctx)
	switch {
	case !ok:
		return 0, 0, failf(op, ErrBadRbufState, "no redirection is posted")
	case err != nil:
		return int(un), int(ufirst), e.failed(op, err)
	}
	return int(un), int(ufirst), nil
}

// DataEnd is the byte offset in the buffer of the last word of the message that
// arrived last, also of a redirected one (vmmc_DataEnd). ok is false when none
// arrived since the export was made or [Export.ClearDataEnd] was called
// (vmmcErr_NoSuchError), and always when the buffer is not redirectable. It is
// stored after the message. [Import.WriteAt] and the atomics do not change it.
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
func (e *Export) ClearDataEnd() {
	if e.redirect != nil {
		e.redirect.ClearEnd()
	}
}
