package lock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Mutex is a mutual exclusion lock among processes, and the goroutines that share this value.
//
// Experimental: it may change in any release.
type Mutex struct {
	*client
	// Guarded by client.turn: the lease in the lane, which is idle, or 0; the number of the request
	// that it was granted.
	lease    uint64
	leaseSeq uint32

	// current is the lease by which this process has the lock, 0, or closedLease. It decides between
	// Close and a lock that is just being taken.
	current atomic.Uint64
}

const closedLease = 1<<64 - 1

// Held is a lock that this process has.
//
// Experimental: it may change in any release.
type Held struct {
	m        *Mutex
	lease    uint64
	state    atomic.Uint32
	repaired atomic.Bool
}

// The states of a Held.
const (
	holds = iota
	unlocking
	unlocked
)

// Open opens the mutex that is hosted under a name, see [vmmc.Process.ImportName]: it waits for the
// name as long as the context allows. The host itself may open it, too. Errors: [vmmc.ErrBadArg] if
// the name is not a mutex's; [vmmc.ErrNoMem] if the host has no memory for another client, or has
// as many as it may; those of ImportName and [vmmc.Process.Export]. It may return up to a second
// after its context has ended.
//
// Experimental: it may change in any release.
func Open(ctx context.Context, p *vmmc.Process, name string) (*Mutex, error) {
	c, err := open(ctx, p, name, kindMutex)
	if err != nil {
		return nil, err
	}
	return &Mutex{client: c}, nil
}

// Lock waits for the lock. Errors: [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context ends;
// [vmmc.ErrPeerGone] when the host is gone, and [vmmc.ErrRevoked] when it has closed the mutex;
// [vmmc.ErrProtocol], [vmmc.ErrClosed], [vmmc.ErrNotInHandler]. After an error this process does
// not have the lock, and no other one waits for it.
//
// Experimental: it may change in any release.
func (m *Mutex) Lock(ctx context.Context) (h *Held, err error) {
	v, err := m.lock(ctx)
	if v != 0 {
		h = &Held{m: m, lease: v} // inlined: it stays on the caller's stack
	}
	return h, err
}

// TryLock takes the lock if it is free. ok is false if another process has it or waits for it, or
// has given it back just now, so that the host does not know yet; or if another call of this Mutex
// is under way. It waits at most for the host's answer, without a lease;
// errors as [Mutex.Lock].
//
// Experimental: it may change in any release.
func (m *Mutex) TryLock(ctx context.Context) (h *Held, ok bool, err error) {
	v, err := m.tryLock(ctx)
	if v != 0 {
		h = &Held{m: m, lease: v} // as in Lock
	}
	return h, v != 0, err
}

func (m *Mutex) lock(ctx context.Context) (uint64, error) {
	if err := m.acquire(ctx, "lock"); err != nil {
		return 0, err
	}
	return m.obtain(ctx, opRequest)
}

func (m *Mutex) tryLock(ctx context.Context) (uint64, error) {
	if ok, err := m.tryAcquire(ctx, "lock"); !ok {
		return 0, err
	}
	return m.obtain(ctx, opTry)
}

// obtain takes the lock: by the lease, or from the host. It gives the turn on unless it has the
// lock then.
func (m *Mutex) obtain(ctx context.Context, op uint32) (v uint64, err error) {
	if m.isClosed() {
		m.turn.Release()
		return 0, closedError(m.op("lock"))
	}
	if m.lease != 0 && m.lease&countMask != countMask { // else the host gives another one
		if v, err = m.byLease(ctx); err != nil {
			return 0, m.callError("lock", err)
		}
	}
	if v == 0 {
		m.lease = 0
		if v, err = m.request(ctx, op); err != nil {
			return 0, m.callError("lock", err)
		}
		m.leaseSeq = m.seq
		switch {
		case v == 0 && op == opTry:
			m.turn.Release()
			return 0, nil
		case v>>epochShift == 0 || v&held == 0:
			m.turn.Release()
			return 0, protocolError(m.op("lock"), m.lane.Exporter(), "the host grants what is no lease")
		}
	}
	if !m.current.CompareAndSwap(0, v) { // Close tells the host that this process does not have it
		m.turn.Release()
		return 0, closedError(m.op("lock"))
	}
	return v, nil
}

// byLease takes the lock by the lease, and returns 0 if the host has recalled that. It gives the
// turn on if there is an error.
func (m *Mutex) byLease(ctx context.Context) (uint64, error) {
	idle := m.lease
	v := idle + oneLock | held
	pair.At("lock.lease")
	prev, ok, err := m.lane.CompareAndSwap64(ctx, leaseOff, idle, v)
	switch {
	case ok:
		pair.At("lock.taken")
		m.lease = 0
		return v, nil
	case err == nil && prev == 0:
		return 0, nil
	case err == nil:
		err = m.falseLease()
	default:
		if o, pending := vmmc.OutcomeOf(err); pending {
			m.finishLater(func(ctx context.Context) error {
				prev, err := o.Wait(ctx)
				if err == nil && prev == idle {
					err = m.putBack(ctx, v, v&^held)
				}
				return err
			})
			return 0, err
		}
	}
	m.turn.Release()
	return 0, err
}

func (m *Mutex) falseLease() error {
	return protocolError("use the lease", m.lane.Exporter(), "the host has changed it")
}

