package cert

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// createNew writes a file that must not exist yet, readable by its owner alone.
// Half a file is worse than none, since it would stand in the way of a new one.
func createNew(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := writeAll(f, data); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// replace puts a file in place by renaming, so that a concurrent reader, or a reader
// after a crash, finds the old file or the new one.
func replace(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // there only if something failed
	if err := f.Chmod(mode); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := writeAll(f, data); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writeAll writes, flushes to the disk and closes.
func writeAll(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
