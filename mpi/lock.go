package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// memoryLock is a lock that lies in one rank's memory, and that ranks take by atomics, without the help of
// that rank. Ranks that cannot have it wait in a queue. A waiter polls nothing: the rank that gives the
// lock back sends the next waiters an empty message.
//
//	take:  has it at once if no rank has it or waits for it
//	       otherwise: ticket, slot, counted as a waiter, and then
//	       evaluate -> takes it: no longer counted
//	                -> a rank that has it is gone: no longer counted, ErrProcFailed
//	                -> waits for a message or for a rank's end, and evaluates again
//	give:  not its holder any more; if ranks wait: wakes the first one, and sharers up to the first
//	       waiter that wants it alone
//
// A waiter is counted before it evaluates, so a rank that gives the lock back after the evaluation finds
// its slot. A rank that stops waiting wakes the next one as give does. Nothing depends on a rank that has
// ended: each waiter evaluates again when a rank ends, and does not count what that rank waited for.
//
// The slots say which ranks share the lock, so that a waiter fails only if a rank that is gone shares it.
// A rank marks its slot before it is counted as a sharer, and clears it afterwards. If more ranks share
// the lock than live ones are marked, a rank that is gone is one of them.
type memoryLock struct {
	c   *Comm // its messages wake waiters
	m   memory
	off int
	tag int // of messages that wake waiters of this lock
	// own has a value while this rank has the lock or waits for it: its calls take turns.
	own chan struct{}
}

// The layout of a lock. Its first 8 bytes are the state: how many ranks wait, above how many ranks share
// it, or the bit exclusive and the rank that has it.
const (
	lockTicketAt = 8  // the next waiter's ticket
	lockSlotsAt  = 16 // a word for each rank: ticket and slot state
	oneWaiter    = 1 << 32
	exclusive    = 1 << 31
	holderShift  = 16 // of the rank in a lock that a rank has alone, up to the bit exclusive
	sharersMask  = 1<<holderShift - 1
)

// slotState is what a rank does with a lock.
type slotState uint32

const (
	slotFree   slotState = iota
	slotShares           // it is about to share the lock, shares it, or has just given it back
	slotWaitsAlone
	slotWaitsShared
	slotTakesShared // it waits, and tries to share the lock
)

// slotBits is how many bits of a slot its state takes.
const slotBits = 3

// lockSize is how many bytes a lock of n ranks takes.
func lockSize(n int) int { return lockSlotsAt + (4*n+7)/8*8 }

func newMemoryLock(c *Comm, m memory, off, tag int) *memoryLock {
	return &memoryLock{c: c, m: m, off: off, tag: tag, own: make(chan struct{}, 1)}
}

// alone is the state of a lock that this rank has alone.
func (l *memoryLock) alone() uint64 { return exclusive | uint64(l.c.rank)<<holderShift }

// holder is the rank that has a lock alone.
func holder(state uint64) int { return int(state&(exclusive-1)) >> holderShift }

// change adds to the state of the lock, and returns the new one. It does not end with a context: no rank
// would know then whether it has changed it.
func (l *memoryLock) change(delta uint64) (uint64, error) {
	was, err := l.m.add(context.Background(), 8, l.off, delta)
	return was + delta, err
}

func (l *memoryLock) mark(ticket uint32, s slotState) error {
	return l.m.store(context.Background(), l.off+lockSlotsAt+4*l.c.rank, ticket<<slotBits|uint32(s))
}

// take takes the lock. [ErrProcFailed]: a rank that has it is gone, or the one in whose memory it lies.
func (l *memoryLock) take(ctx context.Context, call string, kind LockType) error {
	select {
	case l.own <- struct{}{}:
	default:
		select {
		case l.own <- struct{}{}:
		case <-ctx.Done():
			return &Error{Call: call, Arg: "ctx", Class: ErrCanceled, Err: context.Cause(ctx)}
		}
	}
	ok, err := l.takeFree(kind)
	if err == nil && !ok {
		if err = l.wait(ctx, call, kind); err == nil {
			return nil
		}
	}
	if err != nil {
		<-l.own
	}
	return wrapMemory(call, err)
}

