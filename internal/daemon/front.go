package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// maxStrangers bounds the connections that have not said yet what they are.
const maxStrangers = 512

// front is the node's TCP side: one port for control (TLS) and for data links,
// told apart by the first byte.
type front struct {
	n         *Node
	listeners []net.Listener
	server    *http.Server
	control   chan net.Conn
	strangers chan struct{}
	stop      chan struct{}
	wg        sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // strangers, so that Close need not wait for them
}

func (n *Node) listenTCP() (*front, error) {
	f := &front{n: n, control: make(chan net.Conn), strangers: make(chan struct{}, maxStrangers), stop: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	addrs := []string{n.cfg.Listen}
	if self := n.roster.Load().self(n.cfg.Name); self.Data != "" && self.Data != self.Control {
		addrs = append(addrs, self.Data)
	}
	for _, a := range addrs {
		l, err := net.Listen("tcp", a) //nolint:noctx // binding does not wait
		if err != nil {
			for _, o := range f.listeners {
				_ = o.Close()
			}
			return nil, code.New(code.BadConfig, "listen for other nodes at %s: %v", a, err)
		}
		f.listeners = append(f.listeners, l)
	}
	f.server = &http.Server{
		Handler:           n.control(),
		TLSConfig:         n.cfg.Identity.ServerTLS(),
		ReadHeaderTimeout: timeout.Hello,
		IdleTimeout:       timeout.Idle,
		ErrorLog:          n.httpErrors(),
	}
	for _, l := range f.listeners {
		f.wg.Go(func() { f.accept(l) })
	}
	f.wg.Go(func() { _ = f.server.ServeTLS(f, "", "") })
	return f, nil
}

func (f *front) addr() string { return f.listeners[0].Addr().String() }

// dataAddress is what importers dial.
func (n *Node) dataAddress() string {
	if self := n.roster.Load().self(n.cfg.Name); self.Data != "" {
		if _, port, err := net.SplitHostPort(self.Data); err == nil && port != "0" {
			return self.Data
		}
	}
	return n.tcp.addr()
}

func (f *front) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			f.n.driver.Warn("accept", "err", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case f.strangers <- struct{}{}:
			f.mu.Lock()
			f.conns[c] = struct{}{}
			f.mu.Unlock()
			f.wg.Go(func() {
				f.sort(c)
				f.mu.Lock()
				delete(f.conns, c)
				f.mu.Unlock()
				<-f.strangers
			})
		default:
			f.n.driverLog.Warn("a connection was refused: too many have not said what they are", "from", c.RemoteAddr())
			_ = c.Close()
		}
	}
}

// sort reads the first byte: a TLS record is a control connection, our magic a
// data link; anything else is closed.
func (f *front) sort(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(timeout.Hello))
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		_ = c.Close()
		return
	}
	switch first[0] {
	case 0x16:
		_ = c.SetDeadline(time.Time{}) // the HTTP server has its own
		select {
		case f.control <- &prefixed{Conn: c, first: first[:]}:
		case <-f.stop:
			_ = c.Close()
		}
	case wire.Magic[0]:
		if err := f.n.dataLink(c.(*net.TCPConn), first[0]); err != nil {
			f.n.driver.Warn("a data connection was refused", "from", c.RemoteAddr(), "err", err)
		}
		_ = c.Close()
	default:
		f.n.driver.Warn("a connection speaks neither TLS nor vmmc", "from", c.RemoteAddr(), "first", first[0])
		_ = c.Close()
	}
}

// Accept, Close and Addr make the front the listener of the HTTP server.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.control:
		return c, nil
	case <-f.stop:
		return nil, net.ErrClosed
	}
}

// Close is called by the HTTP server; the listeners are closed by close.
func (f *front) Close() error { return nil }

// Addr is the first listener's.
func (f *front) Addr() net.Addr { return f.listeners[0].Addr() }

func (f *front) close() {
	close(f.stop)
	for _, l := range f.listeners {
		_ = l.Close()
	}
	f.mu.Lock()
	for c := range f.conns {
		_ = c.Close()
	}
	f.mu.Unlock()
	ctx, stop := context.WithTimeout(context.Background(), timeout.Stop/10)
	defer stop()
	if err := f.server.Shutdown(ctx); err != nil { // imports that wait
		_ = f.server.Close()
	}
	f.wg.Wait()
}

// prefixed is a connection whose first byte was read already.
type prefixed struct {
	net.Conn
	first []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.first) > 0 && len(b) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
