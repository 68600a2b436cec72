package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/mount"
)

// The room is that of the tightest of the machine and all cgroups that a process is in, of both
// versions. What can be taken back and what can be swapped counts.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	const stat2 = "anon 50\nfile 90\ninactive_file 10\nactive_file 20\nslab_reclaimable 5\nslab_unreclaimable 7\n"
	for file, text := range map[string]string{
		"two/a/memory.max": "1000\n", "two/a/memory.current": "400\n", "two/a/memory.stat": stat2,
		"two/a/b/memory.max": "max\n", "two/a/b/memory.current": "300\n",
		"two/a/tight/memory.max": "500\n", "two/a/tight/memory.current": "480\n",
		"two/a/full/memory.max": "100\n", "two/a/full/memory.current": "130\n", "two/a/full/memory.stat": "active_file 10\n",
		"two/swap/memory.max": "100\n", "two/swap/memory.current": "60\n", "two/swap/memory.swap.max": "30\n", "two/swap/memory.swap.current": "10\n",
		"two/noswap/memory.max": "100\n", "two/noswap/memory.current": "60\n", "two/noswap/memory.swap.max": "0\n", "two/noswap/memory.swap.current": "0\n",
		"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "5\n",
		"memory/x/memory.limit_in_bytes": "2000\n", "memory/x/memory.usage_in_bytes": "900\n",
		"memory/x/memory.stat":             "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n",
		"memory/x/y/memory.limit_in_bytes": "700\n", "memory/x/y/memory.usage_in_bytes": "600\n",
		"memory/x/y/memory.memsw.limit_in_bytes": "800\n", "memory/x/y/memory.memsw.usage_in_bytes": "620\n",
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
		{Type: "cgroup", Root: "/", At: filepath.Join(dir, "memory")},
		{Type: "cgroup2", Root: "/", At: filepath.Join(dir, "two")},
	}
	const machine = "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\nSwapTotal: 8 kB\nSwapFree: 0 kB\n"
	swapping := strings.Replace(machine, "SwapFree: 0", "SwapFree: 1", 1)
	plenty := strings.Replace(machine, "SwapFree: 0", "SwapFree: 8388608", 1)
	for _, c := range []struct {
		own, info string
		want      int64
		where     string
	}{
		{"", machine, 4096, "machine"},
		{"", swapping, 5120, "machine"},
		{"0::/a\n", machine, 1000 - 400 + 35, "two/a"},
		{"0::/a/b\n", machine, 1000 - 400 + 35, "two/a"},
		{"0::/a/tight\n", machine, 20, "two/a/tight"},
		{"0::/a/full\n", machine, 0, "two/a/full"},
		{"0::/swap\n", swapping, 60, "two/swap"},
		{"0::/swap\n", machine, 40, "two/swap"},
		{"0::/noswap\n", swapping, 40, "two/noswap"},
		{"4:memory:/\n", machine, 4096, "machine"},
		{"4:memory:/\n", plenty, 4096 + 8<<30, "machine"}, // no limit is a large number in version 1
		{"4:memory:/x\n", machine, 2000 - 900 + 150, "memory/x"},
		{"4:memory:/x/y\n", machine, 100, "memory/x/y"},
		{"4:memory:/x/y\n", swapping, 180, "memory/x/y"},
		{"4:memory:/x\n0::/a/tight\n", machine, 20, "two/a/tight"},
		{"3:cpu:/x/y\n", machine, 4096, "machine"},
		{"0::/../elsewhere\n", machine, 4096, "machine"},
		{"0::/nowhere\n", "", math.MaxInt64, ""},
	} {
		if got, where := memory(c.info, c.own, points); got != c.want || !strings.HasSuffix(where, c.where) {
			t.Errorf("%q has room for %d in %q, want %d in %q", c.own, got, where, c.want, c.where)
		}
	}
}
