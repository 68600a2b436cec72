package link

import (
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Errors of operations on a link.
var (
	ErrClosed   error = code.Closed
	ErrGone     error = code.PeerGone
	ErrRevoked  error = code.Revoked
	ErrProtocol error = code.Protocol
	ErrRights   error = code.NoRights

	ErrNoCredit  error = code.NoCredit
	ErrInHandler error = code.NotInHandler
	ErrAlignment error = code.BadAlignment

	// ErrEnded is the error of an operation whose import ended while it waited. The import knows
	// why.
	ErrEnded = code.New(code.Closed, "the import ended meanwhile")
	// ErrSlowPath means that the message needs the slow path. See [Mapped.TrySend].
	ErrSlowPath = errors.New("the message is not sent at once")
	// ErrUnknown is joined to an error when the message may or may not have arrived, in whole or in
	// part.
	ErrUnknown error = code.OutcomeUnknown
)

// unknown marks an error after which the outcome is not known.
func unknown(err error) error { return fmt.Errorf("%w (%w)", err, ErrUnknown) }

func protocol(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

func isProtocol(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, wire.ErrFrame) ||
		errors.Is(err, shmlayout.ErrLayout)
}

// refusal returns the error of a code on the wire.
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

// How the end of a connection or of a link is reported. Each text says what this side has seen, and
// no cause that it does not know: a peer's process, its machine, the network and a firewall end
// connections alike.

// goneError is [ErrGone] with another text: that of ErrGone says that the peer process is gone.
type goneError struct {
	error
	also []error // Further errors that it is.
}

func (e *goneError) Unwrap() []error { return append(append([]error{ErrGone}, e.also...), e.error) }

// Gone makes an error that is [ErrGone] and has only the text of format.
func Gone(
	format string, args ...any,
) error {
	return &goneError{error: fmt.Errorf(format, args...)}
}

// Departed makes the error of an exporter whose node knows that it has ended. How the connection
// was lost does not matter then.
func Departed(format string, args ...any) error {
	return &goneError{fmt.Errorf(format, args...), []error{errDeparted}}
}

var (
	errDeparted = errors.New("the exporter has ended")
	// errPeerClosed is the error of a link that the peer has ended.
	errPeerClosed = errors.New("the far end has ended the link")

	// errConnReplaced is the error of a connection whose loss this side has not seen.
	errConnReplaced = Gone("the importer has made another connection")
)

// byeCode returns the code that tells the peer why the link ends.
func byeCode(why error) uint32 {
	switch {
	case errors.Is(why, errOther):
		return wire.ByeOther
	case isProtocol(why):
		return wire.ByeProtocol
	case errors.Is(why, errLeaves):
		return wire.ByeLeaves
	case errors.Is(why, errDown):
		return wire.ByeDown
	}
	return wire.ByeUnsaid
}

// errLeaves is the error of a process that closes all its links.
var errLeaves = fmt.Errorf("%w: the process leaves", ErrClosed)

// errDown is the error of a link that ends because a node was taken down.
var errDown = errors.New("a node was taken down")

// Down makes the error of a link that ends because the node of one of the two processes was taken
// down. It is [ErrGone] and what format wraps.
func Down(format string, args ...any) error {
	return &goneError{fmt.Errorf(format, args...), []error{errDown}}
}

// errOther is the error of a link that ends because the other link with the same process has ended.
var errOther = errors.New("the other link with that process has ended")

// OtherEnded makes the cause of a link that ends because the other link with the same process has
// ended by why.
func OtherEnded(why error) error {
	return &goneError{fmt.Errorf("the other link with that process has ended: %v", why), []error{errOther}} //nolint:errorlint // it is ErrGone, whatever the other is
}
