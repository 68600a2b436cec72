package lock

import (
	"context"
	"fmt"
	"math"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Answers of a semaphore and a Once, beside 0: there is none at once.
const (
	answerYours = 1 // a permit; or the client is to run the function
	answerDone  = 2 // the function has run
)

// HostSemaphore makes a semaphore with a number of permits and publishes it under a name, see
// [Host]; [OpenSemaphore] finds it there. [After] is refused: permits have no tokens.
//
// Experimental: it may change in any release.
func HostSemaphore(
	ctx context.Context, p *vmmc.Process, name string, permits int, opts ...Option,
) (*Server, error) {
	if permits < 1 || permits > math.MaxInt32 {
		op := fmt.Sprintf("host semaphore %q", name)
		return nil, badArg(op, "%d permits: at least 1, and at most 2^31-1", permits)
	}
	return host(ctx, p, name, kindSemaphore, opts, func(s *Server) arbiter {
		return &semaphoreHost{s: s, free: permits, out: map[*lane]map[uint32]struct{}{}}
	})
}

// semaphoreHost is the arbiter of a semaphore.
type semaphoreHost struct {
	s       *Server
	free    int
	waiting requests
	out     map[*lane]map[uint32]struct{} // the permits that a client has, by its requests
}

func (m *semaphoreHost) request(l *lane, seq uint32, try bool) {
	_, has := m.out[l][seq]
	switch {
	case has || m.waiting.has(l): // of a false client
	case try && m.free == 0:
		m.s.answer(l, seq, 0)
	default:
		m.waiting = append(m.waiting, request{l, seq})
		m.pump()
	}
}

// pump gives permits to those that wait.
func (m *semaphoreHost) pump() {
	for m.free > 0 && len(m.waiting) > 0 {
		r := m.waiting.next()
		m.free--
		if m.out[r.l] == nil {
			m.out[r.l] = map[uint32]struct{}{}
		}
		m.out[r.l][r.seq] = struct{}{}
		m.s.answer(r.l, r.seq, answerYours)
	}
}

func (m *semaphoreHost) withdraw(l *lane, seq uint32) {
	if !m.waiting.remove(l, seq) {
		m.release(l, seq, false) // its grant has crossed the withdrawal
	}
}

func (m *semaphoreHost) release(l *lane, seq uint32, _ bool) {
	if _, has := m.out[l][seq]; !has {
		return
	}
	delete(m.out[l], seq)
	m.free++
	m.pump()
}

func (m *semaphoreHost) leave(*lane, bool) {} // gone follows

func (m *semaphoreHost) gone(l *lane) {
	m.waiting.remove(l, 0)
	m.free += len(m.out[l])
	delete(m.out, l)
	m.pump()
}

func (m *semaphoreHost) mayGo(l *lane) bool {
	m.waiting.remove(l, 0)
	return len(m.out[l]) == 0
}

func (m *semaphoreHost) waiters() int { return len(m.waiting) }

// HostOnce makes a Once and publishes it under a name, see [Host]; [OpenOnce] finds it there.
// [After] is refused: it has no tokens.
//
// Experimental: it may change in any release.
func HostOnce(ctx context.Context, p *vmmc.Process, name string, opts ...Option) (*Server, error) {
	return host(ctx, p, name, kindOnce, opts, func(s *Server) arbiter { return &onceHost{s: s} })
}

// onceHost is the arbiter of a Once.
type onceHost struct {
	s         *Server
	done      bool
	waiting   requests
	runner    *lane
	runnerSeq uint32
}

func (m *onceHost) request(l *lane, seq uint32, _ bool) {
	if m.waiting.has(l) {
		return // of a false client
	}
	m.waiting = append(m.waiting, request{l, seq})
	m.pump()
}

// pump has the first one that waits run the function, or tells all that it has run.
func (m *onceHost) pump() {
	for len(m.waiting) > 0 && (m.done || m.runner == nil) {
		r := m.waiting.next()
		if m.done {
			m.s.answer(r.l, r.seq, answerDone)
			continue
		}
		m.runner, m.runnerSeq = r.l, r.seq
		m.s.answer(r.l, r.seq, answerYours)
	}
}

func (m *onceHost) withdraw(l *lane, seq uint32) {
	if !m.waiting.remove(l, seq) {
		m.release(l, seq, false)
	}
}

func (m *onceHost) release(l *lane, seq uint32, done bool) {
	if m.runner != l || m.runnerSeq != seq {
		return // of a false client
	}
	m.runner, m.done = nil, done
	pair.At("host.done")
	m.pump()
}

func (m *onceHost) leave(*lane, bool) {} // gone follows

func (m *onceHost) gone(l *lane) {
	m.waiting.remove(l, 0)
	if m.runner == l {
		m.runner = nil
	}
	m.pump()
}

func (m *onceHost) mayGo(l *lane) bool {
	m.waiting.remove(l, 0)
	return m.runner != l
}

func (m *onceHost) waiters() int { return len(m.waiting) }
