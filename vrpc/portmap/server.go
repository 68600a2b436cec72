package portmap

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmmc-go/vmmc/internal/rpcbind"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// What a Server holds at most.
const (
	maxMappings = 4096
	maxText     = 256
)

// mostDatagram bounds an answer to Dump by UDP, in bytes. A source address is easily forged there:
// without a bound an attacker has a short call bring 64 KiB to its victim. Longer lists are for
// TCP.
const mostDatagram = 512

// errDatagram refuses what is too long for UDP. Its meaning in RFC 5531 is: for security reasons.
var errDatagram = &vrpc.AuthError{Stat: vrpc.AuthTooWeak}

// dumpable reports whether a list, which is not empty, may be sent to the caller.
func dumpable(ctx context.Context, list xdr.Marshaler) bool {
	if p, ok := vrpc.PeerOf(ctx); !ok || !strings.HasPrefix(p.Addr.Network(), "udp") {
		return true
	}
	var e xdr.Encoder
	e.ResetFixed(make([]byte, 0, mostDatagram-replyHeader))
	list.EncodeXDR(&e)
	return e.Err() == nil
}

// replyHeader is the length of a reply's header, and of the word that says that there is a list.
const replyHeader = 24 + 4

// Server is an rpcbind, for machines and for tests that have none. Any process on its machine may
// register programs, and unregister those of others. Processes on other machines may not.
type Server struct {
	mu  sync.Mutex
	all []Mapping
}

// NewServer returns a Server in which only its own program is registered, at addrs, where it is
// served.
func NewServer(addrs ...net.Addr) (*Server, error) {
	s := new(Server)
	for version := uint32(2); version <= 4; version++ {
		for _, a := range addrs {
			l, err := Of(Program, version, a)
			if err != nil {
				return nil, err
			}
			s.all = append(s.all, l...)
		}
	}
	return s, nil
}

// Register has r serve s.
func (s *Server) Register(r vrpc.Registrar) error {
	return errors.Join(
		rpcbind.RegisterPmapvers(r, versionTwo{s: s}),
		rpcbind.RegisterRpcbvers(r, versionThree{s: s}),
		rpcbind.RegisterRpcbvers4(r, versionFour{versionThree{s: s}}))
}

// here reports whether the caller is on this machine.
func here(ctx context.Context) bool {
	p, ok := vrpc.PeerOf(ctx)
	if !ok {
		return false
	}
	if p.Addr.Network() == "unix" {
		return true
	}
	a, err := netip.ParseAddrPort(p.Addr.String())
	return err == nil && a.Addr().Unmap().IsLoopback()
}

func (m *Mapping) same(program, version uint32, network string) bool {
	return m.Program == program && m.Version == version && (network == "" || m.Network == network)
}

func (s *Server) set(ctx context.Context, m Mapping) bool {
	if !here(ctx) || m.Program == Program || m.Network == "" ||
		len(m.Network)+len(m.Address)+len(m.Owner) > maxText {
		return false
	}
	if _, _, err := m.Endpoint(); err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i].same(m.Program, m.Version, m.Network) {
			return s.all[i].Address == m.Address
		}
	}
	if len(s.all) >= maxMappings {
		return false
	}
	s.all = append(s.all, m)
	return true
}

func (s *Server) unset(ctx context.Context, program, version uint32, network string) bool {
	if !here(ctx) || program == Program {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.all)
	s.all = slices.DeleteFunc(s.all, func(m Mapping) bool { return m.same(program, version, network) })
	return len(s.all) < before
}

// find finds a version of a program, or where exact is false and there is none, another one: its
// server then says which it has.
func (s *Server) find(
	program, version uint32, network string, exact bool,
) (found Mapping, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.all {
		if m.same(program, version, network) {
			return m, true
		}
		if !exact && m.Program == program && m.Network == network {
			found, ok = m, true
		}
	}
	return found, ok
}

