package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// Backpressure: what a stream does while the socket has no room for its frames.

// markWriteBlocked records that the socket has no room for the rest. It arms the write event unless
// a goroutine will write again soon.
func (s *stream) markWriteBlocked() {
	s.tx.writeBlocked.Store(true)
	if s.tx.activeWriters.Load() == 0 && !s.tx.flushing {
		s.armWrite()
	}
}

// beginWrite makes the caller, which waits anyway, write the rest between its polls by flushSome.
// Otherwise each piece of a long message would wake the background goroutine's thread, which would
// then write it.
func (s *stream) beginWrite() {
	s.tmu.Lock()
	s.tx.activeWriters.Add(1)
	s.disarmWrite()
	s.tmu.Unlock()
}

// flushSome writes what the socket takes now, and reports whether it took anything. both applies
// the write quantum for a caller that receives between writes while long messages come the other
// way.
func (s *stream) flushSome(both bool) bool {
	s.tmu.Lock()
	n, left := s.tx.framesWritten, s.tx.unwritten()
	s.tx.writeBlocked.Store(false)
	// an active writer writes again or arranges a later flush
	done := s.pumpQuantum(both && s.tx.activeWriters.Load() > 0)
	over := done || s.tx.framesWritten > n
	moved := over || s.tx.unwritten() < left
	s.tmu.Unlock()
	if over {
		s.tx.writeEvent.Advance()
		s.e.sleepers.Wake()
	}
	return moved
}

// endWrite leaves the rest to the background goroutine.
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

// endWriteSoon is endWrite for a waiter that has found its condition and so may write again soon.
// No write event is pending: beginWrite has disarmed it.
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

// scheduleWrite arranges a later flush of unwritten data that has no active writer: by the re-arm
// watchdog while bulk data is arriving, otherwise by a write event. Senders receive soon while bulk
// data arrives, and then write the rest. guarded reports that it is the watchdog; the caller must
// then call expedite once tmu is free.
func (s *stream) scheduleWrite() (guarded bool) {
	if guarded = s.watchdogFlushes() && s.e.bulkActivity.bulkArriving(); !guarded {
		s.armWrite()
	}
	return guarded
}

// watchdogFlushes reports whether the watchdog will flush unwritten data of this link. A goroutine
// that takes the link off the watchdog's list, or goes to sleep, looks for such data after this
// check.
func (s *stream) watchdogFlushes() bool { return s.onWatchdog.Load() && !s.e.sleepers.Asleep() }

// disarmWrite undoes armWrite. The caller holds tmu. An event may still be on its way.
func (s *stream) disarmWrite() {
	if s.tx.writeArmed && s.wfd >= 0 {
		s.tx.writeArmed = false
		s.e.ep.Disarm(s.wfd, s.id<<1|1)
	}
}

// writeQuantum is the least that a sender writes before it receives while long messages come the
// other way: the call that reaches it is the last. Otherwise one end writes all that may be in
// flight, which the other end receives as it comes, and then the other end writes: together they
// move what one direction carries.
const writeQuantum = maxRecvCall

// pumpQuantum is pump with the write quantum applied if both is set. The caller holds tmu, and
// receives before it writes more.
func (s *stream) pumpQuantum(both bool) (clear bool) {
	if both {
		s.tx.quantumLeft = writeQuantum
	}
	clear = s.pump()
	s.tx.quantumLeft = 0
	return clear
}

// tryFlush writes what the socket takes now. The caller holds tmu. A sender of long messages waits
// and sends by turns, and between any two calls the socket lacks room for a rest. So the write
// event is armed for that time only, and not while this writes: nearly every event would come then
// and wake the background goroutine's thread for nothing, on the CPU of one of the two ends.
// tryFlush wakes the goroutines that wait for the data it writes, because the link is not
// write-blocked for other writers any more. guarded is that of scheduleWrite.
func (s *stream) tryFlush() (guarded bool) {
	t := &s.tx
	s.disarmWrite()
	was, gone := t.writeBlocked.Swap(false), t.framesWritten
	// otherwise an event would come at once for a rest that the socket has room for
	both := s.watchdogFlushes() && s.e.bulkActivity.bulkArriving()
	t.flushing = true // markWriteBlocked arms nothing
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

// armWrite requests one event for when the socket has room. It uses a descriptor of its own, so the
// arming for reads is not disturbed.
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
				foreign.Close(fd)
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

// handleWritable handles a write event: it writes the rest and wakes senders. It avoids tmu while a
// sender writes: that sender arms again if anything is left. A sender of long messages holds tmu
// nearly all the time. The background goroutine would get the lock only when it starves, and would
// take the sender's CPU.
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

// armRead arms an unarmed link: written data may be answered.
func (s *stream) armRead() {
	if !s.readArmed.Load() && s.token.tryAcquire() {
		s.receive(maxRecvCalls)
		s.releaseArmed()
	}
}

// waitWritable waits for room in the socket. The caller is an active writer. ended, which may be
// nil, reports that the import has ended.
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

// waitWritten waits until frame n is written. The caller is an active writer, and is none when this
// returns. If the context ends first, the rest is copied, so that the caller may reuse its memory;
// the engine writes the copy later.
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
