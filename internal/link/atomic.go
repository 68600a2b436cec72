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
}

func (c *AtomicOp) size() uint64 {
	if c.Wide {
		return 8
	}
	return 4
}

// Atomic executes c at the exporter, in its place among the messages, and returns the old value.
func (rq *Requester) Atomic(ctx context.Context, c AtomicOp) (old uint64, err error) {
	f := fetchPool.Get().(*fetch)
	f.set(&Read{Handle: c.Handle, ID: c.ID, Off: c.Off})
	f.op, f.a, f.b, f.size = c.Op, c.A, c.B, c.size()
	return rq.roundTrip(ctx, f, c.Ended)
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

// checkResult checks that an atomic's result was requested.
func (rq *Requester) checkResult(h *wire.Header) error {
	sent := rq.fullySent(h.Seq)
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	if f := rq.fetches.oldest(h.Seq); f == nil || f.op == 0 || !sent {
		return protocol("a result of %d, which was not asked for", h.Seq)
	}
	return nil
}

// handleResult completes an atomic.
func (rq *Requester) handleResult(h *wire.Header) {
	rq.fetches.mu.Lock()
	defer rq.fetches.mu.Unlock()
	rq.fetches.list[0].old = h.Off
	rq.fetchAnswered(nil)
}

// Atomic works on the exporter's pages.
func (m *Mapped) Atomic(ctx context.Context, c AtomicOp) (old uint64, err error) {
	if err := m.req.backlog.wait(ctx); err != nil {
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

// handleAtomic executes an importer's atomic. It is executed on arrival, so it has its place among
// the messages. Its answer keeps the order of the gets.
func (rs *Responder) handleAtomic(h *wire.Header) error {
	rs.advanceApplied(h.Seq)
	rs.counters.AddLocked(shmlayout.Atomics, 1)
	if invariant.Enabled {
		rs.trace("atomic", h.Handle, h.Seq, h.Off, h.Size)
	}
	op, a, b := h.Operands()
	c := AtomicOp{Off: h.Off, Wide: h.Size == 8, Op: op, A: a, B: b}
	t := rs.targets[h.Handle]
	r := reply{target: &noTarget, handle: h.Handle, seq: h.Seq}
	switch {
	case t == nil:
	case !t.Read || !t.Write:
		return protocol("an atomic on import %d, which does not allow reading and writing", h.Handle)
	case h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off:
		return protocol("an atomic at %d, the export has %d bytes", h.Off, len(t.Mem))
	case c.Wide && !shm.Aligned64(t.Mem[h.Off:]):
		r.target, r.refused = t, wire.CodeAlignment
	case t.MayFault:
		if err := shm.Guard(func() { r.off = applyAtomic(t.Mem, &c) }); err != nil {
			rs.targetFaulted(t, err)
		} else {
			r.target, r.result = t, true
		}
	default:
		r.target, r.result, r.off = t, true, applyAtomic(t.Mem, &c)
	}
	return rs.queueReply(r)
}
