package vrpc

import (
	"errors"
	"fmt"

	"github.com/vmmc-go/vmmc/internal/rpcmsg"
)

// Why a call fails. [ErrProcUnavail] is one of them too. A [Call] may return ErrGarbageArgs or an
// [*AuthError] to have the server say so. Every other error of it is ErrSystem at the caller, which
// learns no more.
var (
	ErrProgUnavail  = errors.New("the server has no such program")
	ErrProgMismatch = errors.New("the server has no such version of the program")
	ErrGarbageArgs  = errors.New("the arguments cannot be decoded")
	ErrSystem       = errors.New("the server failed")
	ErrRPCMismatch  = errors.New("the server does not speak version 2 of RPC")
	ErrAuth         = errors.New("the server does not take the credentials")

	ErrLost     = errors.New("the connection is lost")             // whether the call was run is unknown
	ErrTooLarge = errors.New("the message is too large")           // it was not sent
	ErrReply    = errors.New("the reply cannot be decoded")        // the call was run
	ErrTimeout  = errors.New("there is no answer")                 // whether the call was run is unknown
	ErrClosed   = errors.New("the client or the server is closed") // by this program
)

// ErrNoReply is what a [Call] returns of which the caller expects no reply: see [Client.Post]. One
// that waits for a reply all the same waits in vain, or is told so, by remote memory.
var ErrNoReply = errors.New("no reply")

// MismatchError says which versions the server has. It is ErrProgMismatch or ErrRPCMismatch.
type MismatchError struct {
	Low, High uint32
	err       error
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v: it has %d to %d", e.err, e.Low, e.High)
}

// Unwrap gives which of the two it is.
func (e *MismatchError) Unwrap() error { return e.err }

// AuthStat is why credentials are not taken, RFC 5531's auth_stat.
type AuthStat uint32

// The reasons that servers have.
const (
	AuthBadCred      AuthStat = 1
	AuthRejectedCred AuthStat = 2
	AuthBadVerf      AuthStat = 3
	AuthRejectedVerf AuthStat = 4
	AuthTooWeak      AuthStat = 5
	AuthFailed       AuthStat = 7
)

func (s AuthStat) String() string {
	switch s {
	case AuthBadCred:
		return "bad credential"
	case AuthRejectedCred:
		return "rejected credential"
	case AuthBadVerf:
		return "bad verifier"
	case AuthRejectedVerf:
		return "rejected verifier"
	case AuthTooWeak:
		return "too weak"
	case AuthFailed:
		return "failed"
	}
	return fmt.Sprintf("auth_stat %d", uint32(s))
}

// AuthError is ErrAuth with the server's reason.
type AuthError struct{ Stat AuthStat }

func (e *AuthError) Error() string { return fmt.Sprintf("%v: %v", ErrAuth, e.Stat) }

// Unwrap gives ErrAuth.
func (e *AuthError) Unwrap() error { return ErrAuth }

// Error is what a client's calls return: which call to which server failed, and why.
type Error struct {
	Peer                        string
	Program, Version, Procedure uint32
	Err                         error
	Name                        string // of the procedure with its program and version, where it is known
}

func (e *Error) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("vrpc: call of %s (program %d version %d procedure %d) at %s: %v",
			e.Name, e.Program, e.Version, e.Procedure, e.Peer, e.Err)
	}
	return fmt.Sprintf("vrpc: call of program %d version %d procedure %d at %s: %v",
		e.Program, e.Version, e.Procedure, e.Peer, e.Err)
}

// Named returns the error of a call with the name of its procedure, and nil if there is none. The
// clients that vrpcgen writes call it: their callers are told what they have called.
func Named(err error, name string) error {
	if err == nil {
		return nil
	}
	return named(err, name)
}

func named(err error, name string) error {
	e, ok := err.(*Error) //nolint:errorlint // one that is wrapped is not ours to change
	if !ok || e.Name != "" {
		return err
	}
	n := *e
	n.Name = name
	return &n
}

// Unwrap gives the reason.
func (e *Error) Unwrap() error { return e.Err }

// failure is what a reply says of how the call failed; nil if it did not.
func failure(r *rpcmsg.Reply) error {
	switch r.Outcome {
	case rpcmsg.Success:
		return nil
	case rpcmsg.ProgUnavail:
		return ErrProgUnavail
	case rpcmsg.ProgMismatch:
		return &MismatchError{r.Low, r.High, ErrProgMismatch}
	case rpcmsg.ProcUnavail:
		return ErrProcUnavail
	case rpcmsg.GarbageArgs:
		return ErrGarbageArgs
	case rpcmsg.RPCMismatch:
		return &MismatchError{r.Low, r.High, ErrRPCMismatch}
	case rpcmsg.AuthError:
		return &AuthError{AuthStat(r.Why)}
	case rpcmsg.SystemErr:
	}
	return ErrSystem
}

// fault makes r say how a procedure failed.
func fault(r *rpcmsg.Reply, err error) {
	var auth *AuthError
	switch {
	case errors.Is(err, ErrProcUnavail):
		r.Outcome = rpcmsg.ProcUnavail
	case errors.Is(err, ErrGarbageArgs):
		r.Outcome = rpcmsg.GarbageArgs
	case errors.As(err, &auth):
		r.Outcome, r.Why = rpcmsg.AuthError, uint32(auth.Stat)
	default:
		r.Outcome = rpcmsg.SystemErr
	}
}
