package encrypt

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// quantum is how much is encrypted before the socket is asked to take it.
const quantum = 64 << 10

// ErrWorn is of a connection whose keys have encrypted as much as they should.
var ErrWorn = errors.New("the connection's keys have been used for as much as they should be")

// worn is how much one connection encrypts. RFC 8446, section 5.5, has AES-GCM used for 2^24.5
// records of 2^14 bytes, and the library of Go does not change keys while a connection lasts.
const worn = 256 << 30

// Conn is an encrypted connection. Before [Conn.Detach] use Read and Write, which wait. After
// it use Send and Recv, which do not. One goroutine may send while another receives.
type Conn struct {
	tls     *tls.Conn
	pipe    pipe
	binding []byte
	lasting bool  // its keys are not worn
	used    int64 // how much they have encrypted
	plain   int   // bytes that are encrypted, of which the last have not gone
	told    int   // of these, what was said to have gone
	more    bool  // there may be some decrypted that was not asked for yet
}

// Binding is a secret that both sides have of this connection alone.
func (c *Conn) Binding() []byte { return c.binding }

// Read waits for something.
func (c *Conn) Read(b []byte) (int, error) { return c.tls.Read(b) }

// Write waits until the socket has taken it.
func (c *Conn) Write(b []byte) (int, error) { return c.tls.Write(b) }

// Detach leaves the connection below to the caller, which has a descriptor of its socket. renewed
// says that another connection will be made before the keys of this one are used up.
func (c *Conn) Detach(renewed bool) {
	c.pipe.nc = nil
	c.more, c.lasting = true, !renewed
}

// Send encrypts what is in pieces and gives it to the socket. n is how many bytes have
// gone: the next call begins with the ones behind them, and they must be the same until then.
// It is 0 where the socket has no room.
func (c *Conn) Send(fd int, pieces ...[]byte) (n int, err error) {
	if c.plain == 0 {
		if c.used > worn && !c.lasting {
			return 0, ErrWorn
		}
		for _, p := range pieces {
			p = p[:min(len(p), quantum-c.plain)]
			if len(p) == 0 {
				continue
			}
			if _, err := c.tls.Write(p); err != nil {
				return 0, err
			}
			c.plain += len(p)
			c.used += int64(len(p)) + 64
		}
	}
	sent, all, err := c.pipe.drain(fd)
	if err != nil {
		return 0, err
	}
	if sent == all {
		n = c.plain - c.told
		c.plain, c.told = 0, 0
		return n, nil
	}
	n = max(c.plain*sent/all-c.told, 0)
	c.told += n
	return n, nil
}

// Recv gives what was received. n is 0 with a nil error when nothing is there, or not all of
// a record. With -1 in place of the descriptor it gives what the connection has already. An error
// that is [wire.ErrCorrupt] is of what was not sent so.
func (c *Conn) Recv(fd int, b []byte) (n int, err error) {
	for {
		if c.HasData() {
			n, err := c.tls.Read(b)
			c.more = n == len(b)
			switch {
			case n > 0:
				return n, nil // an error comes again
			case errors.Is(err, errNothing): // a record without data
				continue
			case errors.Is(err, io.EOF):
				return 0, err
			case err != nil:
				return 0, fmt.Errorf("%w: %w", wire.ErrCorrupt, err)
			}
		}
		if fd < 0 {
			return 0, nil
		}
		n, err := c.pipe.fill(fd)
		if n == 0 {
			return 0, err
		}
	}
}

// HasData reports whether Recv may have something without asking the socket.
func (c *Conn) HasData() bool { return c.more || c.pipe.whole() }

// Drop releases what the connection holds. The connection must not be used afterwards.
func (c *Conn) Drop() { c.pipe.drop() }

// errNothing is what TLS is told where there are no more bytes: it may ask again.
var errNothing net.Error = nothing{}

type nothing struct{}

func (nothing) Error() string   { return "nothing was received yet" }
func (nothing) Timeout() bool   { return true }
func (nothing) Temporary() bool { return true }
