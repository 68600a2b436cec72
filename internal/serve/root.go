package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/root"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// below finds in the root directory what no flag names, and gives the directory of
// the logs; "" without a root.
func (o *options) below() (logs string, err error) {
	if o.rootDir == "" {
		return "", nil
	}
	abs, err := filepath.Abs(o.rootDir)
	if err != nil {
		return "", fmt.Errorf("name the root directory: %w", err)
	}
	s, err := os.Stat(abs)
	if err == nil && !s.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return "", fmt.Errorf("use the root directory %s: %w; make it, or name another one with --root", abs, err)
	}
	r := root.Dir(abs)
	o.Below(r, o.listen != "")
	if !o.socketGiven && nodeproto.FromEnv() == "" {
		o.Socket = r.Socket()
	}
	return r.Logs(), o.takeRoot(abs)
}

// takeRoot sees to it that two daemons do not write the same logs. A root that
// cannot be written has no lock, and no logs either.
func (o *options) takeRoot(dir string) (err error) {
	path := filepath.Join(dir, ".vmmcd.lock")
	o.lock, err = unix.LockFile(path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return fmt.Errorf("another vmmcd has the root directory %s (it holds %s): stop it, or give this one another directory with --root", dir, path)
	}
	return nil
}

func (o *options) giveRoot() {
	if o.lock != nil {
		_ = o.lock.Close()
	}
}
