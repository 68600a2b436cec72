package link

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// flush writes as much of the queued frames as the socket takes, and reports whether all are
// written.
func (s *stream) flush() (done bool) {
	t := &s.tx
	for t.framesWritten < t.framesQueued {
		if s.disconnected() {
			return false
		}
		if t.quantumLeft < 0 { // the quantum is used up; the socket may have room
			t.writeBlocked.Store(true)
			return false
		}
		n, err := t.sendParts(s.fd)
		if err != nil {
			if unix.Faulted(err) { // memory that was readable a moment ago
				s.h.sendFaulted()
			}
			s.connLost(s.connError(err))
			return false
		}
		if n == 0 {
			s.markWriteBlocked()
			return false
		}
	}
	return true
}

// maxBurst bounds the long frames, of a chunk each, that one pump writes before other links are
// served. A call counts as at least pacing.MinParts of them.
const maxBurst = 8 * pacing.MinParts

// pump writes all that must precede a sender's next frame, and reports whether it is all written.
func (s *stream) pump() (clear bool) {
	if s.disconnected() {
		return false
	}
	for spent := 0; s.flush(); spent += pacing.MinParts {
		if spent+s.tx.burst.MaxParts() > maxBurst {
			s.markWriteBlocked() // raises an event at once if the socket has room
			return false
		}
		if len(s.tx.importAnswers) > 0 && s.fd >= 0 {
			if !s.writeImportAnswer() {
				return false
			}
			continue
		}
		if !s.queueFrames() && len(s.tx.control) == 0 { // nextFrame returns what is queued
			return !s.tx.awaitingAcks
		}
		spent += max(s.tx.burst.Weight(s.tx.partCount)-pacing.MinParts, 0)
	}
	return false
}

// queueFrames queues as many frames as one call can write, and reports whether there were any.
func (s *stream) queueFrames() (any bool) {
	t := &s.tx
	if t.framesToPad == 0 {
		t.addPad()
		return true
	}
	for more := true; more; any = true {
		switch {
		case len(t.control) > 0:
			h := t.control[0]
			t.control = append(t.control[:0], t.control[1:]...)
			more = t.addFrame(&h, nil)
		case t.bellDue:
			t.bellDue = false
			more = t.addFrame(&wire.Header{Type: wire.Bell}, nil)
		default:
			pay, ok := s.h.nextFrame(&t.ownHeader)
			if !ok {
				return any
			}
			more = t.addFrame(&t.ownHeader, pay)
		}
	}
	return any
}

// sendControl queues a frame that goes before others, and pumps.
func (s *stream) sendControl(h wire.Header) {
	s.tmu.Lock()
	s.tx.control = append(s.tx.control, h)
	s.pump()
	s.tmu.Unlock()
}

// pumpNow writes what this side owes.
func (s *stream) pumpNow() {
	s.tmu.Lock()
	s.pump()
	s.tmu.Unlock()
}

// ringBell makes the peer process look at the shared words and the ring.
func (s *stream) ringBell() {
	s.tmu.Lock()
	if s.tx.framesWritten < s.tx.framesQueued || len(s.tx.control) > 0 || len(s.tx.importAnswers) > 0 {
		s.tx.bellDue = true // goes behind the queued frames
	} else if s.fd >= 0 {
		t := &s.tx
		bell := t.buf[:wire.HeaderSize]
		t.putHeader(&wire.Header{Type: wire.Bell}, bell)
		n, err := t.io.Send(s.fd, bell, nil)
		t.sentAlone(bell, n)
		switch {
		case err != nil:
			s.fail(s.connError(err))
		case n < len(bell):
			t.bellDue = t.bellDue || n == 0 // no room: sent when there is
			s.markWriteBlocked()
		}
	}
	s.tmu.Unlock()
}

// writeImportAnswer writes the oldest answer to an import by a call of its own, because it may
// carry a descriptor. All frames queued before are written. It reports whether the socket had room.
func (s *stream) writeImportAnswer() bool {
	t := &s.tx
	a := &t.importAnswers[0]
	head := t.buf[:wire.HeaderSize]
	t.putHeader(&a.h, head)
	n, err := 0, error(nil)
	if a.fd >= 0 {
		var ok bool
		// refuse instead of waiting until a descriptor can be sent
		if n, ok, err = t.io.SendPassed(s.fd, head, a.fd); !ok {
			_ = unix.Close(a.fd)
			a.fd = -1
			a.h.SetGranted(a.h.Serial, &wire.Granted{Handle: a.h.Handle})
			t.sentAlone(head, 0)
			t.putHeader(&a.h, head)
		}
	}
	if a.fd < 0 {
		n, err = t.io.Send(s.fd, head, nil)
	}
	t.sentAlone(head, n)
	if err != nil {
		s.fail(s.connError(err))
		return false
	}
	if n == 0 {
		s.markWriteBlocked()
		return false
	}
	if a.fd >= 0 {
		_ = unix.Close(a.fd)
	}
	if t.importAnswers = slices.Delete(t.importAnswers, 0, 1); len(t.importAnswers) == 0 {
		t.importAnswers = nil
	}
	return true
}

