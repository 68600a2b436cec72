package daemon

import (
	"context"
	"net/http"
	"os"
	"slices"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// userHeader is where a node says for which of its users it asks.
const userHeader = "Vmmc-User"

// rootName is the user who may do with all sessions what their own users may.
const rootName = "root"

// caller is the user who makes a request about sessions.
type caller struct {
	user string
	cred *unix.Cred // on this machine, what the kernel says of it
}

func (c caller) admin() bool { return c.user == rootName || c.cred != nil && c.cred.UID == 0 }

// userKey is where the caller stands in a request's context.
type userKey struct{}

func callerOf(ctx context.Context) (caller, error) {
	if c, ok := ctx.Value(userKey{}).(caller); ok && c.user != "" {
		return c, nil
	}
	return caller{}, code.New(code.NoRights,
		"it is not known which user asks: a node says so in the header %s", userHeader)
}

// vouched is the user of a control connection. A user has no say in this, a node
// is trusted with its own users.
func vouched(p cert.Peer, h http.Header) caller {
	if p.Kind == cert.User {
		return caller{user: p.Name}
	}
	return caller{user: h.Get(userHeader)}
}

// owner is the account that a session gets: the caller's own, or the one that root names.
func (a *accounts) owner(c caller, name string) (account, error) {
	switch {
	case name == "" || name == c.user:
		if c.cred == nil {
			return a.named(c.user)
		}
		return a.of(*c.cred, c.user)
	case !c.admin():
		return account{}, code.New(code.NoRights, "user %q may not make a session for user %q: root may",
			c.user, name)
	case c.cred == nil:
		return a.named(name)
	}
	own := ownAccount()
	if own.name == name {
		return own, nil
	}
	if err := a.mayBecome(own, name); err != nil {
		return account{}, err
	}
	out, err := lookupAccount(name)
	if err != nil {
		return out, code.New(code.BadArg, "user %q has no account on node %q: %v", name, a.node, err)
	}
	return out, nil
}

// administrates reports whether c may administer the node: read its own logs, take its links down
// and up. Administrators are root, the daemon's own user and the users that Config.Admins names. An
// administrator has no rights to other users' sessions.
func (a *accounts) administrates(c caller) bool {
	own := uint32(os.Getuid())
	return c.admin() || c.cred != nil && c.cred.UID == own || c.user != "" &&
		(c.user == userName(own) || slices.Contains(a.admins, c.user))
}
