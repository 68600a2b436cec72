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

func listenTCP(n *Node) (*ingress, error) {
	in := &ingress{
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
			for _, o := range in.listeners {
				_ = o.Close()
			}
			return nil, code.New(code.BadConfig, "listen for other nodes at %s: %v", a, err)
		}
		in.listeners = append(in.listeners, l)
	}
	in.server = &http.Server{
		Handler:           n.control.handler(),
		ReadHeaderTimeout: timeout.Hello,
		IdleTimeout:       timeout.Idle,
		ErrorLog:          n.httpErrors(),
	}
	for _, l := range in.listeners {
		in.wg.Go(func() { in.accept(l) })
	}
	in.wg.Go(func() { _ = in.server.Serve(in) })
	return in, nil
}

func (in *ingress) addr() string { return in.listeners[0].Addr().String() }

// dataAddress returns the address that importers dial.
func (in *ingress) dataAddress() string {
	if self := in.n.cluster.roster.Load().self(in.n.cfg.Name); self.Data != "" {
		if _, port, err := net.SplitHostPort(self.Data); err == nil && port != "0" {
			return self.Data
		}
	}
	return in.addr()
}

func (in *ingress) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			in.n.descriptors.logAcceptError(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if t, ok := c.(*net.TCPConn); ok && in.n.descriptors.headroomAfter(t) != plenty {
			in.n.refusals.count(c, refusedFull, in.n.descriptors.runOut())
			_ = c.Close()
			continue
		}
		s, evicted := in.limiter.admit(c)
		if evicted != nil {
			in.n.refusals.count(evicted, refusedEvicted, errEvicted)
		}
		in.wg.Go(func() {
			in.classify(s)
			in.limiter.release(s)
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
func (in *ingress) classify(s *unauthConn) {
	end := time.Now().Add(timeout.Hello)
	_ = s.SetDeadline(end)
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); err != nil {
		if !errors.Is(err, io.EOF) { // else a port scan or health check
			in.reject(s, refusedSilent, err)
		}
		_ = s.Close()
		return
	}
	switch first[0] {
	case 0x16:
		enablePacing(s.Conn)
		in.handshakeTLS(s, first[:], end)
		return
	case wire.Magic[0]:
		err := in.dataLink(s.Conn.(*net.TCPConn), first[0], func() { in.limiter.release(s) })
		in.reject(s, refusedHello, err)
	default:
		in.reject(s, refusedProtocol, errUnknownProtocol)
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
func (in *ingress) reject(s *unauthConn, why string, err error) {
	switch {
	case err == nil || errors.Is(err, net.ErrClosed):
		return
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		why = refusedSilent
	}
	in.n.refusals.count(s, why, err)
}

// handshakeTLS runs the TLS handshake on s and passes the connection to the HTTP server when its
// certificate was checked.
func (in *ingress) handshakeTLS(s *unauthConn, first []byte, end time.Time) {
	ctx, stop := context.WithDeadline(context.Background(), end)
	defer stop()
	t := tls.Server(&prefixedConn{Conn: s.Conn, first: first}, in.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		in.reject(s, refusedTLS, err)
		_ = s.Close()
		return
	}
	in.limiter.release(s)
	_ = s.SetDeadline(time.Time{}) // the HTTP server sets its own
	select {
	case in.control <- t:
	case <-in.stop:
		_ = t.Close()
	}
}

// Accept, Close and Addr make ingress the listener of the HTTP server.
func (in *ingress) Accept() (net.Conn, error) {
	select {
	case c := <-in.control:
		return c, nil
	case <-in.stop:
		return nil, net.ErrClosed
	}
}

// Close is called by the HTTP server; the listeners are closed by close.
func (in *ingress) Close() error { return nil }

// Addr is the first listener's.
func (in *ingress) Addr() net.Addr { return in.listeners[0].Addr() }

func (in *ingress) close() {
	close(in.stop)
	for _, l := range in.listeners {
		_ = l.Close()
	}
	in.limiter.close()
	ctx, stop := context.WithTimeout(context.Background(), timeout.Stop/10)
	defer stop()
	if err := in.server.Shutdown(ctx); err != nil { // calls of waiting imports go on
		_ = in.server.Close()
	}
	in.wg.Wait()
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
