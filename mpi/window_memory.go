package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// memory is a buffer of a rank's window: another rank's, which is remote memory, or this rank's
// own. Offsets are in bytes. Words are changed atomically, whichever rank changes them.
type memory interface {
	put(ctx context.Context, b []byte, off int) error
	get(ctx context.Context, b []byte, off int) error
	// add adds to a word of 4 or 8 bytes, swap stores one, and compareAndSwap stores one if the word
	// is old. They return what was there.
	add(ctx context.Context, size, off int, delta uint64) (uint64, error)
	swap(ctx context.Context, size, off int, v uint64) (uint64, error)
	compareAndSwap(ctx context.Context, size, off int, old, v uint64) (uint64, error)
	// store stores a word of 4 bytes, in the order of calls. load reads words, each as one.
	store(ctx context.Context, off int, v uint32) error
	load(ctx context.Context, b []byte, off int) error
	// fence returns when all puts are in place.
	fence(ctx context.Context) error
	close() error
}

// ownMemory is memory of this rank.
type ownMemory []byte

func (m ownMemory) put(_ context.Context, b []byte, off int) error {
	copy(m[off:], b)
	return nil
}

func (m ownMemory) get(_ context.Context, b []byte, off int) error {
	copy(b, m[off:])
	return nil
}

func (m ownMemory) add(_ context.Context, size, off int, delta uint64) (uint64, error) {
	if size == 4 {
		return uint64(shm.Word(m, off).Add(uint32(delta)) - uint32(delta)), nil
	}
	return shm.Word64(m, off).Add(delta) - delta, nil
}

func (m ownMemory) swap(_ context.Context, size, off int, v uint64) (uint64, error) {
	if size == 4 {
		return uint64(shm.Word(m, off).Swap(uint32(v))), nil
	}
	return shm.Word64(m, off).Swap(v), nil
}

func (m ownMemory) compareAndSwap(_ context.Context, size, off int, old, v uint64) (uint64, error) {
	for {
		var now uint64
		if size == 4 {
			now = uint64(shm.Word(m, off).Load())
		} else {
			now = shm.Word64(m, off).Load()
		}
		if now != old {
			return now, nil
		}
		if size == 4 && shm.Word(m, off).CompareAndSwap(uint32(old), uint32(v)) ||
			size == 8 && shm.Word64(m, off).CompareAndSwap(old, v) {
			return old, nil
		}
	}
}

func (m ownMemory) store(_ context.Context, off int, v uint32) error {
	shm.Word(m, off).Store(v)
	return nil
}

func (m ownMemory) load(_ context.Context, b []byte, off int) error {
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], shm.Word(m, off+i).Load())
	}
	return nil
}

func (m ownMemory) fence(context.Context) error { return nil }
func (m ownMemory) close() error                { return nil }

// farMemory is memory of another rank.
type farMemory struct{ im *vmmc.Import }

func (m farMemory) put(ctx context.Context, b []byte, off int) error {
	if len(b) == 0 {
		return nil
	}
	if len(b)%4 == 0 && off%4 == 0 {
		return m.im.Send(ctx, b, off)
	}
	_, err := m.im.WriteAtContext(ctx, b, off)
	return err
}

func (m farMemory) get(ctx context.Context, b []byte, off int) error {
	if len(b) == 0 {
		return nil
	}
	if len(b)%4 == 0 && off%4 == 0 {
		return m.im.Get(ctx, b, off)
	}
	_, err := m.im.ReadAtContext(ctx, b, off)
	return err
}

func (m farMemory) add(ctx context.Context, size, off int, delta uint64) (uint64, error) {
	if size == 4 {
		v, err := m.im.FetchAdd32(ctx, off, uint32(delta))
		return uint64(v), err
	}
	return m.im.FetchAdd64(ctx, off, delta)
}

func (m farMemory) swap(ctx context.Context, size, off int, v uint64) (uint64, error) {
	if size == 4 {
		old, err := m.im.Swap32(ctx, off, uint32(v))
		return uint64(old), err
	}
	return m.im.Swap64(ctx, off, v)
}

