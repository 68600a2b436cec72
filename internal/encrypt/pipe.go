package encrypt

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

const (
	recordHead = 5
	mostRecord = recordHead + 16<<10 + 256 // TLS takes none that is longer
	inSize     = 4 * mostRecord
	outSize    = quantum + 5<<10 // with what TLS puts around some hundred short pieces
	mostOut    = 4 * outSize
)

// A link that is idle holds neither.
var (
	ins  = sync.Pool{New: func() any { return new([inSize]byte) }}
	outs = sync.Pool{New: func() any { b := make([]byte, 0, outSize); return &b }}
)

// pipe is what TLS has for a connection: the one that the handshake goes over, and then
// memory, which the link fills from its socket and empties into it. TLS is given one
// record at a time, so it never has a part of one.
type pipe struct {
	nc net.Conn // nil: memory

	rio        unix.IO
	in         *[inSize]byte
	start, end int // what TLS has not had
	left       int // of the record that it is being given

	mu   sync.Mutex // TLS also answers from within its Read
	wio  unix.IO
	out  *[]byte
	sent int
}

// Read is for TLS.
func (p *pipe) Read(b []byte) (int, error) {
	for {
		if p.nc == nil && p.left == 0 && !p.whole() {
			return 0, errNothing
		}
		if n := p.give(b); n > 0 {
			return n, nil
		}
		n, err := p.nc.Read(p.room()[:p.missing()])
		if n == 0 && err != nil {
			return 0, err
		}
		p.end += n
	}
}

// give gives bytes of one record.
func (p *pipe) give(b []byte) (n int) {
	if p.left == 0 && p.end-p.start >= recordHead {
		p.left = p.length()
	}
	n = min(len(b), p.left, p.end-p.start)
	if n == 0 {
		return 0
	}
	copy(b, p.in[p.start:p.start+n])
	p.start, p.left = p.start+n, p.left-n
	if p.start == p.end {
		p.start, p.end = 0, 0
		ins.Put(p.in)
		p.in = nil
	}
	return n
}

// missing is how much the handshake takes out of the socket, no more than of one record: of what is
// in the socket and is the link's, the link hears by its own means.
func (p *pipe) missing() int {
	if p.left > 0 {
		return min(p.left, mostRecord)
	}
	return recordHead - (p.end - p.start)
}

// length is that of the record that begins.
func (p *pipe) length() int {
	return recordHead + int(binary.BigEndian.Uint16(p.in[p.start+3:]))
}

// whole reports whether TLS finds a record, or what it will not take for one.
func (p *pipe) whole() bool {
	n := p.end - p.start
	return n >= recordHead && n >= min(p.length(), mostRecord)
}

// room is where more may come.
func (p *pipe) room() []byte {
	if p.in == nil {
		p.in = ins.Get().(*[inSize]byte)
	}
	if inSize-p.end < mostRecord {
		p.start, p.end = 0, copy(p.in[:], p.in[p.start:p.end])
	}
	return p.in[p.end:]
}

// fill takes out of the socket what is there. n is 0 with a nil error when nothing is.
func (p *pipe) fill(fd int) (n int, err error) {
	n, err = p.rio.Recv(fd, p.room(), nil)
	p.end += n
	if p.start == p.end {
		ins.Put(p.in)
		p.in = nil
	}
	return n, err
}

// Write is for TLS.
func (p *pipe) Write(b []byte) (int, error) {
	if p.nc != nil {
		return p.nc.Write(b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		p.out = outs.Get().(*[]byte)
	}
	if len(*p.out)+len(b) > mostOut { // answers to what no link asks for
		return 0, errors.New("the other side asks for too many answers of TLS")
	}
	*p.out = append(*p.out, b...)
	return len(b), nil
}

// drain gives the socket what it takes.
func (p *pipe) drain(fd int) (sent, all int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		return 0, 0, nil
	}
	for all = len(*p.out); p.sent < all; {
		n, err := p.wio.Send(fd, (*p.out)[p.sent:], nil)
		if err != nil {
			return 0, 0, err
		}
		if n == 0 {
			return p.sent, all, nil
		}
		p.sent += n
	}
	p.giveBack()
	return all, all, nil
}

func (p *pipe) giveBack() {
	if p.out != nil && cap(*p.out) <= mostOut {
		*p.out = (*p.out)[:0]
		outs.Put(p.out)
	}
	p.out, p.sent = nil, 0
}

func (p *pipe) drop() {
	if p.in != nil {
		ins.Put(p.in)
		p.in = nil
	}
	p.start, p.end, p.left = 0, 0, 0
	p.mu.Lock()
	p.giveBack()
	p.mu.Unlock()
}

// What else a [net.Conn] has. TLS closes the connection where a handshake's context ends.
func (p *pipe) Close() error {
	if p.nc != nil {
		return p.nc.Close()
	}
	return nil
}

func (p *pipe) LocalAddr() net.Addr                { return nowhere{} }
func (p *pipe) RemoteAddr() net.Addr               { return nowhere{} }
func (p *pipe) SetDeadline(t time.Time) error      { return p.deadline(t) }
func (p *pipe) SetReadDeadline(t time.Time) error  { return p.deadline(t) }
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.deadline(t) }

func (p *pipe) deadline(t time.Time) error {
	if p.nc != nil {
		return p.nc.SetDeadline(t)
	}
	return nil
}

type nowhere struct{}

func (nowhere) Network() string { return "tls" }
func (nowhere) String() string  { return "link" }
