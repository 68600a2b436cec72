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
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// The states of a stream's token (docs/models: handoff). Only the holder
// receives and arms.
const (
	tokenFree uint32 = iota
	tokenHeld
	tokenMissed // held, and an event came off the set meanwhile
)

// maxRecvCalls bounds how many receive calls one turn makes before others get theirs.
const maxRecvCalls = 32

// frameHandler is the importing or the exporting side above a stream.
type frameHandler interface {
	// checkFrame judges a header. Called with rmu held.
	checkFrame(h *wire.Header) error
	// payloadBuffer says where the next of rest payload bytes go; there may be room for
	// fewer there, and it is called again. nil discards the rest. Called with rmu held.
	payloadBuffer(rest int) []byte
	// handleFrame is called, with rmu held, once the payload is in place.
	handleFrame(h *wire.Header) error
	// batchReceived is called with rmu held at the end of a turn in which frames came, and when what is later is due. more says that part of another one did,
	// and looks that whoever holds the token looks on. What can wait for that is later: it is called again before long.
	batchReceived(more, looks bool) (later bool)
	// nextFrame gives the next frame that this side has to send on its own account.
	// Called with tmu held.
	nextFrame(h *wire.Header) (payload []byte, ok bool)
	// finalFrame gives a frame that this side owes when the link ends. Called with rmu and tmu held.
	finalFrame(h *wire.Header) bool
	// sendFaulted is called when the kernel could not read what was to be sent. Called with tmu held.
	sendFaulted()
	// storeFaulted is called when what is arriving cannot be stored: the rest of its payload goes nowhere. Called with rmu held.
	storeFaulted(err error)
	// linkClosed is called once, when the stream is closed, with no lock held.
	linkClosed(err error)
	// resetConnState is called, with rmu and tmu held, when the connection is gone and the
	// link is not, and away then with no lock held; it may take its time.
	resetConnState()
	reconnect(why error)
}

// stream is one socket: raw, non-blocking, in the engine's epoll set.
type stream struct {
	e            *Engine
	h            frameHandler
	id           uint64
	token        atomic.Uint32
	hot          atomic.Bool
	emptyPolls   int         // looks in vain since the last frame; with the token
	skippedPolls int         // see skipPoll; with the token
	waiterAsleep atomic.Bool // somebody sleeps until something comes, whom another one's looks serve; a hint: who misses it looks seldom for a while
	ackDeferred  bool        // an acknowledgement was put off, for whoever lets go of the token, or for the rest of what has begun; with the token
	emptyEvents  int         // events in a row that brought nothing; with the token
	ackAge       int         // how long ago, in looks, those between two frames that find nothing counting more; with the token
	readArmed    atomic.Bool // armed for reading; stored with the token

	touched    atomic.Bool // came to rest since a waiter last saw to the guard's list
	onWatchdog atomic.Bool // is in the guard's list

	counters shmlayout.Slot // of what goes over the link, both ways

	failed        atomic.Bool // the cause is set before
	cause         atomic.Pointer[error]
	expectedCause atomic.Pointer[error] // why the far end will be gone, once it is

	reconnectLimit time.Duration // how long the link may be without a connection; see [Terms]
	silenceLimit   time.Duration // see there, too
	needsProbes    bool          // one of these two is there

	encrypted    bool            // all its connections are
	lifeCtx      context.Context // until it has failed, if it may
	endLife      func()
	onConnChange func(up bool, why error)
	peerExited   func(context.Context) (bool, error)
	disconnected atomic.Bool // the connection is no good any more, or the link has failed

	disconnects, resumes, resentBytes atomic.Uint64

	peerName string
	peerFDs  *foreign.Source // of descriptors that the far end had a hand in; nil between nodes

	rmu sync.Mutex // receiving; taken before tmu
	fd  int        // changed with rmu and tmu held; -1 when closed
	rx  receiver

	recvCount uint32 // changes when anything comes; with rmu

	tmu sync.Mutex // transmitting: never held across a wait
	wfd int        // a second descriptor, armed for writing independently; -1 before the first need
	tx  transmitter

	connGen uint32 // changes with the connection; with tmu
}

