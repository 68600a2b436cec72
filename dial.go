package vmmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/encrypt"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// dial makes a data connection between nodes: both sides prove that they hold the link's
// key, over fresh nonces, before the first frame. h says which attempt it is, and what the
// ones before have brought. There is a cipher if the link is encrypted, which the control connections
// have said, and nothing that comes from the network changes.
func (p *Process) dial(ctx context.Context, c local.Connected, h wire.Hello) (fd int, cipher link.Cipher, a wire.Answer, err error) {
	nc, err := p.dialer(ctx, c.Address)
	if ctx.Err() != nil && err != nil {
		return -1, nil, a, fmt.Errorf("data address %s of the exporter's node: %w", c.Address, context.Cause(ctx))
	}
	if err != nil {
		var e net.Error
		if errors.As(err, &e) && e.Timeout() { // the dialler's own, which is not that of ctx
			return -1, nil, a, code.New(code.Unreachable, "data address %s of the exporter's node: %v", c.Address, err)
		}
		return -1, nil, a, fmt.Errorf("%w: %w", code.New(code.Unreachable, "data address %s of the exporter's node", c.Address), err)
	}
	_ = nc.SetDeadline(time.Now().Add(timeout.Hello))
	givenUp := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	h.MinVersion, h.MaxVersion, h.Link, h.Nonce, h.Capabilities = wire.MinVersion, wire.MaxVersion, c.Link, wire.NewNonce(), p.capabilities
	var secret *encrypt.Conn
	if c.Encrypt {
		h.Capabilities |= wire.Encrypted
		secret, a, err = p.secretHello(ctx, nc, &c, &h)
	} else {
		a, err = hello(nc, c.Key, &h)
	}
	if !givenUp() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		return -1, nil, a, fmt.Errorf("hello to %s: %w", c.Address, err)
	}
	_ = nc.SetDeadline(time.Time{})
	fd, err = unix.TakeOver(nc.(*net.TCPConn))
	if secret != nil {
		secret.Detach(a.Capabilities&wire.Resumes != 0)
		cipher = secret
	}
	return fd, cipher, a, err
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout.Connect, Control: unix.BeginUnpaced}
	return d.DialContext(ctx, "tcp", address)
}

// hello is that of a link in clear.
func hello(nc net.Conn, key []byte, h *wire.Hello) (a wire.Answer, err error) {
	raw, challenge, err := prove(nc, key, h)
	if err != nil {
		return a, err
	}
	return answered(nc, key, raw, challenge, nil)
}

// secretHello is that of an encrypted one: TLS begins behind the proof, and the answer comes
// over it, with a proof that is good for this connection alone.
func (p *Process) secretHello(ctx context.Context, nc net.Conn, c *local.Connected, h *wire.Hello) (*encrypt.Conn, wire.Answer, error) {
	id, err := p.identity()
	if err != nil {
		return nil, wire.Answer{}, err
	}
	raw, challenge, err := prove(nc, c.Key, h)
	if err != nil {
		return nil, wire.Answer{}, err
	}
	secret, err := id.Client(ctx, &refusable{Conn: nc}, c.Fingerprint)
	switch {
	case errors.Is(err, encrypt.ErrStranger):
		return nil, wire.Answer{}, code.New(code.NoRights, "%v", err)
	case errors.Is(err, io.EOF):
		return nil, wire.Answer{}, code.New(code.PeerGone, "the exporting process closed the connection, or has ended")
	case err != nil:
		return nil, wire.Answer{}, err
	}
	a, err := answered(secret, c.Key, raw, challenge, secret.Binding())
	return secret, a, err
}

// refusable is a connection whose first bytes may be a refusal in place of what is to come.
type refusable struct {
	net.Conn
	heard bool
}

func (r *refusable) Read(b []byte) (int, error) {
	if r.heard || len(b) == 0 {
		return r.Conn.Read(b)
	}
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(r.Conn, answer[:1]); err != nil {
		return 0, err
	}
	r.heard = true
	if answer[0] != wire.Magic[0] {
		b[0] = answer[0]
		return 1, nil
	}
	if _, err := io.ReadFull(r.Conn, answer[1:]); err != nil {
		return 0, err
	}
	_, err := wire.ParseAnswer(answer)
	if err == nil {
		err = code.New(code.Protocol, "the exporter's side answers in clear, of a link that is to be encrypted")
	}
	return 0, refused(err)
}