func (s *Server) list() []Mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// reachable puts the address by which the caller reaches this machine in the place of one that
// stands for all.
func reachable(ctx context.Context, m *Mapping) string {
	a, err := ParseAddress(m.Address)
	p, ok := vrpc.PeerOf(ctx)
	if err != nil || !a.Addr().IsUnspecified() || !ok || p.Addr.Network() == "unix" {
		return m.Address
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", p.Addr.String()) // sends nothing, and says which address would
	if err != nil {
		return m.Address
	}
	defer c.Close()
	own, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil || own.Addr().Unmap().Is4() == strings.HasSuffix(m.Network, "6") {
		return m.Address
	}
	return FormatAddress(netip.AddrPortFrom(own.Addr().Unmap(), a.Port()))
}

// versionTwo is the portmapper.
type versionTwo struct {
	rpcbind.UnimplementedPmapversServer
	s *Server
}

func (v versionTwo) Set(ctx context.Context, m *rpcbind.Mapping) (bool, error) {
	if m.Port > 1<<16-1 {
		return false, nil
	}
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(m.Port))
	return v.s.set(ctx, Mapping{Program: m.Prog, Version: m.Vers, Network: netid(m.Prot), Address: FormatAddress(at)}), nil
}

// Unset takes back what is on both networks, whatever the caller says, as portmappers do.
func (v versionTwo) Unset(ctx context.Context, m *rpcbind.Mapping) (bool, error) {
	tcp := v.s.unset(ctx, m.Prog, m.Vers, "tcp")
	udp := v.s.unset(ctx, m.Prog, m.Vers, "udp")
	return tcp || udp, nil
}

func (v versionTwo) Getport(_ context.Context, q *rpcbind.Mapping) (uint32, error) {
	m, ok := v.s.find(q.Prog, q.Vers, netid(q.Prot), false)
	if !ok {
		return 0, nil
	}
	a, err := ParseAddress(m.Address)
	if err != nil {
		return 0, nil //nolint:nilerr // it has no port
	}
	return uint32(a.Port()), nil
}

func (v versionTwo) Dump(ctx context.Context) (rpcbind.Mappings, error) {
	var l rpcbind.Mappings
	all := v.s.list()
	slices.Reverse(all)
	for _, m := range all {
		n, ok := prot(m.Network)
		a, err := ParseAddress(m.Address)
		if ok && err == nil {
			one := rpcbind.Mapping{Prog: m.Program, Vers: m.Version, Prot: n, Port: uint32(a.Port())}
			l = &rpcbind.MappingList{Map: one, Next: l}
		}
	}
	if l != nil && !dumpable(ctx, l) {
		return nil, errDatagram
	}
	return l, nil
}

// versionThree is rpcbind's first.
type versionThree struct {
	rpcbind.UnimplementedRpcbversServer
	s *Server
}

func (v versionThree) Set(ctx context.Context, m *rpcbind.Rpcb) (bool, error) {
	return v.s.set(ctx, Mapping{m.Prog, m.Vers, m.Netid, m.Addr, m.Owner}), nil
}

func (v versionThree) Unset(ctx context.Context, m *rpcbind.Rpcb) (bool, error) {
	return v.s.unset(ctx, m.Prog, m.Vers, m.Netid), nil
}

func (v versionThree) Getaddr(ctx context.Context, q *rpcbind.Rpcb) (string, error) {
	return v.address(ctx, q, false), nil
}

func (v versionThree) address(ctx context.Context, q *rpcbind.Rpcb, exact bool) string {
	m, ok := v.s.find(q.Prog, q.Vers, q.Netid, exact)
	if !ok {
		return ""
	}
	return reachable(ctx, &m)
}

func (v versionThree) Dump(ctx context.Context) (rpcbind.Rpcbs, error) {
	var l rpcbind.Rpcbs
	all := v.s.list()
	slices.Reverse(all)
	for _, m := range all {
		one := rpcbind.Rpcb{Prog: m.Program, Vers: m.Version, Netid: m.Network, Addr: m.Address, Owner: m.Owner}
		l = &rpcbind.RpcbList{Map: one, Next: l}
	}
	if l != nil && !dumpable(ctx, l) {
		return nil, errDatagram
	}
	return l, nil
}

func (versionThree) Gettime(
	context.Context,
) (uint32, error) {
	return uint32(time.Now().Unix()), nil
}

// versionFour adds what tells versions of a program apart.
type versionFour struct{ versionThree }

func (v versionFour) Getversaddr(ctx context.Context, q *rpcbind.Rpcb) (string, error) {
	return v.address(ctx, q, true), nil
}
