package vmmctest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

// bound is how long a call waits before it fails its test, a guard against hanging.
const bound = time.Minute

// settle is how long a daemon has at the test's end to see that its processes have ended. A
// variable for tests.
var settle = 10 * time.Second

func init() { testutil.Name = "vmmctest" }

// Main is the body of a package's TestMain. In a child of [Child] it runs the role; otherwise it
// runs the tests, and fails if they leave a goroutine or a descriptor behind. It does not return.
//
// Experimental: it may change in any release.
func Main(m *testing.M) { testutil.Main(m) }

// Node is a node of a test. Its daemon runs in the test binary.
//
// Experimental: it may change in any release.
type Node struct {
	t      testing.TB
	name   string
	socket string
	id     vmmc.NodeID
	daemon *daemon.Node
	out    map[*Node]*wire // What carries connections that this node makes.
	others []*Node
}

// Nodes starts n nodes on this machine, n1, n2 and so on, which end with the test.
//
// Experimental: it may change in any release.
func Nodes(t testing.TB, n int) []*Node {
	t.Helper()
	if n < 1 {
		t.Fatalf("vmmctest: %d nodes: at least 1", n)
	}
	tag := strings.ToLower(rand.Text()[:12])
	nodes, names := make([]*Node, n), make([]string, n)
	for i := range nodes {
		names[i] = fmt.Sprintf("n%d", i+1)
		nodes[i] = &Node{t: t, name: names[i], socket: fmt.Sprintf("@vmmctest-%s-%s", tag, names[i]), out: map[*Node]*wire{}}
	}
	ids, err := cert.Ephemeral("vmmctest", names...)
	if err != nil {
		t.Fatalf("vmmctest: %v", err)
	}
	addrs, err := cluster.FreeAddresses(n)
	if err != nil {
		t.Fatalf("vmmctest: %v", err)
	}
	for i, near := range nodes {
		for j, far := range nodes {
			if i != j {
				near.others = append(near.others, far)
				near.out[far] = newWire(t, addrs[j])
			}
		}
	}
	for i, node := range nodes {
		node.start(ids[node.name], nodes, addrs[i])
	}
	for _, node := range nodes {
		p := node.Open(t)
		node.id = p.Node()
		if err := p.Close(); err != nil {
			t.Fatalf("vmmctest: close the first process of node %s: %v", node.name, err)
		}
	}
	return nodes
}

// start starts the daemon. Each node has a hosts file of its own, in which the others have the
// addresses of the wires to them.
func (n *Node) start(id *cert.Identity, nodes []*Node, addr string) {
	n.t.Helper()
	var list []hosts.Host
	for _, o := range nodes {
		at := addr
		if o != n {
			at = n.out[o].addr()
		}
		list = append(list, hosts.Host{Name: o.name, Control: at, Data: at})
	}
	dataFor := func(importer string) string {
		i := slices.IndexFunc(nodes, func(o *Node) bool { return o.name == importer && o != n })
		if i < 0 {
			return addr
		}
		return nodes[i].out[n].addr()
	}
	d, err := daemon.Start(daemon.Config{
		Name: n.name, Socket: n.socket, Hosts: list, Identity: id, Version: vmmc.Release, DataFor: dataFor,
	})
	if err != nil {
		n.t.Fatalf("vmmctest: start node %s: %v", n.name, err)
	}
	n.daemon = d
	n.t.Cleanup(n.close)
}

// close ends the node, after all that the test has opened on it later.
func (n *Node) close() {
	n.t.Helper()
	defer n.daemon.Close()
	if n.t.Failed() {
		return // what it left would only hide why it failed
	}
	open := n.daemon.Figures().Processes
	for end := time.Now().Add(settle); open > 0 && time.Now().Before(end); open = n.daemon.Figures().Processes {
		time.Sleep(time.Millisecond)
	}
	if open > 0 {
		n.t.Errorf("vmmctest: %d processes of node %s are open at the test's end: close each Process that the test opens with vmmc.Open, or open it with Node.Open", open, n.name)
	}
}

// Name is the node's name, as the first argument of [vmmc.Process.NameToNode].
//
// Experimental: it may change in any release.
func (n *Node) Name() string { return n.name }

// ID is the node's identity.
//
// Experimental: it may change in any release.
func (n *Node) ID() vmmc.NodeID { return n.id }

// Socket is what [vmmc.WithSocket] takes to join the node.
//
// Experimental: it may change in any release.
func (n *Node) Socket() string { return n.socket }

// Environ is what a program needs in its environment to join the node.
//
// Experimental: it may change in any release.
func (n *Node) Environ() []string { return []string{nodeproto.Env + "=" + n.socket} }

// Open opens a Process that has joined the node, and closes it when the test t ends, which may be a
// subtest of the node's.
//
// Experimental: it may change in any release.
func (n *Node) Open(t testing.TB, opts ...vmmc.Option) *vmmc.Process {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	p, err := vmmc.Open(ctx, append(slices.Clone(opts), vmmc.WithSocket(n.socket))...)
	if err != nil {
		t.Fatalf("vmmctest: open a process on node %s: %v", n.name, err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Cut breaks all connections between the node and the others, or those that are named, and lets
// none be made until [Node.Heal]. Both ends see their connections reset. A link between processes
// that is to survive this needs [vmmc.WithResume].
//
// Experimental: it may change in any release.
func (n *Node) Cut(others ...*Node) {
	n.t.Helper()
	for _, w := range n.wires(others) {
		w.cut()
	}
}

// Delay delays all that the node and the others, or those that are named, send each other from now
// on: by d in each direction at least. Where much is under way, or the machine is busy, it is more.
//
// Experimental: it may change in any release.
func (n *Node) Delay(d time.Duration, others ...*Node) {
	n.t.Helper()
	for _, w := range n.wires(others) {
		w.setDelay(d)
	}
}

// Heal undoes [Node.Cut] and [Node.Delay] between the node and the others, or those that are named.
// What is delayed goes on at once, in order.
//
// Experimental: it may change in any release.
func (n *Node) Heal(others ...*Node) {
	n.t.Helper()
	for _, w := range n.wires(others) {
		w.heal()
	}
}

// wires are all between the node and the others, both ways.
func (n *Node) wires(others []*Node) (all []*wire) {
	n.t.Helper()
	if len(others) == 0 {
		others = n.others
	}
	for _, o := range others {
		if n.out[o] == nil {
			n.t.Fatalf("vmmctest: node %s has no link with node %s: not another node of one call of Nodes", n.name, o.name)
		}
		all = append(all, n.out[o], o.out[n])
	}
	return all
}
