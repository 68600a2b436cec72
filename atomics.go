package vmmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The atomics change a word of the buffer and return what was there before, atomically for all
// readers: other importers on either path, and the exporter's own [Word] and [Word64]. Each has its
// place in the order of this process's sends to the exporter, and wakes goroutines that wait for
// the word.
//
// off is in bytes and a multiple of the word's size; for 64 bits the exporter's
// memory must be so aligned too, as that of [Process.Alloc] is. The import must
// be readable and writable. Errors as [Import.Send]. With [ErrOutcomeUnknown] it
// may have been done; [OutcomeOf] tells where the context ended first.

// FetchAdd32 adds delta to the word at off.
func (im *Import) FetchAdd32(ctx context.Context, off int, delta uint32) (old uint32, err error) {
	v, err := im.atomic(ctx, "add to", link.AtomicOp{Op: wire.FetchAdd, A: uint64(delta)}, off)
	return uint32(v), err
}

// FetchAdd64 adds delta to the 64-bit word at off.
func (im *Import) FetchAdd64(ctx context.Context, off int, delta uint64) (old uint64, err error) {
	return im.atomic(ctx, "add to", link.AtomicOp{Op: wire.FetchAdd, Wide: true, A: delta}, off)
}

// Swap32 puts v in the place of the word at off.
func (im *Import) Swap32(ctx context.Context, off int, v uint32) (old uint32, err error) {
	was, err := im.atomic(ctx, "swap", link.AtomicOp{Op: wire.Swap, A: uint64(v)}, off)
	return uint32(was), err
}

// Swap64 puts v in the place of the 64-bit word at off.
func (im *Import) Swap64(ctx context.Context, off int, v uint64) (old uint64, err error) {
	return im.atomic(ctx, "swap", link.AtomicOp{Op: wire.Swap, Wide: true, A: v}, off)
}

// CompareAndSwap32 puts v in the place of the word at off if that is old. prev is
// what was there; swapped reports whether it was old.
func (im *Import) CompareAndSwap32(
	ctx context.Context, off int, old, v uint32,
) (prev uint32, swapped bool, err error) {
	was, err := im.atomic(ctx, "compare and swap", link.AtomicOp{Op: wire.CompareAndSwap, A: uint64(v), B: uint64(old)}, off)
	return uint32(was), err == nil && uint32(was) == old, err
}

// CompareAndSwap64 is CompareAndSwap32 for the 64-bit word at off.
func (im *Import) CompareAndSwap64(
	ctx context.Context, off int, old, v uint64,
) (prev uint64, swapped bool, err error) {
	was, err := im.atomic(ctx, "compare and swap", link.AtomicOp{Op: wire.CompareAndSwap, Wide: true, A: v, B: old}, off)
	return was, err == nil && was == old, err
}

func (im *Import) atomic(
	ctx context.Context, op string, c link.AtomicOp, off int,
) (old uint64, err error) {
	c.Handle, c.ID, c.Off, c.Ended, c.Done = im.handle, im.id, uint64(off), &im.ended, im.done
	size := 4
	if c.Wide {
		size = 8
	}
	if ctx == nil {
		return 0, im.opError(op, size, off, errNilContext)
	}
	err = im.check(size, off, nodeproto.MayRead)
	if err == nil {
		err = im.check(size, off, nodeproto.MayWrite)
	}
	switch {
	case errors.Is(err, code.BadAlignment), err == nil && off%size != 0:
		err = code.New(code.BadAlignment, "the offset is not a multiple of the word (%d bytes)", size)
	case err != nil:
	case im.mapped != nil:
		old, err = im.mapped.Atomic(ctx, c)
	default:
		old, err = im.link.requester.Atomic(ctx, c)
	}
	if errors.Is(err, link.ErrAlignment) && off%size == 0 {
		err = code.New(code.BadAlignment,
			"the word does not lie at a multiple of its size (%d bytes) in the exporter's memory", size)
	}
	if err != nil {
		f := im.opError(op, size, off, err)
		if p := (*link.PendingAtomic)(nil); errors.As(err, &p) {
			f.outcome = &Outcome{im: im, op: op, size: size, off: off, pending: p}
		}
		return 0, f
	}
	return old, nil
}

// Outcome is an atomic that was in flight to the exporter when its call returned, because the
// call's context or the import had ended. It is done once, or not at all, whether or not the
// program waits for it.
type Outcome struct {
	im        *Import
	op        string
	size, off int
	pending   *link.PendingAtomic
}

// OutcomeOf gives the atomic whose call has returned err, to be waited for again. ok is false where
// nothing is to be waited for: the atomic was not begun, or failed with its link, and then nothing
// tells any more whether it was done.
//
//	old, err := im.FetchAdd64(ctx, 0, 1)
//	if o, ok := vmmc.OutcomeOf(err); ok {
//		old, err = o.Wait(context.Background())
//	}
func OutcomeOf(err error) (o *Outcome, ok bool) {
	if e := (*Error)(nil); errors.As(err, &e) {
		o = e.outcome
	}
	return o, o != nil
}

// Wait returns what the atomic has returned: what was there before, or why it was not done. For a
// compare and swap, the words were swapped if that is the value that was expected. It may be called
// again, and by several goroutines. With [ErrOutcomeUnknown] it is still not known: the context has
// ended, and Wait may be called again, or the link has ended. In a notification handler it fails
// with [ErrNotInHandler], and without an atomic with [ErrBadAsyncHandle].
func (o *Outcome) Wait(ctx context.Context) (old uint64, err error) {
	if o == nil || o.im == nil {
		return 0, failf("wait for an atomic", ErrBadAsyncHandle, "this is no outcome of a call")
	}
	if link.InHandler() {
		f := o.im.opError("wait for a "+o.op, o.size, o.off, code.NotInHandler)
		f.outcome = o
		return 0, f
	}
	if ctx == nil {
		f := o.im.opError("wait for a "+o.op, o.size, o.off, errNilContext)
		f.outcome = o
		return 0, f
	}
	old, done, err := o.pending.Wait(ctx)
	switch {
	case !done:
		f := o.im.opError("wait for a "+o.op, o.size, o.off, fmt.Errorf("%w (%w)", err, code.OutcomeUnknown))
		f.outcome = o
		return 0, f
	case err != nil:
		return 0, o.im.opError(o.op, o.size, o.off, err)
	}
	return old, nil
}
