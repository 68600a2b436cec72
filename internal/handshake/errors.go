package handshake

import (
	"errors"
	"io"
	"net"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// RefusedError is a refusal that the exporter or its daemon has sent, with its code.
type RefusedError struct{ error }

func (r RefusedError) Unwrap() error { return r.error }

// RetryLaterError is the answer of a restarted daemon whose processes have not all rejoined yet.
type RetryLaterError struct{ error }

func (l RetryLaterError) Unwrap() error { return l.error }

// Broke reports whether a handshake failed because its connection ended, rather than by a refusal
// or a time-out.
func Broke(err error) bool {
	if errors.As(err, new(RefusedError)) {
		return false
	}
	var e net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, code.PeerGone) ||
		errors.As(err, &e) && !e.Timeout()
}

// refusal gives the status of a refusal its code. Other errors stay as they are.
func refusal(err error) error {
	s, ok := err.(wire.Status) //nolint:errorlint // a Status is returned as it is
	if !ok {
		return err
	}
	c := code.NoRights
	switch s {
	case wire.RefusedLater:
		return RetryLaterError{code.New(code.Unreachable, "%v", s)}
	case wire.RefusedGone:
		c = code.PeerGone
	case wire.RefusedLink: // all its grants were revoked meanwhile
		c = code.BadRbufState
	case wire.RefusedVersion:
		c = code.Protocol
	}
	return RefusedError{code.New(c, "%v", s)}
}
