package baseline

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Memory is what two processes share to measure memory itself: for each a region, of the same kind
// as exported memory, that the other one stores into.
type Memory struct{ in, out *shm.Region }

// ShareMemory makes both regions, for messages of size bytes. It returns the files for the one
// process and, in the other order, for the other one. The caller closes them.
func ShareMemory(size int) (one, other []*os.File, err error) {
	for range 2 {
		r, err := shm.New("vmmc-baseline", size+shm.PageSize, false)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(one))
		}
		defer r.Retire()
		if err := r.Seal(false); err != nil {
			return nil, nil, errors.Join(err, closeAll(one))
		}
		fd, err := r.Descriptor()
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(one))
		}
		one = append(one, os.NewFile(uintptr(fd), "limit"))
	}
	return one, []*os.File{one[1], one[0]}, nil
}

func closeAll(fs []*os.File) (err error) {
	for _, f := range fs {
		err = errors.Join(err, f.Close())
	}
	return err
}

// OpenMemory maps regions for messages of size bytes: what this process gets and what it
// stores into. It owns the descriptors from then on.
func OpenMemory(in, out, size int) (*Memory, error) {
	i, err := shm.Open(in, size+shm.PageSize, true)
	if err != nil {
		return nil, err
	}
	o, err := shm.Open(out, size+shm.PageSize, true)
	if err != nil {
		i.Retire()
		return nil, err
	}
	return &Memory{i, o}, nil
}

// Close gives the regions back.
func (m *Memory) Close() {
	m.in.Retire()
	m.out.Retire()
}

// Put is a message at an offset: memmove of all but its last word, then a store of
// that word, v.
func (m *Memory) Put(src []byte, off int, v uint32) {
	dst := m.out.Bytes()[off : off+len(src)]
	if rest := len(src) - shm.WordSize; rest > 0 {
		shm.Copy(dst, src[:rest])
	}
	shm.Word(m.out.Bytes(), off+len(src)-shm.WordSize).Store(v)
}

// Take reads a message of dst's length that the other process may store at offset
// 0: its last word, and then the rest.
func (m *Memory) Take(dst []byte) uint32 {
	v := shm.Word(m.out.Bytes(), len(dst)-shm.WordSize).Load()
	shm.Copy(dst, m.out.Bytes()[:len(dst)])
	return v
}

// Await waits until the last word of a message of size bytes at offset 0 is v.
func (m *Memory) Await(ctx context.Context, size int, v uint32) error {
	return spin(ctx, shm.Word(m.in.Bytes(), size-shm.WordSize), v)
}

// Moved waits until the last word of a message of size bytes at offset 0 is not old
// any more, and returns it: that of the latest of those that have come.
func (m *Memory) Moved(ctx context.Context, size int, old uint32) (uint32, error) {
	w := shm.Word(m.in.Bytes(), size-shm.WordSize)
	have := old
	err := spinUntil(ctx, func() bool { have = w.Load(); return have != old })
	return have, err
}

// Wake wakes the other process where it sleeps for the message of size bytes.
func (m *Memory) Wake(size int) { unix.Rouse(shm.Word(m.out.Bytes(), size-shm.WordSize)) }

// Sleep is Await in a futex.
func (m *Memory) Sleep(ctx context.Context, size int, v uint32) error {
	w := shm.Word(m.in.Bytes(), size-shm.WordSize)
	for start := time.Now(); ; {
		have := w.Load()
		if have == v {
			return nil
		}
		if err := unix.SleepOn(w, have, 100*time.Millisecond); err != nil {
			return err
		}
		if time.Since(start) > maxWait {
			return errNoAnswer
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Look is Await with a call before each look.
func (m *Memory) Look(ctx context.Context, size int, v uint32, before func()) error {
	w := shm.Word(m.in.Bytes(), size-shm.WordSize)
	return spinUntil(ctx, func() bool {
		before()
		return w.Load() == v
	})
}

// In returns the region that the other process stores into.
func (m *Memory) In() []byte { return m.in.Bytes() }

// Reached is Await where the other process may be one message ahead.
func (m *Memory) Reached(ctx context.Context, size int, v uint32) error {
	w := shm.Word(m.in.Bytes(), size-shm.WordSize)
	return spinUntil(ctx, func() bool { have := w.Load(); return have == v || have == v+1 })
}

// Ping sends n messages of src's size to an offset, whose last words are first and on, waits for
// each answer, and reports each one way's time, half the round trip's.
func (m *Memory) Ping(
	ctx context.Context, src []byte, off int, first uint32, n int, each func(time.Duration),
) error {
	a, clock := m.at(src, off), NewClock()
	for v := first; v != first+uint32(n); v++ {
		start := clock.Now()
		a.put(v)
		if err := spin(ctx, a.in, v); err != nil {
			return err
		}
		each(clock.Since(start) / 2)
	}
	return nil
}

// Pong is the other side of Ping.
func (m *Memory) Pong(ctx context.Context, src []byte, off int, first uint32, n int) error {
	a := m.at(src, off)
	for v := first; v != first+uint32(n); v++ {
		if err := spin(ctx, a.in, v); err != nil {
			return err
		}
		a.put(v)
	}
	return nil
}

// exchange is messages of one size that are sent there and back. What is the same for all of them
// is computed once, as in the C programs beside which this baseline stands.
type exchange struct {
	src, dst []byte // all but the last word
	out, in  *atomic.Uint32
}

func (m *Memory) at(src []byte, off int) *exchange {
	last := off + len(src) - shm.WordSize
	return &exchange{src[:len(src)-shm.WordSize], m.out.Bytes()[off:last], shm.Word(m.out.Bytes(), last), shm.Word(m.in.Bytes(), last)}
}

func (e *exchange) put(v uint32) {
	if len(e.src) > 0 {
		shm.Copy(e.dst, e.src)
	}
	e.out.Store(v)
}
