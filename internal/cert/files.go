package cert

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vmmc-go/vmmc/internal/hosts"
)

const (
	caFile    = "ca.pem"
	caKeyFile = "ca-key.pem"
	certFile  = "cert.pem"
	keyFile   = "key.pem"
)

// Init makes the authority of a new cluster in dir: ca.pem, and ca-key.pem, which
// lets its owner be any node or user and belongs on no node. It overwrites
// nothing: losing the key means to issue every identity again.
func Init(dir, cluster string) error {
	if err := initAuthority(dir, cluster, time.Now); err != nil {
		return fmt.Errorf("make the authority of cluster %q: %w", cluster, err)
	}
	return nil
}

func initAuthority(dir, cluster string, now func() time.Time) error {
	a, err := newAuthority(cluster, now)
	if err != nil {
		return err
	}
	key, err := keyPEM(a.key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, caFile)); !errors.Is(err, fs.ErrNotExist) {
		return existsError(dir, caFile, err)
	}
	// Created exclusively and not renamed into place, so that of two calls at once
	// one fails.
	if err := createNew(filepath.Join(dir, caKeyFile), key); errors.Is(err, fs.ErrExist) {
		return existsError(dir, caKeyFile, nil)
	} else if err != nil {
		return err
	}
	return replace(filepath.Join(dir, caFile), certPEM(a.cert.Raw), 0o644)
}

func existsError(dir, file string, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is there already; use that authority, or choose another directory: %w",
		filepath.Join(dir, file), fs.ErrExist)
}

// IssueNode writes an identity for a node to outDir, signed by the authority in
// dir. An identity that is there is replaced, one file after the other.
func IssueNode(dir, name, outDir string) error {
	return issueTo(dir, Node, hosts.Canonical(name), outDir, time.Now)
}

// IssueUser is IssueNode for a user.
func IssueUser(dir, name, outDir string) error { return issueTo(dir, User, name, outDir, time.Now) }

func issueTo(dir string, kind Kind, name, outDir string, now func() time.Time) error {
	a, err := loadAuthority(dir, now)
	if err != nil {
		return fmt.Errorf("issue a certificate for %v %q: %w", kind, name, err)
	}
	id, err := a.issue(kind, name)
	if err != nil {
		return fmt.Errorf("issue a certificate for %v %q: %w", kind, name, err)
	}
	if err := id.write(outDir); err != nil {
		return fmt.Errorf("write the identity of %v: %w", id.Peer, err)
	}
	return nil
}

func (id *Identity) write(dir string) error {
	key, err := keyPEM(id.pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := replace(filepath.Join(dir, caFile), certPEM(id.ca.Raw), 0o644); err != nil {
		return err
	}
	if err := replace(filepath.Join(dir, keyFile), key, 0o600); err != nil {
		return err
	}
	return replace(filepath.Join(dir, certFile), certPEM(id.pair.Certificate[0]), 0o644)
}
