package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vmmc-go/vmmc"
)

// errBroken is a promise that was not kept.
var errBroken = errors.New("broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errBroken}, args...)...)
}

// pendingMost bounds the asynchronous messages of a conversation that are in flight.
const pendingMost = 8

// sender is the sender's side of a conversation.
type sender struct {
	pair
	im, shared *vmmc.Import
	l          *ledger
	rng        *rand.Rand
	consumed   uint32 // as it was last got
	long       uint32 // the last long message
	pending    []pending
	buf, echo  []byte
}

type pending struct {
	n uint32
	vmmc.Request
	src []byte
}

// sendTo has conversations with life after life of a process.
func (w *worker) sendTo(to int) {
	for last := 0; w.phase() == running; time.Sleep(20 * time.Millisecond) {
		life, pid, ready := w.lives(to)
		if life == last || !ready {
			continue
		}
		if w.converse(pair{w.process, w.life, to, life}, pid) {
			last = life
		}
	}
}

// converse reports whether it was begun.
func (w *worker) converse(c pair, pid uint64) bool {
	node, err := w.p.NameToNode(nodeOf(c.to))
	if err != nil {
		w.violated("the node of process %d: %v", c.to, err)
		return true
	}
	s := &sender{pair: c, rng: rand.New(rand.NewPCG(uint64(c.from), uint64(c.fromLife)))}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	if s.im, err = w.p.Import(ctx, node, vmmc.PID(pid), c.id()); err != nil {
		w.note("import of %d.%d: %v", c.to, c.toLife, err)
		return false
	}
	defer func() { _ = s.im.Close() }()
	if s.shared, err = w.p.Import(ctx, node, vmmc.PID(pid), sharedID); err != nil {
		w.note("import of the counter of %d.%d: %v", c.to, c.toLife, err)
		return false
	}
	defer func() { _ = s.shared.Close() }()
	if s.l, err = openLedger(w.dir, c.tx()); err != nil {
		w.violated("%v", err)
		return true
	}
	defer s.l.close()
	if s.im.Path() == vmmc.PathMapped {
		s.l.set(txMapped, 1)
	}
	s.l.set(txConnected, uint64(time.Now().UnixNano()))
	err = s.talk(w)
	if err == nil {
		s.l.set(txEnd, finished)
		for w.phase() != ending { // what it has sent is looked at, and its link lives
			time.Sleep(10 * time.Millisecond)
		}
		return true
	}
	end := uint64(failed)
	if !errors.Is(err, vmmc.ErrPeerGone) {
		end = violated
	}
	if err := s.rest(); err != nil {
		s.l.say("%v", err)
		end = violated
	}
	s.l.say("%v", err)
	s.l.set(txEndedAt, uint64(time.Now().UnixNano()))
	s.l.set(txEnd, end)
	return true
}

// call runs an operation, which must not take for ever.
func call(f func(ctx context.Context) error) error {
	ctx, stop := context.WithTimeout(context.Background(), hang)
	defer stop()
	return f(ctx)
}

// talk sends, gets and adds until the test drains, or an error.
func (s *sender) talk(w *worker) error {
	for n := uint32(1); w.phase() == running; n++ {
		if err := s.room(w, n); err != nil {
			return err
		}
		if w.phase() != running {
			break
		}
		if err := s.message(n); err != nil {
			return err
		}
		if err := s.others(); err != nil {
			return err
		}
		if s.rng.IntN(2) == 0 {
			time.Sleep(time.Duration(s.rng.IntN(20)) * time.Millisecond)
		}
	}
	if err := s.settle(0); err != nil {
		return err
	}
	if err := call(s.im.Fence); err != nil {
		return err
	}
	s.arrived(s.l.get(txAccepted))
	return nil
}

// room waits until the receiver is done with what was where message n is to be.
func (s *sender) room(w *worker, n uint32) error {
	if p := s.plan(n); p.long {
		defer func() { s.long = n }()
	}
	for first := true; n-s.consumed > ring || s.plan(n).long && s.consumed < s.long; first = false {
		if !first {
			time.Sleep(5 * time.Millisecond)
		}
		if err := s.progress(); err != nil || w.phase() != running {
			return err
		}
	}
	return nil
}

// progress gets how far the receiver is.
func (s *sender) progress() error {
	var b [4]byte
	sent := s.l.get(txAccepted)
	if err := call(func(ctx context.Context) error { return s.im.Get(ctx, b[:], consumedAt) }); err != nil {
		return err
	}
	s.arrived(sent) // a get comes after what was sent
	s.l.set(txGets, s.l.get(txGets)+1)
	n := binary.LittleEndian.Uint32(b[:])
	if n < s.consumed || uint64(n) > s.l.get(txBegun) {
		return broken("the receiver was done with %d messages, then with %d, of %d", s.consumed, n, s.l.get(txBegun))
	}
	s.consumed = n
	return nil
}

