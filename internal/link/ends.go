package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/wire"
)

// How the end of a connection or of a link is told. Each text says what this side has seen, and no cause that it does not
// know: a peer's process, its machine, the network and a firewall end connections alike.

// end is [ErrGone] without its text, which says that the peer process is gone.
type end struct {
	error
	kinds []error // what it is besides
}

func (e *end) Unwrap() []error { return append(append([]error{ErrGone}, e.kinds...), e.error) }

// Gone makes an error that is [ErrGone], and says no more than format does.
func Gone(format string, args ...any) error { return &end{error: fmt.Errorf(format, args...)} }

// Departed makes one of an exporter of which its node knows that it has ended. How the connection was
// lost says nothing then.
func Departed(format string, args ...any) error {
	return &end{fmt.Errorf(format, args...), []error{errDeparted}}
}

var (
	errDeparted = errors.New("the exporter has ended")
	errBye      = errors.New("the far end has ended the link")

	// errReplaced is of a connection whose loss this side has not seen.
	errReplaced = Gone("the importer has made another connection")
)

// far is the process at the far end.
func (s *stream) far() string {
	if _, out := s.h.(*Out); out {
		return "exporter"
	}
	return "importer"
}

// broke says how the connection broke, of an error that the kernel or the cipher gave.
func (s *stream) broke(err error) error {
	closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE)
	switch {
	case s.from != nil && (closed || errors.Is(err, syscall.ECONNRESET)): // there is no network
		return &end{fmt.Errorf("the %s has ended, or has closed the link", s.far()), []error{err}}
	case closed:
		return &end{fmt.Errorf("the %s's side closed the connection", s.far()), []error{err}}
	case errors.Is(err, syscall.ECONNRESET):
		return Gone("the connection was reset, by the %s's machine or by the network between: %w", s.far(), err)
	case errors.Is(err, syscall.ETIMEDOUT):
		within := "too long"
		if s.silence > 0 {
			within = s.silence.String()
		}
		return Gone("the %s's machine has acknowledged nothing for %s: it, or the network between, does not answer: %w", s.far(), within, err)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		return Gone("there is no way to the %s's machine: %w", s.far(), err)
	}
	return Gone("the connection with the %s failed: %w", s.far(), err)
}

// reason is what the far end is told of the end of a link.
func reason(why error) uint32 {
	switch {
	case errors.Is(why, errOther):
		return wire.ByeOther
	case isProtocol(why):
		return wire.ByeProtocol
	case errors.Is(why, errLeaves):
		return wire.ByeLeaves
	}
	return wire.ByeUnsaid
}

// errLeaves is of a process that closes all its links.
var errLeaves = fmt.Errorf("%w: the process leaves", ErrClosed)

// errOther is of a link that ends because the other link with the same process has ended.
var errOther = errors.New("the other link with that process has ended")

// Other makes the reason for ending a link because the other link with the same process has ended by why.
func Other(why error) error {
	return &end{fmt.Errorf("the other link with that process has ended: %v", why), []error{errOther}} //nolint:errorlint // it is ErrGone, whatever the other is
}

// bade is what a far end's Bye says.
func (s *stream) bade(h *wire.Header) error {
	text := "the %s has ended the link"
	switch h.Word {
	case wire.ByeLeaves:
		text = "the %s has left: it has closed its process in order"
	case wire.ByeOther:
		text = "the %s has ended the link, as its other link with this process had ended: import again if it lives"
	case wire.ByeProtocol:
		text = "the %s has ended the link: it took what came for a breach of the protocol, see its log"
	}
	return &end{fmt.Errorf(text, s.far()), []error{errBye}}
}

// unresumed is a link that was not resumed within its limit. why is how its connection was lost, last why the
// last attempt failed.
func (o *Out) unresumed(why, last error) error {
	text := "%w; the link was not resumed within %v: %w; import again when the exporter's node answers"
	if errors.Is(last, context.DeadlineExceeded) || errors.Is(last, context.Canceled) { // the limit's, not a call's
		text = "%w; the link was not resumed within %v: %v; import again when the exporter's node answers"
	}
	return Gone(text, why, o.limit, last)
}

// unresumed is that of the exporting side; asked is why the importer's node could not say whether the
// process has ended, or nil.
func (in *In) unresumed(why, asked error) error {
	if asked != nil {
		return Gone("%w; the importer has not resumed the link within %v, and whether its process has ended is not known: %v", why, in.limit, asked)
	}
	return Gone("%w; the importer has not resumed the link within %v, and its node does not know that the process has ended", why, in.limit)
}
