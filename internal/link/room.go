package link

import (
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// What a stream does where the socket has no room for what there is to write.

// stick notes that there is more to write than the socket has room for.
func (s *stream) stick() {
	s.tx.stuck.Store(true)
	if s.tx.attended.Load() == 0 && !s.tx.soon {
		s.armWrite()
	}
}

// attend makes the caller, which waits anyway, write what the socket had no room
// for: by advance, between its looks. Without that each piece of a long message
// would wake the background's thread, which then writes it.
func (s *stream) attend() {
	s.tmu.Lock()
	s.tx.attended.Add(1)
	s.disarm()
	s.tmu.Unlock()
}

// advance writes what the socket takes now, and says whether it took anything.
// Both is of who looks at what has come before it writes more, where long messages come.
func (s *stream) advance(both bool) bool {
	s.tmu.Lock()
	n, left := s.tx.gone, s.tx.left()
	s.tx.stuck.Store(false)
	done := s.turn(both && s.tx.attended.Load() > 0) // whoever attends comes again, or sees to what is left
	over := done || s.tx.gone > n
	moved := over || s.tx.left() < left
	s.tmu.Unlock()
	if over {
		s.tx.room.Move()
		s.e.sleepers.Wake()
	}
	return moved
}

// leave gives what is left to the background.
func (s *stream) leave() {
	s.tmu.Lock()
	s.unattend()
	s.tmu.Unlock()
}

func (s *stream) unattend() {
	if s.tx.attended.Add(-1) == 0 && s.tx.stuck.Load() {
		s.armWrite()
	}
}

// handOver is leave for a waiter that has found what it waited for, and so may come again soon. No event is to come: attend has seen to that.
func (s *stream) handOver() {
	left := false
	s.tmu.Lock()
	if s.tx.attended.Add(-1) == 0 && s.tx.stuck.Load() {
		left = s.entrust()
	}
	s.tmu.Unlock()
	if left {
		s.e.guard.hasten()
	}
}

// entrust sees to it that somebody comes for what is left, and nobody attends to: an event, or, where long messages come the other way, the guard. Who sends
// looks at what has come soon there, and then writes what is left. guarded says that it is the guard, which is to be told to hasten when tmu is free.
func (s *stream) entrust() (guarded bool) {
	if guarded = s.keeps() && s.e.glancer.lately(); !guarded {
		s.armWrite()
	}
	return guarded
}

// keeps says whether the guard sees to what is left here: who takes this link off its list, or goes to sleep, looks for that after this was looked at.
func (s *stream) keeps() bool { return s.guarded.Load() && !s.e.sleepers.Asleep() }

// disarm takes back what armWrite has asked for; tmu is held. An event may be on its way all the same.
func (s *stream) disarm() {
	if s.tx.armed && s.wfd >= 0 {
		s.tx.armed = false
		s.e.ep.Disarm(s.wfd, s.id<<1|1)
	}
}

// byTurns is what who sends writes at least before it looks at what has come, where long messages come the other way, too: the call that brings it
// to that is the last one. Else one end writes all that it may have under way, which the other one takes as it comes, and then the
// other one writes: what passes is what one way carries.
const byTurns = longest

// turn is pump for who looks at what has come, if anything does, before it writes more; tmu is held.
func (s *stream) turn(both bool) (clear bool) {
	if both {
		s.tx.turn = byTurns
	}
	clear = s.pump()
	s.tx.turn = 0
	return clear
}

// offer writes what the socket takes now; tmu is held. Who has long messages under way waits and sends by turns, and what the socket has no
// room for is there between any two calls: the descriptor is armed for as long as that takes, and not while this
// writes, where nearly each event would come, and wake the background's thread for nothing, which takes the processor of one of the two ends. Others may wait for
// what it writes: nobody else tells them, as for all others the link is stuck no more.
// guarded is what entrust says.
func (s *stream) offer() (guarded bool) {
	t := &s.tx
	s.disarm()
	was, gone := t.stuck.Swap(false), t.gone
	both := s.keeps() && s.e.glancer.lately() // else an event would come at once for what is left, and there is room
	t.soon = true                             // stick arms nothing
	done := s.turn(both)
	t.soon = false
	if t.attended.Load() == 0 && t.stuck.Load() {
		guarded = s.entrust()
	}
	if was && (done || t.gone > gone) {
		t.room.Move()
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
	s.tx.armed = true
	if s.wfd < 0 {
		fd, err := unix.Dup(s.fd)
		if err == nil {
			s.from.Took(fd)
			if err = s.e.ep.Add(fd, s.id<<1|1, true); err != nil {
				s.close(fd)
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

// writable serves a write event: what is left over goes on, senders are woken. It
// keeps away from the lock where a sender sees to that itself, who arms again if
// anything is left: a sender of long messages has the lock nearly all the time, and
// the background, which gets it only when it starves, would take its processor.
func (s *stream) writable() {
	if s.tx.stuck.Load() && s.tx.attended.Load() == 0 {
		s.tmu.Lock()
		s.tx.armed = false
		s.tx.stuck.Store(false)
		s.pump()
		s.tmu.Unlock()
		s.tx.room.Move()
		s.e.sleepers.Wake()
	}
	s.hear()
}

// hear arms a link at rest: what was written may be answered.
func (s *stream) hear() {
	if !s.listening.Load() && s.try() {
		s.receive(drain)
		s.release()
	}
}

// await waits for room in the socket; the caller is counted in attended. ended,
// which may be nil, says that the import is no more.
func (s *stream) await(ctx context.Context, tick uint32, ended *atomic.Bool) error {
	if err := s.err(); err != nil {
		return err
	}
	l := wait.Look{Word: s.tx.room.Word(), Old: tick, Broken: &s.broken, Ended: ended, Own: true}
	if !s.e.look(ctx, &l, s) {
		s.leave()
		err := s.e.sleep(ctx, &l, nil)
		s.attend()
		if err != nil {
			return err
		}
	}
	if ended != nil && ended.Load() {
		return ErrEnded
	}
	return s.err()
}

// complete waits until frame n is written; the caller is counted in attended, and
// not any more when this returns. When the context ends first, the rest is copied,
// so that the caller's memory is its own again, and the engine writes it in its time.
func (s *stream) complete(ctx context.Context, n uint64, ended *atomic.Bool) error {
	s.tmu.Lock()
	defer s.tmu.Unlock()
	defer s.unattend()
	for {
		s.flush()
		if s.tx.gone >= n {
			return nil
		}
		tick := s.tx.room.Now()
		s.tmu.Unlock()
		err := s.await(ctx, tick, ended)
		s.tmu.Lock()
		if err != nil {
			if s.tx.gone < n {
				s.tx.keep()
			}
			return err
		}
	}
}
