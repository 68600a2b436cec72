package setup

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine tells what the figures were measured on.
func Machine(ctx context.Context) map[string]string {
	lscpu, _ := exec.CommandContext(ctx, "lscpu").Output()
	m := map[string]string{
		"architecture":      runtime.GOARCH,
		"CPUs":              strconv.Itoa(runtime.NumCPU()),
		"processor":         field(file("/proc/cpuinfo"), "model name"),
		"memory":            field(file("/proc/meminfo"), "MemTotal"),
		"system":            strings.Trim(field(bytes.ReplaceAll(file("/etc/os-release"), []byte("="), []byte(":")), "PRETTY_NAME"), `"`),
		"kernel":            string(bytes.TrimSpace(file("/proc/sys/kernel/osrelease"))),
		"send buffer, most": string(bytes.TrimSpace(file("/proc/sys/net/core/wmem_max"))),
		"clock":             string(bytes.TrimSpace(file("/sys/devices/system/clocksource/clocksource0/current_clocksource"))),
		"threads a core":    field(lscpu, "Thread(s) per core"),
		"L3 cache":          field(lscpu, "L3 cache"),
		"hypervisor":        field(lscpu, "Hypervisor vendor"),
	}
	maps.DeleteFunc(m, func(_, text string) bool { return text == "" })
	return m
}

// A file that is not there leaves its line out.
func file(path string) []byte {
	b, _ := os.ReadFile(path)
	return b
}

// field is what stands after the name and a colon.
func field(text []byte, name string) string {
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(after)
		}
	}
	return ""
}

// Versions tells of what is compared. module is the directory of this module.
func Versions(ctx context.Context, module string) map[string]string {
	v := map[string]string{"Go": runtime.Version()}
	for name, pack := range map[string]string{
		"UCX": "ucx-utils", "libfabric": "libfabric-bin", "MPICH": "mpich", "Open MPI": "openmpi-bin", "gcc": "gcc", "glibc": "libc6",
	} {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Version}", pack).Output()
		if err == nil && len(out) > 0 {
			v[name] = string(out)
		}
	}
	for line := range strings.Lines(string(file(filepath.Join(module, "go.mod")))) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "google.golang.org/grpc" {
			v["gRPC-Go"] = f[1]
		}
	}
	git := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	git.Dir = module
	if out, err := git.Output(); err == nil {
		v["vmmc"] = string(bytes.TrimSpace(out))
	}
	return v
}
