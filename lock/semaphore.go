package lock

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Semaphore has a number of permits, which processes take and give back. One may have several.
//
// Experimental: it may change in any release.
type Semaphore struct {
	*client

	outMu sync.Mutex
	// The numbers of the requests whose permits this process has, or whose return the host may not
	// know yet; nil: the semaphore is closed. Guarded by outMu.
	out map[uint32]struct{}
}

// Permitted is a permit of a semaphore that this process has.
//
// Experimental: it may change in any release.
type Permitted struct {
	s     *Semaphore
	seq   uint32
	state atomic.Uint32
}

// OpenSemaphore opens the semaphore that is hosted under a name. Errors as [Open].
//
// Experimental: it may change in any release.
func OpenSemaphore(ctx context.Context, p *vmmc.Process, name string) (*Semaphore, error) {
	c, err := open(ctx, p, name, kindSemaphore)
	if err != nil {
		return nil, err
	}
	s := &Semaphore{client: c, out: map[uint32]struct{}{}}
	c.inUse = s.has
	return s, nil
}

// Acquire waits for a permit. The permits of a process that dies are given to others when all that
// it sent to the host's process has arrived. Waiters get permits in the order of their requests, as
// of a [Mutex]. Errors as [Mutex.Lock].
//
// Experimental: it may change in any release.
func (s *Semaphore) Acquire(ctx context.Context) (*Permitted, error) {
	if err := s.acquire(ctx, "acquire"); err != nil {
		return nil, err
	}
	return s.obtain(ctx, opRequest)
}

// TryAcquire takes a permit if there is one at once. ok is false also if the host does not know yet
// of one that was just given back, and if another call of this Semaphore is under way. It
// waits at most for the host's answer; errors as [Mutex.Lock].
//
// Experimental: it may change in any release.
func (s *Semaphore) TryAcquire(ctx context.Context) (a *Permitted, ok bool, err error) {
	if ok, err := s.tryAcquire(ctx, "acquire"); !ok {
		return nil, false, err
	}
	a, err = s.obtain(ctx, opTry)
	return a, a != nil, err
}

// obtain requests a permit, and gives the turn on. It returns nil if there is none at once.
func (s *Semaphore) obtain(ctx context.Context, op uint32) (*Permitted, error) {
	v, err := s.request(ctx, op)
	if err != nil {
		return nil, s.callError("acquire", err)
	}
	a := &Permitted{s: s, seq: s.seq}
	closed := v == answerYours && !s.add(a.seq)
	s.turn.Release()
	switch {
	case closed: // Close has given it back
		return nil, closedError(s.op("acquire"))
	case v == answerYours:
		return a, nil
	case v == 0 && op == opTry:
		return nil, nil
	}
	return nil, protocolError(s.op("acquire"), s.lane.Exporter(), "the host answers what is no permit")
}

// has reports whether the host may know this process to have the permit of a request.
func (s *Semaphore) has(seq uint32) bool {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	_, has := s.out[seq]
	return has
}

// add adds a permit, and reports whether it did: after Close there are none.
func (s *Semaphore) add(seq uint32) bool {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	if s.out == nil {
		return false
	}
	s.out[seq] = struct{}{}
	return true
}

// remove removes a permit that the host was told of.
func (s *Semaphore) remove(seq uint32) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	delete(s.out, seq)
}

// removeAll lets no permit be added any more, and reports whether there was one.
func (s *Semaphore) removeAll() bool {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	n := len(s.out)
	s.out = nil
	return n > 0
}

// Lost is closed when the permit is lost, as of [Held.Lost].
//
// Experimental: it may change in any release.
func (a *Permitted) Lost() <-chan struct{} { return a.s.lane.Done() }

// Release gives the permit back, when all that this process has sent has arrived. Errors as
// [Held.Unlock].
//
// Experimental: it may change in any release.
func (a *Permitted) Release(ctx context.Context) error {
	s := a.s
	if err := pair.CheckCall(ctx, s.op("release")); err != nil {
		return err
	}
	if !a.state.CompareAndSwap(holds, unlocking) {
		return badArg(s.op("release"), "this permit was released before")
	}
	if err := s.fence(ctx); err != nil {
		a.state.Store(holds)
		return fmt.Errorf("%s: %w", s.op("release"), err)
	}
	a.state.Store(unlocked)
	pair.At("unlock.fenced")
	if err := s.giveBack(ctx, a.seq, false, s.remove); err != nil {
		return s.callError("release", err)
	}
	return nil
}

// giveBack notifies the host that what it has answered to a request is given back, and then calls
// sent, unless that is nil. If the context ends, a goroutine goes on.
func (c *client) giveBack(ctx context.Context, seq uint32, mark bool, sent func(uint32)) error {
	word := make([]byte, 4)
	binary.NativeEndian.PutUint32(word, opWord(opRelease, seq, mark))
	send := func(ctx context.Context) error {
		err := c.lane.SendNotify(ctx, word, opOff)
		if err == nil && sent != nil {
			sent(seq)
		}
		return err
	}
	err := send(ctx)
	if err == nil {
		pair.At("unlock.released")
	}
	if err == nil || ctx.Err() == nil || c.lane.Err() != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed { // otherwise the host gives back all
		c.wg.Go(func() { _ = send(c.ctx) })
	}
	return nil
}

// Close leaves the semaphore: calls that wait fail with [vmmc.ErrClosed], and the permits of this
// process are given back. Otherwise as [Mutex.Close].
//
// Experimental: it may change in any release.
func (s *Semaphore) Close(ctx context.Context) error {
	return s.closeCall(ctx, s.removeAll)
}
