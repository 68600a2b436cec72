package handshake

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Importer is what the importer of a link knows before it dials.
type Importer struct {
	Link         uint64
	Key          []byte            // the link's secret
	Capabilities uint64            // the importer's own
	Identity     *encrypt.Identity // its TLS certificate; nil: the link is not encrypted
	Fingerprint  []byte            // of the exporter's certificate
}

// Run says hello on a new connection and verifies the exporter's answer. h brings the attempt's
// number and what earlier attempts have delivered. The returned connection is nil unless the link
// is encrypted. That was agreed on over the control connections, and nothing that arrives here
// changes it. Deadlines are the caller's; ctx ends the TLS handshake too.
func (i *Importer) Run(
	ctx context.Context, nc net.Conn, h wire.Hello,
) (*encrypt.Conn, wire.Answer, error) {
	h.MinVersion, h.MaxVersion = wire.MinVersion, wire.MaxVersion
	h.Link, h.Nonce, h.Capabilities = i.Link, wire.NewNonce(), i.Capabilities
	if i.Identity != nil {
		h.Capabilities |= wire.Encrypted
	}
	raw, challenge, err := i.sendProof(nc, &h)
	if err != nil {
		return nil, wire.Answer{}, err
	}
	if i.Identity == nil {
		a, err := i.readAnswer(nc, raw, challenge, nil)
		return nil, a, err
	}
	// TLS begins after the importer's proof. The answer comes over TLS, and the exporter's proof is
	// bound to this connection.
	conn, err := i.Identity.Client(ctx, &refusableConn{Conn: nc}, i.Fingerprint)
	switch {
	case errors.Is(err, encrypt.ErrOtherCertificate):
		return nil, wire.Answer{}, code.New(code.NoRights, "%v", err)
	case errors.Is(err, io.EOF):
		return nil, wire.Answer{}, errExporterClosed
	case err != nil:
		return nil, wire.Answer{}, err
	}
	a, err := i.readAnswer(conn, raw, challenge, conn.Binding())
	return conn, a, err
}

var errExporterClosed = code.New(code.PeerGone, "the exporting process closed the connection, or has ended")

// sendProof sends the hello and the importer's proof, in clear.
func (i *Importer) sendProof(nc net.Conn, h *wire.Hello) (raw, challenge []byte, err error) {
	raw = h.Encode()
	if _, err := nc.Write(raw); err != nil {
		return nil, nil, err
	}
	if challenge, err = readChallenge(nc); err != nil {
		return nil, nil, refusal(err)
	}
	proof := wire.Prove(i.Key, wire.Importer, raw, challenge, nil)
	_, err = nc.Write(proof[:])
	return raw, challenge, err
}

func readChallenge(from io.Reader) ([]byte, error) {
	challenge := make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(from, challenge); err != nil {
		return nil, err
	}
	_, err := wire.ParseChallenge(challenge)
	return challenge, err
}

// readAnswer reads and verifies the exporter's answer.
func (i *Importer) readAnswer(
	from io.Reader, raw, challenge, binding []byte,
) (a wire.Answer, err error) {
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(from, answer); err != nil {
		if errors.Is(err, io.EOF) {
			return a, errExporterClosed
		}
		return a, err
	}
	if a, err = wire.ParseAnswer(answer); err != nil {
		return a, refusal(err)
	}
	if !wire.Verify(i.Key, wire.Exporter, raw, challenge, binding, a.Proof[:]) {
		return a, code.New(code.NoRights, "the process that answered does not hold the link's key")
	}
	return a, nil
}

// refusableConn is a connection on which a refusal in clear may come in place of the TLS handshake.
type refusableConn struct {
	net.Conn
	passed bool // reports whether TLS has begun
}

func (r *refusableConn) Read(b []byte) (int, error) {
	if r.passed || len(b) == 0 {
		return r.Conn.Read(b)
	}
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(r.Conn, answer[:1]); err != nil {
		return 0, err
	}
	r.passed = true
	if answer[0] != wire.Magic[0] {
		b[0] = answer[0]
		return 1, nil
	}
	if _, err := io.ReadFull(r.Conn, answer[1:]); err != nil {
		return 0, err
	}
	_, err := wire.ParseAnswer(answer)
	if err == nil {
		err = code.New(code.Protocol,
			"the exporter's side answers in clear, of a link that is to be encrypted")
	}
	return 0, refusal(err)
}
