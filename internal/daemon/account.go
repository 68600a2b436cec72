package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// account is a user of this machine, as which a program is to run.
type account struct {
	uid  uint32
	name string
	home string
	as   *unix.Identity // nil: it is the daemon's own
}

// ownAccount is the daemon's. Programs that run as it are started without any
// change of identity, for which a daemon that is not root's has no right.
func ownAccount() account {
	a := account{uid: uint32(os.Getuid()), home: "/"}
	a.name = userName(a.uid)
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		a.home = u.HomeDir
	}
	return a
}

// accounts finds the accounts of users, and says what users may do with the node.
type accounts struct {
	node      string
	spawnRoot bool     // see Config
	admins    []string // see Config
}

// of is the account of a process of this node: exactly what the kernel said it had when it
// connected, so that no user gains a group by spawning.
func (a *accounts) of(cred unix.Cred, name string) (account, error) {
	own := ownAccount()
	if cred.UID == own.uid {
		return own, nil
	}
	if err := a.mayBecome(own, name); err != nil {
		return account{}, err
	}
	out := account{
		uid: cred.UID, name: name, home: "/",
		as: &unix.Identity{UID: cred.UID, GID: cred.GID, Groups: cred.Groups},
	}
	if u, err := user.LookupId(strconv.FormatUint(uint64(out.uid), 10)); err == nil {
		out.home = u.HomeDir
	}
	return out, nil
}

// named returns the account of a user for which another node vouches. Names count, not
// numbers, which differ between machines. Another node's word is not enough to become root: one
// node that was broken into would be all nodes.
func (a *accounts) named(name string) (account, error) {
	out := ownAccount()
	if name != out.name {
		if err := a.mayBecome(out, name); err != nil {
			return account{}, err
		}
		var err error
		if out, err = lookupAccount(name); err != nil {
			return account{}, code.New(code.NoRights, "user %q has no account on node %q: %v", name,
				a.node, err)
		}
	}
	if out.uid == 0 && !a.spawnRoot {
		return account{}, code.New(code.NoRights, "node %q starts no programs as user %q for other "+
			"nodes: spawn as another user, or start its daemon with --spawn-root", a.node, name)
	}
	return out, nil
}

func (a *accounts) mayBecome(own account, name string) error {
	if !unix.MaySwitchUsers() {
		return code.New(code.NoRights, "the daemon of node %q runs as user %q and cannot start "+
			"programs as user %q: run it as root, with CAP_SETUID, CAP_SETGID and CAP_KILL, or as that user",
			a.node, own.name, name)
	}
	return nil
}

func lookupAccount(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, err
	}
	list, err := u.GroupIds()
	if err != nil {
		return account{}, err
	}
	var ids []uint32
	for _, s := range append([]string{u.Uid, u.Gid}, list...) {
		id, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return account{}, fmt.Errorf("its number %q is none of this system's: %w", s, err)
		}
		ids = append(ids, uint32(id))
	}
	return account{
		uid: ids[0], name: name, home: u.HomeDir, as: &unix.Identity{
			UID: ids[0], GID: ids[1], Groups: ids[2:],
		},
	}, nil
}

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
