package encrypt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// PrintSize is the length of a fingerprint.
const PrintSize = sha256.Size

// ErrOtherCertificate is returned if the peer shows a certificate without the fingerprint that the
// handshake named.
var ErrOtherCertificate = errors.New("the peer has another certificate than the link's other process: a third party is between the two")

// Identity is a process's own certificate and its key. No other process has the key, and both end
// with the process. No authority has signed the certificate: the peer is told its fingerprint.
type Identity struct {
	certificate tls.Certificate
	print       [PrintSize]byte
}

// NewIdentity makes one.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for encrypted links: %w", err)
	}
	now := time.Now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1),
		// No peer checks the dates.
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(100, 0, 0),
	}, &x509.Certificate{}, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for encrypted links: %w", err)
	}
	return &Identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(der)}, nil
}

// Fingerprint is what the other side of a link is to be told.
func (i *Identity) Fingerprint() []byte { return i.print[:] }

// protocol keeps a handshake apart from all others that these certificates could be used for.
const protocol = "vmmc-link/1"

// config takes the certificate with one fingerprint and no other.
func (i *Identity) config(peer []byte) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		Certificates: []tls.Certificate{i.certificate},
		ClientAuth:   tls.RequireAnyClientCert,
		// Names and authorities say nothing here; VerifyConnection compares the whole certificate.
		InsecureSkipVerify: true, //nolint:gosec // see VerifyConnection
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return ErrOtherCertificate
			}
			print := sha256.Sum256(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare(print[:], peer) != 1 {
				return ErrOtherCertificate
			}
			return nil
		},
		SessionTicketsDisabled:      true, // each connection has keys that come of nothing else
		DynamicRecordSizingDisabled: true, // the receiver waits for whole messages anyway
	}
}

// Client is the handshake of the side that has dialled, with the process that has the
// certificate of this fingerprint. It lasts until nc's deadline, or ctx ends, at most; nc
// stays the caller's.
func (i *Identity) Client(ctx context.Context, nc net.Conn, peer []byte) (*Conn, error) {
	return i.shake(ctx, nc, peer, tls.Client)
}

// Server is the handshake of the other side.
func (i *Identity) Server(ctx context.Context, nc net.Conn, peer []byte) (*Conn, error) {
	return i.shake(ctx, nc, peer, tls.Server)
}

func (i *Identity) shake(
	ctx context.Context, nc net.Conn, peer []byte, side func(net.Conn, *tls.Config) *tls.Conn,
) (*Conn, error) {
	c := &Conn{}
	c.pipe.nc = nc
	c.tls = side(&c.pipe, i.config(peer))
	if err := c.tls.HandshakeContext(ctx); err != nil {
		c.Drop()
		return nil, fmt.Errorf("encrypt the link: %w", err)
	}
	s := c.tls.ConnectionState()
	if s.NegotiatedProtocol != protocol {
		c.Drop()
		return nil, fmt.Errorf("encrypt the link: the other side speaks %q, want %q",
			s.NegotiatedProtocol, protocol)
	}
	binding, err := s.ExportKeyingMaterial("EXPORTER-vmmc-link", nil, PrintSize)
	if err != nil {
		c.Drop()
		return nil, fmt.Errorf("encrypt the link: %w", err)
	}
	c.binding = binding
	return c, nil
}
