package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

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
	return errors.Is(err, ErrProtocol) || errors.Is(err, wire.ErrFrame) || errors.Is(err, shmlayout.ErrLayout)
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
func Gone(format string, args ...any) error { return &goneError{error: fmt.Errorf(format, args...)} }

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

// peerRole names the peer process.
func (s *stream) peerRole() string {
	if s.importing {
		return "exporter"
	}
	return "importer"
}

// connError describes how the connection was lost, by an error of the kernel or the cipher.
func (s *stream) connError(err error) error {
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE)
	switch {
	case s.peerFDs != nil && (closed || errors.Is(err, syscall.ECONNRESET)): // there is no network
		return &goneError{fmt.Errorf("the %s has ended, or has closed the link", s.peerRole()), []error{err}}
	case closed:
		return &goneError{fmt.Errorf("the %s's side closed the connection", s.peerRole()), []error{err}}
	case errors.Is(err, syscall.ECONNRESET):
		return Gone("the connection was reset, by the %s's machine or by the network between: %w", s.peerRole(), err)
	case errors.Is(err, syscall.ETIMEDOUT):
		within := "too long"
		if s.silenceLimit > 0 {
			within = s.silenceLimit.String()
		}
		return Gone("the %s's machine has acknowledged nothing for %s: it, or the network between, does not answer: %w", s.peerRole(), within, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		return Gone("there is no way to the %s's machine: %w", s.peerRole(), err)
	}
	return Gone("the connection with the %s failed: %w", s.peerRole(), err)
}

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

// byeError returns the error that a peer's Bye stands for.
func (s *stream) byeError(h *wire.Header) error {
	text := "the %s has ended the link"
	switch h.Word {
	case wire.ByeLeaves:
		text = "the %s has left: it has closed its process in order"
	case wire.ByeOther:
		text = "the %s has ended the link, as its other link with this process had ended: import again if it lives"
	case wire.ByeDown:
		text = "the %s has ended the link: its node, or this one, was taken down"
	case wire.ByeProtocol:
		text = "the %s has ended the link: it took what came for a breach of the protocol, see its log"
	}
	return &goneError{fmt.Errorf(text, s.peerRole()), []error{errPeerClosed}}
}

// unresumed returns the error of a link that was not resumed within its limit. why is how its
// connection was lost, last why the last attempt failed.
func (d *redialer) unresumed(why, last error) error {
	text := "%w; the link was not resumed within %v: %w; import again when the exporter's node answers"
	if errors.Is(last, context.DeadlineExceeded) || errors.Is(last, context.Canceled) { // the limit's, not a call's
		text = "%w; the link was not resumed within %v: %v; import again when the exporter's node answers"
	}
	return Gone(text, why, d.rq.reconnectLimit, last)
}

// unresumed does the same for the exporting side. asked is why the importer's node could not say
// whether the process has ended, or nil.
func (rs *Responder) unresumed(why, asked error) error {
	if asked != nil {
		return Gone("%w; the importer has not resumed the link within %v, and whether its process has ended is not known: %v", why, rs.reconnectLimit, asked)
	}
	return Gone("%w; the importer has not resumed the link within %v, and its node does not know that the process has ended", why, rs.reconnectLimit)
}
