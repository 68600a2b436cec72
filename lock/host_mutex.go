package lock

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/pair"
)

// request is what a client waits for the answer to.
type request struct {
	l   *lane
	seq uint32
}

// requests are in the order in which they have arrived, one of a client at most.
type requests []request

func (rs requests) has(l *lane) bool {
	return slices.ContainsFunc(rs, func(r request) bool { return r.l == l })
}

// remove removes a client's request if it has this number, or with 0 any one, and reports whether
// it did.
func (rs *requests) remove(l *lane, seq uint32) bool {
	n := len(*rs)
	*rs = slices.DeleteFunc(*rs, func(r request) bool {
		return r.l == l && (seq == 0 || r.seq == seq)
	})
	return len(*rs) < n
}

// next removes the first request.
func (rs *requests) next() request {
	r := (*rs)[0]
	*rs = slices.Delete(*rs, 0, 1)
	return r
}

// mutexHost is the arbiter of a mutex.
type mutexHost struct {
	s       *Server
	waiting requests

	owner    *lane  // the client that has the lease, or nil
	ownerSeq uint32 // the number of the request that it was granted
	recalled bool   // the owner's lane has 0: it gives the lock back by a release
	granted  uint64 // the mark that it was granted with
	epoch    uint64 // of the last lease
	mark     uint64 // without an owner: died, or 0
}

func (m *mutexHost) request(l *lane, seq uint32, try bool) {
	if m.waiting.has(l) {
		return // of a false client
	}
	if try && len(m.waiting) > 0 {
		m.s.answer(l, seq, 0)
		return
	}
	m.waiting = append(m.waiting, request{l, seq})
	m.pump()
	if try && m.waiting.remove(l, seq) && l.open {
		m.s.answer(l, seq, 0)
	}
}

// pump recalls the lease if a client waits, and grants the lock if it is free.
func (m *mutexHost) pump() {
	if len(m.waiting) == 0 {
		return
	}
	if m.owner != nil && !m.recalled {
		// one step, whatever the owner does meanwhile: its compare-and-swap comes before or fails
		v := m.owner.lease.Swap(0)
		pair.At("host.recalled")
		m.take(v)
	}
	if m.owner != nil || len(m.waiting) == 0 {
		return
	}
	r := m.waiting.next()
	m.owner, m.ownerSeq, m.granted = r.l, r.seq, m.mark
	m.epoch++
	v := m.epoch<<epochShift | held | m.mark
	if m.recalled = len(m.waiting) > 0; m.recalled {
		r.l.lease.Store(0)
		v |= recalled
	} else {
		r.l.lease.Store(v)
	}
	m.s.answer(r.l, r.seq, v)
}

// take handles what was in the lane of the owner when its lease was recalled.
func (m *mutexHost) take(v uint64) {
	switch {
	case v>>epochShift != m.epoch || v&recalled != 0: // of a false client
		l := m.owner
		m.free(died)
		m.s.drop(l)
	case v&held == 0:
		m.free(v & died)
	default:
		m.recalled = true
	}
}

func (m *mutexHost) free(mark uint64) { m.owner, m.mark = nil, mark }

func (m *mutexHost) withdraw(l *lane, seq uint32) {
	if m.waiting.remove(l, seq) || m.owner != l || m.ownerSeq != seq {
		return
	}
	l.lease.Store(0) // the grant has crossed the withdrawal: the client does not take it
	m.free(m.granted)
	m.pump()
}

func (m *mutexHost) release(l *lane, seq uint32, mark bool) {
	if m.owner != l || m.ownerSeq != seq {
		return // of a false client
	}
	l.lease.Store(0)
	m.free(0)
	if mark {
		m.mark = died
	}
	m.pump()
}

func (m *mutexHost) leave(l *lane, holds bool) {
	m.waiting.remove(l, 0)
	if m.owner != l {
		return
	}
	v := l.lease.Swap(0)
	switch {
	case holds && (m.recalled || v&held != 0):
		m.free(died)
	case m.recalled:
		m.free(m.granted)
	default:
		m.free(v & died)
	}
	m.pump()
}

func (m *mutexHost) gone(l *lane) {
	m.waiting.remove(l, 0)
	if m.owner == l {
		v := l.lease.Swap(0)
		if !m.recalled && v>>epochShift == m.epoch && v&(held|recalled) == 0 {
			m.free(v & died)
		} else {
			m.free(died)
		}
	}
	m.pump()
}

func (m *mutexHost) mayGo(l *lane) bool {
	m.waiting.remove(l, 0)
	if m.owner == l && !m.recalled {
		m.take(l.lease.Swap(0))
	}
	return m.owner != l
}

func (m *mutexHost) waiters() int { return len(m.waiting) }
