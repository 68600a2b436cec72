package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmmc-go/vmmc/internal/unix"
)

const lockName = "cluster.lock"

// clusterLock is held by the tool that changes a cluster. The kernel frees it
// when the tool dies.
type clusterLock struct {
	dir  string
	file *os.File
}

func lockCluster(dir string) (*clusterLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	path := filepath.Join(dir, lockName)
	busy := fmt.Errorf("another vmmc is changing the cluster in %s: wait for it, or choose another directory with --dir", dir)
	f, err := unix.LockFile(path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, busy
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cluster's directory: %w", err)
	}
	// Another tool may have removed the file after it was opened here, and a
	// third may hold the lock of the new one.
	held, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Lstat(path); err == nil && !os.SameFile(held, there) {
			err = busy
		}
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, os.ErrNotExist) {
			err = busy
		}
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
