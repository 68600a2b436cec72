package link

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// frameHandler is the importing or the exporting side above a stream.
type frameHandler interface {
	// checkFrame checks a header. Called with rmu held.
	checkFrame(h *wire.Header) error
	// payloadBuffer returns the memory for the next of rest payload bytes. It may return less; then
	// it is called again. nil discards the rest. Called with rmu held.
	payloadBuffer(rest int) []byte
	// handleFrame is called with rmu held once the payload is in its memory.
	handleFrame(h *wire.Header) error
	// batchReceived is called with rmu held after receiving frames, and again when a deferred
	// acknowledgement is due. more reports that part of another frame has arrived. polling reports
	// that the token's holder polls on. ackDeferred reports that an acknowledgement may wait;
	// batchReceived is then called again soon.
	batchReceived(more, polling bool) (ackDeferred bool)
	// nextFrame returns the next frame that this side has to send by itself. Called with tmu held.
	nextFrame(h *wire.Header) (payload []byte, ok bool)
	// finalFrame returns a frame that this side still owes when the link ends. Called with rmu and
	// tmu held.
	finalFrame(h *wire.Header) bool
	// sendFaulted is called when the kernel could not read memory that was to be sent. Called with
	// tmu held.
	sendFaulted()
	// storeFaulted is called when an arriving payload cannot be stored; its rest is discarded.
	// Called with rmu held.
	storeFaulted(err error)
	// discardAll is called once, when the stream is closed, with no lock held. The link releases
	// what it still used. linkClosed is called after it, when the link is released.
	discardAll(err error)
	linkClosed(err error)
	// inboxDue reports whether asynchronous messages wait in the inbox.
	inboxDue() bool
	// bulkInFlight reports whether a long message to a low-RTT peer is unacknowledged. Its
	// acknowledgement, or room in the socket, comes soon.
	bulkInFlight() bool
	// resetConnState is called with rmu and tmu held when the connection is lost but the link
	// survives. reconnect is called after it, with no lock held; it may block.
	resetConnState()
	reconnect(why error)
}

// stream is one end of a link's connection: a raw, non-blocking socket in the engine's epoll set.
// It survives its connection where the link does.
type stream struct {
	e         *Engine
	h         frameHandler
	importing bool // This is the importing side. Set before the start.
	id        uint64
	token     token
	hot       atomic.Bool // In Engine.hot: waiters poll this link.
	// Polls since the last frame. Guarded by the token.
	emptyPolls   int
	skippedPolls int // See skipPoll. Guarded by the token.
	// A goroutine sleeps until something arrives here, so another waiter's polls serve it. A hint:
	// a waiter that misses it polls this link rarely for a while.
	waiterAsleep atomic.Bool
	// An acknowledgement is owed. The token's holder sends it on release or when the partial frame
	// completes. Guarded by the token.
	ackDeferred bool
	// Consecutive events without data. Guarded by the token.
	emptyEvents int
	// Age of the deferred acknowledgement in polls; a poll between two frames that finds nothing
	// counts as several. Guarded by the token.
	ackAge    int
	readArmed atomic.Bool // Armed for reading. Stored by the token's holder.

	// Released unarmed since the last sweep of the watchdog's list.
	touched    atomic.Bool
	onWatchdog atomic.Bool // In the watchdog's list.

	counters shmlayout.Slot // Of the traffic of the link in both directions.

	// The last lock in the order: it may be taken under any other one. Guards the state. transition
	// alone stores state and failed.
	stateMu sync.Mutex
	state   atomic.Uint32 // A connState.
	failed  atomic.Bool   // The link has ended: for waiters. cause is set before.
	// Why the link has ended. Stored under stateMu.
	cause         atomic.Pointer[error]
	expectedCause error // Cause to report if the peer ends the link. Guarded by stateMu.

	reconnectLimit time.Duration // Longest time without a connection. See [Terms].
	silenceLimit   time.Duration // See [Terms].
	needsProbes    bool          // reconnectLimit or silenceLimit is set.

	encrypted bool // All connections of the link are encrypted.
	// Ends when the link fails, if it survives its connections.
	lifeCtx      context.Context
	endLife      func()
	onConnChange func(to shmlayout.ConnState, why error)
	peerExited   func(context.Context) (bool, error)

	disconnects, resumes atomic.Uint64

	peerName string
	// Accounts for descriptors that the peer shares. nil between nodes.
	peerFDs *foreign.Source

	rmu sync.Mutex // Guards receiving. Taken before tmu.
	fd  int        // Changed under rmu and tmu; -1 when closed.
	rx  receiver

	recvCount uint32 // Changes whenever data arrives. Guarded by rmu.

	tmu sync.Mutex // Guards transmitting. Never held across a wait.
	// A duplicate of fd that is armed for writing independently. -1 before it is needed.
	wfd int
	tx  transmitter

	connGen uint32 // Changes with the connection. Guarded by tmu.
}

