package link

import (
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/state"
)

// connState is the state of a link's connection.
//
//	  unknown
//	     | start
//	     v           retransmitDone
//	established <-------------------- retransmitting
//	   |    ^                             |    ^
//	   |    '-------- attach -------.     |    |
//	   | connLost                   |     |    | attach
//	   v             connLost       |     |    |
//	  lost <------------------------|-----'    |
//	   |          disconnect        |          |
//	   '-----------------------> reconnecting -'
//
// An announced end ([stream.ExpectEnd]) makes a connection draining, at once or when attach makes
// it. Every state of a started link becomes ended by fail, and then released by teardown. A link
// that does not survive its connection is never lost, retransmitting or reconnecting.
type connState = shmlayout.ConnState

var connTransitions = state.Table[connState]{
	shmlayout.ConnUnknown:        {shmlayout.ConnEstablished},
	shmlayout.ConnEstablished:    {shmlayout.ConnDraining, shmlayout.ConnLost, shmlayout.ConnEnded},
	shmlayout.ConnRetransmitting: {shmlayout.ConnEstablished, shmlayout.ConnDraining, shmlayout.ConnLost, shmlayout.ConnEnded},
	shmlayout.ConnDraining:       {shmlayout.ConnEnded},
	shmlayout.ConnLost:           {shmlayout.ConnReconnecting, shmlayout.ConnEnded},
	shmlayout.ConnReconnecting:   {shmlayout.ConnEstablished, shmlayout.ConnRetransmitting, shmlayout.ConnDraining, shmlayout.ConnEnded},
	shmlayout.ConnEnded:          {shmlayout.ConnReleased},
}

// transition moves the connection to state to. It is the only writer of the state, of failed, which
// is derived from it, and of the state that the node sees. The caller holds stateMu.
func (s *stream) transition(to connState) {
	connTransitions.Check(s.State(), to)
	s.state.Store(uint32(to))
	s.failed.Store(to >= shmlayout.ConnEnded)
	s.counters.SetState(to)
	if invariant.Enabled {
		s.trace("connection is "+to.String(), 0, 0, 0, 0)
	}
}

// moveFrom moves the connection to state to if it is in one of the states from, and reports whether
// it was.
func (s *stream) moveFrom(to connState, from ...connState) bool {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	is := slices.Contains(from, s.State())
	if is {
		s.transition(to)
	}
	return is
}

// State returns the state of the link's connection.
func (s *stream) State() connState { return connState(s.state.Load()) }

// disconnected reports whether the connection is unusable, or the link has ended.
func (s *stream) disconnected() bool { return s.State() >= shmlayout.ConnLost }

// err returns why the link has ended, or nil.
func (s *stream) err() error {
	if p := s.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// fail ends the link. It may be called under any lock; another goroutine closes the socket.
func (s *stream) fail(err error) {
	s.stateMu.Lock()
	if s.State() >= shmlayout.ConnEnded {
		s.stateMu.Unlock()
		return
	}
	if s.expectedCause != nil && errors.Is(err, ErrGone) {
		err = s.expectedCause
	}
	s.cause.Store(&err)
	s.transition(shmlayout.ConnEnded)
	s.stateMu.Unlock()
	s.endLife()
	s.e.sleepers.Wake()
	go s.teardown(err)
}
