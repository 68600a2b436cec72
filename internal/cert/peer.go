// Package cert makes and checks the certificates by which the nodes and users of
// a cluster know one another.
//
// A cluster has one certificate authority, a key and a certificate in a directory
// that no daemon needs. It issues an identity to each node and user: a directory
// with the authority's certificate, a certificate and its key. The name is in the
// certificate as a URI,
//
//	vmmc://CLUSTER/node/NAME
//	vmmc://CLUSTER/user/NAME
//
// and nothing else is looked at: neither addresses nor DNS names take part, so
// nodes may move and resolvers may lie.
package cert

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

// Kind says what an identity belongs to.
type Kind uint8

// The zero Kind is invalid, so that an empty Peer identifies neither a node nor a user.
const (
	Node Kind = iota + 1
	User
)

func (k Kind) String() string {
	switch k {
	case Node:
		return "node"
	case User:
		return "user"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Peer is the identity that a certificate names. Two Peers that are == are the same.
type Peer struct {
	Cluster string
	Kind    Kind
	Name    string
}

func (p Peer) String() string {
	return fmt.Sprintf("%v %q of cluster %q", p.Kind, p.Name, p.Cluster)
}

const scheme = "vmmc"

// maxUser leaves room for names that directories make up (user@realm).
const maxUser = 256

// uri is the inverse of parseURI for a Peer that passes check.
func (p Peer) uri() *url.URL {
	return &url.URL{
		Scheme:  scheme,
		Host:    p.Cluster,
		Path:    "/" + p.Kind.String() + "/" + p.Name,
		RawPath: "/" + p.Kind.String() + "/" + url.PathEscape(p.Name),
	}
}

func (p Peer) check() error {
	if err := CheckCluster(p.Cluster); err != nil {
		return err
	}
	switch p.Kind {
	case Node:
		if err := hosts.CheckName(p.Name); err != nil {
			return fmt.Errorf("name of a node: %w", err)
		}
	case User:
		if err := checkUser(p.Name); err != nil {
			return fmt.Errorf("name of a user: %w", err)
		}
	default:
		return fmt.Errorf("%v: wanted a node or a user", p.Kind)
	}
	return nil
}

// CheckCluster wants a name that is a domain name's form as well: the cluster
// stands where a URI has its host, and crypto/x509 rejects certificates in which
// that is anything else.
func CheckCluster(name string) error {
	if err := hosts.CheckName(name); err != nil {
		return fmt.Errorf("name of a cluster: %w", err)
	}
	for label := range strings.SplitSeq(name, ".") {
		if len(label) < 1 || len(label) > 63 {
			return fmt.Errorf("name of a cluster: %q has %d characters between dots, wanted 1 to 63", name, len(label))
		}
	}
	return nil
}

// checkUser leaves the alphabet to the system that has the user, except for what
// would make two names look the same or break a line of a log.
func checkUser(name string) error {
	if name == "" || len(name) > maxUser {
		return fmt.Errorf("%.32q has %d bytes, wanted 1 to %d", name, len(name), maxUser)
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("%q is not UTF-8", name)
	}
	for _, c := range name {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("%q has the character %q, which cannot be printed", name, c)
		}
	}
	return nil
}

// parseURI accepts one spelling for each Peer. With two, a check by string and a
// check by value could disagree about an identity.
func parseURI(u *url.URL) (Peer, error) {
	wanted := func(why string) error {
		return fmt.Errorf("identity %q: %s; wanted vmmc://CLUSTER/node/NAME or vmmc://CLUSTER/user/NAME", u, why)
	}
	if u.Scheme != scheme {
		return Peer{}, wanted("another scheme")
	}
	kind, name, ok := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	if !ok {
		return Peer{}, wanted("no kind or no name")
	}
	p := Peer{Cluster: u.Host, Name: name}
	switch kind {
	case "node":
		p.Kind = Node
	case "user":
		p.Kind = User
	default:
		return Peer{}, wanted(fmt.Sprintf("unknown kind %q", kind))
	}
	if err := p.check(); err != nil {
		return Peer{}, wanted(err.Error())
	}
	if p.uri().String() != u.String() {
		return Peer{}, wanted(fmt.Sprintf("not the usual spelling %q", p.uri()))
	}
	return p, nil
}

// claimed reads the identity that a certificate names. It does not check the signature.
func claimed(c *x509.Certificate) (Peer, error) {
	if len(c.URIs) != 1 {
		return Peer{}, fmt.Errorf("the certificate of %q has %d URIs, wanted one that names a node or user", c.Subject, len(c.URIs))
	}
	return parseURI(c.URIs[0])
}