// takeFree takes a lock that no rank waits for.
func (l *memoryLock) takeFree(kind LockType) (bool, error) {
	if kind == LockExclusive {
		was, err := l.m.compareAndSwap(context.Background(), 8, l.off, 0, l.alone())
		return err == nil && was == 0, err
	}
	if err := l.mark(0, slotShares); err != nil {
		return false, err
	}
	now, err := l.change(1)
	if err != nil || now < oneWaiter && now&exclusive == 0 {
		return err == nil, err
	}
	// While it was counted, a waiter may have found the lock shared.
	return false, l.leave(1)
}

// leave takes delta off the state, frees this rank's slot, and wakes those that can have the lock now.
func (l *memoryLock) leave(delta uint64) error {
	now, err := l.change(-delta)
	if err != nil {
		return err
	}
	if err := l.mark(0, slotFree); err != nil || now < oneWaiter {
		return err
	}
	return l.wake()
}

// give gives the lock back.
func (l *memoryLock) give(call string, kind LockType) error {
	defer func() { <-l.own }()
	if kind == LockShared {
		return wrapMemory(call, l.leave(1))
	}
	now, err := l.change(-l.alone()) // its slot is free
	if err == nil && now >= oneWaiter {
		err = l.wake()
	}
	return wrapMemory(call, err)
}

// waiter is a slot of the queue.
type waiter struct {
	rank   int
	ticket uint32
	state  slotState
}

func (w waiter) waits() bool { return w.state >= slotWaitsAlone }

// older reports whether a waiter came before another one. Tickets wrap around.
func (w waiter) older(than uint32) bool { return int32((w.ticket-than)<<slotBits) < 0 }

// slots reads the slots that are not free, and which of the ranks are gone.
func (l *memoryLock) slots() (all []waiter, gone []int, err error) {
	gone = l.c.j.e.Failed(l.c.ranks)
	b := make([]byte, 4*len(l.c.ranks))
	if err := l.m.load(context.Background(), b, l.off+lockSlotsAt); err != nil {
		return nil, nil, err
	}
	for rank := range l.c.ranks {
		v := binary.NativeEndian.Uint32(b[4*rank:])
		if s := slotState(v & (1<<slotBits - 1)); s != slotFree {
			all = append(all, waiter{rank, v >> slotBits, s})
		}
	}
	return all, gone, nil
}

// lives reports whether a rank is not among those that are gone.
func (l *memoryLock) lives(w waiter, gone []int) bool {
	return !slices.Contains(gone, l.c.ranks[w.rank])
}

// wake sends a message to the first waiter that lives, and to the sharers behind a first one that shares.
func (l *memoryLock) wake() error {
	all, gone, err := l.slots()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(w waiter) bool {
		return !w.waits() || w.rank == l.c.rank || !l.lives(w, gone)
	})
	slices.SortFunc(all, func(a, b waiter) int {
		if a.older(b.ticket) {
			return -1
		}
		return 1
	})
	woken := false
	for _, w := range all {
		if woken && w.state == slotWaitsAlone {
			break
		}
		t := engine.Target{Context: l.c.id, Rank: l.c.ranks[w.rank], Source: l.c.rank, Tag: l.tag, Group: l.c.ranks}
		// Without data it needs no credit, and waits for nothing but room in the ring. One that is gone
		// needs no message: its end wakes all others.
		if _, err := l.c.j.e.Isend(&t, nil, engine.Standard); err == nil {
			if w.state == slotWaitsAlone {
				break
			}
			woken = true
		}
	}
	return nil
}

// wait queues this rank, and returns when it has the lock.
func (l *memoryLock) wait(ctx context.Context, call string, kind LockType) (err error) {
	was, err := l.m.add(context.Background(), 4, l.off+lockTicketAt, 1)
	if err != nil {
		return err
	}
	ticket := uint32(was)
	state := slotWaitsAlone
	if kind == LockShared {
		state = slotWaitsShared
	}
	if err := l.mark(ticket, state); err != nil {
		return err
	}
	now, err := l.change(oneWaiter)
	for err == nil {
		var v evaluation
		if v, err = l.evaluate(call, ticket, kind, now); v.has || err != nil {
			break
		}
		if err = l.sleep(ctx, call, v); err == nil {
			now, err = l.change(0)
		}
	}
	if err != nil {
		_ = l.giveUp() // the first error says why
	}
	return err
}

