package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// ingress is the node's TCP side: one port for control connections (TLS) and data links, told apart
// by the first byte.
type ingress struct {
	n         *Node
	listeners []net.Listener
	server    *http.Server
	tls       *tls.Config
	control   chan net.Conn
	limiter   *preauthLimiter
	stop      chan struct{}
	wg        sync.WaitGroup
}

func (n *Node) listenTCP() (*ingress, error) {
	f := &ingress{
		n: n, tls: n.identity.serverTLS(), control: make(chan net.Conn),
		limiter: newPreauthLimiter(n.descriptors.limit), stop: make(chan struct{}),
	}
	addrs := []string{n.cfg.Listen}
	if self := n.cluster.roster.Load().self(n.cfg.Name); self.Data != "" && self.Data != self.Control {
		addrs = append(addrs, self.Data)
	}
	c := net.ListenConfig{Control: unix.BeginUnpaced}
	for _, a := range addrs {
		l, err := c.Listen(context.Background(), "tcp", a)
		if err != nil {
			for _, o := range f.listeners {
				_ = o.Close()
			}
			return nil, code.New(code.BadConfig, "listen for other nodes at %s: %v", a, err)
		}
		f.listeners = append(f.listeners, l)
	}
	f.server = &http.Server{
		Handler:           n.control.handler(),
		ReadHeaderTimeout: timeout.Hello,
		IdleTimeout:       timeout.Idle,
		ErrorLog:          n.httpErrors(),
	}
	for _, l := range f.listeners {
		f.wg.Go(func() { f.accept(l) })
	}
	f.wg.Go(func() { _ = f.server.Serve(f) })
	return f, nil
}

func (f *ingress) addr() string { return f.listeners[0].Addr().String() }

// dataAddress returns the address that importers dial.
func (f *ingress) dataAddress() string {
	if self := f.n.cluster.roster.Load().self(f.n.cfg.Name); self.Data != "" {
		if _, port, err := net.SplitHostPort(self.Data); err == nil && port != "0" {
			return self.Data
		}
	}
	return f.addr()
}

func (f *ingress) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.n.descriptors.logAcceptError(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if t, ok := c.(*net.TCPConn); ok && f.n.descriptors.headroomAfter(t) != plenty {
			f.n.refusals.count(c, refusedFull, f.n.descriptors.runOut())
			_ = c.Close()
			continue
		}
		s, evicted := f.limiter.admit(c)
		if evicted != nil {
			f.n.refusals.count(evicted, refusedEvicted, errEvicted)
		}
		f.wg.Go(func() {
			f.classify(s)
			f.limiter.release(s)
		})
	}
}

var (
	errEvicted = errors.New("there are too many that have not proved an identity, and it " +
		"was the oldest")
	errUnknownProtocol = errors.New("it speaks neither TLS nor vmmc")
)

// classify reads the first byte: a TLS record is a control connection, our magic a data link;
// anything else is closed. One deadline covers all that a connection does until it is
// authenticated.
func (f *ingress) classify(s *unauthConn) {
	end := time.Now().Add(timeout.Hello)
	_ = s.SetDeadline(end)
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); err != nil {
		if !errors.Is(err, io.EOF) { // else a port scan or health check
			f.reject(s, refusedSilent, err)
		}
		_ = s.Close()
		return
	}
	switch first[0] {
	case 0x16:
		enablePacing(s.Conn)
		f.handshakeTLS(s, first[:], end)
		return
	case wire.Magic[0]:
		err := f.dataLink(s.Conn.(*net.TCPConn), first[0], func() { f.limiter.release(s) })
		f.reject(s, refusedHello, err)
	default:
		f.reject(s, refusedProtocol, errUnknownProtocol)
	}
	_ = s.Close()
}

// enablePacing gives a control connection, which may be long-distance, the system's default pacing.
// It inherits the setting of its listener, which also serves links.
func enablePacing(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		if rc, err := t.SyscallConn(); err == nil {
			_ = rc.Control(func(fd uintptr) { unix.Pace(int(fd)) })
		}
	}
}

// reject counts why a connection was closed, unless it was evicted, which was counted then.
func (f *ingress) reject(s *unauthConn, why string, err error) {
	switch {
	case err == nil || errors.Is(err, net.ErrClosed):
		return
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		why = refusedSilent
	}
	f.n.refusals.count(s, why, err)
}

// handshakeTLS runs the TLS handshake on s and passes the connection to the HTTP server when its
// certificate was checked.
func (f *ingress) handshakeTLS(s *unauthConn, first []byte, end time.Time) {
	ctx, stop := context.WithDeadline(context.Background(), end)
	defer stop()
	t := tls.Server(&prefixedConn{Conn: s.Conn, first: first}, f.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		f.reject(s, refusedTLS, err)
		_ = s.Close()
		return
	}
	f.limiter.release(s)
	_ = s.SetDeadline(time.Time{}) // the HTTP server sets its own
	select {
	case f.control <- t:
	case <-f.stop:
		_ = t.Close()
	}
}

// Accept, Close and Addr make ingress the listener of the HTTP server.
func (f *ingress) Accept() (net.Conn, error) {
	select {
	case c := <-f.control:
		return c, nil
	case <-f.stop:
		return nil, net.ErrClosed
	}
}

// Close is called by the HTTP server; the listeners are closed by close.
func (f *ingress) Close() error { return nil }

// Addr is the first listener's.
func (f *ingress) Addr() net.Addr { return f.listeners[0].Addr() }

func (f *ingress) close() {
	close(f.stop)
	for _, l := range f.listeners {
		_ = l.Close()
	}
	f.limiter.close()
	ctx, stop := context.WithTimeout(context.Background(), timeout.Stop/10)
	defer stop()
	if err := f.server.Shutdown(ctx); err != nil { // calls of waiting imports go on
		_ = f.server.Close()
	}
	f.wg.Wait()
}

// prefixedConn is a connection whose first byte was already read.
type prefixedConn struct {
	net.Conn
	first []byte
}

func (p *prefixedConn) Read(b []byte) (int, error) {
	if len(p.first) > 0 && len(b) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
