package portmap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vmmc-go/vmmc/internal/rpcbind"
	"github.com/vmmc-go/vmmc/vrpc"
)

// ErrNotRegistered says that the program is not registered, or not for the network asked for.
var ErrNotRegistered = errors.New("the program is not registered")

// ErrRefused is rpcbind's answer to a registration: the program is registered already, perhaps by
// another user, or the caller may not register it.
var ErrRefused = errors.New("rpcbind refuses")

// errNetwork is why a portmapper has nothing of a network: it knows only tcp and udp.
var errNetwork = errors.New("a portmapper does not know network")

// Client asks an rpcbind. It begins with version 4 and goes down to what the server has.
type Client struct {
	c    *vrpc.Client
	host netip.Addr // the machine that is asked; none is this one
	two  *rpcbind.PmapversClient
	four *rpcbind.Rpcbvers4Client
	tri  *rpcbind.RpcbversClient
}

// Local connects to this machine's rpcbind: by its unix socket, which tells it the caller's user,
// or by TCP where there is no such socket.
func Local(ctx context.Context) (*Client, error) {
	c, err := Dial(ctx, "unix", Socket)
	if err != nil {
		var err2 error
		if c, err2 = Dial(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(Port))); err2 != nil {
			return nil, fmt.Errorf("portmap: this machine has no rpcbind that answers: %w",
				errors.Join(err, err2))
		}
	}
	return c, nil
}

// Host connects to the rpcbind of a machine, by TCP.
func Host(ctx context.Context, host string) (*Client, error) {
	return Dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(Port)))
}

// Dial connects to an rpcbind at an address, as [vrpc.Dial] does.
func Dial(
	ctx context.Context, network, address string, opts ...vrpc.ClientOption,
) (*Client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("portmap: %w", err)
	}
	var host netip.Addr
	if a, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		host = a.Addr().Unmap()
	}
	c, err := vrpc.NewClient(conn, opts...)
	if err != nil {
		return nil, fmt.Errorf("portmap: %w", err)
	}
	return &Client{c, host, rpcbind.NewPmapversClient(c), rpcbind.NewRpcbvers4Client(c), rpcbind.NewRpcbversClient(c)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.c.Close() }

// older reports whether an older version is to be asked.
func older(err error) bool { return errors.Is(err, vrpc.ErrProgMismatch) }

// Dump lists all that is registered.
func (c *Client) Dump(ctx context.Context) ([]Mapping, error) {
	l, err := c.four.Dump(ctx)
	if older(err) {
		l, err = c.tri.Dump(ctx)
	}
	if older(err) {
		return c.dumpTwo(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("portmap: list: %w", err)
	}
	var all []Mapping
	for ; l != nil; l = l.Next {
		m := &l.Map
		all = append(all, Mapping{m.Prog, m.Vers, m.Netid, m.Addr, m.Owner})
	}
	return all, nil
}

func (c *Client) dumpTwo(ctx context.Context) ([]Mapping, error) {
	l, err := c.two.Dump(ctx)
	if err != nil {
		return nil, fmt.Errorf("portmap: list: %w", err)
	}
	var all []Mapping
	for ; l != nil; l = l.Next {
		m := &l.Map
		at := netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(m.Port))
		all = append(all, Mapping{Program: m.Prog, Version: m.Vers, Network: netid(m.Prot), Address: FormatAddress(at)})
	}
	return all, nil
}

// The numbers that portmappers have for networks.
const (
	protTCP = 6
	protUDP = 17
)

func netid(prot uint32) string {
	switch prot {
	case protTCP:
		return "tcp"
	case protUDP:
		return "udp"
	}
	return strconv.FormatUint(uint64(prot), 10)
}

func prot(netid string) (uint32, bool) {
	switch netid {
	case "tcp":
		return protTCP, true
	case "udp":
		return protUDP, true
	}
	return 0, false
}

// Find says where a version of a program is on a network, which is an rpcbind's netid; or where
// another version is, whose server then says which it has. The error is ErrNotRegistered where
// there is none. It asks for the whole list: for one program rpcbind looks only on the network that
// it is asked by.
func (c *Client) Find(
	ctx context.Context, program, version uint32, network string,
) (*Mapping, error) {
	all, err := c.Dump(ctx)
	if err != nil {
		return nil, err
	}
	var found *Mapping
	for i := range all {
		if m := &all[i]; m.same(program, version, network) ||
			found == nil && m.Program == program && m.Network == network {
			found = m
		}
	}
	if found == nil {
		return nil, fmt.Errorf("portmap: program %d version %d on %s: %w",
			program, version, network, ErrNotRegistered)
	}
	found.Address = c.reached(found)
	return found, nil
}

