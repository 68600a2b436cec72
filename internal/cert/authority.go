package cert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/url"
	"time"
)

const (
	authorityYears = 10
	identityYears  = 1
	// A machine whose clock is a little behind must accept what was just issued.
	clockSlack = time.Hour
)

// authority signs the certificates of one cluster.
type authority struct {
	cluster string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	now     func() time.Time
}

func newAuthority(cluster string, now func() time.Time) (*authority, error) {
	if err := CheckCluster(cluster); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	t := now()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "vmmc authority of " + cluster},
		NotBefore: t.Add(-clockSlack),
		NotAfter:  t.AddDate(authorityYears, 0, 0),
		URIs:      []*url.URL{{Scheme: scheme, Host: cluster}},
		KeyUsage:  x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:      true,
		// It signs for nodes and users, never for another authority.
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the authority's certificate: %w", err)
	}
	return &authority{cluster: cluster, cert: cert, key: key, now: now}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// clusterOf reads the cluster from an authority's certificate.
func clusterOf(ca *x509.Certificate) (string, error) {
	if !ca.IsCA || len(ca.URIs) != 1 {
		return "", fmt.Errorf("the certificate of %q is not that of a cluster's authority", ca.Subject)
	}
	cluster := ca.URIs[0].Host
	if err := CheckCluster(cluster); err != nil {
		return "", err
	}
	if want := scheme + "://" + cluster; ca.URIs[0].String() != want {
		return "", fmt.Errorf("the authority's certificate is for %q, wanted %q", ca.URIs[0], want)
	}
	return cluster, nil
}

// issue makes a key and signs a certificate for it.
func (a *authority) issue(kind Kind, name string) (*Identity, error) {
	p := Peer{Cluster: a.cluster, Kind: kind, Name: name}
	if err := p.check(); err != nil {
		return nil, err
	}
	t := a.now()
	if t.After(a.cert.NotAfter) {
		return nil, fmt.Errorf("the authority of cluster %q was good until %s; make a new one and issue all identities again",
			a.cluster, date(a.cert.NotAfter))
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: p.Kind.String() + " " + p.Name},
		NotBefore: t.Add(-clockSlack),
		NotAfter:  t.AddDate(identityYears, 0, 0),
		URIs:      []*url.URL{p.uri()},
		KeyUsage:  x509.KeyUsageDigitalSignature,
		// A daemon is at both ends of connections under one certificate.
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate for %v: %w", p, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the certificate for %v: %w", p, err)
	}
	return &Identity{
		Peer: p,
		pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		ca:   a.cert,
		now:  a.now,
	}, nil
}

// Ephemeral makes the identities of a cluster that lives in one program, by node.
// Its authority's key is gone when it returns, so no other node can join later.
func Ephemeral(cluster string, nodes ...string) (map[string]*Identity, error) {
	a, err := newAuthority(cluster, time.Now)
	if err != nil {
		return nil, fmt.Errorf("make an ephemeral cluster: %w", err)
	}
	ids := make(map[string]*Identity, len(nodes))
	for _, name := range nodes {
		if ids[name] != nil {
			return nil, fmt.Errorf("make an ephemeral cluster: node %q is named twice", name)
		}
		if ids[name], err = a.issue(Node, name); err != nil {
			return nil, fmt.Errorf("make an ephemeral cluster: %w", err)
		}
	}
	return ids, nil
}
