package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/mount"
)

// The room is that of the tightest of all cgroups that a process is in, of both versions.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"pids/a/pids.max": "max\n", "pids/a/pids.current": "3\n",
		"pids/a/b/pids.max": "10\n", "pids/a/b/pids.current": "3\n",
		"pids/a/full/pids.max": "1\n", "pids/a/full/pids.current": "3\n",
		"two/a/pids.max": "9\n", "two/a/pids.current": "4\n",
		"two/a/b/pids.max": "max\n", "two/a/b/pids.current": "4\n",
		"two/other/pids.max": "9\n", "two/other/pids.current": "4\n",
	} {
		file = filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	points := []mount.Point{
		{Type: "tmpfs", Root: "/", At: dir},
		{Type: "cgroup", Root: "/", At: filepath.Join(dir, "pids")},
		{Type: "cgroup2", Root: "/", At: filepath.Join(dir, "two")},
		{Type: "cgroup2", Root: "/pod", At: filepath.Join(dir, "two")},
	}
	for own, want := range map[string]int{
		"8:pids:/a\n3:cpu:/a/b\n": math.MaxInt,
		"8:pids:/a/b\n0::/\n":     7,
		"8:pids:/a/full\n":        0,
		"8:pids:/a/b\n0::/a/b\n":  5,
		"0::/pod/a\n":             5,
		"0::/../other\n":          math.MaxInt,
		"nonsense\n":              math.MaxInt,
	} {
		if got := room(own, points); got != want {
			t.Errorf("%q has room for %d, want %d", own, got, want)
		}
	}
}
