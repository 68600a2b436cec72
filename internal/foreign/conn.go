package foreign

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// errRights is of a peer that sends descriptors where none are awaited.
var errRights = errors.New("the peer has sent descriptors, and none are awaited")

// FromPeer gives the user at the far end of a connection. Its user calls Release.
func FromPeer(c *net.UnixConn) *Source {
	cred, err := unix.PeerCred(c)
	if err != nil {
		return From("an unknown user")
	}
	return User(cred.UID)
}

// User gives a user of this machine. Its user calls Release.
func User(uid uint32) *Source { return From("user " + strconv.FormatUint(uint64(uid), 10)) }

// HangUp closes a connection or a listener, and does not wait: descriptors may be in flight in
// it, which are closed with it. Its far end reads the end at once.
func HangUp(c interface {
	io.Closer
	syscall.Conn
}, from *Source,
) {
	// A second descriptor is the last one then. The connection's own may not be: a goroutine that
	// uses the connection while it is closed keeps its descriptor open.
	last, err := unix.Borrow(c)
	if err != nil {
		from.Do(func() { _ = c.Close() })
		return
	}
	unix.Shutdown(last)
	_ = c.Close()
	if _, listens := c.(*net.UnixListener); !listens && unix.NoRightsQueued(last) {
		// A user whose other descriptors are slow to close would else keep each connection that has
		// ended open, until this process has no number left.
		_ = unix.Close(last)
		return
	}
	from.Took(last)
	Close(last)
}

// Conn gives a connection on which no descriptors are awaited. If it is a unix socket none come, or
// the connection ends, and closing it does not wait. Others stay what they are.
func Conn(c net.Conn) net.Conn {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return c
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return c // it is closed
	}
	_ = unix.TakesNoRights("", "", raw)
	b := &nonReceivingConn{UnixConn: u, from: FromPeer(u), raw: raw, oob: make([]byte, unix.RightsSpace(unix.MaxRights))}
	b.receive = b.try
	b.hangUp = sync.OnceFunc(func() {
		HangUp(u, b.from)
		b.from.Release()
	})
	return b
}

// nonReceivingConn is a unix socket.
type nonReceivingConn struct {
	*net.UnixConn
	from    *Source
	raw     syscall.RawConn
	hangUp  func()
	receive func(fd uintptr) bool // try

	// Guarded by reading.
	reading sync.Mutex
	oob     []byte
	b       []byte
	n       int
	err     error
}

// Read is as of any connection.
func (c *nonReceivingConn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.b = b
	err := c.raw.Read(c.receive)
	c.b = nil
	switch {
	case err != nil:
		return 0, err
	case c.err != nil:
		return 0, &net.OpError{Op: "read", Net: "unix", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.err}
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

// try makes one receive call; ok is false if there is nothing.
func (c *nonReceivingConn) try(fd uintptr) (ok bool) {
	var on, flags int
	c.n, on, flags, ok, c.err = unix.ReceivePacket(int(fd), c.b, c.oob)
	if on > 0 || flags&unix.RightsLost != 0 {
		fds, _ := unix.Received(c.oob[:on], flags)
		c.from.Took(fds...)
		Close(fds...)
		c.err = errRights
	}
	return ok
}

// Close closes the connection.
func (c *nonReceivingConn) Close() error {
	c.hangUp()
	return nil
}

// Listener gives a listener whose connections are those of [Conn], also those that it never
// accepts.
func Listener(l net.Listener) net.Listener {
	u, ok := l.(*net.UnixListener)
	if !ok {
		return l
	}
	if raw, err := u.SyscallConn(); err == nil {
		_ = unix.TakesNoRights("", "", raw)
	}
	return &listener{UnixListener: u, hangUp: sync.OnceFunc(func() {
		from := From("connections that were not accepted")
		defer from.Release()
		HangUp(u, from)
	})}
}

type listener struct {
	*net.UnixListener
	hangUp func()
}

// Accept takes a connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.UnixListener.Accept()
	if err != nil {
		return nil, err
	}
	return Conn(c), nil
}

// Close closes the listener.
func (l *listener) Close() error {
	l.hangUp()
	return nil
}

// Packets gives a socket on which datagrams come and no descriptors are awaited, as [Conn] does.
func Packets(c net.PacketConn) net.PacketConn {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return c
	}
	if raw, err := u.SyscallConn(); err == nil {
		_ = unix.TakesNoRights("", "", raw)
	}
	p := &packets{UnixConn: u, from: From("senders of datagrams"), oob: make([]byte, unix.RightsSpace(unix.MaxRights))}
	p.hangUp = sync.OnceFunc(func() {
		HangUp(u, p.from)
		p.from.Release()
	})
	return p
}

type packets struct {
	*net.UnixConn
	from   *Source
	hangUp func()

	reading sync.Mutex
	oob     []byte // guarded by reading
}

// ReadFrom receives a datagram. One that brings descriptors is a datagram without them.
func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	n, on, flags, from, err := p.ReadMsgUnix(b, p.oob)
	if on > 0 {
		fds, _ := unix.Received(p.oob[:on], flags)
		p.from.Took(fds...)
		Close(fds...)
	}
	if from == nil { // not an interface of that
		return n, nil, err
	}
	return n, from, err
}

// Close closes the socket.
func (p *packets) Close() error {
	p.hangUp()
	return nil
}
