package simnet

import (
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Packet is a fault of a way of datagrams. One datagram may have several.
type Packet struct {
	// At counts the datagrams of the way from 0 as they were sent, also those that are lost.
	At int
	// Kind is Flip, Lose, Repeat, of which the second comes For after the first, Swap, after
	// which it comes when the next one has been sent, Stall, which delays this one alone,
	// Trunc, or Part, from which on nothing comes on this way.
	Kind Kind
	Len  int           // of Trunc, what is left; of Flip, the byte, if there is one
	Bit  uint8         // of Flip
	For  time.Duration // of Stall and Repeat
}

// What UDP does in its way.
const (
	longest = 65507
	queued  = 256 // datagrams that wait for their reader; one more is lost
)

// Datagrams gives two ports that send each other datagrams in memory. there are the faults
// of the way from a to b, back those of the other. Delays are of the time of the bubble of
// testing/synctest that has made the ports, and what waits is durably blocked for it.
func Datagrams(there, back []Packet) (a, b *Port) {
	for _, f := range slices.Concat(there, back) {
		if f.Kind == Cut || f.Kind == Reset {
			panic(fmt.Sprintf("simnet: a way of datagrams has no %v", f.Kind))
		}
	}
	port := func(n byte, faults []Packet) *Port {
		at := address(n)
		return &Port{cond: sync.NewCond(new(sync.Mutex)), local: (*net.UDPAddr)(at), faults: faults}
	}
	a, b = port(1, there), port(2, back)
	a.far, b.far = b, a
	return a, b
}

// Port is where datagrams are sent and come. It is connected with the other one, as a
// [net.UDPConn] may be, and a [net.PacketConn] all the same.
type Port struct {
	cond   *sync.Cond // with the lock of all that follows but local and far
	local  *net.UDPAddr
	far    *Port
	closed bool

	came    [][]byte
	reading deadline

	faults  []Packet
	sent    int
	swapped [][]byte // that come behind the next one, in their order
	parted  bool
	until   time.Time // of writing
}

var (
	_ net.Conn       = (*Port)(nil)
	_ net.PacketConn = (*Port)(nil)
)

// Sent is how many datagrams were sent from here.
func (p *Port) Sent() int {
	p.cond.L.Lock()
	defer p.cond.L.Unlock()
	return p.sent
}

// ReadFrom waits for a datagram, of which it gives as much as b holds.
func (p *Port) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := p.Read(b)
	if err != nil {
		return 0, nil, err
	}
	return n, p.far.local, nil
}

// Read is ReadFrom without the address, which is always the other port's.
func (p *Port) Read(b []byte) (int, error) {
	p.cond.L.Lock()
	defer p.cond.L.Unlock()
	for {
		switch {
		case p.closed:
			return 0, p.failed("read", net.ErrClosed)
		case p.reading.passed:
			return 0, p.failed("read", os.ErrDeadlineExceeded)
		case len(p.came) > 0:
			n := copy(b, p.came[0])
			p.came = p.came[1:]
			return n, nil
		}
		p.cond.Wait()
	}
}

// WriteTo sends b. What is not for the other port goes nowhere, and is not counted.
func (p *Port) WriteTo(b []byte, to net.Addr) (int, error) {
	if to.String() != p.far.local.String() {
		return len(b), nil
	}
	return p.Write(b)
}

// Write sends b to the other port. It never waits.
func (p *Port) Write(b []byte) (int, error) {
	p.cond.L.Lock()
	err := p.writable(len(b))
	if err != nil {
		p.cond.L.Unlock()
		return 0, p.failed("write", err)
	}
	out := p.leave(slices.Clone(b))
	p.cond.L.Unlock()
	for _, l := range out {
		if l.after > 0 {
			time.AfterFunc(l.after, func() { p.far.come(l.b) })
		} else {
			p.far.come(l.b)
		}
	}
	return len(b), nil
}

func (p *Port) writable(n int) error {
	switch {
	case p.closed:
		return net.ErrClosed
	case !p.until.IsZero() && !time.Now().Before(p.until):
		return os.ErrDeadlineExceeded
	case n > longest:
		return syscall.EMSGSIZE
	}
	return nil
}

// leaving is a datagram in flight.
type leaving struct {
	b     []byte
	after time.Duration
}

// leave makes the faults of one that is sent, and says what leaves now.
func (p *Port) leave(b []byte) (out []leaving) {
	var delay, again time.Duration
	lost, twice, swap := false, false, false
	for _, f := range p.faults {
		if f.At != p.sent {
			continue
		}
		switch f.Kind {
		case Flip:
			if f.Len < len(b) {
				b[f.Len] ^= 1 << (f.Bit % 8)
			}
		case Lose:
			lost = true
		case Repeat:
			twice, again = true, f.For
		case Swap:
			swap = true
		case Stall:
			delay += f.For
		case Trunc:
			b = b[:min(len(b), f.Len)]
		case Part:
			p.parted = true
		}
	}
	p.sent++
	if p.parted {
		return nil
	}
	if !lost && !swap {
		out = append(out, leaving{b, delay})
	}
	if !lost && twice {
		out = append(out, leaving{b, delay + again})
	}
	if !lost && swap {
		p.swapped = append([][]byte{b}, p.swapped...) // the others are behind it, wherever it is
		return out
	}
	for _, b := range p.swapped {
		out = append(out, leaving{b, 0})
	}
	p.swapped = nil
	return out
}

// come puts a datagram where it is read.
func (p *Port) come(b []byte) {
	p.cond.L.Lock()
	defer p.cond.L.Unlock()
	if !p.closed && len(p.came) < queued {
		p.came = append(p.came, b)
		p.cond.Broadcast()
	}
}

// Close ends it. Its readers learn of it, the other port does not.
func (p *Port) Close() error {
	p.cond.L.Lock()
	defer p.cond.L.Unlock()
	if p.closed {
		return p.failed("close", net.ErrClosed)
	}
	p.closed, p.came = true, nil
	p.reading.stop()
	p.cond.Broadcast()
	return nil
}

// LocalAddr is a [*net.UDPAddr] that nothing has.
func (p *Port) LocalAddr() net.Addr { return p.local }

// RemoteAddr is the other port's.
func (p *Port) RemoteAddr() net.Addr { return p.far.local }

// SetDeadline is of reading and writing.
func (p *Port) SetDeadline(t time.Time) error {
	_ = p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

// SetReadDeadline is of reading, also for readers that wait already.
func (p *Port) SetReadDeadline(t time.Time) error {
	p.cond.L.Lock()
	defer p.cond.L.Unlock()
	p.reading.set(p.cond, t)
	return nil
}

// SetWriteDeadline is of writing, which never waits, but fails after it.
func (p *Port) SetWriteDeadline(t time.Time) error {
	p.cond.L.Lock()
	defer p.cond.L.Unlock()
	p.until = t
	return nil
}

func (p *Port) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "udp", Source: p.local, Addr: p.far.local, Err: err}
}
