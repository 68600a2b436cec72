package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/agree"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// addresses looks at the node's own ports.
func addresses(ctx context.Context, n *Node) []Finding {
	const name = "own addresses"
	if n.Hosts == "" {
		return nil
	}
	list, err := hosts.ReadFile(n.Hosts)
	if err != nil {
		return bad(Failed, name, "mend the hosts file, the same on all nodes", "%v", err)
	}
	self, ok := hosts.Lookup(list, n.Name)
	if !ok {
		return bad(Failed, name, "name this node as the file does, with --name", "node %q is not in %s", n.Name, n.Hosts)
	}
	served := false // by the node itself
	if c, err := nodeproto.Dial(ctx, n.Socket); err == nil {
		served = true
		_ = c.Close()
	}
	out := ownAddress(ctx, name, self.Control, served)
	if self.Data != self.Control {
		out = append(out, ownAddress(ctx, name, self.Data, served)...)
	}
	return out
}

func ownAddress(ctx context.Context, name, addr string, served bool) []Finding {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	switch {
	case err == nil:
		_ = l.Close()
	case errors.Is(err, syscall.EADDRINUSE) && served:
	case errors.Is(err, syscall.EADDRINUSE):
		return bad(Failed, name, "end that program, or give the node another port in the hosts files of all nodes (ss -ltnp shows who has it)", "another program listens at %s", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return bad(Failed, name, "give the machine that address, or mend the hosts files", "%s is not an address of this machine", addr)
	case errors.Is(err, syscall.EACCES):
		return bad(Failed, name, "use a port from 1024 on, or give vmmcd CAP_NET_BIND_SERVICE", "user %d may not listen at %s", os.Getuid(), addr)
	default:
		return bad(Failed, name, "mend the hosts files", "%v", err)
	}
	if lo, hi, ok := passing(); ok {
		if _, p, err := net.SplitHostPort(addr); err == nil {
			if port, err := strconv.Atoi(p); err == nil && lo <= port && port <= hi {
				return bad(Warning, name, fmt.Sprintf("use a port below %d, or sysctl net.ipv4.ip_local_reserved_ports=%d", lo, port), "%s can be used; but the kernel gives ports from %d to %d to outgoing connections, so it may be taken when the node starts", addr, lo, hi)
			}
		}
	}
	return good(name, "%s can be used", addr)
}

// passing are the ports of outgoing connections.
func passing() (lo, hi int, ok bool) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0, false
	}
	f := strings.Fields(string(b))
	if len(f) != 2 {
		return 0, 0, false
	}
	lo, err1 := strconv.Atoi(f[0])
	hi, err2 := strconv.Atoi(f[1])
	return lo, hi, err1 == nil && err2 == nil
}

// others looks whether the other nodes are there and what time they have.
func others(ctx context.Context, n *Node) []Finding {
	if n.Hosts == "" || n.Certs == "" {
		return nil
	}
	list, err := hosts.ReadFile(n.Hosts)
	if err != nil {
		return nil // another check says so
	}
	id, err := cert.Load(n.Certs)
	if err != nil {
		return nil
	}
	found := make([][]Finding, len(list))
	var all sync.WaitGroup
	many := make(chan struct{}, 32)
	for i, h := range list {
		if h.Name == n.Name {
			continue
		}
		all.Go(func() {
			many <- struct{}{}
			defer func() { <-many }()
			found[i] = n.other(ctx, id, list, h)
		})
	}
	all.Wait()
	var out []Finding
	for _, f := range found {
		out = append(out, f...)
	}
	return out
}

// How far clocks may be apart. Logs of two nodes are read side by side; and a
// certificate is good from an hour before it was issued, by another clock still.
const (
	skewSeen = 2 * time.Second
	skewBad  = 10 * time.Minute
)

func (n *Node) other(
	ctx context.Context, id *cert.Identity, own []hosts.Host, h hosts.Host,
) []Finding {
	name := "node " + h.Name
	ctx, stop := context.WithTimeout(ctx, timeout.Ping)
	defer stop()
	var d net.Dialer
	for _, addr := range []string{h.Control, h.Data} {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			_ = c.Close()
			continue
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return bad(Warning, name, "start its vmmcd, or compare the hosts files", "nobody listens at %s", addr)
		}
		return bad(Failed, name, "is the machine on? does a firewall, here or there, let TCP to that port through? is the address right?", "no way to %s: %v", addr, err)
	}
	t := &http.Transport{TLSClientConfig: id.ClientTLS(h.Name), ForceAttemptHTTP2: true}
	defer t.CloseIdleConnections()
	way, base, limit := &http.Client{Transport: t}, hosts.URL(h.Control), connect.WithReadMaxBytes(nodeproto.MaxPacket)
	cl := nodev1connect.NewNodeServiceClient(way, base, limit)
	if _, err := cl.Ping(ctx, connect.NewRequest(&nodev1.PingRequest{})); err != nil {
		return bad(Failed, name, "issue certificates by one authority for both; compare clocks (date), hosts files and versions", "it listens at %s, but: %v", h.Control, err)
	}
	before := time.Now() // with a connection that is there
	a, err := cl.Ping(ctx, connect.NewRequest(&nodev1.PingRequest{}))
	if err != nil {
		return bad(Warning, name, "look into its log", "it answered once, and then: %v", err)
	}
	out := clock(name, a.Msg.GetClockUnixNs(), n.now().Add(-time.Since(before)/2), time.Since(before))
	how, conflict := agree.With(ctx, nodev1connect.NewClusterServiceClient(way, base, limit), own, a.Msg.GetHostsDigest())
	mend := "give all nodes the same hosts file, with the nodes in the same order"
	switch {
	case conflict:
		out = append(out, bad(Failed, name, mend, "it gives out logical pids of other nodes: %s", how)...)
	case how != "":
		out = append(out, bad(Warning, name, mend, "%s", how)...)
	}
	return out
}

// clock compares the other's time with ours.
func clock(name string, theirs int64, ours time.Time, rtt time.Duration) []Finding {
	if theirs == 0 {
		return good(name, "it answers within %v", rtt.Round(time.Microsecond))
	}
	ahead := time.Unix(0, theirs).Sub(ours)
	mend := "set the clocks, best by NTP on all nodes (chrony, systemd-timesyncd)"
	switch apart := ahead.Abs(); {
	case apart > skewBad:
		return bad(Failed, name, mend, "its clock and this one's are %v apart: certificates may not be good yet, or not any more", apart.Round(time.Second))
	case apart > skewSeen:
		return bad(Warning, name, mend, "its clock and this one's are %v apart", apart.Round(time.Millisecond))
	}
	return good(name, "it answers within %v, its clock is the same", rtt.Round(time.Microsecond))
}
