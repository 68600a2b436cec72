package vmmc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/update"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Binding is automatic update: plain stores to local memory show up in an import by
// themselves. It lives until [Binding.Close], or the end of its import or process.
// Its methods may be called concurrently.
type Binding struct {
	im     *Import
	mem    []byte
	off    int // in the import
	home   *Memory
	at     int // where mem lies in it
	notify bool
	direct bool // carrying over never waits

	making  sync.Mutex      // held until carrier is there
	carrier carrier         // nil: Bind has failed
	u       *update.Binding // the carrier, unless the memory is the far buffer itself
	tick    wait.EventCount // moves when a flush may go on
	closing sync.Once
	err     error // of closing
}

// carrier is what makes stores appear at the far end.
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
		return b.failed("close binding", code.NotInHandler)
	}
	return b.close()
}

func (b *Binding) close() error {
	b.closing.Do(func() {
		b.making.Lock() // the process may be closed while Bind is at work
		made := b.carrier != nil
		b.making.Unlock()
		if !made {
			return
		}
		b.carrier.Fail(code.Closed)
		b.err = b.finish()
		b.im.l.mu.Lock()
		delete(b.im.bindings, b)
		b.im.l.mu.Unlock()
		b.im.p.unbind(b)
	})
	return b.err
}

// finish leaves the memory as it would be without the binding, which has ended.
func (b *Binding) finish() error {
	if b.u != nil {
		<-b.u.Gone()
		return nil
	}
	if err := b.unalias(); err != nil {
		return b.failed("close binding", err)
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
		return b.failed("carry over", err)
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
		return b.failed("flush", code.NotInHandler)
	}
	if ctx == nil {
		return b.failed("flush", errNilContext)
	}
	err := b.flush(ctx)
	if err == nil {
		err = b.im.Fence(ctx)
	}
	if err != nil {
		return b.failed("flush", err)
	}
	return nil
}

func (b *Binding) flush(ctx context.Context) error {
	if b.u == nil {
		return b.wakeFar()
	}
	n, err := b.u.Request(ctx)
	for err == nil && b.u.Passed() < n {
		tick := b.tick.Load()
		if b.u.Passed() >= n {
			break
		}
		if err = b.carrier.Err(); err == nil {
			err = b.im.p.engine.Wait(ctx, wait.Cond{Word: b.tick.Word(), Old: tick, LocalOnly: true})
		}
	}
	return err
}

// Store stores v at byte offset off of the bound memory, and at the far end at once:
// it waits for no order, so data that was stored before may come after it, and for
// nothing but what is being carried over just then. Storing the value that is there already sends it all the same. When it
// fails, the word is stored here, or not if nothing can be carried over any more.
// Errors are those of [Import.Send] for a word, and [ErrNotInHandler] for a binding
// with [NotifyUpdates].
func (b *Binding) Store(ctx context.Context, off int, v uint32) error {
	if ctx == nil {
		return b.failed(fmt.Sprintf("store word %d", off), errNilContext)
	}
	err := b.store(ctx, off, v)
	if err != nil {
		return b.failed(fmt.Sprintf("store word %d", off), err)
	}
	return nil
}

// Word is the bound word at byte offset off, as an atomic: flags are to be stored by
// one. It is carried over as any other store. It must not be used after the memory is
// closed. The errors are [ErrBadAlignment] and [ErrBadProxyAddr].
func (b *Binding) Word(off int) (*atomic.Uint32, error) {
	if err := b.checkWord(off); err != nil {
		return nil, b.failed(fmt.Sprintf("word %d", off), err)
	}
	return shm.Word(b.mem, off), nil
}

// failed describes an error of a call on the binding.
func (b *Binding) failed(what string, err error) error {
	return b.im.failed(what+": bound", len(b.mem), b.off, err)
}

// BindingStats is what a binding has done so far.
type BindingStats struct {
	Mode     string // "watch": the kernel tells which pages were stored to; "compare"; "alias"
	Reason   string // why not "watch"
	Path     string // "mapped" or "stream"
	Messages uint64 // runs of words carried over
	Words    uint64 // in them
	Passes   uint64 // looks at what is hot
	Scans    uint64 // questions to the kernel
}

// Stats may be called at any time, also after Close.
func (b *Binding) Stats() BindingStats {
	out := BindingStats{Mode: "alias", Reason: "asked for", Path: b.im.Path()}
	if b.u == nil {
		return out
	}
	s := b.u.Stats()
	out.Messages, out.Words, out.Passes, out.Scans = s.Messages, s.Words, s.Passes, s.Scans
	out.Mode, out.Reason = "watch", ""
	if !s.Watched {
		out.Mode, out.Reason = "compare", s.Why.Error()
	}
	return out
}
