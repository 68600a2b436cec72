package vmmc

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// far is the import's side of a binding.
type far struct{ b *Binding }

// Put carries a run of words over.
func (f far) Put(ctx context.Context, off int, words []byte) error {
	b := f.b
	im := b.im
	off += b.off
	switch {
	case im.mapped == nil:
		return im.stream(ctx, link.Message{Off: uint64(off), Src: words, Notify: b.notify && im.heard(), NoAckWait: true})
	case b.notify && im.heard():
		return im.because(im.mapped.SendNotify(ctx, off, words))
	case b.notify:
		return im.because(im.mapped.Send(ctx, off, words))
	}
	return im.because(im.mapped.Update(ctx, off, words))
}

// Publish carries a flag over.
func (f far) Publish(ctx context.Context, off int, flag []byte) error {
	if !f.b.direct {
		return f.Put(ctx, off, flag) // the last word of a message is stored atomically
	}
	return f.b.im.because(f.b.im.mapped.UpdateWord(ctx, f.b.off+off, flag))
}

// Done tells who sleeps at the far end.
func (f far) Done() error {
	if !f.b.direct {
		return nil // each message did
	}
	return f.b.im.because(f.b.im.mapped.Updated())
}

// checkWord says whether there is a bound word at off.
func (b *Binding) checkWord(off int) error {
	switch {
	case off < 0 || off > len(b.mem)-shm.WordSize:
		return code.New(code.BadProxyAddr, "the memory has %d bytes", len(b.mem))
	case off%shm.WordSize != 0:
		return code.New(code.BadAlignment, "the offset is not a multiple of the word (%d bytes)", shm.WordSize)
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
	if b.u == nil {
		if err := b.carrier.Err(); err != nil {
			return err
		}
		shm.Word(b.mem, off).Store(v)
		return b.wakeFar()
	}
	send := func(word []byte) error {
		err := far{b}.Publish(ctx, off, word)
		if err == nil {
			err = far{b}.Done()
		}
		return err
	}
	return b.u.Store(ctx, off, v, send, func(err error) bool { return errors.Is(err, code.OutcomeUnknown) })
}

// aliased is the carrier of a binding whose memory is the far buffer itself.
type aliased struct {
	once  sync.Once
	cause error // set before ended is closed
	ended chan struct{}
}

// Fail ends the binding, once.
func (a *aliased) Fail(err error) {
	a.once.Do(func() {
		a.cause = err
		close(a.ended)
	})
}

// Err is why it has ended, or nil.
func (a *aliased) Err() error {
	select {
	case <-a.ended:
		return a.cause
	default:
		return nil
	}
}

// Ended is closed when it has.
func (a *aliased) Ended() <-chan struct{} { return a.ended }

// alias puts the far pages in the place of the memory's own.
func (b *Binding) alias() (carrier, error) {
	im := b.im
	if im.mapped == nil {
		return nil, code.New(code.BadArg, "AliasPages, and the import goes by the stream: its memory is on another node, or its exporter lets nobody map it")
	}
	if !im.mapped.Direct() {
		return nil, code.New(code.BadArg, "AliasPages, and the export is redirectable: stores cannot be redirected")
	}
	r, at := im.mapped.Pages()
	whole := len(b.mem)%shm.PageSize == 0 || b.at+len(b.mem) == b.home.size && b.off+len(b.mem) == im.size
	if b.at%shm.PageSize != 0 || (at+b.off)%shm.PageSize != 0 || !whole {
		return nil, code.New(code.BadArg, "AliasPages, and %d bytes at %d of their allocation, bound to those at %d of the exporter's pages, are not whole pages (%d bytes)", len(b.mem), b.at, at+b.off, shm.PageSize)
	}
	if !b.home.region.Whole() {
		return nil, code.New(code.BadArg, "AliasPages, and pages of the memory have moved when an export of a part of it was closed: take another allocation")
	}
	err := b.home.region.Alias(b.at, r, at+b.off, shm.RoundUp(len(b.mem)))
	if errors.Is(err, os.ErrClosed) {
		err = code.PeerGone
	}
	if err != nil {
		return nil, err
	}
	return &aliased{ended: make(chan struct{})}, nil
}

func (b *Binding) unalias() error {
	return b.home.region.Unalias(b.at, shm.RoundUp(len(b.mem)))
}

// wakeFar makes stores to an alias known to who sleeps at the far end.
func (b *Binding) wakeFar() error {
	if err := b.carrier.Err(); err != nil {
		return err
	}
	return b.im.because(b.im.mapped.Updated())
}
