package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/trust"
	"github.com/vmmc-go/vmmc/internal/unix"
)

const lockName = "cluster.lock"

// clusterLock is held by the tool that changes a cluster. The kernel frees it
// when the tool dies.
type clusterLock struct {
	dir  string
	file *os.File
}

var errBusy = errors.New("another vmmc is changing the cluster")

// lockCluster waits for another tool, but not for long: only the start of many nodes
// takes time, and a user who stops or starts the cluster meanwhile wants to know of it.
func lockCluster(dir string) (*clusterLock, error) {
	for deadline := time.Now().Add(timeout.Stop); ; time.Sleep(10 * time.Millisecond) {
		l, err := tryLock(dir)
		if !errors.Is(err, errBusy) {
			return l, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w in %s: try again later, or choose another directory with --dir", err, dir)
		}
	}
}

func tryLock(dir string) (*clusterLock, error) {
	if _, err := trust.Own().Make(dir, 0o700); err != nil {
		return nil, fmt.Errorf("take the cluster's directory: %w; choose another with --dir", err)
	}
	path := filepath.Join(dir, lockName)
	f, err := unix.LockFile(path)
	switch {
	// The directory too may have gone with the other tool's cluster.
	case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, os.ErrNotExist):
		return nil, errBusy
	case err != nil:
		return nil, fmt.Errorf("lock the cluster's directory: %w", err)
	}
	// Another tool may have removed the file after it was opened here, and a
	// third may hold the lock of the new one.
	held, err := f.Stat()
	var there os.FileInfo
	if err == nil {
		there, err = os.Lstat(path)
	}
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(held, there) {
		err = errBusy
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &clusterLock{dir, f}, nil
}

// release gives the lock back. With the cluster gone, the lock's file goes too,
// and the directory, if it is empty then.
func (l *clusterLock) release() {
	if _, err := os.Lstat(filepath.Join(l.dir, stateFile)); errors.Is(err, os.ErrNotExist) {
		_ = os.Remove(l.file.Name())
		_ = os.Remove(l.dir)
	}
	_ = l.file.Close()
}
