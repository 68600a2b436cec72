// Package cluster lays out several nodes on one machine: certificates, hosts
// file, addresses and sockets. Starting them is for the caller.
package cluster

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/trust"
)

// HostsFile is the name of the hosts file in the layout's directory.
const HostsFile = "vmmc-hosts.txt"

// Node is where a node's things are.
type Node struct {
	Name   string
	Socket string // a path, or "@name" for one without a file
	Certs  string // directory
	State  string // directory, which has the node's logs too
}

// Layout is a prepared cluster.
type Layout struct {
	Dir   string
	Hosts []hosts.Host
	Nodes []Node

	unlisted bool
}

// Prepare makes, in dir, an authority and the certificates and hosts file of n
// nodes, n1 to nN, at free loopback ports. The ports are free when it looks; a
// node that finds its own taken says so when it starts.
func Prepare(dir string, n int) (*Layout, error) {
	addrs, err := FreeAddresses(n)
	if err != nil {
		return nil, err
	}
	return PrepareAt(dir, addrs)
}

// PrepareAt is Prepare for nodes at given addresses, host and port.
func PrepareAt(dir string, addrs []string) (*Layout, error) {
	l := &Layout{Dir: dir}
	ca := filepath.Join(dir, "ca")
	if err := cert.Init(ca, "local-"+strings.ToLower(rand.Text()[:8])); err != nil {
		return nil, fmt.Errorf("lay out a cluster: %w", err)
	}
	for i, addr := range addrs {
		name := fmt.Sprintf("n%d", i+1)
		node := Node{Name: name, Socket: filepath.Join(dir, name+".sock"), Certs: filepath.Join(dir, name), State: filepath.Join(dir, name+".state")}
		if err := cert.IssueNode(ca, name, node.Certs); err != nil {
			return nil, fmt.Errorf("lay out a cluster: %w", err)
		}
		if err := trust.MkdirAll(node.State, 0o711); err != nil { // users reach their sessions through it
			return nil, fmt.Errorf("lay out a cluster: %w", err)
		}
		l.Hosts = append(l.Hosts, hosts.Host{Name: name, Control: addr, Data: addr})
		l.Nodes = append(l.Nodes, node)
	}
	if err := os.WriteFile(filepath.Join(dir, HostsFile), []byte(hosts.Format(l.Hosts)), 0o600); err != nil {
		return nil, fmt.Errorf("lay out a cluster: %w", err)
	}
	return l, nil
}

// Unlisted gives the nodes sockets without a file, which nothing can leave
// behind and which only this user's processes can use, and no logs. The directory
// may go once they run.
func (l *Layout) Unlisted() {
	l.unlisted = true
	tag := strings.ToLower(rand.Text()[:12])
	for i := range l.Nodes {
		l.Nodes[i].Socket = fmt.Sprintf("@vmmc-%s-%s", tag, l.Nodes[i].Name)
	}
}

// Args are vmmcd's flags for node i. All nodes are one user's, on one machine: if
// that is root, one is no more than another, and they may spawn on each other.
func (l *Layout) Args(i int) []string {
	n := l.Nodes[i]
	root := n.State
	if l.unlisted {
		root = "" // nor that of the environment
	}
	return []string{"--name", n.Name, "--hosts", filepath.Join(l.Dir, HostsFile), "--certs", n.Certs, "--socket", n.Socket, "--state", n.State, "--root", root, "--spawn-root"}
}
