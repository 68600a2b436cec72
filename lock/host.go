package lock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
)

// Server is what a process hosts under a name.
//
// Experimental: it may change in any release.
type Server struct {
	p           *vmmc.Process
	name        string
	kind        kind
	opts        options
	letterbox   pair.Buffer
	listener    *pair.Listener
	unsubscribe func()

	mu      sync.Mutex
	arbiter arbiter            // Guarded by mu.
	lanes   map[*lane]struct{} // Guarded by mu; nil: the server is closed.
	// Dropped lanes that Close is to close again. Guarded by mu.
	unclosed []*lane

	closeMu sync.Mutex      // Held by Close.
	ctx     context.Context //nolint:containedctx // ends with Close
	end     context.CancelFunc
	wg      sync.WaitGroup // goroutines that close lanes and send answers
}

// arbiter decides which client gets what is hosted. Its methods are called with Server.mu held, and
// never wait.
type arbiter interface {
	// request is called once for each request, unless the client has one already. The arbiter
	// answers it, at once if try is set.
	request(l *lane, seq uint32, try bool)
	withdraw(l *lane, seq uint32)
	release(l *lane, seq uint32, mark bool)
	// leave is called when a client leaves in order. holds reports whether it has what is hosted.
	leave(l *lane, holds bool)
	// gone is called when nothing of a client arrives any more, or when it has broken the protocol.
	gone(l *lane)
	// mayGo reports whether nothing of a client that has closed its export could be in flight.
	mayGo(l *lane) bool
	// waiters is how many requests wait.
	waiters() int
}

// lane is what the host has of one client.
type lane struct {
	s     *Server
	im    *vmmc.Import // the client's
	own   pair.Buffer
	lease vmmc.Word64

	open bool // Guarded by Server.mu: messages of the client count.

	// The newest answer. Guarded by Server.mu.
	value   uint64
	seq     uint32
	sending bool // A goroutine sends it.
	message [answerSize]byte
}

// Host makes a mutex and publishes it under a name, see [vmmc.Export.PublishAs]; [Open] finds it
// there. Errors: [vmmc.ErrBadArg] for an option that cannot be; those of [vmmc.Process.Export] and
// PublishAs.
//
// Experimental: it may change in any release.
func Host(ctx context.Context, p *vmmc.Process, name string, opts ...Option) (*Server, error) {
	return host(ctx, p, name, kindMutex, opts, func(s *Server) arbiter {
		m := &mutexHost{s: s, epoch: s.opts.after >> countBits}
		if s.opts.follows {
			m.mark = died
		}
		return m
	})
}

// host hosts what an arbiter decides about.
func host(
	ctx context.Context, p *vmmc.Process, name string, k kind, opts []Option,
	arbiterOf func(*Server) arbiter,
) (*Server, error) {
	op := fmt.Sprintf("host %s %q", k, name)
	if err := pair.CheckCall(ctx, op); err != nil {
		return nil, err
	}
	s := &Server{p: p, name: name, kind: k, opts: defaults, lanes: map[*lane]struct{}{}}
	if err := s.opts.apply(op, k, opts); err != nil {
		return nil, err
	}
	s.arbiter = arbiterOf(s)
	s.ctx, s.end = context.WithCancel(context.Background())
	s.listener = pair.NewListener(p, s.accept)
	export := append(slices.Clip(s.opts.permit), vmmc.WithHandler(s.listener.Handle))
	var err error
	s.letterbox, err = pair.NewBuffer(p, letterboxSize, func(b []byte) { writeLetterbox(b, k) }, export...)
	if err != nil {
		s.end()
		return nil, err
	}
	s.unsubscribe = p.Subscribe(s.handleEvent)
	return s.publish(ctx)
}

// publish publishes the letterbox.
func (s *Server) publish(ctx context.Context) (*Server, error) {
	if err := s.letterbox.PublishAs(ctx, s.name); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// accept makes the lane of a client.
func (s *Server) accept(theirs *vmmc.Import) (id uint32, err error) {
	if n := theirs.Size(); n != clientSize {
		return 0, fmt.Errorf("the client's buffer has %d bytes", n)
	}
	if err := s.addLane(nil); err != nil {
		return 0, err
	}
	l := &lane{s: s, im: theirs}
	opts := append(slices.Clip(s.opts.export),
		pair.For(theirs.Exporter()), vmmc.WithHandler(l.handle))
	if l.own, err = pair.NewBuffer(s.p, laneSize, nil, opts...); err != nil {
		return 0, err
	}
	if l.lease, err = l.own.Word64(leaseOff); err == nil {
		err = s.addLane(l)
	}
	if err != nil {
		return 0, errors.Join(err, l.own.Close())
	}
	if theirs.Err() != nil { // the event may have been told before the lane was there
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(l)
	}
	return l.own.ID(), nil
}

// addLane adds a lane, or with nil only reports why none can be added.
func (s *Server) addLane(l *lane) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lanes == nil:
		return closedError("accept a client")
	case len(s.lanes) >= s.opts.clients:
		return fmt.Errorf("there are %d clients", len(s.lanes))
	case l != nil:
		l.open = true
		s.lanes[l] = struct{}{}
	}
	return nil
}

