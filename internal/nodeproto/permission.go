package nodeproto

import (
	"slices"
	"unicode/utf8"

	"github.com/vmmc-go/vmmc/internal/code"
)

// Permission says which processes may import, as the exporter's daemon checks it: those that every
// list names that is not empty.
type Permission struct {
	Users []string `json:",omitempty"` // AnyName: every one
	// AnyName: every one; without Users, of the exporter's user.
	Sessions  []string  `json:",omitempty"`
	Nodes     []string  `json:",omitempty"`
	Processes []Address `json:",omitempty"`
}

// Address is where a process is found.
type Address struct {
	Node string
	PID  uint32
}

// AnyName in a list of users or sessions stands for all.
const AnyName = "*"

// What the permissions of one export may be in all, so that the request that
// carries them fits into a packet whatever JSON makes of the names: six bytes for
// one at worst, and 55 for an entry's frame.
const (
	MaxEntries = 256     // permissions, and names and processes in their lists
	MaxNames   = 8 << 10 // bytes of all names
)

// PermissionSize counts the entries of permissions and the bytes of their names.
func PermissionSize(ps []Permission) (entries, names int) {
	for _, p := range ps {
		entries += 1 + len(p.Users) + len(p.Sessions) + len(p.Nodes) + len(p.Processes)
		for _, list := range [][]string{p.Users, p.Sessions, p.Nodes} {
			for _, s := range list {
				names += len(s)
			}
		}
		for _, a := range p.Processes {
			names += len(a.Node)
		}
	}
	return entries, names
}

// CheckPermissions says what is wrong with permissions.
func CheckPermissions(ps []Permission) error {
	if n, bytes := PermissionSize(ps); n > MaxEntries || bytes > MaxNames {
		return code.New(code.BadArg, "the permissions have %d entries and %d bytes of names, at most "+
			"%d and %d: permit whole sessions, users or nodes",
			n, bytes, MaxEntries, MaxNames)
	}
	for _, p := range ps {
		for _, list := range [][]string{p.Users, p.Sessions} {
			for _, s := range list {
				if !utf8.ValidString(s) { // JSON would make another name of it
					return code.New(code.BadArg, "the name %q in a permission is not valid UTF-8", s)
				}
			}
		}
		for _, n := range p.Nodes {
			if n == "" {
				return code.New(code.BadArg, "a permission names no node: the zero NodeID is none")
			}
		}
		for _, a := range p.Processes {
			if a.Node == "" {
				return code.New(code.BadArg,
					"a permission names process %d on no node: the zero NodeID is none", a.PID)
			}
		}
	}
	return nil
}

// SameUserAndSession says whether an importer is of the exporter's own user and session. A session
// belongs to one user: the same name is another session to another user.
func SameUserAndSession(im Importer, user, session string) bool {
	return im.User == user && im.Session == session
}

// Permits says whether the permissions of an export, whose process is of that user and
// session, let an importer in.
func Permits(ps []Permission, im Importer, user, session string) bool {
	if len(ps) == 0 {
		return SameUserAndSession(im, user, session)
	}
	return slices.ContainsFunc(ps, func(p Permission) bool { return p.matches(im, user, session) })
}

func (p *Permission) matches(im Importer, user, session string) bool {
	address := Address{Node: im.Process.Node, PID: im.Process.PID}
	switch {
	case len(p.Users) == 0 && len(p.Sessions) == 0 && len(p.Processes) == 0 && !SameUserAndSession(im,
		user, session),
		len(p.Users) > 0 && !named(p.Users, im.User),
		len(p.Sessions) > 0 && !named(p.Sessions, im.Session),
		// Any user can give a session any name.
		len(p.Sessions) > 0 && len(p.Users) == 0 && im.User != user,
		len(p.Nodes) > 0 && !slices.Contains(p.Nodes, im.Process.Node),
		len(p.Processes) > 0 && !slices.Contains(p.Processes, address):
		return false
	}
	return true
}

func named(list []string, name string) bool {
	return slices.Contains(list, name) || slices.Contains(list, AnyName)
}
