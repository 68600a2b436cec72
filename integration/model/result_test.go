package model_test

import (
	"errors"
	"io"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// result is how a call ended: with a code, and whether it left open what it did.
type result struct {
	code    vmmc.Code
	unknown bool
}

var ok = result{}

// eof is no code of the library's; ReadAt returns it alone.
const eof vmmc.Code = 1

var names = map[vmmc.Code]string{
	0: "nil", eof: "io.EOF",
	vmmc.ErrBadAlignment: "ErrBadAlignment", vmmc.ErrBufAlreadyExists: "ErrBufAlreadyExists",
	vmmc.ErrBadRbufState: "ErrBadRbufState", vmmc.ErrBadProxyAddr: "ErrBadProxyAddr", vmmc.ErrBadSize: "ErrBadSize",
	vmmc.ErrBadArg: "ErrBadArg", vmmc.ErrNoMem: "ErrNoMem", vmmc.ErrNoSuchNode: "ErrNoSuchNode",
	vmmc.ErrNoSuchProcess: "ErrNoSuchProcess", vmmc.ErrOverlappedBufs: "ErrOverlappedBufs", vmmc.ErrNoRights: "ErrNoRights",
	vmmc.ErrPeerGone: "ErrPeerGone", vmmc.ErrRevoked: "ErrRevoked", vmmc.ErrTimeout: "ErrTimeout", vmmc.ErrCanceled: "ErrCanceled",
	vmmc.ErrNoDaemon: "ErrNoDaemon", vmmc.ErrUnreachable: "ErrUnreachable", vmmc.ErrClosed: "ErrClosed",
	vmmc.ErrInProgress: "ErrInProgress", vmmc.ErrBadAsyncHandle: "ErrBadAsyncHandle", vmmc.ErrStaleHandle: "ErrStaleHandle",
	vmmc.ErrBlockedNotifications: "ErrBlockedNotifications", vmmc.ErrNotInHandler: "ErrNotInHandler", vmmc.ErrNoCredit: "ErrNoCredit",
	vmmc.ErrNotRedirectable: "ErrNotRedirectable", vmmc.ErrNoPhysDestSpace: "ErrNoPhysDestSpace", vmmc.ErrNoParent: "ErrNoParent",
}

// Not here: ErrProtocol, ErrStaleImport and ErrNotImplemented, which processes
// and nodes that do as they should never meet; ErrBadIbufState, which importers
// meet as the more precise codes that are also this one.
var _ = declare(
	"errors", "ErrBadAlignment", "ErrBufAlreadyExists", "ErrBadRbufState", "ErrBadProxyAddr", "ErrBadSize", "ErrBadArg",
	"ErrNoMem", "ErrNoSuchNode", "ErrNoSuchProcess", "ErrOverlappedBufs", "ErrNoRights", "ErrPeerGone", "ErrRevoked", "ErrTimeout", "ErrCanceled",
	"ErrNoDaemon", "ErrUnreachable", "ErrClosed", "ErrOutcomeUnknown", "ErrBadIbufState", "io.EOF",
	"ErrInProgress", "ErrBadAsyncHandle", "ErrStaleHandle",
	"ErrBlockedNotifications", "ErrNotInHandler", "ErrNoCredit",
	"ErrNotRedirectable", "ErrNoPhysDestSpace", "ErrNoParent",
)

func (r result) String() string {
	n, known := names[r.code]
	if !known {
		n = r.code.Error()
	}
	if r.unknown {
		n += " with ErrOutcomeUnknown"
	}
	return n
}

// results makes certain results of codes.
func results(codes ...vmmc.Code) (out []result) {
	for _, c := range codes {
		out = append(out, result{code: c})
	}
	return out
}

// either makes of each result two, one of which leaves the outcome open.
func either(rs []result) (out []result) {
	for _, r := range rs {
		out = append(out, r, result{r.code, true})
	}
	return out
}

// expect says how a call ended, which must be one of the ways allowed.
func (s *sequence) expect(call string, err error, allowed ...result) result {
	var r result
	var e *vmmc.Error
	var c vmmc.Code
	switch {
	case err == nil:
	case err == io.EOF: //nolint:errorlint // ReadAt must return it as it is
		r.code = eof
	case errors.As(err, &e):
		r = result{e.Code, errors.Is(err, vmmc.ErrOutcomeUnknown)}
	case errors.As(err, &c):
		r.code = c
	default:
		s.say("%s: %v", call, err)
		s.fail("%s: an error that is neither a *vmmc.Error nor a Code", call)
	}
	if err != nil {
		s.say("  %v", err)
	}
	if !slices.Contains(allowed, r) {
		s.fail("%s: %v, want one of %v", call, r, allowed)
	}
	if r.code != 0 {
		reach("errors", names[r.code])
	}
	if r.unknown {
		reach("errors", "ErrOutcomeUnknown")
	}
	switch r.code {
	case vmmc.ErrPeerGone, vmmc.ErrRevoked, vmmc.ErrNoRights, vmmc.ErrClosed:
		if !errors.Is(err, vmmc.ErrBadIbufState) {
			s.fail("%s: %v is not ErrBadIbufState too", call, r)
		}
		reach("errors", "ErrBadIbufState")
	}
	return r
}
