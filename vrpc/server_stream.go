package vrpc

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/rpcrecord"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Serve takes connections off l, TCP or unix, and serves them until l fails or the server is
// closed, which closes l too. The error is never nil; after Close or Shutdown it is ErrClosed.
func (s *Server) Serve(l net.Listener) error {
	l = foreign.Listener(l)
	if err := s.track(l); err != nil {
		_ = l.Close()
		return err
	}
	defer s.untrack(l)
	places := make(chan struct{}, s.connections)
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		if err != nil {
			if s.acceptCtx.Err() != nil {
				return ErrClosed
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Out of descriptors, mostly: others will be closed.
			pause = min(max(2*pause, time.Millisecond), time.Second)
			s.logger.Error("vrpc: accept", "address", l.Addr(), "err", err)
			if !timeout.Sleep(s.acceptCtx, pause) {
				return ErrClosed
			}
			continue
		}
		pause = 0
		select {
		case places <- struct{}{}:
		default:
			s.logger.Error("vrpc: too many connections", "peer", c.RemoteAddr())
			_ = c.Close()
			continue
		}
		if s.track(c) != nil {
			_ = c.Close()
			return ErrClosed
		}
		go func() {
			defer func() { <-places }()
			defer s.untrack(c)
			s.serveStream(c)
		}()
	}
}

// stream is a connection of a server.
type stream struct {
	s      *Server
	conn   net.Conn
	from   caller
	write  sync.Mutex
	places chan struct{} // one for each call that is run or answered
	calls  sync.WaitGroup
}

// serveStream answers calls until the connection ends, and returns when none runs any more.
func (s *Server) serveStream(c net.Conn) {
	ctx, end := context.WithCancel(s.ctx)
	alive := watchPeer(c, s.silence, func(err error) {
		s.logger.Debug("vrpc: connection has ended", "peer", c.RemoteAddr(), "err", err)
		_ = c.Close()
	})
	defer alive.stop()
	t := &stream{s: s, conn: c, from: caller{base: ctx, addr: c.RemoteAddr()}}
	t.places = make(chan struct{}, s.perCaller)
	r := rpcrecord.NewReader(c, s.limit, t.waiting)
	for {
		if s.idle > 0 {
			t.waiting(false)
		}
		b := getBuffer()
		var err error
		if b.b, err = r.Next(b.b); err != nil {
			b.release()
			break
		}
		t.places <- struct{}{} // replies that the client does not read end the connection, and free these
		if !s.begin() {
			b.release()
			break
		}
		if s.ordered {
			t.answer(b)
			continue
		}
		t.calls.Add(1)
		go func() {
			defer t.calls.Done()
			t.answer(b)
		}()
	}
	if s.acceptCtx.Err() != nil {
		t.calls.Wait() // their replies are wanted
	}
	end()
	_ = c.Close()
	t.calls.Wait()
}

// waiting sets the time until which the rest of a record must come, or the next one.
func (t *stream) waiting(inside bool) {
	d := t.s.idle
	if inside {
		d = t.s.record
	}
	_ = t.conn.SetReadDeadline(after(d)) // a closed connection says so when it is read
	if t.s.acceptCtx.Err() != nil {
		_ = t.conn.SetReadDeadline(pastDeadline)
	}
}

// after is when d is over; never if it is 0.
func after(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// answer runs a call and sends the reply. It counts the procedure as done before it sends the
// reply: a client that does not read delays only its own connection.
func (t *stream) answer(in *buffer) {
	defer func() { <-t.places }()
	out := getBuffer()
	defer out.release()
	out.b = append(out.b, make([]byte, rpcrecord.MarkLen)...)
	t.s.answer(&t.from, in.b, out)
	t.s.done()
	in.release()
	if out.none {
		return
	}
	rpcrecord.Mark(out.b, len(out.b)-rpcrecord.MarkLen)
	t.write.Lock()
	defer t.write.Unlock()
	_ = t.conn.SetWriteDeadline(after(t.s.write))
	if _, err := t.conn.Write(out.b); err != nil {
		_ = t.conn.Close()
	}
}