// start registers the socket with the engine, which owns it from then on. local is set for a link
// on one node.
func (s *stream) start(e *Engine, fd int, h frameHandler, local bool) error {
	s.e, s.h, s.fd, s.wfd = e, h, fd, -1
	if local {
		s.peerFDs = foreign.From(s.peerName)
	}
	if err := s.checkSocket(fd); err != nil {
		foreign.Close(fd)
		s.peerFDs.Release()
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	s.readArmed.Store(true)
	s.setUpConn()
	// Hold rmu: the first event, and the link's end, may come before this returns.
	s.rmu.Lock()
	defer s.rmu.Unlock()
	s.counters = e.counters.Take(s.importing)
	s.moveFrom(shmlayout.ConnEstablished, shmlayout.ConnUnknown)
	if err := e.register(s); err != nil {
		s.counters.Free()
		e.unregister(s)
		s.closeConn()
		s.peerFDs.Release()
		return err
	}
	return nil
}

// Describe records the peer in the link's counters.
func (s *stream) Describe(peer shmlayout.LinkPeer) {
	s.counters.Describe(s.peerFDs != nil, s.encrypted, peer)
}

// Close ends the link with [ErrClosed].
func (s *stream) Close() { s.fail(ErrClosed) }

// setUpConn prepares a new connection. The caller holds rmu, or no other goroutine knows the link
// yet.
func (s *stream) setUpConn() {
	s.rx.canPeek = !s.encrypted && unix.Piecewise(s.fd)
	s.tx.startPadCount(s.rx.canPeek)
	s.tx.tuneForRTT(s.fd)
	if s.silenceLimit > 0 {
		unix.GiveUpAfter(s.fd, s.silenceLimit)
	}
}

// checkSocket checks a socket before its use. On one node the peer may have made it, and may hold
// it too.
func (s *stream) checkSocket(fd int) error {
	if s.peerFDs == nil {
		return unix.IsStream(fd)
	}
	s.peerFDs.Took(fd)
	if err := unix.IsLocalStream(fd); err != nil {
		return err
	}
	// Only this side can set the option on a socket that it has made. The exporter makes both ends.
	if !unix.RefuseRights(fd) || s.importing {
		s.rx.passedFDs, s.rx.viaSpecial = &unix.Passed{Came: func(fds []int) { s.peerFDs.Took(fds...) }}, true
	}
	return nil
}

// closeConn closes the connection's descriptors. It does not wait where the peer could delay that.
// The caller holds rmu and tmu, or no other goroutine knows the link yet.
func (s *stream) closeConn() {
	for _, fd := range []int{s.fd, s.wfd} {
		if fd < 0 {
			continue
		}
		s.e.ep.Remove(fd)
		if s.peerFDs == nil { // between nodes: the data sent may still be in flight
			foreign.Close(fd)
		} else {
			foreign.Disconnect(fd)
		}
	}
	s.fd, s.wfd = -1, -1
}

// ExpectEnd announces that the peer is going to end the link, or has just done so, and the cause to
// report. why is [ErrGone] too.
func (s *stream) ExpectEnd(why error) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.expectedCause = why
	switch {
	case s.State() == shmlayout.ConnEstablished || s.State() == shmlayout.ConnRetransmitting:
		s.transition(shmlayout.ConnDraining)
	case errors.Is(s.err(), ErrGone): // the end was seen before its cause was known
		s.cause.Store(&why)
	}
}

func (s *stream) teardown(err error) {
	s.rmu.Lock()
	s.tmu.Lock()
	if s.fd >= 0 {
		// a TCP socket that is closed with unread bytes drops what it has to send
		_ = s.rx.consumePeeked(s.fd)
	}
	s.bye(err)
	s.closeConn()
	s.rx.close()
	s.tx.discard()
	s.tmu.Unlock()
	s.rmu.Unlock()
	s.h.discardAll(err)
	// With rmu held, so that a cancellation that has found the link ended is done before requests say
	// that the link's end is theirs.
	s.rmu.Lock()
	s.moveFrom(shmlayout.ConnReleased, shmlayout.ConnEnded)
	s.rmu.Unlock()
	s.h.linkClosed(err)
	s.counters.Free()
	s.peerFDs.Release()
	s.e.sleepers.Wake()
	s.e.unregister(s)
}

