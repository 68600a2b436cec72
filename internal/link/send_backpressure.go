package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// What a stream does where the socket has no room for what there is to write.

// markWriteBlocked notes that there is more to write than the socket has room for.
func (s *stream) markWriteBlocked() {
	s.tx.writeBlocked.Store(true)
	if s.tx.activeWriters.Load() == 0 && !s.tx.flushing {
		s.armWrite()
	}
}

// beginWrite makes the caller, which waits anyway, write what the socket had no room
// for: by advance, between its looks. Without that each piece of a long message
// would wake the background's thread, which then writes it.
func (s *stream) beginWrite() {
	s.tmu.Lock()
	s.tx.activeWriters.Add(1)
	s.disarmWrite()
	s.tmu.Unlock()
}

// flushSome writes what the socket takes now, and says whether it took anything.
// Both is of who looks at what has come before it writes more, where long messages come.
func (s *stream) flushSome(both bool) bool {
	s.tmu.Lock()
	n, left := s.tx.framesWritten, s.tx.unwritten()
	s.tx.writeBlocked.Store(false)
	done := s.pumpQuantum(both && s.tx.activeWriters.Load() > 0) // whoever attends comes again, or sees to what is left
	over := done || s.tx.framesWritten > n
	moved := over || s.tx.unwritten() < left
	s.tmu.Unlock()
	if over {
		s.tx.writeEvent.Advance()
		s.e.sleepers.Wake()
	}
	return moved
}

// endWrite gives what is left to the background.
func (s *stream) endWrite() {
	s.tmu.Lock()
	s.endWriteLocked()
	s.tmu.Unlock()
}

func (s *stream) endWriteLocked() {
	if s.tx.activeWriters.Add(-1) == 0 && s.tx.writeBlocked.Load() {
		s.armWrite()
	}
}

// endWriteSoon is leave for a waiter that has found what it waited for, and so may come again soon. No event is to come: attend has seen to that.
func (s *stream) endWriteSoon() {
	left := false
	s.tmu.Lock()
	if s.tx.activeWriters.Add(-1) == 0 && s.tx.writeBlocked.Load() {
		left = s.scheduleWrite()
	}
	s.tmu.Unlock()
	if left {
		s.e.watchdog.expedite()
	}
}

// scheduleWrite sees to it that somebody comes for what is left, and nobody attends to: an event, or, where long messages come the other way, the guard. Who sends
// looks at what has come soon there, and then writes what is left. guarded says that it is the guard, which is to be told to hasten when tmu is free.
func (s *stream) scheduleWrite() (guarded bool) {
	if guarded = s.watchdogFlushes() && s.e.bulkActivity.bulkArriving(); !guarded {
		s.armWrite()
	}
	return guarded
}

// watchdogFlushes says whether the guard sees to what is left here: who takes this link off its list, or goes to sleep, looks for that after this was looked at.
func (s *stream) watchdogFlushes() bool { return s.onWatchdog.Load() && !s.e.sleepers.Asleep() }

// disarmWrite takes back what armWrite has asked for; tmu is held. An event may be on its way all the same.
func (s *stream) disarmWrite() {
	if s.tx.writeArmed && s.wfd >= 0 {
		s.tx.writeArmed = false
		s.e.ep.Disarm(s.wfd, s.id<<1|1)
	}
}

// writeQuantum is what who sends writes at least before it looks at what has come, where long messages come the other way, too: the call that brings it
// to that is the last one. Else one end writes all that it may have under way, which the other one takes as it comes, and then the
// other one writes: what passes is what one way carries.
const writeQuantum = maxRecvCall

// pumpQuantum is pump for who looks at what has come, if anything does, before it writes more; tmu is held.
func (s *stream) pumpQuantum(both bool) (clear bool) {
	if both {
		s.tx.quantumLeft = writeQuantum
	}
	clear = s.pump()
	s.tx.quantumLeft = 0
	return clear
}