// prove is what the importer has to say in clear.
func prove(nc net.Conn, key []byte, h *wire.Hello) (raw, challenge []byte, err error) {
	raw = h.Encode()
	if _, err := nc.Write(raw); err != nil {
		return nil, nil, err
	}
	challenge = make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(nc, challenge); err != nil {
		return nil, nil, err
	}
	if _, err := wire.ParseChallenge(challenge); err != nil {
		return nil, nil, refused(err)
	}
	proof := wire.Prove(key, wire.Importer, raw, challenge, nil)
	_, err = nc.Write(proof[:])
	return raw, challenge, err
}

// answered is what the exporter has to say.
func answered(from io.Reader, key, raw, challenge, binding []byte) (a wire.Answer, err error) {
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(from, answer); err != nil {
		if errors.Is(err, io.EOF) {
			return a, code.New(code.PeerGone, "the exporting process closed the connection, or has ended")
		}
		return a, err
	}
	if a, err = wire.ParseAnswer(answer); err != nil {
		return a, refused(err)
	}
	if !wire.Verify(key, wire.Exporter, raw, challenge, binding, a.Proof[:]) {
		return a, code.New(code.NoRights, "who answered does not hold the link's key")
	}
	return a, nil
}

// terms are what a link's hello and its answer have agreed on.
func (p *Process) terms(capabilities uint64) link.Terms {
	t := link.Terms{Checked: capabilities&wire.Checked != 0, SilenceLimit: p.silence}
	if capabilities&wire.Resumes != 0 {
		t.ReconnectLimit = p.limit
	}
	return t
}

// redial resumes a link. The exporter's node has said that there is nothing to resume, or
// it has said nothing yet.
func (p *Process) redial(exporter local.ProcessID, c local.Connected) link.Redial {
	return func(ctx context.Context, attempt, replied uint64, notices uint32) (int, link.Cipher, wire.Answer, error) {
		fd, cipher, a, err := p.dial(ctx, c, wire.Hello{Attempt: attempt, Applied: replied, Notices: notices})
		var s refusal
		switch {
		case err == nil:
		case errors.As(err, &s):
			switch gone, asked := p.departed(ctx, exporter); {
			case gone:
				err = link.Departed("process %d on node %q has ended: its node says so", exporter.PID, exporter.Node)
			case asked != nil:
				err = link.Gone("%w (whether the process has ended is not known: %v)", err, asked)
			default:
				err = link.Gone("%w", err)
			}
		case errors.Is(err, link.ErrGone): // the connection has ended, which says nothing of the process
			err = code.New(code.Unreachable, "%v", err)
		}
		return fd, cipher, a, err
	}
}

// refusal is an error that a node or a process has answered with.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// later is the answer of a node that does not know yet what it will have.
type later struct{ error }

func (l later) Unwrap() error { return l.error }

// interrupted is of a connection that did not come about, or has broken in its hello: the exporter's daemon, which has just
// said where to dial, may have died.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

// brokeOff says whether nobody has refused a hello, and nobody was waited for in vain: the connection has ended.
func brokeOff(err error) bool {
	if errors.As(err, new(refusal)) {
		return false
	}
	var e net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, code.PeerGone) ||
		errors.As(err, &e) && !e.Timeout()
}

// refused gives a refusal its code.
func refused(err error) error {
	if s, ok := err.(wire.Status); ok { //nolint:errorlint // a Status is returned as it is
		switch s {
		case wire.RefusedLater:
			return later{code.New(code.Unreachable, "%v", s)}
		case wire.RefusedGone:
			return refusal{code.New(code.PeerGone, "%v", s)}
		case wire.RefusedLink: // all its grants were revoked meanwhile
			return refusal{code.New(code.BadRbufState, "%v", s)}
		case wire.RefusedVersion:
			return refusal{code.New(code.Protocol, "%v", s)}
		default:
			return refusal{code.New(code.NoRights, "%v", s)}
		}
	}
	return err
}
