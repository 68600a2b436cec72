package vmmc

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Word is one word of an exported buffer, as this process sees it. Importers
// store it atomically as the last word of a message; loading it atomically, and
// finding it changed, means that the whole message is there. It must not be used
// after the memory is closed. Its methods may be called concurrently.
type Word struct {
	p *Process
	e *Export
	w *atomic.Uint32

	addr uint64
}

// Load reads the word.
func (w Word) Load() uint32 { return w.w.Load() }

// Store writes the word, to reset a flag for instance. It is not propagated.
func (w Word) Store(v uint32) { w.w.Store(v) }

// Add adds delta and returns the sum, as one step for importers' atomics too.
func (w Word) Add(delta uint32) uint32 { return w.w.Add(delta) }

// Swap stores v and returns what was there.
func (w Word) Swap(v uint32) uint32 { return w.w.Swap(v) }

// CompareAndSwap stores v if the word is old, and reports whether it was.
func (w Word) CompareAndSwap(old, v uint32) bool { return w.w.CompareAndSwap(old, v) }

// Wait returns the word's value once it differs from old. The goroutine polls briefly and then
// sleeps. What peers send wakes it, and not what this process itself stores in the word. The error
// is the context's, [ErrNotInHandler], or [ErrClosed] when the process is closed; [ErrBadArg] is
// the zero Word's. Nothing tells that a sender has died: bound the wait by its context where that
// matters, or see [Watch] and [WithEvents].
func (w Word) Wait(ctx context.Context, old uint32) (uint32, error) {
	if err := inHandler("wait for a word"); err != nil {
		return old, err
	}
	if ctx == nil {
		return old, fail("wait for a word", errNilContext)
	}
	if w.w == nil {
		return old, failf("wait for a word", ErrBadArg, "it is of no export: Export.Word gives words")
	}
	if v := w.w.Load(); v != old {
		return v, nil
	}
	for range w.p.engine.PlainLooks() {
		if v := w.w.Load(); v != old {
			return v, nil
		}
	}
	for {
		if err := w.p.engine.WaitPolled(ctx, wait.Cond{Word: w.w, Old: old, Addr: w.addr}); err != nil {
			return old, fail(fmt.Sprintf("wait for a word of buffer %d", w.e.id), err)
		}
		if v := w.w.Load(); v != old { // else it has changed and changed back
			return v, nil
		}
	}
}

// Watch is a word and the value that it is to lose.
type Watch struct {
	Word Word
	Old  uint32

	// From is nil, or the import whose end ends the wait too: one from the process that is to
	// change the word.
	//
	// Experimental: it may change in any release.
	From *Import
}

// changed returns the first watch whose word has changed, or -1.
func changed(ws []Watch) int {
	for i := range ws {
		if ws[i].Word.Load() != ws[i].Old {
			return i
		}
	}
	return -1
}

// ended returns the first watch whose import has ended, or -1.
func ended(ws []Watch) int {
	for i := range ws {
		if im := ws[i].From; im != nil && im.finished.Load() {
			return i
		}
	}
	return -1
}

// Word64 is two words of an exported buffer as one, for counters that importers
// change by their 64-bit atomics. It is used as a [Word] is.
type Word64 struct {
	p *Process
	e *Export
	w *atomic.Uint64
}

// Load reads the word.
func (w Word64) Load() uint64 { return w.w.Load() }

// Store writes the word.
func (w Word64) Store(v uint64) { w.w.Store(v) }

// Add adds delta and returns the sum.
func (w Word64) Add(delta uint64) uint64 { return w.w.Add(delta) }

// Swap stores v and returns what was there.
func (w Word64) Swap(v uint64) uint64 { return w.w.Swap(v) }

// CompareAndSwap stores v if the word is old, and reports whether it was.
func (w Word64) CompareAndSwap(old, v uint64) bool { return w.w.CompareAndSwap(old, v) }

