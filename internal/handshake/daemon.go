package handshake

import (
	"fmt"
	"io"
	"net"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// probeLink is the link number in a probe's hello. A link has it with a probability of 2^-64, and a
// real importer follows with a proof.
const probeLink = 0

// Request is an importer's hello as the exporter's daemon receives it.
type Request struct {
	Hello     wire.Hello
	Raw       []byte // the hello as it came
	Challenge []byte // the challenge as it was sent

	version uint16
	proof   []byte
}

// Receive reads a hello whose first byte was read already. It refuses one of an unknown version.
func Receive(c net.Conn, first byte) (*Request, error) {
	r := &Request{Raw: make([]byte, wire.HelloSize)}
	r.Raw[0] = first
	if _, err := io.ReadFull(c, r.Raw[1:]); err != nil {
		return nil, fmt.Errorf("hello: %w", err)
	}
	var err error
	if r.Hello, err = wire.ParseHello(r.Raw); err != nil {
		return nil, err
	}
	if r.version, err = r.Hello.Version(); err != nil {
		ch := wire.Challenge{Status: wire.RefusedVersion, Version: wire.MaxVersion}
		_, _ = c.Write(ch.Encode())
		return nil, err
	}
	return r, nil
}

// ReadProof challenges the importer and reads its proof. probe reports whether the connection was
// only one of [Probe].
func (r *Request) ReadProof(c net.Conn) (probe bool, err error) {
	ch := wire.Challenge{Version: r.version, Nonce: wire.NewNonce()}
	r.Challenge = ch.Encode()
	if _, err := c.Write(r.Challenge); err != nil {
		return false, fmt.Errorf("challenge: %w", err)
	}
	r.proof = make([]byte, wire.ProofSize)
	n, err := io.ReadFull(c, r.proof)
	if n == 0 && r.Hello.Link == probeLink {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("proof: %w", err)
	}
	return false, nil
}

// Proved reports whether the importer's proof is right. No proof is right without a key.
func (r *Request) Proved(key []byte) bool {
	return key != nil && wire.Verify(key, wire.Importer, r.Raw, r.Challenge, nil, r.proof)
}

// Refuse answers with a refusal in place of the exporter.
func Refuse(c net.Conn, s wire.Status) {
	a := wire.Answer{Status: s}
	_, _ = c.Write(a.Encode())
}

// Probe checks that a data port answers a hello: it reads the challenge and goes no further.
func Probe(c net.Conn) error {
	h := wire.Hello{MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Link: probeLink, Attempt: 1, Nonce: wire.NewNonce()}
	if _, err := c.Write(h.Encode()); err != nil {
		return err
	}
	_, err := readChallenge(c)
	return err
}
