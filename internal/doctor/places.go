package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	cgroups "github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// socket looks at the node's socket and whether a node is there.
func socket(ctx context.Context, n *Node) []Finding {
	const name = "socket"
	if strings.HasPrefix(n.Socket, "@") {
		return good(name, "%s has no file", n.Socket)
	}
	if err := nodeproto.CheckPath(n.Socket); err != nil {
		return bad(Failed, name, "name a shorter one with --socket", "%v", err)
	}
	dir := filepath.Dir(n.Socket)
	if f := directory(name, dir); f != nil {
		return f
	}
	c, err := nodeproto.Dial(ctx, n.Socket)
	if err == nil {
		_ = c.Close()
		return good(name, "a node serves %s", n.Socket)
	}
	if errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "permission denied") {
		return bad(Failed, name, "use the socket of your own node, or run this as the node's user", "%v", err)
	}
	return good(name, "no node serves %s now", n.Socket)
}

// state looks at where sessions are kept.
func state(_ context.Context, n *Node) []Finding {
	const name = "state directory"
	if n.State == "" {
		return bad(Warning, name, "name one with --state", "none: the node would have no sessions")
	}
	if f := directory(name, n.State); f != nil {
		return f
	}
	return good(name, "%s", n.State)
}

// directory finds fault with a directory in which others must not put things; nil
// if there is none. One that is not there can be made, or its parent is at fault.
func directory(name, dir string) []Finding {
	i, err := os.Stat(dir)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
		dir = filepath.Dir(dir)
		i, err = os.Stat(dir)
	}
	if err != nil {
		return bad(Failed, name, "name another one, or make it", "%v", err)
	}
	if !i.IsDir() {
		return bad(Failed, name, "remove it, or name another one", "%s is no directory", dir)
	}
	if m := i.Mode(); m.Perm()&0o022 != 0 && m&fs.ModeSticky == 0 {
		return bad(Failed, name, "chmod go-w "+dir, "%s has mode %04o: others can put a socket or files of theirs there", dir, m.Perm())
	}
	if uid, ok := unix.Owner(i); ok && uid != 0 && int(uid) != os.Getuid() && !forSystem(uid) {
		return bad(Failed, name, fmt.Sprintf("chown %d %s, or name another one", os.Getuid(), dir), "%s belongs to user %d, who can replace what is there", dir, uid)
	}
	if err := writable(dir); errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return bad(Failed, name, "free some, or name a directory elsewhere", "there is no room in %s: %v", dir, err)
	} else if err != nil {
		return bad(Failed, name, "name a directory of your own, or run vmmcd as root", "%s cannot be written by user %d", dir, os.Getuid())
	}
	return nil
}

// forSystem reports whether root looks at what belongs to the system's daemon, which
// has an account of its own.
func forSystem(uid uint32) bool {
	system, ok := trust.SystemUser()
	return ok && os.Getuid() == 0 && uid == system
}

// writable tries, because modes do not tell of read-only file systems.
func writable(dir string) error {
	f, err := os.CreateTemp(dir, ".vmmc-doctor-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096)) // a name has room where bytes have none
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// cgroup looks whether sessions can have one.
func cgroup(context.Context, *Node) []Finding {
	const name = "cgroup"
	dir, err := cgroups.Home()
	switch {
	case err == nil:
		return good(name, "sessions can have cgroups below %s", dir)
	case dir == "":
		return bad(Warning, name, "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 where vmmcd runs", "sessions are ended without cgroups: %v", err)
	}
	return bad(Warning, name, "Delegate=yes in the unit of vmmcd", "%s is not delegated to user %d, sessions are ended without cgroups: %v", dir, os.Getuid(), err)
}

// mounting looks for what mount(8) needs for shares of other machines.
func mounting(context.Context, *Node) []Finding {
	const name = "mounting of shares"
	var missing []string
	for _, h := range []struct{ helper, pkg string }{{"mount.cifs", "cifs-utils"}, {"mount.nfs", "nfs-common"}} {
		if !installed(h.helper) {
			missing = append(missing, h.helper+" ("+h.pkg+")")
		}
	}
	switch {
	case os.Getuid() != 0:
		return bad(Warning, name, "run vmmcd as root if sessions are to have shares of other machines", "user %d cannot mount", os.Getuid())
	case len(missing) > 0:
		return bad(Warning, name, "install them if sessions are to have such shares", "there is no %s", strings.Join(missing, " and no "))
	}
	return good(name, "mount.nfs and mount.cifs are there")
}

// installed looks where mount(8) looks for its helpers.
func installed(helper string) bool {
	for _, dir := range []string{"/sbin", "/usr/sbin", "/bin", "/usr/bin"} {
		if i, err := os.Stat(filepath.Join(dir, helper)); err == nil && i.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}
