package mpiabi

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Point-to-Point Communication": buffers of one communicator, or of one session. Buffered sends of a
// communicator that has one use it, and no other one.

// ownBuffer is what MPI_Comm_attach_buffer has attached, or MPI_Session_attach_buffer. The memory itself is not
// used: the messages are copied to memory of the library, as much as the program has attached.
type ownBuffer struct {
	mu       sync.Mutex
	attached bool      // Guarded by mu.
	addr     uint64    // Guarded by mu.
	size     int       // Guarded by mu.
	out      []leaving // messages that may not have left. Guarded by mu.
}

// leaving is a message that is under way, and what it takes of the buffer.
type leaving struct {
	r *mpi.Request
	n int
}

func init() {
	comms := func(e *Env, a *arguments) (handled, *ownBuffer, error) {
		c, err := e.comm(a, 0)
		if err != nil {
			return nil, nil, err
		}
		return c, &c.buffer, nil
	}
	sessions := func(e *Env, a *arguments) (handled, *ownBuffer, error) {
		s, err := e.session(a, 0)
		if err != nil {
			return nil, nil, err
		}
		return s, &s.buffer, nil
	}
	for typ, of := range map[string]func(e *Env, a *arguments) (handled, *ownBuffer, error){
		"MPI_Comm": comms, "MPI_Session": sessions,
	} {
		register(typ+"_attach_buffer", func(e *Env, a *arguments) error {
			_, b, err := of(e, a)
			if err != nil {
				return err
			}
			return b.attach(a)
		})
		register(typ+"_detach_buffer", func(e *Env, a *arguments) error {
			_, b, err := of(e, a)
			if err != nil {
				return err
			}
			return b.detach(a)
		})
		register(typ+"_flush_buffer", func(e *Env, a *arguments) error {
			_, b, err := of(e, a)
			if err != nil {
				return err
			}
			return b.flush(a.ctx)
		})
		register(typ+"_iflush_buffer", func(e *Env, a *arguments) error {
			object, b, err := of(e, a)
			if err != nil {
				return err
			}
			if err := a.setHandle(1, requestNull); err != nil {
				return err
			}
			flush := inBackground(func() (mpi.Status, error) { return emptyStatus, b.flush(e.ctx) })
			return a.setHandle(1, e.handles.add(&request{of: object, active: true, parts: []part{flush}}))
		})
	}
}

func (b *ownBuffer) attach(a *arguments) error {
	size, err := a.count(2)
	if err != nil {
		return err
	}
	addr := a.Addr(1)
	switch {
	case addr == 0 && size > 0:
		return fail(a.name(1), errBuffer, "it is NULL, and the size is %d", size)
	case addr == inPlace:
		return fail(a.name(1), errBuffer, "it is MPI_IN_PLACE, want memory, or MPI_BUFFER_AUTOMATIC")
	case addr == bufferAutomatic:
		size = 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached {
		return fail(a.name(1), errBuffer, "a buffer is attached already: detach it before")
	}
	b.attached, b.addr, b.size = true, addr, size
	return nil
}

func (b *ownBuffer) detach(a *arguments) error {
	// The buffer is gone afterwards, so wrong addresses must be found before.
	if err := a.setHandle(1, 0); err != nil {
		return err
	}
	if err := a.setInt(2, 0); err != nil {
		return err
	}
	if err := b.flush(a.ctx); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.attached {
		return fail("", errBuffer, "no buffer is attached")
	}
	b.attached = false
	if err := a.setHandle(1, Handle(b.addr)); err != nil {
		return err
	}
	return a.setInt(2, b.size)
}

// flush waits until the messages have left that are in the buffer when it begins.
func (b *ownBuffer) flush(ctx context.Context) error {
	b.mu.Lock()
	out := slices.Clone(b.out)
	b.mu.Unlock()
	for _, m := range out {
		if _, err := m.r.Wait(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// send sends a copy. ok is false if no buffer is attached.
func (b *ownBuffer) send(c *mpi.Comm, buf []byte, dest, tag int) (ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.attached {
		return false, nil
	}
	limit := b.size
	if b.addr == bufferAutomatic {
		limit = math.MaxInt
	}
	used := 0
	b.out = slices.DeleteFunc(b.out, func(m leaving) bool {
		if _, over, _ := m.r.Test(); over {
			return true
		}
		used += m.n
		return false
	})
	need := len(buf) + mpi.BsendOverhead
	if need > limit-used {
		return true, fail("buf", errBuffer, "the message takes %d bytes of the attached buffer, which has %d, and %d are in use", need, b.size, used)
	}
	r, err := mpi.Isend(c, slices.Clone(buf), dest, tag)
	if err == nil {
		b.out = append(b.out, leaving{r, need})
	}
	return true, err
}
