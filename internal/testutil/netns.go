package testutil

import (
	"fmt"
	"os/exec"
	"testing"
)

// NS is a network namespace: a machine of its own, as far as the network goes. Its link is eth0;
// ns.Command("ip", "link", "set", "eth0", "down") cuts it off.
type NS struct {
	Name string // for ip netns
	Addr string // IPv4 address on the network that all namespaces of a NewNet share
	t    testing.TB
}

// NewNet makes n network namespaces, joined by a bridge in a namespace of its own, so that nothing
// of it touches the machine's network or another test's. It all goes when the test ends. Where this
// cannot be done the test is skipped, with the reason. A test binary that is killed leaves its
// namespaces: ip netns del the names that begin with "vmmctest-".
func NewNet(t testing.TB, n int) []*NS {
	t.Helper()
	reason := noNamespaces()
	Require(t, reason == "", reason)
	if n < 1 || n > 254 {
		t.Fatalf("testutil: a net of %d namespaces; between 1 and 254 have an address", n)
	}
	prefix := netPrefix()
	hub := prefix + "-hub"
	mustIP(t, addNS(t, hub, "link add name br0 type bridge", "link set br0 up"))
	net := make([]*NS, n)
	for i := range net {
		ns := &NS{Name: fmt.Sprintf("%s-%d", prefix, i+1), Addr: fmt.Sprintf("10.77.0.%d", i+1), t: t}
		port := fmt.Sprintf("port%d", i+1)
		mustIP(t, addNS(
			t, ns.Name,
			"link set lo up",
			"link add name eth0 type veth peer name "+port+" netns "+hub,
			"addr add "+ns.Addr+"/24 dev eth0",
			"link set eth0 up",
		))
		mustIP(t, inNS(hub, "link set "+port+" master br0 up"))
		net[i] = ns
	}
	return net
}

// Command returns a command, not yet started, that runs inside the namespace, and ends with the
// test as Command's does.
func (ns *NS) Command(name string, args ...string) *exec.Cmd {
	return bound(ns.t, ns.Enter(exec.Command(name, args...)))
}

// Enter changes a command that is not yet started so that it runs inside the namespace, and returns
// it: ns.Enter(testutil.Command(t, role)) runs a role there.
func (ns *NS) Enter(cmd *exec.Cmd) *exec.Cmd {
	ip := exec.Command("ip", append([]string{"netns", "exec", ns.Name, cmd.Path}, cmd.Args[1:]...)...)
	cmd.Path, cmd.Args, cmd.Err = ip.Path, ip.Args, ip.Err
	return cmd
}
