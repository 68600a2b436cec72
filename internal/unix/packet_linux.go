package unix

import (
	"encoding/binary"
	"syscall"

	sys "golang.org/x/sys/unix"
)

// ArrivalLen is enough room for what the kernel says with each datagram, see [Arrivals].
const ArrivalLen = 128

// Arrivals has the kernel say with each datagram of a UDP socket to which of the machine's
// addresses it came.
func Arrivals(c syscall.RawConn, six bool) error {
	level, option := sys.IPPROTO_IP, sys.IP_PKTINFO
	if six {
		level, option = sys.IPPROTO_IPV6, sys.IPV6_RECVPKTINFO
	}
	var err error
	if cerr := c.Control(func(fd uintptr) { err = sys.SetsockoptInt(int(fd), level, option, 1) }); cerr != nil {
		return cerr
	}
	return err
}

// AnswerFrom makes of what the kernel said with a datagram what it is to be told with the answer,
// so that this comes from the address that was asked; nil if that cannot be the source of anything.
func AnswerFrom(said []byte) []byte {
	for len(said) > 0 {
		h, data, rest, err := sys.ParseOneSocketControlMessage(said)
		if err != nil {
			return nil
		}
		switch {
		case h.Level == sys.IPPROTO_IP && h.Type == sys.IP_PKTINFO && len(data) >= sys.SizeofInet4Pktinfo:
			var i sys.Inet4Pktinfo
			copy(i.Spec_dst[:], data[4:]) // an address of the machine also where a broadcast came
			return sys.PktInfo4(&i)
		case h.Level == sys.IPPROTO_IPV6 && h.Type == sys.IPV6_PKTINFO && len(data) >= sys.SizeofInet6Pktinfo:
			var i sys.Inet6Pktinfo
			copy(i.Addr[:], data)
			switch {
			case i.Addr[0] == 0xff:
				return nil
			case i.Addr[0] == 0xfe && i.Addr[1]&0xc0 == 0x80: // means nothing without its interface
				i.Ifindex = binary.NativeEndian.Uint32(data[16:])
			}
			return sys.PktInfo6(&i)
		}
		said = rest
	}
	return nil
}
