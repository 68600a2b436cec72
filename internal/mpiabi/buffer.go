package mpiabi

import (
	"context"
	"math"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Point-to-Point Communication": buffers of buffered sends.

func init() {
	register("MPI_Buffer_attach", attachBuffer)
	register("MPI_Buffer_detach", detachBuffer)
	register("MPI_Buffer_flush", func(e *Env, a *arguments) error { return e.flushBuffer(a.ctx) })
	register("MPI_Buffer_iflush", func(e *Env, a *arguments) error {
		if err := a.setHandle(0, requestNull); err != nil {
			return err
		}
		flush := inBackground(func() (mpi.Status, error) { return emptyStatus, e.flushBuffer(e.ctx) })
		return a.setHandle(0, e.handles.add(&request{active: true, parts: []part{flush}}))
	})
}

// sendBuffer is what MPI_Buffer_attach has attached. The memory itself is not used: the library
// copies messages to memory of its own, as much as the program has attached.
type sendBuffer struct {
	mu       sync.RWMutex // Buffered sends hold it for reading.
	attached bool         // Guarded by mu.
	addr     uint64       // Guarded by mu.
	size     int          // Guarded by mu.
}

// limit is how many bytes package mpi may copy, and 0 if the program has attached no memory.
func (b *sendBuffer) limit() int {
	if b.addr == bufferAutomatic {
		return math.MaxInt / 2
	}
	return b.size
}

func attachBuffer(e *Env, a *arguments) error {
	size, err := a.count(1)
	if err != nil {
		return err
	}
	addr := a.Addr(0)
	switch {
	case addr == 0 && size > 0:
		return fail(a.name(0), errBuffer, "it is NULL, and the size is %d", size)
	case addr == inPlace:
		return fail(a.name(0), errBuffer, "it is MPI_IN_PLACE, want memory, or MPI_BUFFER_AUTOMATIC")
	case addr == bufferAutomatic:
		size = 0
	}
	b := &e.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached {
		return fail(a.name(0), errBuffer, "a buffer is attached already: detach it before")
	}
	next := sendBuffer{addr: addr, size: size}
	if n := next.limit(); n > 0 {
		if err := e.world.c.BufferAttach(n); err != nil {
			return err
		}
	}
	b.attached, b.addr, b.size = true, addr, size
	return nil
}

// detachBuffer waits until all messages have left the buffer.
func detachBuffer(e *Env, a *arguments) error {
	// The buffer is gone afterwards, so wrong addresses must be found before.
	if err := a.setHandle(0, 0); err != nil {
		return err
	}
	if err := a.setInt(1, 0); err != nil {
		return err
	}
	b := &e.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.attached {
		return fail("", errBuffer, "no buffer is attached")
	}
	if b.limit() > 0 {
		if _, err := e.world.c.BufferDetach(a.ctx); err != nil {
			return err
		}
	}
	b.attached = false
	if err := a.setHandle(0, Handle(b.addr)); err != nil {
		return err
	}
	return a.setInt(1, b.size)
}

// flushBuffer waits until all messages have left the buffer, which stays.
func (e *Env) flushBuffer(ctx context.Context) error {
	b := &e.buffer
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.attached || b.limit() == 0 {
		return nil
	}
	n, err := e.world.c.BufferDetach(ctx)
	if err != nil {
		return err
	}
	return e.world.c.BufferAttach(n)
}

// bufferedSender sends a copy, so it is over at once. The buffer of the communicator comes first.
func (e *Env) bufferedSender(of *comm) sender {
	return func(c *mpi.Comm, buf []byte, dest, tag int) (*mpi.Request, error) {
		if ok, err := of.buffer.send(c, buf, dest, tag); ok {
			return &mpi.Request{}, err
		}
		for _, s := range e.sessionsOf(of) {
			if ok, err := s.buffer.send(c, buf, dest, tag); ok {
				return &mpi.Request{}, err
			}
		}
		e.buffer.mu.RLock()
		defer e.buffer.mu.RUnlock()
		return &mpi.Request{}, mpi.Bsend(c, buf, dest, tag)
	}
}
