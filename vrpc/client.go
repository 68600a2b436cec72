package vrpc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/foreign"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/xdr"
)

// Client calls the procedures of a server, many at a time if need be. Once its connection is lost,
// every call of it fails.
type Client struct {
	clientSettings
	transport transport
	cred      rpcmsg.Auth
	xid       atomic.Uint32
}

var _ Caller = (*Client)(nil)

// transport is a transport, of one client.
type transport interface {
	call(ctx context.Context, c rpcmsg.Call, args xdr.Marshaler, res xdr.Unmarshaler) error
	post(ctx context.Context, c rpcmsg.Call, args xdr.Marshaler) error
	flush(ctx context.Context) error
	close() error
	peer() string
}

// ClientOption changes what Dial and NewClient make.
type ClientOption func(*clientSettings)

type clientSettings struct {
	sys                    *AuthSys
	limit                  int
	decoded                int // 0: what package xdr has
	firstRetry, retryTotal time.Duration
	silence                time.Duration
	slots, area            int
	exports                []vmmc.ExportOption
}

// WithAuthSys has the client send AUTH_SYS credentials. Otherwise it sends AUTH_NONE.
func WithAuthSys(a AuthSys) ClientOption { return func(s *clientSettings) { s.sys = &a } }

// WithMaxReply bounds a call and a reply in bytes, 4 MiB otherwise.
func WithMaxReply(n int) ClientOption { return func(s *clientSettings) { s.limit = n } }

// WithMaxDecodedReply bounds the memory that the results of a call take once they are decoded, in
// bytes; 16 bytes for each byte of the reply otherwise, at least 1 MiB. Beyond it the call fails
// with [ErrReply] and [xdr.ErrMemory].
func WithMaxDecodedReply(n int) ClientOption {
	return func(s *clientSettings) { s.decoded = max(n, 1) }
}

// WithSilence is for TCP: how long the server's host may acknowledge nothing before the connection
// is lost, 10 s otherwise, whether calls wait for their replies or none does. A call waits no
// longer for a server whose machine or network has died. 0 leaves it to the system, which takes
// minutes or for ever. A server that lives and does not answer is waited for: that is for the
// call's context to bound.
func WithSilence(d time.Duration) ClientOption {
	return func(s *clientSettings) { s.silence = max(d, 0) }
}

// WithRetry is for datagrams: a call is sent again after first, 250 ms otherwise, after twice that
// time and so on, and given up after total, 1 min otherwise, if its context lasts as long.
func WithRetry(first, total time.Duration) ClientOption {
	return func(s *clientSettings) { s.firstRetry, s.retryTotal = max(first, time.Millisecond), total }
}

// WithArea is for remote memory: how many calls may be in flight, 32 otherwise, and how much of
// this process's memory the server may have for replies that are not small, 1 MiB and a little
// otherwise. Both bound one connection; no reply is longer.
func WithArea(calls, bytes int) ClientOption {
	return func(s *clientSettings) {
		s.slots, s.area = min(max(calls, 1), maxEntries), min(units(max(bytes, 1)), maxArea/unit)*unit
	}
}

// WithExport is for remote memory: opts are of the buffer that the server writes its replies to, as
// [vmmc.Unmapped] where it is not to be trusted with a mapping. It must be able to read it too.
func WithExport(opts ...vmmc.ExportOption) ClientOption {
	return func(s *clientSettings) { s.exports = opts }
}

// Dial connects to a server: network is "tcp", "udp", one of these with 4 or 6 after it, or "unix".
func Dial(ctx context.Context, network, address string, opts ...ClientOption) (*Client, error) {
	switch network {
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6", "unix":
	default:
		return nil, fmt.Errorf("vrpc: dial %s: %q is not tcp, udp or unix", address, network)
	}
	d := net.Dialer{Control: unix.TakesNoRights}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("vrpc: %w", err)
	}
	return NewClient(c, opts...)
}

// NewClient makes a client of a connection, which is the client's then, and closed if there is an
// error. A [*net.UDPConn] carries datagrams, and so does what is a [net.PacketConn] at a
// [*net.UDPAddr]; all others are streams.
func NewClient(conn net.Conn, opts ...ClientOption) (*Client, error) {
	c, err := newClient(opts)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if carriesDatagrams(conn) {
		if conn.RemoteAddr() == nil {
			_ = conn.Close()
			return nil, errors.New("vrpc: the socket is connected to nobody: see net.DialUDP")
		}
		c.transport = newPacketTransport(conn, &c.clientSettings)
	} else {
		c.transport = newStreamTransport(foreign.Conn(conn), &c.clientSettings)
	}
	return c, nil
}

// carriesDatagrams tells UDP from what else is both: a unix socket, which is a stream mostly.
func carriesDatagrams(conn net.Conn) bool {
	_, packets := conn.(net.PacketConn)
	_, udp := conn.LocalAddr().(*net.UDPAddr)
	return packets && udp
}

func newClient(opts []ClientOption) (*Client, error) {
	c := &Client{clientSettings: clientSettings{
		limit: maxMessage, firstRetry: 250 * time.Millisecond, retryTotal: time.Minute, silence: timeout.Silence, slots: defaultSlots, area: defaultArea,
	}}
	for _, o := range opts {
		o(&c.clientSettings)
	}
	c.xid.Store(rand.Uint32()) //nolint:gosec // it only tells calls apart
	if c.sys != nil {
		var err error
		if c.cred, err = c.sys.credential(); err != nil {
			return nil, fmt.Errorf("vrpc: credentials: %w", err)
		}
	}
	return c, nil
}

// Call calls a procedure. Errors are of type [*Error]. When ctx ends the call returns its error,
// and whether it was run is unknown; others go on.
func (c *Client) Call(
	ctx context.Context, prog, vers, proc uint32, args xdr.Marshaler, res xdr.Unmarshaler,
) error {
	h := c.header(prog, vers, proc)
	if err := c.transport.call(ctx, h, args, res); err != nil {
		return &Error{Peer: c.transport.peer(), Program: prog, Version: vers, Procedure: proc, Err: err}
	}
	return nil
}

// Post sends a call that no reply is expected to: its procedure returns [ErrNoReply], and whatever
// reply there is is thrown away. On streams posted calls are gathered and go with the next call,
// with Flush or when there are 32 KiB of them, and nothing says whether they arrived: end with a
// call. Only a server made with [InOrder] runs them, and that call, one after another.
func (c *Client) Post(ctx context.Context, prog, vers, proc uint32, args xdr.Marshaler) error {
	h := c.header(prog, vers, proc)
	if err := c.transport.post(ctx, h, args); err != nil {
		return &Error{Peer: c.transport.peer(), Program: prog, Version: vers, Procedure: proc, Err: err}
	}
	return nil
}

// Flush sends what was posted.
func (c *Client) Flush(ctx context.Context) error {
	if err := c.transport.flush(ctx); err != nil {
		return fmt.Errorf("vrpc: flush to %s: %w", c.transport.peer(), err)
	}
	return nil
}

// Close ends the connection, and waits for no server. Calls that wait fail with ErrClosed. It is no
// error that the connection has ended before, or that Close was called.
func (c *Client) Close() error {
	if err := c.transport.close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (c *Client) header(prog, vers, proc uint32) rpcmsg.Call {
	return rpcmsg.Call{XID: c.xid.Add(1), Program: prog, Version: vers, Procedure: proc, Cred: c.cred}
}
