package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// AtomicOp is an atomic operation on one or two words of an export.
type AtomicOp struct {
	Handle uint32
	ID     uint32
	Off    uint64
	Wide   bool // 64 bits.
	Op     wire.Op
	// A is the addend or new value, B the expected value.
	A, B  uint64
	Ended *atomic.Bool
	Done  <-chan struct{} // Closed after Ended is set.
}

func (c *AtomicOp) size() uint64 {
	if c.Wide {
		return 8
	}
	return 4
}

// PendingAtomic is the error of an atomic that was in flight when its call ended. Its answer still
// comes, or its link ends.
type PendingAtomic struct {
	err  error
	o    *Requester
	f    *fetch // Used by no other call any more.
	tick uint32 // f.done while the answer is outstanding.
}

func (p *PendingAtomic) Error() string { return p.err.Error() }

// Unwrap returns why the call ended, which is [ErrUnknown] too.
func (p *PendingAtomic) Unwrap() error { return p.err }

// Wait waits for the answer and returns what the atomic would have returned. done is false if the
// context ended first.
func (p *PendingAtomic) Wait(ctx context.Context) (old uint64, done bool, err error) {
	for {
		tick := p.o.ackEvent.Load() // advances after f.done
		if p.f.done.Load() != p.tick {
			return p.f.old, true, p.f.err
		}
		if err := p.o.e.wait(ctx, &wait.Cond{Word: p.o.ackEvent.Word(), Old: tick, LocalOnly: true}, &p.o.stream); err != nil {
			return 0, false, err
		}
	}
}

// Atomic works on the exporter's pages.
func (m *Mapped) Atomic(ctx context.Context, c AtomicOp) (old uint64, err error) {
	if err := m.req.backlog.wait(ctx, m.Ended); err != nil {
		return 0, err
	}
	if err := m.beginAccess(ctx); err != nil {
		return 0, err
	}
	if c.Wide && !shm.Aligned64(m.mem[c.Off:]) {
		return 0, ErrAlignment
	}
	if invariant.Enabled {
		m.trace("mapped atomic", int(c.Off), int(c.size()))
	}
	old = applyAtomic(m.mem, &c)
	m.counters.Add(shmlayout.Atomics, 1)
	return old, m.finishStore(int(c.Off), int(c.size()))
}

// applyAtomic executes c by an atomic instruction: importers that map the memory and the exporter's
// own goroutines see it as one step.
func applyAtomic(mem []byte, c *AtomicOp) (old uint64) {
	if c.Wide {
		return applyAtomic64(shm.Word64(mem, int(c.Off)), c)
	}
	return applyAtomic32(shm.Word(mem, int(c.Off)), c)
}

func applyAtomic32(w *atomic.Uint32, c *AtomicOp) uint64 {
	switch c.Op {
	case wire.FetchAdd:
		return uint64(w.Add(uint32(c.A)) - uint32(c.A))
	case wire.Swap:
		return uint64(w.Swap(uint32(c.A)))
	}
	for {
		old := w.Load()
		if old != uint32(c.B) || w.CompareAndSwap(old, uint32(c.A)) {
			return uint64(old)
		}
	}
}

func applyAtomic64(w *atomic.Uint64, c *AtomicOp) uint64 {
	switch c.Op {
	case wire.FetchAdd:
		return w.Add(c.A) - c.A
	case wire.Swap:
		return w.Swap(c.A)
	}
	for {
		old := w.Load()
		if old != c.B || w.CompareAndSwap(old, c.A) {
			return old
		}
	}
}
