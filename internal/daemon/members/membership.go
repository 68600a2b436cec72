package members

import (
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
)

// membership is a process's place on its node. Guarded by Journal.mu.
type membership struct {
	Record
	state memberState
	// In expected and returning: closed when the process is in neither any more.
	present chan struct{}
	conn    *nodeproto.Conn // in returning: by which it returns
}

// memberState is how far a process's membership of its node has come.
//
//	     connection given up, or daemon restarted
//	joined ----------------------------------> expected <---------------.
//	 |  |  ^                                   |      |  proved itself   | connection
//	 |  |  | all announced                     |      v                  | ended
//	 |  |  `-----------------------------------|--- returning -----------'
//	 |  | process ended                        | process ended |
//	 |  `--------------------------------------+---------------+--> ended
//	 | sent a malformed packet
//	 `----------------------------------------------------------> dropped
//
// An expected process has no connection. No process reaches a returning one. A dropped process may
// still run, and cannot rejoin. The model is docs/models/rejoin.pml.
type memberState uint8

const (
	memberJoined memberState = iota
	memberExpected
	memberReturning
	memberEnded
	memberDropped
)

func (s memberState) String() string {
	return [...]string{"joined", "expected", "returning", "ended", "dropped"}[s]
}

// absent reports whether the process has not announced its exports and links to this daemon.
func (s memberState) absent() bool { return s == memberExpected || s == memberReturning }

var memberTransitions = state.Table[memberState]{
	memberJoined:    {memberExpected, memberEnded, memberDropped},
	memberExpected:  {memberReturning, memberEnded},
	memberReturning: {memberJoined, memberExpected, memberEnded},
}

// setState is the only writer of a membership's state. mu is held, or no other goroutine uses the
// journal yet.
func (j *Journal) setState(m *membership, to memberState) {
	memberTransitions.Check(m.state, to)
	from := m.state
	m.state, m.conn = to, nil
	switch pid := m.Process.PID; {
	case to.absent() && !from.absent():
		present := make(chan struct{})
		j.absences++
		m.present, j.absent[pid] = present, m
		j.cfg.Go(func() { j.watch(m, present) })
	case from.absent() && !to.absent():
		if j.absent[pid] == m {
			delete(j.absent, pid)
		}
		close(m.present)
	}
	if to == memberEnded || to == memberDropped {
		delete(j.live, m.Process)
		e := Record{Process: m.Process, Dropped: to == memberDropped}
		if to == memberEnded {
			e.Ended, e.At = true, time.Now().Unix()
		}
		j.append(e)
	}
}

// change changes the state of a live membership that is in one of the states from. It reports
// whether it has.
func (j *Journal) change(id nodeproto.ProcessID, to memberState, from ...memberState) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.live[id]
	if m == nil || !slices.Contains(from, m.state) {
		return false
	}
	j.setState(m, to)
	return true
}
