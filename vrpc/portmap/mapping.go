package portmap

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Program is the number of rpcbind itself.
const Program = 100000

// Port is where it is, on UDP and TCP.
const Port = 111

// Socket is where it is on its own machine.
const Socket = "/run/rpcbind.sock"

// Mapping says where a version of a program is.
type Mapping struct {
	Program uint32 `json:"program"`
	Version uint32 `json:"version"`
	// Network is rpcbind's netid: tcp, udp, tcp6, udp6 or local.
	Network string `json:"network"`
	// Address is rpcbind's universal address: h.h.h.h.p.p, where the port is its two bytes, or a
	// path.
	Address string `json:"address"`
	Owner   string `json:"owner,omitempty"` // the user that registered it; unknown to portmappers
}

// Endpoint is where to dial: the network and address as [net.Dial] wants them.
func (m *Mapping) Endpoint() (network, address string, err error) {
	switch m.Network {
	case "local":
		return "unix", m.Address, nil
	case "tcp", "udp", "tcp6", "udp6":
	default:
		return "", "", fmt.Errorf("portmap: network %q is none that can be dialled", m.Network)
	}
	a, err := ParseAddress(m.Address)
	if err != nil {
		return "", "", err
	}
	if strings.HasSuffix(m.Network, "6") {
		return m.Network, a.String(), nil
	}
	return m.Network + "4", a.String(), nil
}

// ParseAddress reads a universal address of IP.
func ParseAddress(s string) (netip.AddrPort, error) {
	bad := func() (netip.AddrPort, error) {
		return netip.AddrPort{}, fmt.Errorf("portmap: %q is not a universal address: host.high.low", s)
	}
	rest, low, ok := cutLast(s)
	host, high, ok2 := cutLast(rest)
	if !ok || !ok2 {
		return bad()
	}
	h, err := strconv.ParseUint(high, 10, 8)
	l, err2 := strconv.ParseUint(low, 10, 8)
	a, err3 := netip.ParseAddr(host)
	if err != nil || err2 != nil || err3 != nil {
		return bad()
	}
	return netip.AddrPortFrom(a, uint16(h<<8|l)), nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// FormatAddress is the universal address.
func FormatAddress(a netip.AddrPort) string {
	p := a.Port()
	return fmt.Sprintf("%s.%d.%d", a.Addr(), p>>8, p&255)
}

// Of says where a program is that listens on a. A socket of IPv6 that has no address of its own
// takes IPv4 too, so it has two mappings.
func Of(program, version uint32, a net.Addr) ([]Mapping, error) {
	m := func(network, address string) Mapping {
		return Mapping{Program: program, Version: version, Network: network, Address: address}
	}
	if u, ok := a.(*net.UnixAddr); ok {
		return []Mapping{m("local", u.Name)}, nil
	}
	network := a.Network()
	if network != "tcp" && network != "udp" {
		return nil, fmt.Errorf("portmap: nobody is registered at network %q", network)
	}
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return nil, fmt.Errorf("portmap: address %v: %w", a, err)
	}
	host := p.Addr().Unmap()
	four := m(network, FormatAddress(netip.AddrPortFrom(host, p.Port())))
	switch {
	case host.Is4():
		return []Mapping{four}, nil
	case host.IsUnspecified():
		four.Address = FormatAddress(netip.AddrPortFrom(netip.IPv4Unspecified(), p.Port()))
		return []Mapping{four, m(network+"6", FormatAddress(p))}, nil
	}
	return []Mapping{m(network+"6", FormatAddress(p))}, nil
}
