package vrpc

import (
	"net"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// datagrams is a socket whose answers come from the address that was asked, where the machine has
// several and the socket is of all: a client that has connected its own takes no others.
type datagrams struct {
	net.PacketConn
	udp  *net.UDPConn // nil: there is no choice
	said []byte
}

// sender is the source of a datagram. from makes its reply come from the address that the datagram
// was sent to.
type sender struct {
	addr net.Addr
	udp  *net.UDPAddr
	from []byte
}

func newDatagrams(c net.PacketConn) *datagrams {
	d := &datagrams{PacketConn: c}
	u, ok := c.(*net.UDPConn)
	if !ok {
		return d
	}
	a, ok := u.LocalAddr().(*net.UDPAddr)
	if !ok || !a.IP.IsUnspecified() {
		return d
	}
	raw, err := u.SyscallConn()
	if err == nil && unix.Arrivals(raw, a.IP.To4() == nil) == nil {
		d.udp, d.said = u, make([]byte, unix.ArrivalLen)
	}
	return d
}

func (d *datagrams) read(b []byte) (int, *sender, error) {
	if d.udp == nil {
		n, from, err := d.ReadFrom(b)
		return n, &sender{addr: from}, err
	}
	n, k, _, from, err := d.udp.ReadMsgUDP(b, d.said)
	if err != nil {
		return n, nil, err
	}
	return n, &sender{from, from, unix.AnswerFrom(d.said[:k])}, nil
}

func (d *datagrams) write(b []byte, to *sender) error {
	if to.from != nil {
		if _, _, err := d.udp.WriteMsgUDP(b, to.from, to.udp); err == nil {
			return nil
		}
		// The address is the machine's no more, or never was one that answers may come from.
	}
	_, err := d.WriteTo(b, to.addr)
	return err
}