// start puts the socket under the engine's care, which owns it from now on. near is of a link on one node.
func (s *stream) start(e *Engine, fd int, h frameHandler, local bool) error {
	s.e, s.h, s.fd, s.wfd = e, h, fd, -1
	if local {
		s.peerFDs = foreign.From(s.peerName)
	}
	if err := s.checkSocket(fd); err != nil {
		s.closeFD(fd)
		s.peerFDs.Release()
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	s.readArmed.Store(true)
	s.rx.canPeek = !s.encrypted && unix.Piecewise(fd)
	s.tx.startPadCount(s.rx.canPeek)
	s.tuneForRTT()
	s.setKernelTimeout()
	// With rmu: the first event, and the end, may come before this returns.
	s.rmu.Lock()
	defer s.rmu.Unlock()
	_, out := h.(*Requester)
	s.counters = e.counters.Take(out)
	if err := e.register(s); err != nil {
		s.counters.Free()
		e.unregister(s)
		s.closeFD(fd)
		s.peerFDs.Release()
		s.fd = -1
		return err
	}
	return nil
}

// checkSocket looks at a socket before it is used. On one node it may be the far end's work, and the far end may
// hold it too.
func (s *stream) checkSocket(fd int) error {
	if s.peerFDs == nil {
		return unix.IsStream(fd)
	}
	s.peerFDs.Took(fd)
	if err := unix.IsLocalStream(fd); err != nil {
		return err
	}
	// Of a socket that this side has made nobody else has the option; the exporter makes both.
	if _, out := s.h.(*Requester); !unix.RefuseRights(fd) || out {
		s.rx.passedFDs, s.rx.viaSpecial = &unix.Passed{Came: func(fds []int) { s.peerFDs.Took(fds...) }}, true
	}
	return nil
}

// closeFD closes a descriptor of the connection, and does not wait where the far end could make that slow.
func (s *stream) closeFD(fd int) { foreign.Close(fd) }

// disconnectFD is close where the connection ends.
func (s *stream) disconnectFD(fd int) {
	if s.peerFDs == nil { // between nodes: what was sent is on its way yet
		s.closeFD(fd)
		return
	}
	foreign.Disconnect(fd)
}

// tryToken takes the token if it is free.
func (s *stream) tryToken() bool { return s.token.CompareAndSwap(tokenFree, tokenHeld) }

// tryTokenDisarmed takes the token for polling. The descriptor is disarmed: otherwise
// each message that the poller takes would also wake the background goroutine's
// thread, for nothing.
func (s *stream) tryTokenDisarmed() bool {
	if !s.tryToken() {
		return false
	}
	if s.readArmed.Load() {
		s.rmu.Lock()
		s.readArmed.Store(false) // with the descriptor that is disarmed: a new one is armed, and listening, from when the link resumes
		if s.fd >= 0 {
			s.e.ep.Disarm(s.fd, s.id<<1)
		}
		s.rmu.Unlock()
	}
	return true
}

// handleReadable serves an event.
func (s *stream) handleReadable() {
	for !s.tryToken() {
		if s.token.CompareAndSwap(tokenHeld, tokenMissed) || s.token.Load() == tokenMissed {
			return // the holder will look again before it lets go
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

// maxEmptyEvents is how many events in a row may bring nothing before the socket is asked why. Others may have taken what
// the events told of, and a cipher needs several parts of a record.
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

// flushDeferredAck sends what was put off; waits says that the rest of what has begun is seen soon, so an acknowledgement may
// wait for it.
func (s *stream) flushDeferredAck(waits bool) {
	s.rmu.Lock()
	s.ackDeferred = s.h.batchReceived(waits && s.rx.midFrame(), false)
	s.rmu.Unlock()
}

// releaseArmed arms the descriptor and lets go. Arming first: the kernel looks again
// when it arms, so what came since the last receive raises an event, and the
// event either finds the token free or leaves its mark for this loop.
func (s *stream) releaseArmed() {
	if invariant.Enabled {
		s.checkHeld("arm")
	}
	if s.ackDeferred { // nobody looks on; the rest of what has begun raises an event
		s.flushDeferredAck(true)
	}
	for {
		s.readArmed.Store(true)
		s.rmu.Lock()
		if s.fd >= 0 && !s.disconnected.Load() { // a descriptor that has hung up raises events until it is closed, which takes a moment
			_ = s.rx.consumePeeked(s.fd) // what is known would raise an event; an error is there at the next look
			_ = s.e.ep.Arm(s.fd, s.id<<1, false)
		}
		s.rx.releaseBuffer()
		s.rmu.Unlock()
		if s.token.CompareAndSwap(tokenHeld, tokenFree) {
			return
		}
		s.token.Store(tokenHeld)
		s.receive(maxRecvCalls)
	}
}

// How long an acknowledgement is put off at most, in looks, and for how many of them one counts that finds nothing between two
// frames: then more does not come at once.
const (
	maxAckAge    = 64
	emptyPollAge = 16
)

// receive takes what the socket has, at most turns times, and wakes sleepers.
// The caller holds the token. Who comes for one turn looks on: it calls it again, or rest, or release.
func (s *stream) receive(maxCalls int) (got bool) {
	if invariant.Enabled {
		s.checkHeld("receive")
	}
	if s.disconnected.Load() {
		return false // what follows a malformed frame is not looked at
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

// handleRecvError says what an error of receiving means for the link; rmu is held.
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

// fail ends the stream. It may be called under any lock; the closing itself
// happens on a goroutine of its own.
func (s *stream) fail(err error) {
	if n := s.expectedCause.Load(); n != nil && errors.Is(err, ErrGone) {
		err = *n
	}
	if !s.cause.CompareAndSwap(nil, &err) {
		return
	}
	s.disconnected.Store(true)
	s.failed.Store(true)
	s.endLife()
	s.e.sleepers.Wake()
	go s.teardown(err)
}

// ExpectEnd says that the far end is going to end the link, or has done so just now,
// and why. why is [ErrGone] too.
func (s *stream) ExpectEnd(why error) {
	s.expectedCause.Store(&why)
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

func (s *stream) teardown(err error) {
	s.rmu.Lock()
	s.tmu.Lock()
	if s.fd >= 0 {
		_ = s.rx.consumePeeked(s.fd) // closed with bytes in it, a TCP socket drops what it has to send
	}
	s.bye(err)
	for _, fd := range []int{s.fd, s.wfd} {
		if fd >= 0 {
			s.e.ep.Remove(fd)
			s.disconnectFD(fd)
		}
	}
	s.fd, s.wfd = -1, -1
	s.rx.close()
	s.tx.discard()
	s.tmu.Unlock()
	s.rmu.Unlock()
	s.h.linkClosed(err)
	s.counters.Free()
	s.peerFDs.Release()
	s.e.sleepers.Wake()
	s.e.unregister(s)
}

// Terms are what both sides of a link have agreed on in its hello.
type Terms struct {
	PeerName string // names the far end on one node, for package foreign
	Checked  bool   // each payload has a checksum
	Cipher   Cipher // of the first connection; nil: the link is in clear

	// How long the link may be without a connection before it fails; 0: it fails with
	// the connection.
	ReconnectLimit time.Duration
	OnConnChange   func(up bool, why error) // of a connection that was lost, and of a link that goes on; may be called under its locks
	Redial         Redial                   // makes another connection; the importing side's alone

	// Whether the importing process is known to have ended, or why that could not be asked; the exporting side's alone.
	PeerExited func(context.Context) (bool, error)

	// How long nothing may be heard of the other side, of which something is awaited,
	// before the connection is given up; 0: for ever.
	SilenceLimit time.Duration
}

// setTerms sets what holds before the first frame.
func (s *stream) setTerms(t Terms) {
	s.peerName = t.PeerName
	s.tx.checksum, s.rx.checksum, s.reconnectLimit, s.peerExited, s.silenceLimit = t.Checked, t.Checked, t.ReconnectLimit, t.PeerExited, t.SilenceLimit
	s.needsProbes = t.ReconnectLimit > 0 || t.SilenceLimit > 0
	s.encrypted = t.Cipher != nil
	s.rx.buffered = s.rx.checksum || s.encrypted
	s.setCipher(t.Cipher)
	if s.onConnChange = t.OnConnChange; s.onConnChange == nil {
		s.onConnChange = func(bool, error) {}
	}
	s.lifeCtx, s.endLife = context.Background(), func() {}
	if t.ReconnectLimit > 0 {
		s.lifeCtx, s.endLife = context.WithCancel(s.lifeCtx)
	}
}

// Terms are those of the link.
func (s *stream) Terms() Terms {
	return Terms{Checked: s.tx.checksum, ReconnectLimit: s.reconnectLimit}
}

// Encrypted says whether all connections of the link are.
func (s *stream) Encrypted() bool { return s.encrypted }

// ConnStats is how often the link lost its connection, and how often it was resumed.
func (s *stream) ConnStats() (losses, resumptions uint64) {
	return s.disconnects.Load(), s.resumes.Load()
}

// ChecksumErrors is how many frames came with a checksum that was wrong.
func (s *stream) ChecksumErrors() uint64 { return s.rx.checksumErrors.Load() }

// Cipher is what the bytes of an encrypted connection go through, between a link and its
// socket. One goroutine sends while one receives.
type Cipher interface {
	// Send sends what is in pieces. n says how many bytes have gone, 0 that the socket has
	// no room; the next call has those behind them, unchanged, and maybe more.
	Send(fd int, pieces ...[]byte) (n int, err error)

	// Recv receives as [unix.IO.Recv] does, and with -1 in place of the descriptor what the
	// cipher has already. An error that is [wire.ErrCorrupt] is of bytes
	// that the far end has not sent.
	Recv(fd int, b []byte) (n int, err error)

	// HasData says that Recv may have something that is not in the socket any more.
	HasData() bool

	// Drop ends the use of it.
	Drop()
}

// cipherWriter is a cipher, and room for what it is given: of a call by an interface the
// compiler cannot tell that it keeps nothing.
type cipherWriter struct {
	Cipher
	pieces [unix.MaxPieces][]byte
}

// setCipher has the next connection go through c, or in clear; rmu and tmu are held, or nobody
// is there yet.
func (s *stream) setCipher(c Cipher) {
	if c == nil {
		return
	}
	s.rx.cipher, s.rx.viaSpecial = c, true
	s.tx.cipher = &cipherWriter{Cipher: c}
}

// encrypt makes one call for all that is under way.
func (t *transmitter) encrypt(fd int) (n int, err error) {
	c, k := t.cipher, 0
	for i := range t.parts[t.firstPart:t.partCount] {
		p := &t.parts[t.firstPart+i]
		c.pieces[k], c.pieces[k+1] = p.head, p.payload
		k += 2
	}
	n, err = c.Send(fd, c.pieces[:k]...)
	clear(c.pieces[:k])
	return n, err
}

// Drain ends a link because the process at its far end is gone, or is taken for gone
// (docs/models/gone.pml). What that process has sent is received first: until the connection ends,
// nothing comes for timeout.Drain, or timeout.Drained has passed. It returns at once, and may be
// called under any lock. why is [ErrGone] too.
func (rq *Requester) Drain(why error) { rq.drain(why, func() {}) }

// Drain is that of the importing side. The importer hears which of its messages were applied.
func (rs *Responder) Drain(why error) { rs.drain(why, func() { rs.markAckDue(true); rs.pumpNow() }) }

// HeardPeer reports whether the importer has shown that it lived when the link had begun: it has sent a
// frame, or on this node has taken the link. It is for the function that is called when the link
// has ended.
func (rs *Responder) HeardPeer() bool { return rs.heardPeer }

// drainInterval is the pause between two looks at a link that ends.
const drainInterval = 5 * time.Millisecond

// byeDelay is how long nothing comes before the far end is told that the link is over. A process
// that has ended closes its connections itself: what is written to them then has the far end's
// kernel drop what it has not sent yet.
const byeDelay = 100 * time.Millisecond

func (s *stream) drain(why error, settle func()) {
	s.ExpectEnd(why) // a connection that is lost from here on is not made anew
	s.e.wg.Go(func() {
		s.drainLoop(why, func() {
			s.rmu.Lock()
			settle()
			s.rmu.Unlock()
			s.sendControl(wire.Header{Type: wire.Bye, Word: wire.ByeOther})
		})
	})
}

// drainLoop receives until the link ends, and ends it when nothing is left. It looks at the
// socket itself, and then at the clock: a background goroutine that gets no processor does not make
// the far end silent.
func (s *stream) drainLoop(why error, bye func()) {
	begun := time.Now()
	last, heard := begun, uint32(0)
	for looks := 0; !s.failed.Load(); looks++ {
		if s.disconnected.Load() { // what a lost connection has brought was received
			s.fail(why)
			return
		}
		if s.tryToken() {
			s.receive(maxRecvCalls)
			s.releaseArmed()
		}
		s.rmu.Lock()
		h := s.recvCount
		s.rmu.Unlock()
		now := time.Now()
		if h != heard {
			heard, last, looks = h, now, 0
		}
		if bye != nil && (now.Sub(last) > byeDelay || now.Sub(begun) > timeout.Drain) {
			bye()
			bye = nil
		}
		silent := now.Sub(last) > timeout.Drain && looks > int(timeout.Drain/drainInterval)/4 // the process may have been stopped
		if silent || now.Sub(begun) > timeout.Drained {
			s.fail(why)
			return
		}
		sleepWithin(s.lifeCtx, drainInterval)
	}
}