func (m farMemory) compareAndSwap(ctx context.Context, size, off int, old, v uint64) (uint64, error) {
	if size == 4 {
		prev, _, err := m.im.CompareAndSwap32(ctx, off, uint32(old), uint32(v))
		return uint64(prev), err
	}
	prev, _, err := m.im.CompareAndSwap64(ctx, off, old, v)
	return prev, err
}

func (m farMemory) store(ctx context.Context, off int, v uint32) error {
	b := make([]byte, 4)
	binary.NativeEndian.PutUint32(b, v)
	return m.im.Send(ctx, b, off)
}

func (m farMemory) load(ctx context.Context, b []byte, off int) error { return m.im.Get(ctx, b, off) }

func (m farMemory) fence(ctx context.Context) error { return m.im.Fence(ctx) }
func (m farMemory) close() error                    { return m.im.Close() }

// word is the value of 4 or 8 bytes.
func word(b []byte) uint64 {
	if len(b) == 4 {
		return uint64(binary.NativeEndian.Uint32(b))
	}
	return binary.NativeEndian.Uint64(b)
}

func putWord(b []byte, v uint64) {
	if len(b) == 4 {
		binary.NativeEndian.PutUint32(b, uint32(v))
	} else {
		binary.NativeEndian.PutUint64(b, v)
	}
}

// The control block of a rank's window has two locks: that of epochs, and that of accumulates without
// atomics. Other ranks change it by atomics, and by words of their own.
func controlSize(ranks int) int { return 2 * lockSize(ranks) }

// wrapMemory names the call of an error of remote memory.
func wrapMemory(call string, err error) error {
	var named *Error
	if err == nil || errors.As(err, &named) {
		return err
	}
	class := ErrOther
	switch {
	case errors.Is(err, vmmc.ErrPeerGone), errors.Is(err, vmmc.ErrRevoked), errors.Is(err, vmmc.ErrNoSuchProcess):
		class = ErrProcFailed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, vmmc.ErrTimeout), errors.Is(err, vmmc.ErrCanceled):
		class = ErrCanceled
	}
	return &Error{Call: call, Class: class, Err: err}
}

// far is a rank's window as this rank sees it.
type far struct {
	data, control memory
	values        int
	// Those of epochs, and of accumulates without atomics.
	epoch, updates *memoryLock

	mu   sync.Mutex
	open int           // requests and accumulates that are under way. Guarded by mu.
	idle chan struct{} // closed when open becomes 0; nil without a waiter. Guarded by mu.
	// last is closed when the last accumulate that was begun is over. Guarded by mu.
	last chan struct{}
}

// begin counts a call that is under way. ordered ones take place in the order of begin: each waits
// for before first.
func (f *far) begin(ordered bool) (before <-chan struct{}, end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	var mine chan struct{}
	if ordered {
		before, mine = f.last, make(chan struct{})
		f.last = mine
	}
	return before, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open--; f.open == 0 && f.idle != nil {
			close(f.idle)
			f.idle = nil
		}
		if mine != nil {
			close(mine)
		}
	}
}

// turn begins an ordered call, and waits for those that were begun before. If the context ends first,
// later calls still wait for these.
func (f *far) turn(ctx context.Context, call string) (func(), error) {
	before, end := f.begin(true)
	if before == nil {
		return end, nil
	}
	if err := await(ctx, call, before); err != nil {
		go func() {
			<-before
			end()
		}()
		return nil, err
	}
	return end, nil
}

// settle returns when all that was begun is over, and all puts are in place.
func (f *far) settle(ctx context.Context, call string) error {
	if err := f.drain(ctx, call); err != nil {
		return err
	}
	return wrapMemory(call, f.data.fence(ctx))
}

// drain returns when all that was begun is over.
func (f *far) drain(ctx context.Context, call string) error {
	f.mu.Lock()
	var idle chan struct{}
	if f.open > 0 {
		if f.idle == nil {
			f.idle = make(chan struct{})
		}
		idle = f.idle
	}
	f.mu.Unlock()
	if idle == nil {
		return nil
	}
	return await(ctx, call, idle)
}

// await waits until a channel is closed.
func await(ctx context.Context, call string, over <-chan struct{}) error {
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return &Error{Call: call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
	}
}
