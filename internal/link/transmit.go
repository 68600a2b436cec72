package link

import (
	"bytes"
	"context"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// small is the longest payload that is copied beside its header.
const small = 448

// transmitter writes frames one after another; all of it is under tmu.
type transmitter struct {
	io    unix.IO
	buf   [wire.HeaderSize + small]byte
	head  []byte        // of the frame under way, what is not written yet
	pay   []byte        // and of its payload; the sender's or the exporter's memory
	begun uint64        // frames begun
	gone  uint64        // frames written whole
	ctl   []wire.Header // frames that go before all others
	bell  bool          // a bell is owed
	own   wire.Header   // of this side's own frames; here so that none allocates
	room  wait.Tick     // moves when the socket has room again
}

func (t *transmitter) drop() { t.head, t.pay, t.ctl = nil, nil, nil }

// put begins a frame; the one before is gone. It returns the frame's number.
func (s *stream) put(h *wire.Header, payload []byte) uint64 {
	t := &s.tx
	h.Put(t.buf[:])
	t.begun++
	if len(payload) <= small { // one plain call is cheaper than one with a vector
		n := copy(t.buf[wire.HeaderSize:], payload)
		t.head, t.pay = t.buf[:wire.HeaderSize+n], nil
	} else {
		t.head, t.pay = t.buf[:wire.HeaderSize], payload
	}
	s.flush()
	return t.begun
}

// flush writes what the socket takes of the frame under way.
func (s *stream) flush() (done bool) {
	t := &s.tx
	for t.gone < t.begun {
		if s.fd < 0 {
			return false
		}
		var n int
		var err error
		if len(t.head) > 0 {
			n, err = t.io.Send(s.fd, t.head, t.pay)
		} else {
			n, err = t.io.Send(s.fd, t.pay, nil)
		}
		if err != nil {
			s.fail(gone(err))
			return false
		}
		if n == 0 {
			s.armWrite()
			return false
		}
		k := min(n, len(t.head))
		t.head, t.pay = t.head[k:], t.pay[n-k:]
		if len(t.head)+len(t.pay) == 0 {
			t.pay = nil
			t.gone++
		}
	}
	return true
}

// burst bounds how many frames one pump writes before other links get a turn.
const burst = 8

// pump writes all that goes before a sender's next frame, and says whether
// that is done.
func (s *stream) pump() (clear bool) {
	t := &s.tx
	for i := 0; s.flush(); i++ {
		if i == burst {
			s.armWrite() // raises an event at once if there is room
			return false
		}
		switch {
		case len(t.ctl) > 0:
			h := t.ctl[0]
			t.ctl = append(t.ctl[:0], t.ctl[1:]...)
			s.put(&h, nil)
		case t.bell:
			t.bell = false
			s.put(&wire.Header{Type: wire.Bell}, nil)
		default:
			pay, ok := s.h.next(&t.own)
			if !ok {
				return true
			}
			s.put(&t.own, pay)
		}
	}
	return false
}

// control queues a frame that goes before others, and sends what can be sent.
func (s *stream) control(h wire.Header) {
	s.tmu.Lock()
	s.tx.ctl = append(s.tx.ctl, h)
	s.pump()
	s.tmu.Unlock()
}

// push sends what this side owes.
func (s *stream) push() {
	s.tmu.Lock()
	s.pump()
	s.tmu.Unlock()
}

// ring tells the peer process to look at the shared words and the ring.
func (s *stream) ring() {
	s.tmu.Lock()
	if s.tx.gone < s.tx.begun || len(s.tx.ctl) > 0 {
		s.tx.bell = true // goes with the frame under way
	} else if s.fd >= 0 {
		h := wire.Header{Type: wire.Bell}
		t := &s.tx
		bell := t.buf[:wire.HeaderSize]
		h.Put(bell)
		if n, err := t.io.Send(s.fd, bell, nil); err != nil {
			s.fail(gone(err))
		} else if n == 0 {
			t.bell = true // no room: it goes when there is
			s.armWrite()
		} else if n < len(bell) {
			t.head, t.begun = bell[n:], t.begun+1
			s.armWrite()
		}
	}
	s.tmu.Unlock()
}

// armWrite asks for one event when the socket has room, on a descriptor of its
// own, so that it does not disturb the arming for reads.
func (s *stream) armWrite() {
	if s.wfd < 0 {
		fd, err := unix.Dup(s.fd)
		if err == nil {
			if err = s.e.ep.Add(fd, s.id<<1|1, true); err != nil {
				_ = unix.Close(fd)
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

// writable serves a write event: what is left over goes on, senders are woken.
func (s *stream) writable() {
	s.push()
	s.tx.room.Move()
	s.e.sleepers.Wake()
}

// ready returns nil with tmu held and nothing before the caller's frame, or an
// error without it.
func (s *stream) ready(ctx context.Context, ended *atomic.Bool) error {
	s.tmu.Lock()
	for !s.pump() {
		tick := s.tx.room.Now()
		s.tmu.Unlock()
		if err := s.await(ctx, tick, ended); err != nil {
			return err
		}
		s.tmu.Lock()
	}
	return nil
}

// await waits for room in the socket. ended, which may be nil, says that the
// import is no more.
func (s *stream) await(ctx context.Context, tick uint32, ended *atomic.Bool) error {
	if err := s.err(); err != nil {
		return err
	}
	if err := s.e.Wait(ctx, wait.Look{Word: s.tx.room.Word(), Old: tick, Broken: &s.broken, Ended: ended, Own: true}); err != nil {
		return err
	}
	if ended != nil && ended.Load() {
		return ErrEnded
	}
	return s.err()
}

// complete waits until frame n is written. When the context ends first, the
// rest is copied, so that the caller's memory is its own again, and the engine
// writes it in its time.
func (s *stream) complete(ctx context.Context, n uint64, ended *atomic.Bool) error {
	for {
		s.tmu.Lock()
		s.flush()
		if s.tx.gone >= n {
			s.tmu.Unlock()
			return nil
		}
		tick := s.tx.room.Now()
		s.tmu.Unlock()
		if err := s.await(ctx, tick, ended); err != nil {
			s.tmu.Lock()
			if s.tx.gone < n {
				s.tx.pay = bytes.Clone(s.tx.pay)
			}
			s.tmu.Unlock()
			return err
		}
	}
}