func (s *sender) arrived(n uint64) {
	if n > s.l.get(txArrived) {
		s.l.set(txArrived, n)
	}
}

// message sends message n, in one of four ways.
func (s *sender) message(n uint32) error {
	p := s.plan(n)
	if p.async {
		if err := s.settle(pendingMost - 1); err != nil {
			return err
		}
	}
	if p.async || len(s.buf) < p.size {
		s.buf = make([]byte, p.size)
	}
	b := s.buf[:p.size]
	p.fill(b)
	s.l.set(txBegun, uint64(n))
	err := call(func(ctx context.Context) (err error) {
		q := pending{n: n, src: b}
		switch {
		case p.async && p.notify:
			q.Request, err = s.im.SendNotifyAsync(ctx, b, p.off)
		case p.async:
			q.Request, err = s.im.SendAsync(ctx, b, p.off)
		case p.notify:
			return s.im.SendNotify(ctx, b, p.off)
		default:
			return s.im.Send(ctx, b, p.off)
		}
		if err == nil {
			s.pending = append(s.pending, q)
			s.buf = nil
		}
		return err
	})
	if err != nil {
		return s.refused(n, err)
	}
	s.l.set(txAccepted, uint64(n))
	if !p.async && (s.l.get(txMapped) == 1 || p.size > 64<<10) {
		s.arrived(uint64(n))
	}
	return nil
}

// refused keeps what an error says of message n.
func (s *sender) refused(n uint32, err error) error {
	if errors.Is(err, vmmc.ErrOutcomeUnknown) {
		s.l.set(txUnknown, 1)
	} else if v := s.l.get(txNever); v == 0 || v > uint64(n) {
		s.l.set(txNever, uint64(n))
	}
	return fmt.Errorf("message %d: %w", n, err)
}

// settle waits until at most so many asynchronous messages are in flight.
func (s *sender) settle(most int) error {
	for len(s.pending) > most {
		q := s.pending[0]
		s.pending = s.pending[1:]
		if err := call(q.Wait); err != nil {
			return s.refused(q.n, err)
		}
		s.arrived(uint64(q.n))
	}
	return nil
}

// rest is what becomes of the others when one operation has failed.
func (s *sender) rest() error {
	for len(s.pending) > 0 {
		if err := s.settle(0); err != nil && !errors.Is(err, vmmc.ErrPeerGone) {
			return err
		}
	}
	return nil
}

// others are operations that are no messages, now and then.
func (s *sender) others() error {
	switch d := s.rng.IntN(100); {
	case d < 10:
		return s.add(s.im, counterAt, txAdds, txAdded)
	case d < 15:
		return s.add(s.shared, 0, txShared, txSharedAdd)
	case d < 19:
		return s.mirror()
	case d < 22:
		sent := s.l.get(txAccepted)
		if err := call(s.im.Fence); err != nil {
			return err
		}
		s.arrived(sent)
	}
	return nil
}

// add adds one. No other process adds to the conversation's own counter, so its old value
// says whether all earlier additions were counted once.
func (s *sender) add(im *vmmc.Import, off, begun, done int) error {
	sent := s.l.get(txAccepted)
	s.l.set(begun, s.l.get(begun)+1)
	var old uint64
	err := call(func(ctx context.Context) (err error) {
		old, err = im.FetchAdd64(ctx, off, 1)
		return err
	})
	if err != nil {
		if errors.Is(err, vmmc.ErrOutcomeUnknown) {
			s.l.set(txUnknown, 1)
		} else {
			s.l.set(begun, s.l.get(begun)-1) // surely not done
		}
		return err
	}
	before := s.l.get(done)
	s.l.set(done, before+1)
	s.arrived(sent)
	if im == s.im && old != before {
		return broken("the counter was %d after %d additions", old, before)
	}
	return nil
}

// mirror sends words and gets them again: a get has what its process has sent before.
func (s *sender) mirror() error {
	if s.echo == nil {
		s.echo = make([]byte, 2*echoSize)
	}
	size := 4 * (1 + s.rng.IntN(echoSize/4))
	src, dst := s.echo[:size], s.echo[echoSize:][:size]
	for i := 0; i < size; i += 4 {
		binary.LittleEndian.PutUint32(src[i:], s.rng.Uint32())
	}
	if err := call(func(ctx context.Context) error { return s.im.Send(ctx, src, echoAt) }); err != nil {
		return err
	}
	if err := call(func(ctx context.Context) error { return s.im.Get(ctx, dst, echoAt) }); err != nil {
		return err
	}
	s.l.set(txGets, s.l.get(txGets)+1)
	if !bytes.Equal(src, dst) {
		return broken("a get of %d bytes does not have what was sent before", size)
	}
	return nil
}
