package via

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/vmmc-go/vmmc"
)

// HostAddress is the address of all NICs of a node. It is made from the node's name.
//
// Experimental: it may change in any release.
type HostAddress [6]byte

// String is the address in hexadecimal digits.
func (a HostAddress) String() string { return hex.EncodeToString(a[:]) }

// Address is what a VI is connected to (VIP_NET_ADDRESS): a node, and what tells apart those that
// wait there. The discriminator has any bytes, at most MaxDiscriminator of them. Two match if they
// are equal, length included.
//
// Experimental: it may change in any release.
type Address struct {
	Host          HostAddress
	Discriminator string
}

// String is the host's address and the discriminator, quoted.
func (a Address) String() string { return fmt.Sprintf("%v/%q", a.Host, a.Discriminator) }

// hashName is the address of a node. Names of nodes are compared without case.
func hashName(name string) (a HostAddress) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.ToLower(name)))
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], h.Sum64()^h.Sum64()>>48)
	copy(a[:], b[2:])
	return a
}

// HostByName returns the address of a node (VipNSGetHostByName); "" is this NIC's. index walks
// through the addresses of a node: each has one. Errors: [ErrNameService] if there is no such node,
// or no such index; [ErrInvalidParameter] for a negative index.
//
// Experimental: it may change in any release.
func (n *NIC) HostByName(name string, index int) (HostAddress, error) {
	const op = "look up a node by name"
	switch {
	case index < 0:
		return HostAddress{}, fail(op, ErrInvalidParameter, "index %d", index)
	case index > 0:
		return HostAddress{}, fail(op, ErrNameService, "a node has one address")
	case name == "":
		return n.addr, nil
	}
	id, err := n.p.NameToNode(name)
	if err == nil {
		name, err = n.p.NodeToName(id)
	}
	if err != nil {
		return HostAddress{}, &Error{Op: op, Code: ErrNameService, Err: err}
	}
	return hashName(name), nil
}

// HostByAddress returns the name of the node with an address (VipNSGetHostByAddr). The error is
// [ErrNameService] if there is none.
//
// Experimental: it may change in any release.
func (n *NIC) HostByAddress(a HostAddress) (string, error) {
	const op = "look up a node by address"
	_, name, err := n.nodeOf(a)
	if err != nil {
		return "", &Error{Op: op, Code: ErrNameService, Err: err}
	}
	return name, nil
}

// nodeOf finds the node with an address.
func (n *NIC) nodeOf(a HostAddress) (id vmmc.NodeID, name string, err error) {
	found := 0
	for _, node := range n.p.AllHosts() {
		s, err := n.p.NodeToName(node)
		if err != nil || hashName(s) != a {
			continue
		}
		id, name = node, s
		found++
	}
	switch found {
	case 0:
		return id, "", fmt.Errorf("no node has the address %v", a)
	case 1:
		return id, name, nil
	default:
		return id, "", fmt.Errorf("%d nodes have the address %v: give one another name", found, a)
	}
}

// What letterboxes are for, in their names.
const (
	listenerName = "via"
	peerName     = "viap"
)

// publishedName is the name of the letterbox of a discriminator on a node.
func publishedName(node, kind, discriminator string) string {
	return node + "/." + kind + "-" + hex.EncodeToString([]byte(discriminator))
}
