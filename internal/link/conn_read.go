package link

import (
	"errors"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxRecvCalls bounds the receive calls on one link before other links are served.
const maxRecvCalls = 32

// tryTokenDisarmed takes the token for polling and disarms the descriptor. Otherwise each message
// that the poller receives would also wake the background goroutine's thread for nothing.
func (s *stream) tryTokenDisarmed() bool {
	if !s.token.tryAcquire() {
		return false
	}
	if s.readArmed.Load() {
		s.rmu.Lock()
		// under rmu, together with disarming: a resumed link has a new descriptor, armed and
		// readArmed
		s.readArmed.Store(false)
		if s.fd >= 0 {
			s.e.ep.Disarm(s.fd, s.id<<1)
		}
		s.rmu.Unlock()
	}
	return true
}

// handleReadable serves a read event.
func (s *stream) handleReadable() {
	for !s.token.tryAcquire() {
		if s.token.markMissed() {
			return // the holder receives again before it releases
		}
	}
	if s.receive(maxRecvCalls) {
		s.emptyEvents = 0
	} else if s.emptyEvents++; s.emptyEvents > maxEmptyEvents {
		s.emptyEvents = 0
		s.checkEmptyEvents()
	}
	if s.leaveToWaiter() {
		s.readArmed.Store(false) // the event has disarmed it
		s.releaseUnarmed()
		return
	}
	s.releaseArmed()
}

// maxEmptyEvents is the number of consecutive events without data after which the socket is
// checked. Another goroutine may have received what an event told of, and a cipher needs several
// parts of a record.
const maxEmptyEvents = 64

// checkEmptyEvents ends a connection whose events do not stop although there is nothing to receive.
func (s *stream) checkEmptyEvents() {
	s.rmu.Lock()
	bad := s.fd >= 0 && unix.Unclear(s.fd)
	s.rmu.Unlock()
	if bad {
		s.connLost(Gone("the socket tells of something that is not there to receive"))
	}
}

// On a shared CPU the peer waits for each poll, a system call. A link that has brought nothing for
// skipAfter polls is then polled every pollEvery'th time only, if there are others.
const (
	skipAfter = 64
	pollEvery = 8
)

// skipPoll reports whether to skip s this time. The caller holds the token.
func (s *stream) skipPoll() bool {
	if s.emptyPolls < skipAfter {
		return false
	}
	if s.waiterAsleep.Load() {
		s.waiterAsleep.Store(false)
		s.emptyPolls = 0
		return false
	}
	s.skippedPolls = (s.skippedPolls + 1) % pollEvery
	return s.skippedPolls != 0
}

// leaveToWaiter reports whether the background goroutine may leave s to a waiter.
func (s *stream) leaveToWaiter() bool {
	return s.hot.Load() && s.e.bulkActivity.waiterExpected() && !s.e.sleepers.Asleep()
}

// maxAckAge is how many polls an acknowledgement is deferred at most. A poll that finds nothing
// between two frames counts as emptyPollAge of them: more data is not coming at once.
const (
	maxAckAge    = 64
	emptyPollAge = 16
)

// receive takes what the socket has, by at most maxCalls calls, and wakes sleepers. The caller
// holds the token. A caller that passes 1 polls on: it calls receive again, or releases the token.
func (s *stream) receive(maxCalls int) (got bool) {
	if invariant.Enabled {
		s.checkHeld("receive")
	}
	if s.disconnected() {
		return false // data behind a malformed frame is ignored
	}
	s.rmu.Lock()
	got, err := s.rx.receive(s, maxCalls)
	switch {
	case err != nil:
		s.handleRecvError(err)
	case got:
		s.recvCount++
		if s.ackAge++; !s.ackDeferred {
			s.ackAge = 0
		}
		over := s.ackAge >= maxAckAge
		s.ackDeferred = s.h.batchReceived(s.rx.midFrame() && !over, maxCalls == 1 && !over)
	case s.ackDeferred:
		if s.ackAge++; !s.rx.midFrame() {
			s.ackAge += emptyPollAge - 1
		}
		if s.ackAge >= maxAckAge {
			s.ackDeferred = s.h.batchReceived(false, false)
		}
	}
	s.rmu.Unlock()
	if got {
		s.e.sleepers.Arrived() // after the words were stored
	}
	return got
}

// handleRecvError ends the link or the connection after a receive error. The caller holds rmu.
func (s *stream) handleRecvError(err error) {
	if !isProtocol(err) && !errors.Is(err, errPeerClosed) {
		err = s.connError(err)
	}
	if isProtocol(err) && !errors.Is(err, wire.ErrCorrupt) || errors.Is(err, errPeerClosed) {
		s.fail(err)
	} else {
		s.connLost(err)
	}
}

// flushDeferredAck sends the deferred acknowledgement. With waits set the rest of a partial frame
// is received soon, so the acknowledgement may wait for it.
func (s *stream) flushDeferredAck(waits bool) {
	s.rmu.Lock()
	s.ackDeferred = s.h.batchReceived(waits && s.rx.midFrame(), false)
	s.rmu.Unlock()
}

// armRead arms an unarmed link: written data may be answered.
func (s *stream) armRead() {
	if !s.readArmed.Load() && s.token.tryAcquire() {
		s.receive(maxRecvCalls)
		s.releaseArmed()
	}
}

// disarmRead is called by a sender on a link that the background goroutine has armed between two
// waits of senders that send and wait by turns. It makes the link unarmed again. Otherwise each
// acknowledgement would wake the background goroutine's thread, for data that no waiter waits for.
func (s *stream) disarmRead() {
	if s.hot.Load() && s.readArmed.Load() && unix.Monotonic()-s.e.watchdog.lastSweep.Load() < int64(maxRearmTick) && !s.e.sleepers.Asleep() && s.tryTokenDisarmed() {
		s.releaseUnarmed()
	}
}

// releaseArmed arms the descriptor and releases the token. It arms first: the kernel checks for
// data when it arms, so data that came since the last receive raises an event. The event either
// finds the token free or marks it missed for this loop.
func (s *stream) releaseArmed() {
	if invariant.Enabled {
		s.checkHeld("arm")
	}
	if s.ackDeferred { // polling ends here; the rest of a partial frame raises an event
		s.flushDeferredAck(true)
	}
	for {
		s.readArmed.Store(true)
		s.rmu.Lock()
		// a descriptor that has hung up raises events until it is closed, which takes a moment
		if s.fd >= 0 && !s.disconnected() {
			// peeked data would raise an event; an error shows at the next receive
			_ = s.rx.consumePeeked(s.fd)
			_ = s.e.ep.Arm(s.fd, s.id<<1, false)
		}
		s.rx.releaseBuffer()
		s.rmu.Unlock()
		if s.token.tryRelease() {
			return
		}
		s.receive(maxRecvCalls)
	}
}

// releaseUnarmed releases the token without arming.
func (s *stream) releaseUnarmed() {
	if invariant.Enabled {
		s.checkHeld("rest")
	}
	if s.ackDeferred { // the next poll may be far away
		s.flushDeferredAck(false)
	}
	s.touched.Store(true)      // before the token is free; see sweep
	if !s.token.tryRelease() { // an event was in flight when the descriptor was disarmed
		s.receive(maxRecvCalls)
		s.releaseArmed()
		return
	}
	if s.onWatchdog.CompareAndSwap(false, true) {
		s.e.watchdog.add(s)
	}
	if s.e.sleepers.Asleep() { // a goroutine went to sleep meanwhile; see armAll
		s.armRead()
		if s.flushDue() {
			s.e.watchdog.expedite()
		}
	}
}
