// Package users says which user asks, what users may do with a node, and as which account of this
// machine a program runs. It has no lock and no state: the machine's list of users is asked anew
// each time.
package users

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Account is a user of this machine, as which a program is to run.
type Account struct {
	UID  uint32
	Name string
	Home string
	As   *unix.Identity // nil: it is the daemon's own
}

// Own is the daemon's account. Programs that run as it are started without any
// change of identity, for which a daemon that is not root's has no right.
func Own() Account {
	a := Account{UID: uint32(os.Getuid()), Home: "/"}
	a.Name = Name(a.UID)
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		a.Home = u.HomeDir
	}
	return a
}

// Name returns the name by which rights identify a user: names are the same on all nodes of a
// cluster, numbers need not be.
func Name(uid uint32) string {
	s := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(s); err == nil && utf8.ValidString(u.Username) {
		// No message carries another one.
		return u.Username
	}
	return s
}

// Accounts finds the accounts of users, and says what users may do with the node.
type Accounts struct {
	Node      string   // its name
	SpawnRoot bool     // let other nodes start programs as root here
	Admins    []string // users who may administer the node, beside root and the daemon's own
}

// Of is the account of a process of this node: exactly what the kernel said it had when it
// connected, so that no user gains a group by spawning.
func (a *Accounts) Of(cred unix.Cred, name string) (Account, error) {
	own := Own()
	if cred.UID == own.UID {
		return own, nil
	}
	if err := a.mayBecome(own, name); err != nil {
		return Account{}, err
	}
	out := Account{
		UID: cred.UID, Name: name, Home: "/",
		As: &unix.Identity{UID: cred.UID, GID: cred.GID, Groups: cred.Groups},
	}
	if u, err := user.LookupId(strconv.FormatUint(uint64(out.UID), 10)); err == nil {
		out.Home = u.HomeDir
	}
	return out, nil
}

// Named returns the account of a user for which another node vouches. Names count, not
// numbers, which differ between machines. Another node's word is not enough to become root: one
// node that was broken into would be all nodes.
func (a *Accounts) Named(name string) (Account, error) {
	out := Own()
	if name != out.Name {
		if err := a.mayBecome(out, name); err != nil {
			return Account{}, err
		}
		var err error
		if out, err = lookupAccount(name); err != nil {
			return Account{}, code.New(code.NoRights, "user %q has no account on node %q: %v", name,
				a.Node, err)
		}
	}
	if out.UID == 0 && !a.SpawnRoot {
		return Account{}, code.New(code.NoRights, "node %q starts no programs as user %q for other "+
			"nodes: spawn as another user, or start its daemon with --spawn-root", a.Node, name)
	}
	return out, nil
}

func (a *Accounts) mayBecome(own Account, name string) error {
	if !unix.MaySwitchUsers() {
		return code.New(code.NoRights, "the daemon of node %q runs as user %q and cannot start "+
			"programs as user %q: run it as root, with CAP_SETUID, CAP_SETGID and CAP_KILL, or as that user",
			a.Node, own.Name, name)
	}
	return nil
}

func lookupAccount(name string) (Account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return Account{}, err
	}
	list, err := u.GroupIds()
	if err != nil {
		return Account{}, err
	}
	var ids []uint32
	for _, s := range append([]string{u.Uid, u.Gid}, list...) {
		id, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return Account{}, fmt.Errorf("its number %q is none of this system's: %w", s, err)
		}
		ids = append(ids, uint32(id))
	}
	return Account{
		UID: ids[0], Name: name, Home: u.HomeDir, As: &unix.Identity{
			UID: ids[0], GID: ids[1], Groups: ids[2:],
		},
	}, nil
}

// Header is where a node says for which of its users it asks.
const Header = "Vmmc-User"

// rootName is the user who may do with all sessions what their own users may.
const rootName = "root"

// Caller is the user who makes a request about sessions.
type Caller struct {
	User string
	Cred *unix.Cred // on this machine, what the kernel says of it
}

// Admin reports whether it is root.
func (c Caller) Admin() bool { return c.User == rootName || c.Cred != nil && c.Cred.UID == 0 }

// userKey is where the caller stands in a request's context.
type userKey struct{}

// WithCaller returns a context that has the caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, userKey{}, c)
}

// CallerOf returns the caller of a request.
func CallerOf(ctx context.Context) (Caller, error) {
	if c, ok := ctx.Value(userKey{}).(Caller); ok && c.User != "" {
		return c, nil
	}
	return Caller{}, code.New(code.NoRights,
		"it is not known which user asks: a node says so in the header %s", Header)
}

// Vouched is the user of a control connection. A user has no say in this, a node
// is trusted with its own users.
func Vouched(p cert.Peer, h http.Header) Caller {
	if p.Kind == cert.User {
		return Caller{User: p.Name}
	}
	return Caller{User: h.Get(Header)}
}

// Owner is the account that a session gets: the caller's own, or the one that root names.
func (a *Accounts) Owner(c Caller, name string) (Account, error) {
	switch {
	case name == "" || name == c.User:
		if c.Cred == nil {
			return a.Named(c.User)
		}
		return a.Of(*c.Cred, c.User)
	case !c.Admin():
		return Account{}, code.New(code.NoRights, "user %q may not make a session for user %q: root may",
			c.User, name)
	case c.Cred == nil:
		return a.Named(name)
	}
	own := Own()
	if own.Name == name {
		return own, nil
	}
	if err := a.mayBecome(own, name); err != nil {
		return Account{}, err
	}
	out, err := lookupAccount(name)
	if err != nil {
		return out, code.New(code.BadArg, "user %q has no account on node %q: %v", name, a.Node, err)
	}
	return out, nil
}

// Administrates reports whether c may administer the node: read its own logs, take its links down
// and up. Administrators are root, the daemon's own user and the users that Admins names. An
// administrator has no rights to other users' sessions.
func (a *Accounts) Administrates(c Caller) bool {
	own := uint32(os.Getuid())
	return c.Admin() || c.Cred != nil && c.Cred.UID == own || c.User != "" &&
		(c.User == Name(own) || slices.Contains(a.Admins, c.User))
}
