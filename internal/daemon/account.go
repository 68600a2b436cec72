package daemon

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

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