// handle handles a notification of a lane's client.
func (l *lane) handle(n vmmc.Notification) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.open {
		return
	}
	seq, mark := n.Word>>seqShift, n.Word&markBit != 0
	switch n.Word >> opShift & opMask {
	case opRequest:
		pair.At("host.request")
		s.arbiter.request(l, seq, false)
	case opTry:
		s.arbiter.request(l, seq, true)
	case opWithdraw:
		pair.At("host.withdraw")
		s.arbiter.withdraw(l, seq)
	case opRelease:
		pair.At("host.release")
		s.arbiter.release(l, seq, mark)
	case opClose:
		pair.At("host.leave")
		s.arbiter.leave(l, mark)
		s.drop(l)
	}
}

// handleEvent sees clients end.
func (s *Server) handleEvent(e vmmc.Event) {
	switch e.Kind { //nolint:exhaustive // the others do not concern clients
	case vmmc.PeerGone: // nothing of that process arrives any more
		pair.At("host.gone")
		s.mu.Lock()
		defer s.mu.Unlock()
		for l := range s.lanes {
			if l.im.Exporter() == e.Peer && isOver(l.im) { // one that has come back has new lanes
				s.drop(l)
			}
		}
	case vmmc.ImportRevoked: // the client has closed its export; what it sent may still arrive
		s.mu.Lock()
		defer s.mu.Unlock()
		for l := range s.lanes {
			if l.im == e.Import && s.arbiter.mayGo(l) {
				s.drop(l)
			}
		}
	}
}

// drop ends a lane. s.mu is held.
func (s *Server) drop(l *lane) {
	if !l.open {
		return
	}
	l.open = false
	delete(s.lanes, l)
	pair.At("host.ends")
	s.arbiter.gone(l) // it looks at the lease, whose memory closeLane gives back
	s.wg.Go(func() { _ = s.closeLane(l) })
}

// isOver reports whether an import has ended.
func isOver(im *vmmc.Import) bool {
	select {
	case <-im.Done():
		return true
	default:
		return false
	}
}

// answer sends a client an answer. s.mu is held. It never waits: if the link is disconnected, or
// busy with other messages, a goroutine sends it later, or a newer one.
func (s *Server) answer(l *lane, seq uint32, value uint64) {
	l.value, l.seq = value, seq
	if l.sending {
		return // that goroutine looks again
	}
	l.encode()
	pair.At("host.granted")
	if l.im.Send(pair.NoWait, l.message[:], answerOff) == nil || l.im.Err() != nil {
		pair.At("host.answered")
		return
	}
	l.sending = true
	s.wg.Go(func() { s.answerLater(l) })
}

func (l *lane) encode() {
	binary.NativeEndian.PutUint64(l.message[:], l.value)
	binary.NativeEndian.PutUint32(l.message[seqOff-answerOff:], l.seq)
}

// answerLater sends the newest answer. A send fails only when the lane or the server has ended.
func (s *Server) answerLater(l *lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		l.encode()
		message, value, seq := l.message, l.value, l.seq
		s.mu.Unlock()
		err := l.im.Send(s.ctx, message[:], answerOff)
		s.mu.Lock()
		if err != nil || l.value == value && l.seq == seq {
			l.sending = false
			return
		}
	}
}

// Clients is how many clients there are; a counter does not know.
//
// Experimental: it may change in any release.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lanes)
}

// Close ends what is hosted. Calls of the clients fail with [vmmc.ErrRevoked], and their
// [Held.Lost] is closed. Errors: those of [vmmc.Export.Close], [vmmc.ErrNotInHandler]. It is
// [vmmc.ErrBlockedNotifications] if clients notify the host while the program blocks its
// notifications. After an error call Close again; otherwise a second call does nothing.
//
// Experimental: it may change in any release.
func (s *Server) Close() error {
	op := fmt.Sprintf("close %s %q", s.kind, s.name)
	if err := pair.CheckCall(context.Background(), op); err != nil {
		return err
	}
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	err := s.letterbox.Close()
	if errors.Is(err, vmmc.ErrBlockedNotifications) {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.unsubscribe()
	s.mu.Lock()
	for l := range s.lanes {
		l.open = false
		s.unclosed = append(s.unclosed, l)
	}
	s.lanes = nil
	s.mu.Unlock()
	s.end()
	s.listener.Close()
	s.wg.Wait()
	s.mu.Lock()
	lanes := s.unclosed
	s.unclosed = nil
	s.mu.Unlock()
	for _, l := range lanes {
		err = errors.Join(err, s.closeLane(l))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// closeLane closes a lane. If it fails, Close tries again.
func (s *Server) closeLane(l *lane) error {
	pair.At("host.closes")
	err := errors.Join(l.im.Close(), l.own.Close())
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unclosed = append(s.unclosed, l)
	}
	return err
}
