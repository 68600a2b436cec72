package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Change is an atomic operation on one or two words of an export.
type Change struct {
	Handle uint32
	ID     uint32
	Off    uint64
	Wide   bool // 64 bits
	Op     wire.Op
	A, B   uint64 // what to add or to put there; what is expected there
	Ended  *atomic.Bool
}

func (c *Change) size() uint64 {
	if c.Wide {
		return 8
	}
	return 4
}

// Change does it at the far end, in its place among the messages, and returns
// what was there before.
func (o *Out) Change(ctx context.Context, c Change) (old uint64, err error) {
	f := fetches.Get().(*fetch)
	f.set(&Read{Handle: c.Handle, ID: c.ID, Off: c.Off})
	f.op, f.a, f.b, f.size = c.Op, c.A, c.B, c.size()
	return o.call(ctx, f, c.Ended)
}

// Pending is the error of an atomic that was on its way when its call ended. Its answer still comes, or its link ends.
type Pending struct {
	err  error
	o    *Out
	f    *fetch // which no other call uses any more
	tick uint32 // of f.done, until the answer is there
}

func (p *Pending) Error() string { return p.err.Error() }

// Unwrap gives why the call ended, which is [ErrUnknown] too.
func (p *Pending) Unwrap() error { return p.err }

// Wait returns when the answer is there, with what the atomic would have returned. done is false if the context
// ended first.
func (p *Pending) Wait(ctx context.Context) (old uint64, done bool, err error) {
	for {
		tick := p.o.tick.Now() // moves after f.done
		if p.f.done.Now() != p.tick {
			return p.f.old, true, p.f.err
		}
		if err := p.o.e.wait(ctx, &wait.Look{Word: p.o.tick.Word(), Old: tick, Own: true}, &p.o.stream); err != nil {
			return 0, false, err
		}
	}
}

// resultTo checks that an atomic's result was asked for.
func (o *Out) resultTo(h *wire.Header) error {
	sent := o.sent(h.Seq)
	o.gmu.Lock()
	defer o.gmu.Unlock()
	if len(o.gets) == 0 || o.gets[0].seq != h.Seq || o.gets[0].op == 0 || !sent {
		return protocol("a result of %d, which was not asked for", h.Seq)
	}
	return nil
}

// computed takes an atomic's result.
func (o *Out) computed(h *wire.Header) {
	o.gmu.Lock()
	defer o.gmu.Unlock()
	o.gets[0].old = h.Off
	o.answered(nil)
}

// Change works on the exporter's pages.
func (m *Mapped) Change(ctx context.Context, c Change) (old uint64, err error) {
	if err := m.out.caughtUp(ctx); err != nil {
		return 0, err
	}
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	if c.Wide && !shm.Aligned64(m.mem[c.Off:]) {
		return 0, ErrAlignment
	}
	if invariant.Enabled {
		m.trace("mapped atomic", int(c.Off), int(c.size()))
	}
	old = change(m.mem, &c)
	m.count.Add(page.Atomics, 1)
	return old, m.over(int(c.Off), int(c.size()))
}

// change is an atomic of this machine: importers that map the memory and the
// exporter's own goroutines see it as one.
func change(mem []byte, c *Change) (old uint64) {
	if c.Wide {
		return change64(shm.Word64(mem, int(c.Off)), c)
	}
	return change32(shm.Word(mem, int(c.Off)), c)
}

func change32(w *atomic.Uint32, c *Change) uint64 {
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

func change64(w *atomic.Uint64, c *Change) uint64 {
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

// change does what an importer asks for. Executed when it arrives, it has its
// place among the messages; its answer keeps the order of the gets.
func (in *In) change(h *wire.Header) error {
	in.nextApplied(h.Seq)
	in.count.Locked(page.Atomics, 1)
	if invariant.Enabled {
		in.trace("atomic", h.Handle, h.Seq, h.Off, h.Size)
	}
	op, a, b := h.Operands()
	c := Change{Off: h.Off, Wide: h.Size == 8, Op: op, A: a, B: b}
	t := in.targets[h.Handle]
	r := reply{target: &noTarget, handle: h.Handle, seq: h.Seq}
	switch {
	case t == nil:
	case !t.Read || !t.Write:
		return protocol("an atomic on import %d, which does not allow reading and writing", h.Handle)
	case h.Off > uint64(len(t.Mem)) || h.Size > uint64(len(t.Mem))-h.Off:
		return protocol("an atomic at %d, the export has %d bytes", h.Off, len(t.Mem))
	case c.Wide && !shm.Aligned64(t.Mem[h.Off:]):
		r.target, r.refused = t, wire.CodeAlignment
	case t.Careful:
		if err := shm.Guard(func() { r.off = change(t.Mem, &c) }); err != nil {
			in.faulted(t, err)
		} else {
			r.target, r.result = t, true
		}
	default:
		r.target, r.result, r.off = t, true, change(t.Mem, &c)
	}
	return in.answer(r)
}
