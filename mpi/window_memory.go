package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

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

// The control block of a rank's window. Other ranks change it by atomics alone.
const (
	lockAt      = 0 // the lock of epochs: how many ranks share it, or exclusive and the rank that has it
	updateAt    = 4 // the lock of accumulates without atomics: the rank that holds it and 1, or 0
	controlSize = 8
	exclusive   = 1 << 31
	holderShift = 16 // of the rank in a lock that a rank has alone, up to the bit exclusive
)

// unknown is the holder of a lock that ranks share.
const unknown = -1

// holder is the rank that has a lock alone.
func holder(lock uint64) int {
	if lock&exclusive == 0 {
		return unknown
	}
	return int(lock&(exclusive-1)) >> holderShift
}

// Waits for a lock begin with a few tries, and then sleep from shortest to longest.
const (
	lockTries = 100
	shortest  = 20 * time.Microsecond
	longest   = time.Millisecond
)

// tryUntil tries until it succeeds. try returns which rank is in the way. It fails when that rank is
// gone. If it is unknown it fails when any rank of the communicator is gone: that rank may be it.
func (c *Comm) tryUntil(ctx context.Context, call string, try func() (ok bool, holder int, err error)) error {
	pause := shortest
	for i := 0; ; i++ {
		ok, holder, err := try()
		if ok || err != nil {
			return wrapMemory(call, err)
		}
		others := c.ranks
		if holder >= 0 && holder < len(c.ranks) {
			others = c.ranks[holder : holder+1]
		}
		if err := c.j.e.GroupGone(others); err != nil {
			return wrap(call, err)
		}
		if i < lockTries {
			runtime.Gosched()
			continue
		}
		select {
		case <-ctx.Done():
			return &Error{Call: call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
		case <-time.After(pause):
			pause = min(2*pause, longest)
		}
	}
}

// takeLock takes the lock in a word. The word counts ranks that share it, and has a bit and the rank
// if one has it alone. A rank that would share it counts itself before it looks, and so it is never let
// in beside one that has it alone.
func (c *Comm) takeLock(ctx context.Context, call string, m memory, off int, kind LockType) error {
	steady := context.WithoutCancel(ctx)
	return c.tryUntil(ctx, call, func() (bool, int, error) {
		if kind == LockExclusive {
			was, err := m.compareAndSwap(steady, 4, off, 0, c.alone())
			return err == nil && was == 0, holder(was), err
		}
		was, err := m.add(steady, 4, off, 1)
		if err != nil || was&exclusive == 0 {
			return err == nil, unknown, err
		}
		_, err = m.add(steady, 4, off, 1<<32-1)
		return false, holder(was), err
	})
}

// alone is the lock that this rank has alone.
func (c *Comm) alone() uint64 { return exclusive | uint64(c.rank)<<holderShift }

// giveLock gives a lock back.
func (c *Comm) giveLock(ctx context.Context, call string, m memory, off int, kind LockType) error {
	n := uint64(1)
	if kind == LockExclusive {
		n = c.alone()
	}
	_, err := m.add(context.WithoutCancel(ctx), 4, off, 1<<32-n)
	return wrapMemory(call, err)
}

// wrapMemory names the call of an error of remote memory.
func wrapMemory(call string, err error) error {
	if err == nil {
		return nil
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
