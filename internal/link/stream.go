package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The states of a stream's token (docs/models: handoff). Only the holder
// receives and arms.
const (
	free uint32 = iota
	held
	missed // held, and an event came off the set meanwhile
)

// drain bounds how many receive calls one turn makes before others get theirs.
const drain = 32

// handler is the importing or the exporting side above a stream.
type handler interface {
	// frame judges a header. Called with rmu held.
	frame(h *wire.Header) error
	// place says where the next of rest payload bytes go; there may be room for
	// fewer there, and it is called again. nil discards the rest. Called with rmu held.
	place(rest int) []byte
	// placed is called, with rmu held, once the payload is in place.
	placed(h *wire.Header) error
	// settled is called with rmu held at the end of a turn in which frames came, and when what is later is due. more says that part of another one did,
	// and looks that whoever holds the token looks on. What can wait for that is later: it is called again before long.
	settled(more, looks bool) (later bool)
	// next gives the next frame that this side has to send on its own account.
	// Called with tmu held.
	next(h *wire.Header) (payload []byte, ok bool)
	// farewell gives a frame that this side owes when the link ends. Called with rmu and tmu held.
	farewell(h *wire.Header) bool
	// blame is called when the kernel could not read what was to be sent. Called with tmu held.
	blame()
	// unwritable is called when what is arriving cannot be stored: the rest of its payload goes nowhere. Called with rmu held.
	unwritable(err error)
	// lost is called once, when the stream is closed, with no lock held.
	lost(err error)
	// interrupted is called, with rmu and tmu held, when the connection is gone and the
	// link is not, and away then with no lock held; it may take its time.
	interrupted()
	away(why error)
}

// stream is one socket: raw, non-blocking, in the engine's epoll set.
type stream struct {
	e         *Engine
	h         handler
	id        uint64
	token     atomic.Uint32
	warm      atomic.Bool
	idle      int         // looks in vain since the last frame; with the token
	passed    int         // see passOver; with the token
	sought    atomic.Bool // somebody sleeps until something comes, whom another one's looks serve; a hint: who misses it looks seldom for a while
	later     bool        // an acknowledgement was put off, for whoever lets go of the token, or for the rest of what has begun; with the token
	vain      int         // events in a row that brought nothing; with the token
	put       int         // how long ago, in looks, those between two frames that find nothing counting more; with the token
	listening atomic.Bool // armed for reading; stored with the token

	used    atomic.Bool // came to rest since a waiter last saw to the guard's list
	guarded atomic.Bool // is in the guard's list

	count page.Slot // of what goes over the link, both ways

	broken atomic.Bool // the cause is set before
	cause  atomic.Pointer[error]
	notice atomic.Pointer[error] // why the far end will be gone, once it is

	limit   time.Duration // how long the link may be without a connection; see [Terms]
	silence time.Duration // see there, too
	minds   bool          // one of these two is there

	encrypted bool            // all its connections are
	life      context.Context // until it has failed, if it may
	die       func()
	news      func(up bool, why error)
	departed  func(context.Context) (bool, error)
	torn      atomic.Bool // the connection is no good any more, or the link has failed

	losses, resumptions, repeated atomic.Uint64

	source string
	from   *foreign.Source // of descriptors that the far end had a hand in; nil between nodes

	rmu sync.Mutex // receiving; taken before tmu
	fd  int        // changed with rmu and tmu held; -1 when closed
	rx  receiver

	heard uint32 // changes when anything comes; with rmu

	tmu sync.Mutex // transmitting: never held across a wait
	wfd int        // a second descriptor, armed for writing independently; -1 before the first need
	tx  transmitter

	conn uint32 // changes with the connection; with tmu
}

