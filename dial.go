package vmmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/link"
	"github.com/vmmc-go/vmmc/internal/local"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// dial makes a data connection between nodes: both sides prove that they hold the link's
// key, over fresh nonces, before the first frame. h says which attempt it is, and what the
// ones before have brought.
func (p *Process) dial(ctx context.Context, c local.Connected, h wire.Hello) (fd int, a wire.Answer, err error) {
	nc, err := p.dialer(ctx, c.Address)
	if ctx.Err() != nil && err != nil {
		return -1, a, context.Cause(ctx)
	}
	if err != nil {
		return -1, a, code.New(code.Unreachable, "data address %s of the exporter's node: %v", c.Address, err)
	}
	deadline := time.Now().Add(timeout.Hello)
	if t, ok := ctx.Deadline(); ok && t.Before(deadline) {
		deadline = t
	}
	_ = nc.SetDeadline(deadline)
	h.MinVersion, h.MaxVersion, h.Link, h.Nonce, h.Capabilities = wire.MinVersion, wire.MaxVersion, c.Link, wire.NewNonce(), p.capabilities
	if a, err = hello(nc, c.Key, &h); err != nil {
		_ = nc.Close()
		return -1, a, fmt.Errorf("hello to %s: %w", c.Address, err)
	}
	_ = nc.SetDeadline(time.Time{})
	fd, err = unix.TakeOver(nc.(*net.TCPConn))
	return fd, a, err
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout.Connect}
	return d.DialContext(ctx, "tcp", address)
}

func hello(nc net.Conn, key []byte, h *wire.Hello) (a wire.Answer, err error) {
	raw := h.Encode()
	if _, err := nc.Write(raw); err != nil {
		return a, err
	}
	challenge := make([]byte, wire.ChallengeSize)
	if _, err := io.ReadFull(nc, challenge); err != nil {
		return a, err
	}
	if _, err := wire.ParseChallenge(challenge); err != nil {
		return a, refused(err)
	}
	proof := wire.Prove(key, wire.Importer, raw, challenge)
	if _, err := nc.Write(proof[:]); err != nil {
		return a, err
	}
	answer := make([]byte, wire.AnswerSize)
	if _, err := io.ReadFull(nc, answer); err != nil {
		if errors.Is(err, io.EOF) {
			return a, code.New(code.PeerGone, "the exporting process closed the connection, or has ended")
		}
		return a, err
	}
	if a, err = wire.ParseAnswer(answer); err != nil {
		return a, refused(err)
	}
	if !wire.Verify(key, wire.Exporter, raw, challenge, a.Proof[:]) {
		return a, code.New(code.NoRights, "who answered does not hold the link's key")
	}
	return a, nil
}

// terms are what a link's hello and its answer have agreed on.
func (p *Process) terms(capabilities uint64) link.Terms {
	t := link.Terms{Checked: capabilities&wire.Checked != 0, Silence: p.silence}
	if capabilities&wire.Resumes != 0 {
		t.Limit = p.limit
	}
	return t
}

// redial resumes a link. The exporter's node has said that there is nothing to resume, or
// it has said nothing yet.
func (p *Process) redial(c local.Connected) link.Redial {
	return func(ctx context.Context, attempt, replied uint64, notices uint32) (int, wire.Answer, error) {
		fd, a, err := p.dial(ctx, c, wire.Hello{Attempt: attempt, Applied: replied, Notices: notices})
		var s refusal
		switch {
		case err == nil:
		case errors.As(err, &s):
			err = fmt.Errorf("%w: %w", link.ErrGone, err)
		case errors.Is(err, link.ErrGone): // the connection has ended, which says nothing of the process
			err = code.New(code.Unreachable, "%v", err)
		}
		return fd, a, err
	}
}

// refusal is an error that a node or a process has answered with.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// refused gives a refusal its code.
func refused(err error) error {
	if s, ok := err.(wire.Status); ok { //nolint:errorlint // a Status is returned as it is
		switch s {
		case wire.RefusedLater:
			return code.New(code.Unreachable, "%v", s)
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