// putBack gives the lock back: it makes the lease idle, or if others wait for it, notifies the
// host.
func (m *Mutex) putBack(ctx context.Context, v, idle uint64) error {
	if v&recalled == 0 {
		prev, ok, err := m.lane.CompareAndSwap64(ctx, leaseOff, v, idle)
		switch {
		case ok:
			m.lease = idle
			pair.At("unlock.returned")
			return nil
		case err != nil:
			if o, pending := vmmc.OutcomeOf(err); pending {
				return &givenUp{o, err}
			}
			return err
		case prev != 0:
			return m.falseLease()
		}
	}
	return m.tellRelease(ctx, idle)
}

// givenUp is a compare-and-swap whose context has ended.
type givenUp struct {
	outcome *vmmc.Outcome
	err     error
}

func (g *givenUp) Error() string { return g.err.Error() }
func (g *givenUp) Unwrap() error { return g.err }

func (m *Mutex) tellRelease(ctx context.Context, idle uint64) error {
	m.lease = 0
	pair.At("unlock.recalled")
	err := m.notify(ctx, opRelease, m.leaseSeq, idle&died != 0)
	if err == nil {
		pair.At("unlock.released")
	}
	return err
}

// Close leaves the mutex: calls that wait fail with [vmmc.ErrClosed]. If this process has the lock,
// the next holder finds [Held.Abandoned]. If the context ends before the host knows, Close returns
// its error, and may be called again; otherwise a second call does nothing. After another error of
// [vmmc.Import.SendNotify] this process has left, and the host, which lives, may not know of it: it
// keeps what this process has until the process ends. Other errors: those of [vmmc.Export.Close],
// [vmmc.ErrNotInHandler].
//
// Experimental: it may change in any release.
func (m *Mutex) Close(ctx context.Context) error {
	return m.closeCall(ctx, func() bool { return m.current.Swap(closedLease) != 0 })
}

// Token is a number that is higher with each holder of this host's mutex, see [After]. What the
// lock protects elsewhere than in the host's memory should remember the highest one that it has
// seen, and refuse lower ones: data of a holder that has died may arrive there after the next one
// has the lock.
//
// Experimental: it may change in any release.
func (h *Held) Token() uint64 { return h.lease >> tokenShift }

// Abandoned reports whether an earlier holder died while it had the lock, or left with it, so that
// what the lock protects may be half changed. It does so for each holder until one has called
// [Held.Repaired] and unlocks. It may also be set if a process died just before it had the lock, or
// just after its Unlock while others waited.
//
// Experimental: it may change in any release.
func (h *Held) Abandoned() bool { return h.lease&died != 0 && !h.repaired.Load() }

// Repaired says that what the lock protects is whole again: after Unlock the next holders do not
// find Abandoned any more. If this one dies before, they do.
//
// Experimental: it may change in any release.
func (h *Held) Repaired() { h.repaired.Store(true) }

// Lost is closed when the lock is lost: its host is gone or has closed it, or this Mutex was
// closed. Then another process may get the lock of a new host. It may be closed a few seconds after
// calls have begun to fail; and a process that is stopped, or does not look, finds out later. So
// give tokens to what the lock protects.
//
// Experimental: it may change in any release.
func (h *Held) Lost() <-chan struct{} { return h.m.lane.Done() }

// Unlock gives the lock back, when all that this process has sent has arrived, to any process
// ([vmmc.Process.Fence]; [vmmc.Binding.Flush] is the caller's affair). What was sent over a link
// that has failed may be lost. Errors: [vmmc.ErrTimeout] and [vmmc.ErrCanceled] when the context
// ends before that, and this process still has the lock; [vmmc.ErrPeerGone] and [vmmc.ErrRevoked]
// when the lock is lost; [vmmc.ErrBadArg] if it was unlocked before; [vmmc.ErrProtocol],
// [vmmc.ErrClosed], [vmmc.ErrNotInHandler].
//
// Experimental: it may change in any release.
func (h *Held) Unlock(ctx context.Context) error {
	m := h.m
	if ctx == nil || vmmc.InHandler() {
		return pair.CheckCall(ctx, m.op("unlock"))
	}
	if !h.state.CompareAndSwap(holds, unlocking) {
		return badArg(m.op("unlock"), "this holder has unlocked it before")
	}
	if err := m.fence(ctx); err != nil {
		h.state.Store(holds)
		return fmt.Errorf("%s: %w", m.op("unlock"), err)
	}
	h.state.Store(unlocked)
	idle := h.lease &^ (held | recalled)
	if h.repaired.Load() {
		idle &^= died
	}
	return m.unlock(ctx, h.lease, idle)
}

// unlock gives back a lock whose holder has fenced, and the turn.
func (m *Mutex) unlock(ctx context.Context, v, idle uint64) error {
	pair.At("unlock.fenced")
	closed := !m.current.CompareAndSwap(v, 0)
	if closed { // Close gives it back, with a mark
		m.turn.Release()
		return closedError(m.op("unlock"))
	}
	err := m.putBack(ctx, v, idle)
	switch {
	case err == nil:
		m.turn.Release()
		return nil
	case ctx.Err() == nil || m.lane.Err() != nil:
		m.turn.Release()
		return fmt.Errorf("%s: %w", m.op("unlock"), err)
	}
	m.finishLater(func(ctx context.Context) error { return m.finishUnlock(ctx, err, v, idle) })
	return nil
}

// finishUnlock goes on with an unlock whose context has ended.
func (m *Mutex) finishUnlock(ctx context.Context, err error, v, idle uint64) error {
	if g := (*givenUp)(nil); errors.As(err, &g) {
		prev, err := g.outcome.Wait(ctx)
		switch {
		case err != nil:
			return err
		case prev == v:
			m.lease = idle
			return nil
		}
		return m.tellRelease(ctx, idle)
	}
	return m.putBack(ctx, v, idle)
}
