package link

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/state"
	"github.com/vmmc-go/vmmc/internal/wire"
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

// tokenState is the state of a link's token (docs/models/handoff.pml).
//
//	free ---tryAcquire---> held ---markMissed---> missed
//	  ^                    |  ^                      |
//	  '-----tryRelease-----'  '------tryRelease------'
//
// It has no table of transitions: each is one compare-and-swap, or the holder's store, which finds
// no other state than the one it leaves.
type tokenState uint32

const (
	tokenFree tokenState = iota
	tokenHeld
	tokenMissed // Held, and an event came off the epoll set meanwhile.
)

// String returns the name of the state.
func (t tokenState) String() string { return [...]string{"free", "held", "missed"}[t] }

// token is the right to receive on a link and to arm it. Its zero value is free.
type token struct{ state atomic.Uint32 }

// State returns the token's state.
func (t *token) State() tokenState { return tokenState(t.state.Load()) }

// tryAcquire takes the token if it is free.
func (t *token) tryAcquire() bool {
	return t.state.CompareAndSwap(uint32(tokenFree), uint32(tokenHeld))
}

// markMissed makes the holder receive again before it releases. It reports false if there is no
// holder.
func (t *token) markMissed() bool {
	return t.state.CompareAndSwap(uint32(tokenHeld), uint32(tokenMissed)) || t.State() == tokenMissed
}

// tryRelease frees the token. It reports false if an event was missed: the caller still holds the
// token and must receive again.
func (t *token) tryRelease() bool {
	if invariant.Enabled {
		invariant.Check(t.State() != tokenFree, "a token is released that is not held")
	}
	if t.state.CompareAndSwap(uint32(tokenHeld), uint32(tokenFree)) {
		return true
	}
	t.state.Store(uint32(tokenHeld))
	return false
}

// peerRole names the peer process.
func (s *stream) peerRole() string {
	if s.importing {
		return "exporter"
	}
	return "importer"
}

// connError describes how the connection was lost, by an error of the kernel or the cipher.
func (s *stream) connError(err error) error {
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE)
	switch {
	case s.peerFDs != nil && (closed || errors.Is(err, syscall.ECONNRESET)): // there is no network
		return &goneError{fmt.Errorf("the %s has ended, or has closed the link", s.peerRole()), []error{err}}
	case closed:
		return &goneError{fmt.Errorf("the %s's side closed the connection", s.peerRole()), []error{err}}
	case errors.Is(err, syscall.ECONNRESET):
		return Gone("the connection was reset, by the %s's machine or by the network between: %w", s.peerRole(), err)
	case errors.Is(err, syscall.ETIMEDOUT):
		within := "too long"
		if s.silenceLimit > 0 {
			within = s.silenceLimit.String()
		}
		return Gone("the %s's machine has acknowledged nothing for %s: it, or the network between, does not answer: %w", s.peerRole(), within, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		return Gone("there is no way to the %s's machine: %w", s.peerRole(), err)
	}
	return Gone("the connection with the %s failed: %w", s.peerRole(), err)
}

// byeError returns the error that a peer's Bye stands for.
func (s *stream) byeError(h *wire.Header) error {
	text := "the %s has ended the link"
	switch h.Word {
	case wire.ByeLeaves:
		text = "the %s has left: it has closed its process in order"
	case wire.ByeOther:
		text = "the %s has ended the link, as its other link with this process had ended: import again if it lives"
	case wire.ByeDown:
		text = "the %s has ended the link: its node, or this one, was taken down"
	case wire.ByeProtocol:
		text = "the %s has ended the link: it took what came for a breach of the protocol, see its log"
	}
	return &goneError{fmt.Errorf(text, s.peerRole()), []error{errPeerClosed}}
}