// writeShort writes a frame with a short payload, which it copies, and reports whether the socket
// took all of it. No frame may be queued before it. The caller holds tmu. No sender waits for the
// rest.
func (s *stream) writeShort(h *wire.Header, payload []byte) (done bool) {
	b := s.tx.buf[:wire.HeaderSize+len(payload)]
	// the payload of an answer is memory that others write to
	shm.CopyUnchecked(b[wire.HeaderSize:], payload)
	payload = b[wire.HeaderSize:]
	if s.tx.checksum {
		h.Sum = wire.Sum(0, payload)
	}
	s.tx.putHeader(h, b)
	if done = s.writeFrame(b[:len(b):len(b)], 0); !done {
		s.endWriteLocked()
	}
	return done
}

// writeFrame writes a frame that stays in place until it is written, and reports whether the socket
// took all of it. No frame may be queued before it. The caller holds tmu. If the result is false,
// the caller counts as an active writer until waitWritten or endWriteLocked. Any later pump may
// write the rest, because a bell may wait behind it.
func (s *stream) writeFrame(frame []byte, seq uint64) (done bool) {
	t := &s.tx
	if invariant.Enabled {
		s.checkClear()
	}
	t.framesQueued++
	if t.framesToPad > 0 {
		t.framesToPad--
	}
	if t.cipher == nil {
		n, err := t.io.Send(s.fd, frame, nil)
		if n == len(frame) {
			t.framesWritten = t.framesQueued
			t.firstBorrowedSeq.Store(0)
			return true
		}
		if frame = frame[n:]; err != nil {
			s.connLost(s.connError(err))
		}
	}
	t.parts[0], t.partCount = part{head: frame, seq: seq}, 1
	t.activeWriters.Add(1)
	if !s.flush() { // the link is write-blocked or disconnected now
		return false
	}
	s.endWriteLocked()
	return true
}

// bye sends the peer, if possible, what this side still owes, and that there is nothing to resume.
// The caller holds rmu and tmu.
func (s *stream) bye(why error) {
	if s.fd < 0 || s.tx.framesWritten < s.tx.framesQueued {
		return
	}
	var h wire.Header
	if s.h.finalFrame(&h) && !s.writeFinal(&h) {
		return // nothing can follow a partial frame
	}
	if s.reconnectLimit > 0 && !errors.Is(why, errPeerClosed) {
		s.writeFinal(&wire.Header{Type: wire.Bye, Word: byeCode(why)})
	}
}

// writeFinal writes a frame of a link that ends, and reports whether the socket took all of it.
func (s *stream) writeFinal(h *wire.Header) bool {
	var b [wire.HeaderSize]byte
	s.tx.putHeader(h, b[:])
	send := func() (int, error) { return s.tx.io.Send(s.fd, b[:], nil) }
	if s.tx.cipher != nil {
		send = func() (int, error) { return s.tx.cipher.Send(s.fd, b[:]) }
	}
	n, err := send()
	return err == nil && n == len(b)
}

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

// flushDue writes what was coalesced or left unwritten, if anything was. more reports that data was
// left unwritten for the watchdog again.
func (s *stream) flushDue() (more bool) {
	due := s.h.inboxDue()
	if !due && !s.tx.writeBlocked.Load() {
		return false
	}
	s.tmu.Lock()
	defer s.tmu.Unlock()
	if due || s.tx.activeWriters.Load() == 0 && !s.tx.writeArmed {
		return s.tryFlush()
	}
	return false
}

// disarmWrite undoes armWrite. The caller holds tmu. An event may still be in flight.
func (s *stream) disarmWrite() {
	if s.tx.writeArmed && s.wfd >= 0 {
		s.tx.writeArmed = false
		s.e.ep.Disarm(s.wfd, s.id<<1|1)
	}
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
