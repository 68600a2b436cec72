package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/mount"
)

// ThreadsLeft is how many processes, threads among them, the cgroups of this one let it have more,
// of either version; where they set no bound, more than there can be.
func ThreadsLeft() int {
	own, err := os.ReadFile("/proc/self/cgroup")
	points, perr := mount.Points()
	if err != nil || perr != nil {
		return math.MaxInt
	}
	return room(string(own), points)
}

func room(own string, points []mount.Point) int {
	least := math.MaxInt
	within(own, points, "pids", func(dir string, _ bool) { least = min(least, left(dir)) })
	return least
}

// left is the room in one cgroup.
func left(dir string) int {
	var n [2]int
	for i, file := range []string{"pids.max", "pids.current"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err == nil {
			n[i], err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		if err != nil { // "max", or a cgroup that bounds none
			return math.MaxInt
		}
	}
	return max(0, n[0]-n[1])
}
