package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
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

// Config says what an Ingress serves, and by which limits.
type Config struct {
	Addrs       []string     // listened on
	TLS         *tls.Config  // of control connections
	Handler     http.Handler // of control connections whose certificate was checked
	Descriptors *Descriptors
	Refusals    *Refusals
	ErrorLog    *log.Logger // of the HTTP server

	// DataLink serves a data link, whose first byte was read. It calls proved once the peer has
	// proved its key. The ingress closes c when it returns.
	DataLink func(c *net.TCPConn, first byte, proved func()) error
}

// Ingress is the node's TCP side: one port for control connections (TLS) and data links, told apart
// by the first byte.
type Ingress struct {
	cfg       Config
	listeners []net.Listener
	server    *http.Server
	control   chan net.Conn
	limiter   *limiter
	stop      chan struct{}
	wg        sync.WaitGroup
}

// Listen listens and serves until Close.
func Listen(cfg Config) (*Ingress, error) {
	in := &Ingress{
		cfg: cfg, control: make(chan net.Conn), limiter: newLimiter(cfg.Descriptors.limit),
		stop: make(chan struct{}),
	}
	c := net.ListenConfig{Control: unix.BeginUnpaced}
	for _, a := range cfg.Addrs {
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
		Handler:           cfg.Handler,
		ReadHeaderTimeout: timeout.Hello,
		IdleTimeout:       timeout.Idle,
		ErrorLog:          cfg.ErrorLog,
	}
	for _, l := range in.listeners {
		in.wg.Go(func() { in.accept(l) })
	}
	in.wg.Go(func() { _ = in.server.Serve(controlListener{in}) })
	return in, nil
}

func (in *Ingress) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			in.cfg.Descriptors.LogAcceptError(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if t, ok := c.(*net.TCPConn); ok && in.cfg.Descriptors.HeadroomAfter(t) != Plenty {
			in.cfg.Refusals.count(c, refusedFull, in.cfg.Descriptors.RunOut())
			_ = c.Close()
			continue
		}
		s, evicted := in.limiter.admit(c)
		if evicted != nil {
			in.cfg.Refusals.count(evicted, refusedEvicted, errEvicted)
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
func (in *Ingress) classify(s *unauthConn) {
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
		err := in.cfg.DataLink(s.Conn.(*net.TCPConn), first[0], func() { in.limiter.release(s) })
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
func (in *Ingress) reject(s *unauthConn, why string, err error) {
	switch {
	case err == nil || errors.Is(err, net.ErrClosed):
		return
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded):
		why = refusedSilent
	}
	in.cfg.Refusals.count(s, why, err)
}

// handshakeTLS runs the TLS handshake on s and passes the connection to the HTTP server when its
// certificate was checked.
func (in *Ingress) handshakeTLS(s *unauthConn, first []byte, end time.Time) {
	ctx, stop := context.WithDeadline(context.Background(), end)
	defer stop()
	t := tls.Server(&prefixedConn{Conn: s.Conn, first: first}, in.cfg.TLS)
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

// Addr is the node's address.
func (in *Ingress) Addr() string { return in.listeners[0].Addr().String() }

// controlListener makes an Ingress the listener of the HTTP server.
type controlListener struct{ in *Ingress }

func (l controlListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in.control:
		return c, nil
	case <-l.in.stop:
		return nil, net.ErrClosed
	}
}

// Close does nothing: Ingress.Close closes the listeners.
func (l controlListener) Close() error { return nil }

func (l controlListener) Addr() net.Addr { return l.in.listeners[0].Addr() }

// Close ends the listening and all connections that have not proved an identity. It waits for the
// calls of others for a moment.
func (in *Ingress) Close() {
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
