package link

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/invariant"
)

// tokenState is the state of a link's token (docs/models/handoff.pml).
//
//	free ---tryAcquire---> held ---markMissed---> missed
//	  ^                    |  ^                      |
//	  '-----tryRelease-----'  '------tryRelease------'
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
