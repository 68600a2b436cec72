package handshake

import (
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Reply is the exporter's answer to a hello whose proof its daemon has verified.
type Reply struct {
	wire.Answer

	fd   int
	conn *encrypt.Conn
}

// NewReply makes the answer on the connection fd, whose TLS state is conn; nil: in clear. It agrees
// on capabilities: one side is enough for checksums of payloads, resuming needs both.
func NewReply(s wire.Status, h *wire.Hello, own uint64, fd int, conn *encrypt.Conn) *Reply {
	r := &Reply{fd: fd, conn: conn}
	r.Status = s
	r.Capabilities = (h.Capabilities|own)&wire.Checked | h.Capabilities&own&wire.Resumes
	if conn != nil {
		r.Capabilities |= wire.Encrypted
		conn.Detach(r.Capabilities&wire.Resumes != 0)
	}
	return r
}

// Prove adds the exporter's proof.
func (r *Reply) Prove(key, hello, challenge []byte) {
	var binding []byte
	if r.conn != nil {
		binding = r.conn.Binding()
	}
	r.Proof = wire.Prove(key, wire.Exporter, hello, challenge, binding)
}

// Refuse makes the answer a refusal.
func (r *Reply) Refuse(s wire.Status) { r.Status, r.Proof = s, [wire.ProofSize]byte{} }

// Send sends the answer and does not wait.
func (r *Reply) Send() (err error) {
	var n int
	if r.conn != nil {
		n, err = r.conn.Send(r.fd, r.Encode())
	} else {
		var io unix.IO
		n, err = io.Send(r.fd, r.Encode(), nil)
	}
	if err == nil && n != wire.AnswerSize {
		err = code.PeerGone // a fresh socket always has buffer space for it
	}
	return err
}
