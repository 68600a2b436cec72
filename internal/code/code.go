// Package code numbers the return values of the manual, once and for all, so
// that library, daemon and wire mean the same by them.
package code

import "fmt"

// Code is a return value of the manual (page 24), or one of our own. It is an
// error, so that errors.Is finds it.
type Code int32

// The manual's values, in its order; then those it mentions only in passing;
// then our own, from -64 down. They are never renumbered.
const (
	Success              Code = 0
	BadAlignment         Code = -1
	BufAlreadyExists     Code = -2
	BadIbufState         Code = -3
	BadRbufState         Code = -4
	BadProxyExtension    Code = -5
	BadProxyAddr         Code = -6
	BadSize              Code = -7
	BadArg               Code = -8
	NotImplemented       Code = -9
	UnblockedNotifs      Code = -10
	BlockedNotifications Code = -11
	NoPhysDestSpace      Code = -12
	NoVirtDestSpace      Code = -13
	NoMem                Code = -14
	NoSuchNode           Code = -15
	NoSuchProcess        Code = -16
	NotInHandler         Code = -17
	OverlappedBufs       Code = -18
	InProgress           Code = -19
	NoSuchError          Code = -20
	NoParent             Code = -21
	BadAsyncHandle       Code = -22
	StaleHandle          Code = -23

	NoRights        Code = -64
	PeerGone        Code = -65
	Revoked         Code = -66
	StaleImport     Code = -67
	NotRedirectable Code = -68
	Timeout         Code = -69
	OutcomeUnknown  Code = -70
	NoDaemon        Code = -71
	Unreachable     Code = -72
	Closed          Code = -73
	Protocol        Code = -74
	BadConfig       Code = -75
	NoCredit        Code = -76
	NoSuchSession   Code = -77
	Canceled        Code = -78
	Unknown         Code = -79
	NameTaken       Code = -80
	BadName         Code = -81
)

var texts = map[Code]string{
	Success:              "success",
	BadAlignment:         "an offset, a length or an address is not a multiple of the word (4 bytes)",
	BufAlreadyExists:     "this process already exports a buffer under this id",
	BadIbufState:         "the imported buffer cannot be used in its present state",
	BadRbufState:         "the exported buffer cannot be used in its present state",
	BadProxyExtension:    "the DestSpace reservation could not be grown",
	BadProxyAddr:         "the range does not lie within one imported buffer",
	BadSize:              "the size must be positive",
	BadArg:               "an argument is outside its domain",
	NotImplemented:       "not supported on this system: vmmc needs Linux",
	UnblockedNotifs:      "notifications are not blocked",
	BlockedNotifications: "notifications of this buffer are pending and blocked: unblock them and try again",
	NoPhysDestSpace:      "the limit on imported bytes is reached",
	NoVirtDestSpace:      "the DestSpace addresses are used up",
	NoMem:                "memory cannot be allocated",
	NoSuchNode:           "no such node",
	NoSuchProcess:        "no such process",
	NotInHandler:         "this call cannot be used in a notification handler",
	OverlappedBufs:       "the memory overlaps a buffer that is exported already",
	InProgress:           "the request is still in progress",
	NoSuchError:          "no such error",
	NoParent:             "this process was not spawned by another",
	BadAsyncHandle:       "not a valid handle of an asynchronous request",
	StaleHandle:          "the handle was checked already after its request completed",

	NoRights:        "the exporter does not allow this",
	PeerGone:        "the peer process is gone",
	Revoked:         "the export was closed by its owner",
	StaleImport:     "the peer process was restarted: import again",
	NotRedirectable: "the buffer is not redirectable",
	Timeout:         "the time for this is over",
	OutcomeUnknown:  "outcome unknown",
	NoDaemon:        "no node daemon",
	Unreachable:     "the node cannot be reached",
	Closed:          "closed",
	Protocol:        "the peer broke the protocol",
	BadConfig:       "bad configuration",
	NoSuchSession:   "no such session",
	Canceled:        "the call was cancelled",
	Unknown:         "an error that has no code",
	NameTaken:       "another process has the name",
	BadName:         "not a name that an export can have",
	NoCredit:        "all notification credits of the link are taken, and a handler may not wait for one",
}

// Error is the code's own text (the manual's vmmc_ErrorStr).
func (c Code) Error() string {
	if t, ok := texts[c]; ok {
		return t
	}
	return fmt.Sprintf("unknown error code %d", int32(c))
}

// Error joins a code with what was tried.
type Error struct {
	Code Code
	Text string
}

// New makes an Error.
func New(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Text }

// Unwrap lets errors.Is find the code.
func (e *Error) Unwrap() error { return e.Code }