// giveUp ends the wait of this rank. It frees the slot first: a rank that is counted later must not wait
// for this one.
func (l *memoryLock) giveUp() error {
	if err := l.mark(0, slotFree); err != nil {
		return err
	}
	now, err := l.change(^uint64(oneWaiter - 1))
	if err != nil || now < oneWaiter {
		return err
	}
	return l.wake()
}

// evaluation is what a waiter has found.
type evaluation struct {
	has  bool  // the lock
	gone []int // ranks in the job, whose end it has considered
	// unsure reports whether a rank that is gone may share the lock: marks of others are changing.
	unsure bool
}

// sleep returns when another rank wakes this one, or when one has ended.
func (l *memoryLock) sleep(ctx context.Context, call string, v evaluation) error {
	s := engine.Source{
		Context: l.c.id, Rank: AnySource, Source: AnySource, Tag: l.tag, Group: l.c.ranks, Acked: v.gone,
	}
	wait := ctx
	if v.unsure {
		var stop context.CancelFunc
		wait, stop = context.WithTimeout(ctx, time.Millisecond)
		defer stop()
	}
	_, err := l.c.j.e.Recv(wait, &s, nil)
	err = wrap(call, err)
	if errors.Is(err, ErrProcFailed) || v.unsure && ctx.Err() == nil && errors.Is(err, ErrCanceled) {
		return nil
	}
	return err
}

// evaluate takes the lock if this rank is the next one, or fails if it can never have it. now is the state
// at some time after this rank was counted as a waiter.
func (l *memoryLock) evaluate(call string, ticket uint32, kind LockType, now uint64) (v evaluation, err error) {
	all, gone, err := l.slots()
	if err != nil {
		return v, err
	}
	v.gone = gone
	sharers, lost, behind := uint64(0), -1, false
	for _, w := range all {
		lives := l.lives(w, gone)
		switch shares := w.state == slotShares || w.state == slotTakesShared; {
		case shares && lives:
			sharers++
		case shares:
			lost = w.rank
		}
		behind = behind || lives && w.waits() && w.rank != l.c.rank && w.older(ticket) &&
			(kind == LockExclusive || w.state == slotWaitsAlone)
	}
	switch {
	case now&exclusive != 0:
		lost = holder(now)
		if lost >= len(l.c.ranks) || !slices.Contains(gone, l.c.ranks[lost]) {
			return v, nil
		}
	case now&sharersMask == 0 || kind == LockShared:
		if !behind {
			v.has, err = l.takeNext(ticket, kind, now)
		}
		return v, err
	case lost < 0 || now&sharersMask <= sharers:
		v.unsure = lost >= 0
		return v, nil
	}
	return v, fail(call, "target", ErrProcFailed, "rank %d of %s is gone, and had the lock: the memory cannot be locked any more",
		lost, l.c.Name())
}

// takeNext takes the lock for a waiter, unless another rank takes it alone first.
func (l *memoryLock) takeNext(ticket uint32, kind LockType, now uint64) (bool, error) {
	held, blocked := l.alone(), uint64(exclusive|sharersMask)
	after := slotFree
	if kind == LockShared {
		held, blocked, after = 1, exclusive, slotShares
		if err := l.mark(ticket, slotTakesShared); err != nil {
			return false, err
		}
	}
	for now&blocked == 0 {
		was, err := l.m.compareAndSwap(context.Background(), 8, l.off, now, now-oneWaiter+held)
		if err != nil {
			return false, err
		}
		if was == now {
			return true, l.mark(0, after)
		}
		now = was
	}
	if kind == LockShared {
		return false, l.mark(ticket, slotWaitsShared)
	}
	return false, nil
}

// drainWakes takes messages to waiters that needed none any more: they would keep memory.
func (c *Comm) drainWakes() {
	s := engine.Source{Context: c.id, Rank: AnySource, Source: AnySource, Tag: AnyTag, Group: c.ranks}
	for {
		s.Acked = c.j.e.Failed(c.ranks)
		if _, _, ok, err := c.j.e.Iprobe(&s, false); !ok || err != nil {
			return
		}
		if _, err := c.j.e.Recv(context.Background(), &s, nil); err != nil {
			return
		}
	}
}
