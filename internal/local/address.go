package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/root"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Env names the daemon's socket to programs.
const Env = "VMMC_SOCKET"

// SystemPath is where the system's daemon listens.
const SystemPath = "/run/vmmc/node.sock"

// maxPath is what fits into a socket's address, without the closing zero.
const maxPath = 107

// DefaultPath is where the daemon listens and programs look for it: what
// [Env] says, else what [root.Env] says, else the system's or the user's run
// directory.
func DefaultPath() string {
	if p := os.Getenv(Env); p != "" {
		return p
	}
	if p := root.FromEnv().Socket(); p != "" {
		return p
	}
	if os.Getuid() == 0 {
		return SystemPath
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "vmmc", "node.sock")
	}
	return filepath.Join(os.TempDir(), "vmmc-"+strconv.Itoa(os.Getuid()), "node.sock")
}

// CheckPath refuses what the kernel would cut.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return code.New(code.BadArg, "socket path %s has %d bytes, the system allows %d: choose a shorter directory", path, len(path), maxPath)
	}
	return nil
}

// Dial reaches the daemon at path.
func Dial(ctx context.Context, path string) (*net.UnixConn, error) {
	if runtime.GOOS != "linux" {
		return nil, code.New(code.NotImplemented, "%v", unix.ErrUnsupported)
	}
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	bounded, stop := context.WithTimeout(ctx, timeout.Connect)
	defer stop()
	var d net.Dialer
	c, err := d.DialContext(bounded, "unixpacket", path)
	for errors.Is(err, syscall.EAGAIN) && bounded.Err() == nil { // so many come that it has not taken them yet
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
			hint = "it is not running: start vmmcd, set " + Env + " to its socket, or embed a node in the program"
		case errors.Is(err, os.ErrPermission):
			hint = "this user may not use it"
		}
		return nil, code.New(code.NoDaemon, "no node daemon at %s: %v (%s)", path, errors.Unwrap(err), hint)
	}
	return c.(*net.UnixConn), nil
}

// Bell is the file beside a daemon's socket by which it tells the processes of the one before that it is there.
func Bell(socket string) string { return socket + ".bell" }

// FromEnv is the socket that the environment names, or "".
func FromEnv() string { return os.Getenv(Env) }
