package link

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Mapped is an import whose pages this process has mapped. Its methods may be
// called concurrently; offsets and lengths were checked by the caller.
type Mapped struct {
	out      *Out
	handle   uint32
	region   *shm.Region
	mem      []byte
	state    *atomic.Uint32 // of the export, in the exporter's page
	alive    uint32         // what it holds while the export lives
	sleepers *atomic.Uint32 // of the exporter
	fence    atomic.Uint32  // see Write
	closed   atomic.Bool
}

// NewMapped makes one; size is the export's, which lies in the region at off.
func NewMapped(o *Out, handle uint32, r *shm.Region, off, size int, slot, alive uint32) *Mapped {
	return &Mapped{
		out: o, handle: handle, region: r, mem: r.Bytes()[off : off+size : off+size],
		state: o.pages.Peer.State(slot), alive: alive, sleepers: o.pages.Peer.Sleepers(),
	}
}

// Close puts nothing in the place of the pages; a copier that is still at work
// hurts nobody.
func (m *Mapped) Close() {
	m.closed.Store(true)
	m.region.Retire()
}

// check is what must hold before and after each copy. A state that changed
// means that the exporter has closed the export: what was written is in no
// memory of its any more, or may not be.
func (m *Mapped) check() error {
	if m.out.broken.Load() {
		return m.out.err()
	}
	if m.state.Load() != m.alive {
		return ErrRevoked
	}
	if m.closed.Load() {
		return ErrClosed
	}
	return nil
}

// order waits until the stream's messages before this one are applied: data
// sent through one way is never overtaken through the other. Two private loads
// when there are none.
func (m *Mapped) order(ctx context.Context) error {
	if seq := m.out.seq.Load(); seq != m.out.acked.Load() {
		return m.out.settle(ctx, seq)
	}
	return nil
}

// Send copies src into the exporter's pages, the last word last. Only someone
// asleep over there costs a system call.
func (m *Mapped) Send(ctx context.Context, off int, src []byte) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	dst := m.mem[off : off+len(src)]
	if len(src) > shm.Piece {
		return m.sendLong(ctx, dst, src)
	}
	shm.Put(dst, src)
	return m.end()
}

func (m *Mapped) begin(ctx context.Context) error {
	if err := m.order(ctx); err != nil {
		return err
	}
	return m.check()
}

// end comes after the last word's exchange, which orders it before these loads.
func (m *Mapped) end() error {
	err := m.check()
	if err != nil {
		err = unknown(err)
	} else if m.sleepers.Load() != 0 {
		m.out.ring()
	}
	runtime.KeepAlive(m) // and so the pages, until the copy is over
	return err
}

// sendLong looks at the context and the export between pieces.
func (m *Mapped) sendLong(ctx context.Context, dst, src []byte) error {
	for len(src) > shm.Piece {
		shm.Copy(dst[:shm.Piece], src[:shm.Piece])
		dst, src = dst[shm.Piece:], src[shm.Piece:]
		err := m.check()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return unknown(err)
		}
	}
	shm.Put(dst, src)
	return m.end()
}

// SendNotify sends, then leaves a note in the ring.
func (m *Mapped) SendNotify(ctx context.Context, off int, src []byte) error {
	o := m.out
	if err := o.credit(ctx); err != nil {
		return err
	}
	if err := m.Send(ctx, off, src); err != nil {
		o.uncredit(true) // no note without its data
		return err
	}
	o.nmu.Lock()
	o.serial++
	tail := o.pages.Ring.Put(page.Note{
		Handle: m.handle, Serial: o.serial, Off: uint64(off + len(src) - 4), Word: lastWord(src),
	})
	caught := o.pages.Back.Head().Load() == tail // see page.Exporter.Head
	o.nmu.Unlock()
	if caught {
		o.ring()
	}
	return nil
}

// Write copies any bytes, with no promise about the last ones.
func (m *Mapped) Write(ctx context.Context, off int, src []byte) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	shm.Copy(m.mem[off:off+len(src)], src)
	m.fence.Add(1) // a full barrier: plain stores would let end's loads pass them
	return m.end()
}

// Get copies out of the exporter's pages, the last word first. The state is
// looked at again after the copy.
func (m *Mapped) Get(ctx context.Context, off int, dst []byte, raw bool) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	src := m.mem[off : off+len(dst)]
	if raw {
		shm.Copy(dst, src)
	} else {
		shm.Take(dst, src)
	}
	if runtime.GOARCH != "amd64" {
		m.fence.Add(1) // elsewhere an atomic load may pass plain loads before it
	}
	err := m.check()
	runtime.KeepAlive(m)
	return err
}