// Wait returns the word's value once it differs from old. It waits as [Word.Wait] does, with the
// same errors.
//
// Importers' 64-bit atomics and the methods of Word64 change both halves at once. A message does
// not: only its last 4 bytes are stored as one, so Load and Wait may find the first half of a
// message's 8 bytes beside the old second half. A word that ends messages is a [Word]. While a
// goroutine sleeps here, each message to this process pays for a wake-up.
//
// Experimental: it may change in any release.
func (w Word64) Wait(ctx context.Context, old uint64) (uint64, error) {
	const op = "wait for a 64-bit word"
	if err := inHandler(op); err != nil {
		return old, err
	}
	if ctx == nil {
		return old, fail(op, errNilContext)
	}
	if w.w == nil {
		return old, failf(op, ErrBadArg, "it is of no export: Export.Word64 gives words")
	}
	for {
		// No address: senders tell sleepers' words apart by 4 bytes. So any message wakes this.
		if err := w.p.engine.Wait(ctx, wait.Cond{Word64: w.w, Old64: old}); err != nil {
			return old, fail(fmt.Sprintf("wait for a 64-bit word of buffer %d", w.e.id), err)
		}
		if v := w.w.Load(); v != old { // else it has changed and changed back
			return v, nil
		}
	}
}

// Word is the word at byte offset off, for polling and waiting. The errors are
// [ErrBadAlignment] and [ErrBadArg].
func (e *Export) Word(off int) (Word, error) {
	if err := e.checkWord(off, shm.WordSize); err != nil {
		return Word{}, err
	}
	return Word{p: e.p, e: e, w: shm.Word(e.mem, off), addr: e.addr(off)}, nil
}

// Word64 is the 64-bit word at byte offset off, which must be a multiple of 8 in
// memory. Errors as [Export.Word].
func (e *Export) Word64(off int) (Word64, error) {
	if err := e.checkWord(off, 8); err != nil {
		return Word64{}, err
	}
	return Word64{p: e.p, e: e, w: shm.Word64(e.mem, off)}, nil
}

// addr is the address by which importers know the byte at off while its memory lives. A sleeping
// waiter announces with it which word it waits for. Addresses are offset by a random base:
// importers learn the distance between buffers, but not where they are.
func (e *Export) addr(off int) uint64 { return shm.Addr(e.mem, off) + e.p.addrBase }

// checkWord formats no text in the good case: a receiver may call Word once for each message, and
// formatting takes longer than a message.
func (e *Export) checkWord(off, size int) error {
	switch {
	case off < 0 || off > len(e.mem)-size:
		return e.badWord(off, ErrBadArg, "the buffer has %d bytes", len(e.mem))
	case off%size != 0 || size == 8 && !shm.Aligned64(e.mem[off:]):
		return e.badWord(off, ErrBadAlignment, "the offset is not a multiple of the word (%d bytes)", size)
	}
	return nil
}

func (e *Export) badWord(off int, code Code, format string, args ...any) error {
	return failf(fmt.Sprintf("word at %d of buffer %d", off, e.id), code, format, args...)
}

// WaitWord is [Word.Wait] for an answer that the import's exporter is to send: it also returns when
// the import ends, with the error that calls on it return from then on. w is a word of an export of
// the process that imported. If both come together it is the word that is returned.
func (im *Import) WaitWord(ctx context.Context, w Word, old uint32) (uint32, error) {
	const op = "wait for an answer"
	switch {
	case link.InHandler():
		return old, failf(op, ErrNotInHandler, "%v", ErrNotInHandler)
	case ctx == nil:
		return old, fail(op, errNilContext)
	case w.w == nil:
		return old, failf(op, ErrBadArg, "the word is of no export: Export.Word gives words")
	case w.p != im.p:
		return old, failf(op, ErrBadArg, "the word is another process's")
	}
	if v := w.w.Load(); v != old {
		return v, nil
	}
	l := wait.Cond{Word: w.w, Old: old, Addr: w.addr, Ended: &im.ended, Failed: im.link.requester.Ended()}
	if err := im.p.engine.Wait(ctx, l); err != nil {
		f := fail(op, err)
		f.Peer = im.peer.String()
		return old, f
	}
	if v := w.w.Load(); v != old {
		return v, nil
	}
	err := im.checkAlive()
	if err == nil {
		err = im.link.requester.Err()
	}
	f := fail(op, err)
	f.Peer = im.peer.String()
	return old, f
}