// start puts the socket under the engine's care, which owns it from now on. near is of a link on one node.
func (s *stream) start(e *Engine, fd int, h handler, near bool) error {
	s.e, s.h, s.fd, s.wfd = e, h, fd, -1
	if near {
		s.from = foreign.From(s.source)
	}
	if err := s.admit(fd); err != nil {
		s.close(fd)
		s.from.Release()
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	s.listening.Store(true)
	s.rx.quiet = !s.encrypted && unix.Piecewise(fd)
	s.tx.pads(s.rx.quiet)
	s.keepShort()
	s.patience()
	// With rmu: the first event, and the end, may come before this returns.
	s.rmu.Lock()
	defer s.rmu.Unlock()
	_, out := h.(*Out)
	s.count = e.counters.Take(out)
	if err := e.register(s); err != nil {
		s.count.Free()
		e.forget(s)
		s.close(fd)
		s.from.Release()
		s.fd = -1
		return err
	}
	return nil
}

// admit looks at a socket before it is used. On one node it may be the far end's work, and the far end may
// hold it too.
func (s *stream) admit(fd int) error {
	if s.from == nil {
		return unix.IsStream(fd)
	}
	s.from.Took(fd)
	if err := unix.IsLocalStream(fd); err != nil {
		return err
	}
	// Of a socket that this side has made nobody else has the option; the exporter makes both.
	if _, out := s.h.(*Out); !unix.RefuseRights(fd) || out {
		s.rx.passed, s.rx.special = &unix.Passed{Came: func(fds []int) { s.from.Took(fds...) }}, true
	}
	return nil
}

// close closes a descriptor of the connection, and does not wait where the far end could make that slow.
func (s *stream) close(fd int) { foreign.Close(fd) }

// hangUp is close where the connection ends.
func (s *stream) hangUp(fd int) {
	if s.from == nil { // between nodes: what was sent is on its way yet
		s.close(fd)
		return
	}
	foreign.Disconnect(fd)
}

// try takes the token if it is free.
func (s *stream) try() bool { return s.token.CompareAndSwap(free, held) }

// tryQuiet takes the token for polling. The descriptor is disarmed: otherwise
// each message that the poller takes would also wake the background goroutine's
// thread, for nothing.
func (s *stream) tryQuiet() bool {
	if !s.try() {
		return false
	}
	if s.listening.Load() {
		s.rmu.Lock()
		s.listening.Store(false) // with the descriptor that is disarmed: a new one is armed, and listening, from when the link resumes
		if s.fd >= 0 {
			s.e.ep.Disarm(s.fd, s.id<<1)
		}
		s.rmu.Unlock()
	}
	return true
}

// readable serves an event.
func (s *stream) readable() {
	for !s.try() {
		if s.token.CompareAndSwap(held, missed) || s.token.Load() == missed {
			return // the holder will look again before it lets go
		}
	}
	if s.receive(drain) {
		s.vain = 0
	} else if s.vain++; s.vain > maxVain {
		s.vain = 0
		s.unclear()
	}
	if s.awaited() {
		s.listening.Store(false) // the event has disarmed it
		s.rest()
		return
	}
	s.release()
}

// maxVain is how many events in a row may bring nothing before the socket is asked why. Others may have taken what
// the events told of, and a cipher needs several parts of a record.
const maxVain = 64

// unclear ends a connection whose events do not stop although there is nothing to receive.
func (s *stream) unclear() {
	s.rmu.Lock()
	bad := s.fd >= 0 && unix.Unclear(s.fd)
	s.rmu.Unlock()
	if bad {
		s.lose(Gone("the socket tells of something that is not there to receive"))
	}
}

// settle sends what was put off; waits says that the rest of what has begun is seen soon, so an acknowledgement may
// wait for it.
func (s *stream) settle(waits bool) {
	s.rmu.Lock()
	s.later = s.h.settled(waits && s.rx.begun(), false)
	s.rmu.Unlock()
}

// release arms the descriptor and lets go. Arming first: the kernel looks again
// when it arms, so what came since the last receive raises an event, and the
// event either finds the token free or leaves its mark for this loop.
func (s *stream) release() {
	if invariant.Enabled {
		s.checkHeld("arm")
	}
	if s.later { // nobody looks on; the rest of what has begun raises an event
		s.settle(true)
	}
	for {
		s.listening.Store(true)
		s.rmu.Lock()
		if s.fd >= 0 && !s.torn.Load() { // a descriptor that has hung up raises events until it is closed, which takes a moment
			_ = s.rx.empty(s.fd) // what is known would raise an event; an error is there at the next look
			_ = s.e.ep.Arm(s.fd, s.id<<1, false)
		}
		s.rx.spare()
		s.rmu.Unlock()
		if s.token.CompareAndSwap(held, free) {
			return
		}
		s.token.Store(held)
		s.receive(drain)
	}
}

// How long an acknowledgement is put off at most, in looks, and for how many of them one counts that finds nothing between two
// frames: then more does not come at once.
const (
	putOff = 64
	lull   = 16
)

// receive takes what the socket has, at most turns times, and wakes sleepers.
// The caller holds the token. Who comes for one turn looks on: it calls it again, or rest, or release.
func (s *stream) receive(turns int) (got bool) {
	if invariant.Enabled {
		s.checkHeld("receive")
	}
	if s.torn.Load() {
		return false // what follows a malformed frame is not looked at
	}
	s.rmu.Lock()
	got, err := s.rx.take(s, turns)
	switch {
	case err != nil:
		s.ended(err)
	case got:
		s.heard++
		if s.put++; !s.later {
			s.put = 0
		}
		over := s.put >= putOff
		s.later = s.h.settled(s.rx.begun() && !over, turns == 1 && !over)
	case s.later:
		if s.put++; !s.rx.begun() {
			s.put += lull - 1
		}
		if s.put >= putOff {
			s.later = s.h.settled(false, false)
		}
	}
	s.rmu.Unlock()
	if got {
		s.e.sleepers.Arrived() // after the words were stored
	}
	return got
}

// ended says what an error of receiving means for the link; rmu is held.
func (s *stream) ended(err error) {
	if !isProtocol(err) && !errors.Is(err, errBye) {
		err = s.broke(err)
	}
	if isProtocol(err) && !errors.Is(err, wire.ErrCorrupt) || errors.Is(err, errBye) {
		s.fail(err)
	} else {
		s.lose(err)
	}
}

// fail ends the stream. It may be called under any lock; the closing itself
// happens on a goroutine of its own.
func (s *stream) fail(err error) {
	if n := s.notice.Load(); n != nil && errors.Is(err, ErrGone) {
		err = *n
	}
	if !s.cause.CompareAndSwap(nil, &err) {
		return
	}
	s.torn.Store(true)
	s.broken.Store(true)
	s.die()
	s.e.sleepers.Wake()
	go s.finish(err)
}

// Expect says that the far end is going to end the link, or has done so just now,
// and why. why is [ErrGone] too.
func (s *stream) Expect(why error) {
	s.notice.Store(&why)
	// The end can be here before the news of its reason.
	if c := s.cause.Load(); c != nil && errors.Is(*c, ErrGone) {
		s.cause.CompareAndSwap(c, &why)
	}
}

// err is why the stream ended, or nil.
func (s *stream) err() error {
	if p := s.cause.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *stream) finish(err error) {
	s.rmu.Lock()
	s.tmu.Lock()
	if s.fd >= 0 {
		_ = s.rx.empty(s.fd) // closed with bytes in it, a TCP socket drops what it has to send
	}
	s.bye(err)
	for _, fd := range []int{s.fd, s.wfd} {
		if fd >= 0 {
			s.e.ep.Remove(fd)
			s.hangUp(fd)
		}
	}
	s.fd, s.wfd = -1, -1
	s.rx.drop()
	s.tx.drop()
	s.tmu.Unlock()
	s.rmu.Unlock()
	s.h.lost(err)
	s.count.Free()
	s.from.Release()
	s.e.sleepers.Wake()
	s.e.forget(s)
}
