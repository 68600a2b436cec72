package cert

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

func loadAuthority(dir string, now func() time.Time) (*authority, error) {
	caPath, keyPath := filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile)
	ca, cluster, err := readCA(caPath)
	if err != nil {
		return nil, err
	}
	block, err := readPEM(keyPath, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyPath, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(ca.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s; put back the pair that was made together", keyPath, caPath)
	}
	return &authority{cluster: cluster, cert: ca, key: key, now: now}, nil
}

// Load reads the identity in a directory that IssueNode or IssueUser wrote. One
// that no peer would accept is an error here already, where it is understood.
func Load(dir string) (*Identity, error) { return load(dir, time.Now) }

func load(dir string, now func() time.Time) (*Identity, error) {
	caPath, certPath := filepath.Join(dir, caFile), filepath.Join(dir, certFile)
	ca, cluster, err := readCA(caPath)
	if err != nil {
		return nil, fmt.Errorf("load identity: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(certPath, filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("load identity from %s and %s beside it: %w", certPath, keyFile, err)
	}
	id := &Identity{Peer: Peer{Cluster: cluster}, pair: pair, ca: ca, now: now}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		if id.Peer, err = id.verifyLeaf(pair.Leaf, use); err != nil {
			return nil, fmt.Errorf("load identity from %s: %w", certPath, err)
		}
	}
	return id, nil
}

func readCA(path string) (*x509.Certificate, string, error) {
	der, err := readPEM(path, "CERTIFICATE")
	if err != nil {
		return nil, "", err
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	cluster, err := clusterOf(ca)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return ca, cluster, nil
}

func readPEM(path, kind string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s does not begin with a PEM block %q", path, kind)
	}
	if more, _ := pem.Decode(rest); more != nil {
		return nil, fmt.Errorf("%s has more than one PEM block, wanted one %q", path, kind)
	}
	return block.Bytes, nil
}
