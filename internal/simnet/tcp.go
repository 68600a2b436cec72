package simnet

import (
	"errors"
	"net"
)

// Pair gives both ends of a connection. there are the faults of the way from a to b,
// back those of the other way, in the order of their bytes.
func Pair(there, back []Fault) (a, b *net.TCPConn, c *Conn, err error) {
	a, x, err := loopback()
	if err != nil {
		return nil, nil, nil, err
	}
	y, b, err := loopback()
	if err != nil {
		return nil, nil, nil, errors.Join(err, a.Close(), x.Close())
	}
	return a, b, Join(x, y, there, back), nil
}

// Before puts the network in front of a connection, and gives the end that takes its place.
func Before(far *net.TCPConn, there, back []Fault) (near *net.TCPConn, c *Conn, err error) {
	near, x, err := loopback()
	if err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return near, Join(x, far, there, back), nil
}

// Join passes on what comes from x to y, and back. The connections are its own from now on.
// Where one of them ends its way, the other way ends too.
func Join(x, y *net.TCPConn, there, back []Fault) *Conn {
	return join(x, y, false, there, back)
}

// loopback is a connection of this machine with itself.
func loopback() (dialled, accepted *net.TCPConn, err error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	if dialled, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)); err != nil {
		return nil, nil, err
	}
	for {
		if accepted, err = l.AcceptTCP(); err != nil {
			return nil, nil, errors.Join(err, dialled.Close())
		}
		if accepted.RemoteAddr().String() == dialled.LocalAddr().String() {
			return dialled, accepted, nil
		}
		_ = accepted.Close() // another program's
	}
}