// Terms are what both sides of a link agreed on in the hello.
type Terms struct {
	PeerName string // Names the peer on one node, for package foreign.
	Checked  bool   // Each payload has a checksum.
	// Of the first connection. nil: the link is not encrypted.
	Cipher Cipher

	// How long the link may be without a connection before it fails. 0: it fails with its
	// connection.
	ReconnectLimit time.Duration
	// Called when the connection is lost (to is [shmlayout.ConnReconnecting]) and when it is made
	// again. May be called under the link's locks.
	OnConnChange func(to shmlayout.ConnState, why error)
	Redial       Redial // Makes another connection. Importing side only.

	// Reports whether the importing process is known to have ended, or why that could not be asked.
	// Exporting side only.
	PeerExited func(context.Context) (bool, error)

	// How long the peer may be silent while it owes something before the connection is given up. 0:
	// for ever.
	SilenceLimit time.Duration
}

// setTerms stores the terms before the first frame.
func (s *stream) setTerms(t Terms) {
	s.peerName = t.PeerName
	s.tx.checksum, s.rx.checksum, s.reconnectLimit, s.peerExited, s.silenceLimit = t.Checked, t.Checked, t.ReconnectLimit, t.PeerExited, t.SilenceLimit
	s.needsProbes = t.ReconnectLimit > 0 || t.SilenceLimit > 0
	s.encrypted = t.Cipher != nil
	s.rx.buffered = s.rx.checksum || s.encrypted
	s.setCipher(t.Cipher)
	if s.onConnChange = t.OnConnChange; s.onConnChange == nil {
		s.onConnChange = func(shmlayout.ConnState, error) {}
	}
	s.lifeCtx, s.endLife = context.Background(), func() {}
	if t.ReconnectLimit > 0 {
		s.lifeCtx, s.endLife = context.WithCancel(s.lifeCtx)
	}
}

// Terms returns the link's terms as far as the peer needs them.
func (s *stream) Terms() Terms {
	return Terms{Checked: s.tx.checksum, ReconnectLimit: s.reconnectLimit}
}

// Encrypted reports whether all connections of the link are encrypted.
func (s *stream) Encrypted() bool { return s.encrypted }

// ConnStats returns how often the link lost its connection and how often it resumed.
func (s *stream) ConnStats() (losses, resumptions uint64) {
	return s.disconnects.Load(), s.resumes.Load()
}

// ChecksumErrors returns the number of frames received with a wrong checksum.
func (s *stream) ChecksumErrors() uint64 { return s.rx.checksumErrors.Load() }

// Cipher encrypts and decrypts the bytes of a connection, between a link and its socket. One
// goroutine may send while one receives.
type Cipher interface {
	// Send sends pieces. n is the number of bytes sent; 0 means that the socket has no room. The
	// next call passes the bytes behind them, unchanged, and maybe more.
	Send(fd int, pieces ...[]byte) (n int, err error)

	// Recv receives as [unix.IO.Recv] does. With fd -1 it returns only what the cipher has already.
	// An error that is [wire.ErrCorrupt] means bytes that the peer did not send.
	Recv(fd int, b []byte) (n int, err error)

	// HasData reports whether Recv may have data that is not in the socket any more.
	HasData() bool

	Drop() // Drop ends the use of the cipher.
}

// setCipher makes the next connection use c; nil means no encryption. The caller holds rmu and tmu,
// or no other goroutine knows the link yet.
func (s *stream) setCipher(c Cipher) {
	if c == nil {
		return
	}
	s.rx.cipher, s.rx.viaSpecial = c, true
	s.tx.cipher = &cipherWriter{Cipher: c}
}

// drainInterval is the pause between two receives on a link that ends.
const drainInterval = 5 * time.Millisecond

// byeDelay is how long nothing must arrive before the peer is told that the link is over. A process
// that has ended closes its connections itself. Writing to a closed connection makes the peer's
// kernel drop what it has not sent yet.
const byeDelay = 100 * time.Millisecond

func (s *stream) drain(why error, settle func()) {
	s.ExpectEnd(why) // a connection lost from here on is not made again
	s.e.wg.Go(func() {
		s.drainLoop(why, func() {
			s.rmu.Lock()
			settle()
			s.rmu.Unlock()
			s.sendControl(wire.Header{Type: wire.Bye, Word: wire.ByeOther})
		})
	})
}

// drainLoop receives until the link ends, and ends it when nothing is left. It receives by itself
// and then reads the clock, so a starved background goroutine does not make the peer look silent.
func (s *stream) drainLoop(why error, bye func()) {
	begun := time.Now()
	last, heard := begun, uint32(0)
	for looks := 0; !s.failed.Load(); looks++ {
		if s.disconnected() { // the data of a lost connection was received
			s.fail(why)
			return
		}
		if s.token.tryAcquire() {
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
		// the process may have been stopped
		silent := now.Sub(last) > timeout.Drain && looks > int(timeout.Drain/drainInterval)/4
		if silent || now.Sub(begun) > timeout.Drained {
			s.fail(why)
			return
		}
		timeout.Sleep(s.lifeCtx, drainInterval)
	}
}
