// Package cgroup makes cgroups (version 2), which processes cannot leave, and
// ends what is in them. Where the kernel has none, or this process may make
// none, it says why.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmmc-go/vmmc/internal/mount"
)

// Home finds the cgroup that this process is in, below which it may make others:
// its own because it is root or because it was delegated to it.
func Home() (string, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find the own cgroup: %w", err)
	}
	points, err := mount.Points()
	if err != nil {
		return "", fmt.Errorf("find the cgroups: %w", err)
	}
	dir, err := locate(string(own), points)
	if err != nil {
		return "", err
	}
	return dir, probe(dir)
}

// locate says which directory is a process's cgroup, from its line in
// /proc/self/cgroup and from where the hierarchy is mounted.
func locate(own string, points []mount.Point) (string, error) {
	path, found := "", false
	for line := range strings.Lines(own) {
		if p, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); is {
			path, found = p, true
		}
	}
	if !found {
		return "", errors.New("this process is in no cgroup of version 2")
	}
	for _, p := range points {
		if p.Type != "cgroup2" {
			continue
		}
		if rel, ok := below(p, path); ok {
			return filepath.Join(p.At, rel), nil
		}
	}
	return "", errors.New("no hierarchy of cgroups of version 2 is mounted that this process is in")
}

// below says where under a mount a cgroup is. A container may see a part of the hierarchy, or be
// outside of what it sees; the kernel writes paths that begin with /.. then.
func below(p mount.Point, path string) (rel string, ok bool) {
	if strings.HasPrefix(p.Root, "/..") || strings.HasPrefix(path, "/..") {
		return "", false
	}
	rel, err := filepath.Rel(p.Root, path)
	return rel, err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// probe tries whether cgroups can be made in dir, and ended as a whole.
func probe(dir string) error {
	try := filepath.Join(dir, fmt.Sprintf("vmmc-probe-%d", os.Getpid()))
	if err := os.Mkdir(try, 0o755); err != nil { //nolint:gosec // as all cgroups are
		return fmt.Errorf("make a cgroup: %w", err)
	}
	defer os.Remove(try)
	f, err := os.OpenFile(filepath.Join(try, killFile), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("the kernel cannot end a cgroup as a whole: %w", err)
	}
	_ = f.Close()
	// Moving a process needs the right to take it out of where it is.
	if f, err = os.OpenFile(filepath.Join(dir, procsFile), os.O_WRONLY, 0); err != nil {
		return fmt.Errorf("move processes out of the own cgroup: %w", err)
	}
	return f.Close()
}

const (
	killFile  = "cgroup.kill"
	procsFile = "cgroup.procs"
)

// Enter puts a process into a cgroup, which is made if it is not there. What the
// process starts from then on is in it too.
func Enter(dir string, pid int) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all cgroups are
		return fmt.Errorf("make a cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, procsFile), []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("put process %d into a cgroup: %w", pid, err)
	}
	return nil
}

// Holds reports whether a process is in a cgroup.
func Holds(dir string, pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	for line := range strings.Lines(string(b)) {
		path, is := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if is && err == nil && filepath.Base(path) == filepath.Base(dir) {
			return true
		}
	}
	return false
}

// Kill ends all that is in a cgroup, and in those that were made in it. One that
// is not there has nothing in it.
func Kill(dir string, patience time.Duration) error {
	err := os.WriteFile(filepath.Join(dir, killFile), []byte("1"), 0)
	for deadline := time.Now().Add(patience); err == nil; time.Sleep(2 * time.Millisecond) {
		var b []byte
		if b, err = os.ReadFile(filepath.Join(dir, "cgroup.events")); err != nil ||
			bytes.Contains(b, []byte("populated 0")) {
			break
		}
		if time.Now().After(deadline) {
			left, _ := os.ReadFile(filepath.Join(dir, procsFile))
			return fmt.Errorf("processes %s of cgroup %s were killed and do not end",
				strings.Join(strings.Fields(string(left)), ", "), dir)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end cgroup %s: %w", dir, err)
	}
	return nil
}

// Remove removes a cgroup that nothing is in, with those that were made in it.
func Remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			_ = Remove(filepath.Join(dir, e.Name())) // else this one cannot be removed, which is told
		}
	}
	if err = os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a cgroup: %w", err)
	}
	return nil
}
