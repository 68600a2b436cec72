package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// MaxName is the length of the longest node name, in bytes.
const MaxName = 64

// CheckName says what is wrong with the name of a node, or nil. Names end up in
// file names, log lines and certificates, hence the small alphabet, and a first
// character that rules out "..", hidden files and what looks like an option.
func CheckName(name string) error {
	if name == "" {
		return errors.New("it is empty")
	}
	if len(name) > MaxName {
		return fmt.Errorf("%.16q... has %d bytes, the limit is %d", name, len(name), MaxName)
	}
	for i, c := range name {
		if !isNameChar(c) {
			return fmt.Errorf("%q has the character %q at byte %d; use letters, digits, '-', '_' and '.'", name, c, i)
		}
	}
	if name[0] == '-' || name[0] == '.' {
		return fmt.Errorf("%q begins with %q; begin with a letter, a digit or '_'", name, name[0])
	}
	return nil
}

func isNameChar(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '_' || c == '.'
}

// checkAddress accepts what every node can dial the same way: an address or a
// host name, and a port as a number. Names of services depend on the machine,
// and port 0 cannot be dialled.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port: %w", addr, err)
	}
	if strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return fmt.Errorf("%q has a bad IPv6 address: %w", addr, err)
		}
	} else if err := checkHostName(host); err != nil {
		return fmt.Errorf("%q: %w", addr, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' {
		return fmt.Errorf("%q has the port %q, wanted a number from 1 to 65535", addr, port)
	}
	return nil
}

// checkHostName looks at the characters only: whether the name means anything is
// for the resolver to say, and it may say different things on different nodes.
func checkHostName(host string) error {
	if host == "" {
		return errors.New("the host is missing; give the address that other nodes reach it by")
	}
	if len(host) > 253 {
		return fmt.Errorf("the host has %d bytes, the limit is 253", len(host))
	}
	for _, c := range host {
		if !isNameChar(c) {
			return fmt.Errorf("the host has the character %q", c)
		}
	}
	return nil
}

// URL is that of the node at a control address. The zone of a link-local address
// stands behind an escaped percent sign (RFC 6874).
func URL(control string) string {
	u := url.URL{Scheme: "https", Host: control}
	return u.String()
}

// Canonical is the one spelling of a node's name: the manual writes NODE1 and node1
// for the same node. Names are the same in all nodes' lists and certificates, in
// whatever case they are written there.
func Canonical(name string) string { return strings.ToLower(name) }
