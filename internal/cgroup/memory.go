package cgroup

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/mount"
)

// Memory is how many bytes more this process can have before the kernel kills for them, by the
// machine's memory and by the cgroups that it is in, of either version, and which of these lets it
// have the least. What the kernel can take back from its cache of files counts, and so does swap.
// Where nothing says, it is more than there can be.
func Memory() (room int64, where string) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return math.MaxInt64, "" // not a system that can be asked, or no descriptor is left
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	points, perr := mount.Points()
	if err != nil || perr != nil {
		own = nil
	}
	return memory(string(info), string(own), points)
}

func memory(info, own string, points []mount.Point) (room int64, where string) {
	room = math.MaxInt64
	swap := max(field(info, "SwapFree:")<<10, 0)
	if n := field(info, "MemAvailable:"); n >= 0 {
		room, where = n<<10+swap, "the machine"
	}
	within(own, points, "memory", func(dir string, unified bool) {
		if n := memoryLeft(dir, unified, swap); n < room {
			room, where = n, "the cgroup "+dir
		}
	})
	return room, where
}

// memoryLeft is the room in one cgroup; swap is how much of that there is.
func memoryLeft(dir string, unified bool, swap int64) int64 {
	names := [...]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file", "", "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"}
	if unified {
		names = [...]string{"memory.max", "memory.current", "inactive_file", "active_file", "slab_reclaimable", "memory.swap.max", "memory.swap.current"}
	}
	limit, ok := number(dir, names[0])
	used, there := number(dir, names[1])
	if !ok || !there {
		return math.MaxInt64
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat"))
	cached := int64(0)
	for _, name := range names[2:5] {
		if name != "" {
			cached += max(field(string(stat), name), 0)
		}
	}
	free := max(0, limit-max(0, used-cached))
	swapLimit, limited := number(dir, names[5])
	swapUsed, counted := number(dir, names[6])
	if limited && counted {
		more := swapLimit - swapUsed
		if !unified { // which has memory in it, too
			more -= limit - used
		}
		swap = min(swap, max(0, more))
	}
	if free > math.MaxInt64-swap { // version 1 without a limit
		return math.MaxInt64
	}
	return free + swap
}

// number is what a file of a cgroup has; ok is false if it is not there, or has "max".
func number(dir, file string) (n int64, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// field is the number behind a name at the beginning of a line, or -1.
func field(text, name string) int64 {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == name {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// within calls f for each cgroup that has this process in it and a controller, each above bounding
// those below.
func within(own string, points []mount.Point, controller string, f func(dir string, unified bool)) {
	for line := range strings.Lines(own) { // 8:pids:/a/b, and 0::/a/b of version 2
		c := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(c) != 3 || c[1] != "" && !slices.Contains(strings.Split(c[1], ","), controller) {
			continue
		}
		for _, p := range points {
			if c[1] == "" && p.Type != "cgroup2" ||
				c[1] != "" && (p.Type != "cgroup" || filepath.Base(p.At) != c[1]) {
				continue
			}
			rel, ok := below(p, c[2])
			if !ok {
				continue
			}
			for ; ; rel = filepath.Dir(rel) {
				f(filepath.Join(p.At, rel), c[1] == "")
				if rel == "." {
					break
				}
			}
		}
	}
}