// tryFlush writes what the socket takes now; tmu is held. Who has long messages under way waits and sends by turns, and what the socket has no
// room for is there between any two calls: the descriptor is armed for as long as that takes, and not while this
// writes, where nearly each event would come, and wake the background's thread for nothing, which takes the processor of one of the two ends. Others may wait for
// what it writes: nobody else tells them, as for all others the link is stuck no more.
// guarded is what entrust says.
func (s *stream) tryFlush() (guarded bool) {
	t := &s.tx
	s.disarmWrite()
	was, gone := t.writeBlocked.Swap(false), t.framesWritten
	both := s.watchdogFlushes() && s.e.bulkActivity.bulkArriving() // else an event would come at once for what is left, and there is room
	t.flushing = true                                              // stick arms nothing
	done := s.pumpQuantum(both)
	t.flushing = false
	if t.activeWriters.Load() == 0 && t.writeBlocked.Load() {
		guarded = s.scheduleWrite()
	}
	if was && (done || t.framesWritten > gone) {
		t.writeEvent.Advance()
		s.e.sleepers.Wake()
	}
	return guarded
}

// armWrite asks for one event when the socket has room, on a descriptor of its
// own, so that it does not disturb the arming for reads.
func (s *stream) armWrite() {
	if s.fd < 0 {
		return
	}
	s.tx.writeArmed = true
	if s.wfd < 0 {
		fd, err := unix.Dup(s.fd)
		if err == nil {
			s.peerFDs.Took(fd)
			if err = s.e.ep.Add(fd, s.id<<1|1, true); err != nil {
				s.closeFD(fd)
			}
		}
		if err != nil {
			s.fail(err)
			return
		}
		s.wfd = fd
		return
	}
	_ = s.e.ep.Arm(s.wfd, s.id<<1|1, true)
}

// handleWritable serves a write event: what is left over goes on, senders are woken. It
// keeps away from the lock where a sender sees to that itself, who arms again if
// anything is left: a sender of long messages has the lock nearly all the time, and
// the background, which gets it only when it starves, would take its processor.
func (s *stream) handleWritable() {
	if s.tx.writeBlocked.Load() && s.tx.activeWriters.Load() == 0 {
		s.tmu.Lock()
		s.tx.writeArmed = false
		s.tx.writeBlocked.Store(false)
		s.pump()
		s.tmu.Unlock()
		s.tx.writeEvent.Advance()
		s.e.sleepers.Wake()
	}
	s.armRead()
}

// armRead arms a link at rest: what was written may be answered.
func (s *stream) armRead() {
	if !s.readArmed.Load() && s.tryToken() {
		s.receive(maxRecvCalls)
		s.releaseArmed()
	}
}

// waitWritable waits for room in the socket; the caller is counted in attended. ended,
// which may be nil, says that the import is no more.
func (s *stream) waitWritable(ctx context.Context, tick uint32, ended *atomic.Bool) error {
	if err := s.err(); err != nil {
		return err
	}
	l := wait.Cond{Word: s.tx.writeEvent.Word(), Old: tick, Failed: &s.failed, Ended: ended, LocalOnly: true}
	if !s.e.poll(ctx, &l, s) {
		s.endWrite()
		err := s.e.sleep(ctx, &l, nil)
		s.beginWrite()
		if err != nil {
			return err
		}
	}
	if ended != nil && ended.Load() {
		return ErrEnded
	}
	return s.err()
}

// waitWritten waits until frame n is written; the caller is counted in attended, and
// not any more when this returns. When the context ends first, the rest is copied,
// so that the caller's memory is its own again, and the engine writes it in its time.
func (s *stream) waitWritten(ctx context.Context, n uint64, ended *atomic.Bool) error {
	s.tmu.Lock()
	defer s.tmu.Unlock()
	defer s.endWriteLocked()
	for {
		s.flush()
		if s.tx.framesWritten >= n {
			return nil
		}
		tick := s.tx.writeEvent.Load()
		s.tmu.Unlock()
		err := s.waitWritable(ctx, tick, ended)
		s.tmu.Lock()
		if err != nil {
			if s.tx.framesWritten < n {
				s.tx.detachPayload()
			}
			return err
		}
	}
}