// reached puts the machine that was asked in the place of an address that stands for all of it.
func (c *Client) reached(m *Mapping) string {
	a, err := ParseAddress(m.Address)
	if err != nil || !a.Addr().IsUnspecified() {
		return m.Address
	}
	host := c.host
	switch {
	case host.IsValid() && host.Is4() == a.Addr().Is4():
	case host.IsValid() && !host.IsLoopback():
		return m.Address // of the other family nothing is known
	case a.Addr().Is4():
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		host = netip.IPv6Loopback()
	}
	return FormatAddress(netip.AddrPortFrom(host, a.Port()))
}

// Set registers. Rpcbind takes it from its own machine only.
func (c *Client) Set(ctx context.Context, m Mapping) error {
	return c.change(ctx, "register", m, c.four.Set, c.tri.Set, c.two.Set)
}

// Unset takes a registration back. Without a Network all of the version's are.
func (c *Client) Unset(ctx context.Context, m Mapping) error {
	return c.change(ctx, "unregister", m, c.four.Unset, c.tri.Unset, c.two.Unset)
}

type (
	changeRpcb    = func(context.Context, *rpcbind.Rpcb) (bool, error)
	changeMapping = func(context.Context, *rpcbind.Mapping) (bool, error)
)

func (c *Client) change(
	ctx context.Context, what string, m Mapping, four, tri changeRpcb, two changeMapping,
) error {
	q := &rpcbind.Rpcb{Prog: m.Program, Vers: m.Version, Netid: m.Network, Addr: m.Address, Owner: m.Owner}
	done, err := four(ctx, q)
	if older(err) {
		done, err = tri(ctx, q)
	}
	if older(err) {
		var old *rpcbind.Mapping
		if old, err = mappingOf(q); err == nil {
			done, err = two(ctx, old)
		}
	}
	if err == nil && !done {
		err = ErrRefused
	}
	if err != nil {
		return fmt.Errorf("portmap: %s program %d version %d at %s %s: %w",
			what, m.Program, m.Version, m.Network, m.Address, err)
	}
	return nil
}

// mappingOf is what a portmapper can be told of q.
func mappingOf(q *rpcbind.Rpcb) (*rpcbind.Mapping, error) {
	m := &rpcbind.Mapping{Prog: q.Prog, Vers: q.Vers}
	if q.Netid == "" {
		return m, nil
	}
	var ok bool
	if m.Prot, ok = prot(q.Netid); !ok {
		return nil, fmt.Errorf("%w %q", errNetwork, q.Netid)
	}
	a, err := ParseAddress(q.Addr)
	if err != nil && q.Addr != "" {
		return nil, err
	}
	m.Port = uint32(a.Port())
	return m, nil
}

// Register registers all services at all addresses that they are served at, and what was registered
// for them before there, by a server that has died perhaps, no more. What fails leaves none of
// them.
func (c *Client) Register(
	ctx context.Context, owner string, services []*vrpc.Service, addrs ...net.Addr,
) error {
	for _, s := range services {
		for _, a := range addrs {
			all, err := Of(s.Program, s.Version, a)
			if err != nil {
				return err
			}
			for _, m := range all {
				_ = c.Unset(ctx, m) // mostly there is nothing
			}
		}
		// A portmapper's Unset takes back both networks, so it comes before all that is set.
		for _, a := range addrs {
			all, err := Of(s.Program, s.Version, a)
			if err != nil {
				return err
			}
			for i, m := range all {
				m.Owner = owner
				if err := c.Set(ctx, m); err != nil && (i == 0 || !errors.Is(err, errNetwork)) {
					return errors.Join(err, c.Unregister(ctx, services, addrs...))
				}
			}
		}
	}
	return nil
}

// Unregister takes all that back.
func (c *Client) Unregister(
	ctx context.Context, services []*vrpc.Service, addrs ...net.Addr,
) error {
	var errs []error
	for _, s := range services {
		for _, a := range addrs {
			all, err := Of(s.Program, s.Version, a)
			errs = append(errs, err)
			for _, m := range all {
				if err := c.Unset(ctx, m); err != nil && !errors.Is(err, ErrRefused) &&
					!errors.Is(err, errNetwork) {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}
