//go:build amd64 && !race

package link

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/internal/shm"
)

// TestMappedTracesInC is TestMappedTraces for the mapped path of the C library. What that leaves to
// Go, other traces have.
func TestMappedTracesInC(t *testing.T) {
	const c = "../../c"
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skipf("the sender in C needs gcc: %v", err)
	}
	program := filepath.Join(t.TempDir(), "trace")
	compile := exec.CommandContext(t.Context(), "gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-pthread",
		"-I"+c+"/src", "-o", program, c+"/test/trace/trace.c", c+"/src/mapped.c")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	seen := 0
	for name, traces := range readTraces(t) {
		traces = slices.DeleteFunc(traces, func(tr *trace) bool { return !tr.isInC() })
		if len(traces) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "traces")
			if err := os.WriteFile(file, []byte(forC(traces)), 0o600); err != nil {
				t.Fatal(err)
			}
			runtime.LockOSThread() // the kernel lets a single thread trace
			defer runtime.UnlockOSThread()
			did := tracedCommand(t, exec.CommandContext(t.Context(), program, file), traces)
			for i, tr := range traces {
				if want := tr.expectedInC(); !slices.Equal(did[i], want) {
					t.Errorf("%s: trace %s: the sender in C did\n\t%s\nexpected is\n\t%s", tr.description, tr.name,
						strings.Join(did[i], "\n\t"), strings.Join(want, "\n\t"))
				}
			}
		})
		seen += len(traces)
	}
	if seen < 35 {
		t.Errorf("only %d traces were played", seen)
	}
}

// isInC reports whether the path in C gets such a call. vmmc_SendData and vmmc_GetData check range
// and alignment before.
func (tr *trace) isInC() bool {
	switch tr.op {
	case "send", "try-send", "get":
		return (tr.off|tr.n)%shm.WordSize == 0 && tr.off+tr.n <= tr.size
	}
	return false
}

// forC is what the program in C reads.
func forC(traces []*trace) string {
	var b strings.Builder
	for _, tr := range traces {
		fmt.Fprintln(&b, tr.op, tr.size, tr.slot, tr.alive, tr.addr, tr.off, tr.n, len(tr.puts), len(tr.words))
		for _, p := range tr.puts {
			fmt.Fprintf(&b, "%s %d %d %x\n", p.area, p.off, len(p.b), p.b)
		}
		for name, v := range tr.words {
			fmt.Fprintln(&b, name, v)
		}
	}
	return b.String()
}

// expectedInC is what the path in C does of what is expected. It has done nothing if Go must take the
// message ("slow"). It leaves the message to Go if a check after the last word fails ("finish"):
// Go then rings, or finds the error, and counts a send.
func (tr *trace) expectedInC() (lines []string) {
	result, stores := "result ok", 0
	for _, line := range tr.expected {
		switch words := strings.Fields(line); words[0] {
		case "plain", "exchange":
			stores++
			lines = append(lines, line)
		case "bell":
			result = "result finish"
		case "result":
			if words[1] != "ok" {
				result = "result finish"
			}
		}
	}
	if stores == 0 {
		return []string{"result slow"}
	}
	lines = append(lines, result)
	if result == "result ok" || tr.op == "get" {
		for _, line := range tr.expected {
			if strings.HasPrefix(line, "after ") {
				lines = append(lines, line)
			}
		}
	}
	return lines
}
