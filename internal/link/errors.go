package link

import (
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// How an operation on a link fails.
var (
	ErrClosed   error = code.Closed
	ErrGone     error = code.PeerGone
	ErrRevoked  error = code.Revoked
	ErrProtocol error = code.Protocol
	ErrRights   error = code.NoRights

	ErrNoCredit  error = code.NoCredit
	ErrInHandler error = code.NotInHandler
	ErrAlignment error = code.BadAlignment

	// ErrEnded is of an operation whose import ended while it waited; the import
	// knows why.
	ErrEnded = code.New(code.Closed, "the import ended meanwhile")
	// ErrNotQuick is of what goes another way, see [Mapped.Quick].
	ErrNotQuick = errors.New("the message is not sent at once")
	// ErrUnknown is joined to an error when the message may or may not have
	// arrived, in whole or in part.
	ErrUnknown error = code.OutcomeUnknown
)

// unknown marks an error as one after which the outcome is not known.
func unknown(err error) error { return fmt.Errorf("%w (%w)", err, ErrUnknown) }

func protocol(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

func isProtocol(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, wire.ErrFrame) || errors.Is(err, page.ErrLayout)
}

// refusal is what a code on the wire means.
func refusal(code uint32) error {
	switch code {
	case wire.CodeRevoked:
		return ErrRevoked
	case wire.CodeRights:
		return ErrRights
	case wire.CodeAlignment:
		return ErrAlignment
	}
	return protocol("refused with code %d", code)
}
