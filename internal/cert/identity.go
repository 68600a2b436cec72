package cert

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

// Identity is a node or a user that can prove its name: what Issue wrote and Load
// reads. It does not change, so any number of goroutines may use it.
//
// Its TLS configurations negotiate no application protocol; a caller that wants
// one sets NextProtos.
type Identity struct {
	Peer

	pair tls.Certificate
	ca   *x509.Certificate
	now  func() time.Time
}

// Until is when the certificate ends.
func (id *Identity) Until() time.Time { return id.pair.Leaf.NotAfter }

// ServerTLS is for accepting connections from any node or user of the cluster.
// Ask PeerOf for the peer's identity before serving anything that not every peer may have.
func (id *Identity) ServerTLS() *tls.Config {
	c := id.config()
	c.ClientAuth = tls.RequireAndVerifyClientCert
	c.ClientCAs = id.pool()
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := id.verify(cs, x509.ExtKeyUsageClientAuth)
		return err
	}
	return c
}

// ClientTLS is for connecting to one node of the cluster. The handshake fails if
// any other peer answers, another node of the same cluster included.
func (id *Identity) ClientTLS(node string) *tls.Config {
	want := Peer{Cluster: id.Cluster, Kind: Node, Name: hosts.Canonical(node)}
	c := id.config()
	// What is switched off is the standard check, which wants the name dialled in
	// the certificate. VerifyConnection does all of it for our names instead.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		found, err := id.verify(cs, x509.ExtKeyUsageServerAuth)
		if err != nil {
			return fmt.Errorf("connect to %v: %w", want, err)
		}
		if found != want {
			return fmt.Errorf("the certificate is for %v, wanted %v; do the addresses in the hosts file belong to these nodes?", found, want)
		}
		return nil
	}
	return c
}

func (id *Identity) config() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.pair},
		Time:         id.now,
		// Connections between daemons are few and last; a full handshake for each
		// means that a certificate never outlives its dates inside a ticket.
		SessionTicketsDisabled: true,
	}
}

func (id *Identity) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(id.ca)
	return p
}

// PeerOf returns the identity of the peer of a connection made with ServerTLS or
// ClientTLS. It checks the authority's signature again, because rights depend on
// the answer and a state says nothing about the configuration it came from. It
// does not check the dates: a connection may outlast the certificate it began with.
func (id *Identity) PeerOf(cs tls.ConnectionState) (Peer, error) {
	if !cs.HandshakeComplete {
		return Peer{}, errors.New("who the peer is: the TLS handshake is not complete")
	}
	leaf, err := leafOf(cs)
	if err != nil {
		return Peer{}, err
	}
	if err := leaf.CheckSignatureFrom(id.ca); err != nil {
		return Peer{}, id.verifyError(leaf, err)
	}
	return id.member(leaf)
}

func leafOf(cs tls.ConnectionState) (*x509.Certificate, error) {
	if len(cs.PeerCertificates) == 0 {
		return nil, errors.New("the peer showed no certificate; every node and user of a cluster needs one")
	}
	return cs.PeerCertificates[0], nil
}

// verify does all that makes a peer trustworthy: signature, dates, use, cluster.
func (id *Identity) verify(cs tls.ConnectionState, use x509.ExtKeyUsage) (Peer, error) {
	leaf, err := leafOf(cs)
	if err != nil {
		return Peer{}, err
	}
	return id.verifyLeaf(leaf, use)
}

func (id *Identity) verifyLeaf(leaf *x509.Certificate, use x509.ExtKeyUsage) (Peer, error) {
	// No intermediates: the authority issues to nodes and users only.
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:       id.pool(),
		CurrentTime: id.now(),
		KeyUsages:   []x509.ExtKeyUsage{use},
	})
	if err != nil {
		return Peer{}, id.verifyError(leaf, err)
	}
	return id.member(leaf)
}

// member reads the name from a certificate whose signature has been checked.
func (id *Identity) member(leaf *x509.Certificate) (Peer, error) {
	p, err := claimed(leaf)
	if err != nil {
		return Peer{}, err
	}
	if p.Kind == Node { // one that was issued before names had one spelling
		p.Name = hosts.Canonical(p.Name)
	}
	if p.Cluster != id.Cluster {
		return Peer{}, fmt.Errorf("the certificate is for %v, wanted cluster %q", p, id.Cluster)
	}
	return p, nil
}

// verifyError explains why a certificate was not accepted, by the name that the
// certificate claims, which is not proven at this point.
func (id *Identity) verifyError(leaf *x509.Certificate, err error) error {
	who := leaf.Subject.String()
	if p, err := claimed(leaf); err == nil {
		who = p.String()
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert == leaf {
		return fmt.Errorf("the certificate for %s is good from %s to %s and it is %s here; issue a new one, or set the clock: %w",
			who, date(leaf.NotBefore), date(leaf.NotAfter), date(id.now()), err)
	}
	return fmt.Errorf("the certificate for %s is not one of cluster %q by our ca.pem; were both issued by the same authority? %w",
		who, id.Cluster, err)
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }
