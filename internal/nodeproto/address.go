package nodeproto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/env"
	"github.com/vmmc-go/vmmc/internal/root"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Env names the daemon's socket to programs.
const Env = "VMMC_SOCKET"

// SystemPath is where the system's daemon listens.
const SystemPath = trust.SystemDir + "/node.sock"

// maxPath is what fits into a socket's address, without the closing zero.
const maxPath = 107

// ListenPath is where a daemon of this user listens if nothing else is said: what
// [Env] says, else what [root.Env] says, else the system's or the user's run
// directory.
func ListenPath() string {
	if p := fromEnvironment(); p != "" {
		return p
	}
	return ownPath()
}

// DefaultPath is where programs look for the daemon: what the environment names, as
// for [ListenPath], else this user's own daemon, else the system's. One that is not
// running yields to one that may be.
func DefaultPath() string {
	if p := fromEnvironment(); p != "" {
		return p
	}
	own := ownPath()
	if own == SystemPath || !socketAt(SystemPath) || hasDaemon(own) {
		return own
	}
	return SystemPath
}

// fromEnvironment is the socket that the environment names.
func fromEnvironment() string {
	return cmp.Or(env.Get(Env), root.FromEnv().Socket())
}

// ownPath is the place of this user's own daemon; root's is the system's.
func ownPath() string {
	if os.Geteuid() == 0 {
		return SystemPath
	}
	if d := env.Get("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "vmmc", "node.sock")
	}
	return filepath.Join(env.TempDir(), "vmmc-"+strconv.Itoa(os.Geteuid()), "node.sock")
}

func socketAt(path string) bool {
	i, err := os.Lstat(path)
	return err == nil && i.Mode()&fs.ModeSocket != 0
}

// hasDaemon reports whether a daemon that may be believed takes connections at path: a
// daemon that was killed leaves its socket.
func hasDaemon(path string) bool {
	if !socketAt(path) {
		return false
	}
	c, err := Dial(context.Background(), path)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// CheckPath refuses what the kernel would cut.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return code.New(code.BadArg,
			"socket path %s has %d bytes, the system allows %d: choose a shorter directory", path, len(path),
			maxPath)
	}
	return nil
}

// Dial reaches the daemon at path. It believes a daemon of this user, of root, and of
// the system's daemon's user: where others can write, one of them has to own the
// socket, and the kernel has to say that one of them listens there. The error is
// [code.NoRights] if another user's daemon might be there, [code.NoDaemon] if there
// is none.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	if runtime.GOOS != "linux" {
		return nil, code.New(code.NotImplemented, "%v", unix.ErrUnsupported)
	}
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	owner, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	bounded, stop := context.WithTimeout(ctx, timeout.Connect)
	defer stop()
	var d net.Dialer
	c, err := d.DialContext(bounded, "unixpacket", path)
	for errors.Is(err, syscall.EAGAIN) && bounded.Err() == nil {
		// So many come that it has not taken them yet.
		select {
		case <-time.After(time.Millisecond):
		case <-bounded.Done():
		}
		c, err = d.DialContext(bounded, "unixpacket", path)
	}
	if err != nil && ctx.Err() != nil { // the caller's patience, and nothing about the daemon
		return nil, fmt.Errorf("connect to the node daemon at %s: %w", path, context.Cause(ctx))
	}
	if err != nil {
		hint := "is it running, and is this its socket?"
		switch {
		case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
			hint = "it is not running: start vmmcd, set " + Env +
				" to its socket, or embed a node in the program"
		case errors.Is(err, os.ErrPermission):
			hint = "this user may not use it"
		}
		return nil, code.New(code.NoDaemon, "no node daemon at %s: %v (%s)", path, errors.Unwrap(err),
			hint)
	}
	u := c.(*net.UnixConn)
	if err := checkPeer(u, path, owner); err != nil {
		_ = u.Close()
		return nil, err
	}
	return u, nil
}

// checkPath looks at the directory and at the socket before anything is sent there.
// owner is whose socket it is, or -1 if there is none or it has no file.
func checkPath(path string) (owner int64, err error) {
	if strings.HasPrefix(path, "@") {
		return -1, nil
	}
	dir, name := filepath.Split(path)
	place, err := trust.Daemons().Directory(filepath.Clean(cmp.Or(dir, ".")))
	var i fs.FileInfo
	if err == nil {
		if i, err = os.Lstat(path); err == nil {
			err = place.Entry(name, i)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EACCES) ||
		errors.Is(err, syscall.ENOTDIR) {
		return -1, nil // which the attempt to connect is told too
	}
	if err != nil {
		return -1, untrusted(path, err)
	}
	if uid, known := unix.Owner(i); known {
		return int64(uid), nil
	}
	return -1, nil
}

// checkPeer asks the kernel for the listener's user: between the look at the path and the
// connection, another user may have put a socket there.
func checkPeer(c *net.UnixConn, path string, owner int64) error {
	cred, err := unix.PeerCred(c)
	if err != nil {
		return code.New(code.NoDaemon, "connect to the node daemon at %s: %v", path, err)
	}
	if int64(cred.UID) == owner || slices.Contains(trust.Daemons(), cred.UID) {
		return nil
	}
	return untrusted(path, fmt.Errorf("user %d listens there", cred.UID))
}

func untrusted(path string, why error) error {
	return code.New(code.NoRights, "the node daemon at %s is not to be trusted: %v. "+
		"Another user may have put it there: set %s to the socket of your own daemon "+
		"or of the system's (%s), or remove what is there", path, why, Env, SystemPath)
}

// RefuseDescriptors has the other end of a connection send no descriptors, where the kernel can
// refuse them.
func RefuseDescriptors(c *net.UnixConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = unix.TakesNoRights("", "", raw)
	}
}

// BellPath is the file beside a daemon's socket by which it tells the processes of the one before
// that it is there.
func BellPath(socket string) string { return socket + ".bell" }

// FromEnv is the socket that the environment names, or "".
func FromEnv() string { return env.Get(Env) }
