package report_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/bench/internal/report"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

var update = flag.Bool("update", false, "write the golden document anew")

// run has figures in three rounds whose medians and ratios are known: ours is measured against each
// round's own, so that a slow round of both changes nothing.
func run() *sample.Run {
	r := &sample.Run{
		ID: "golden", Seed: 9,
		Began:    time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Ended:    time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC),
		Machine:  map[string]string{"CPUs": "2", "kernel": "6.18"},
		Versions: map[string]string{"Go": "go1.26.8", "UCX": "1.13.1-1"},
		Failures: []sample.Failure{{Round: 1, Name: "veth/MPICH", Why: "exit status 1 | no\nroute"}, {Round: 2, Name: "veth/MPICH", Why: "again"}},
	}
	for round, slow := range []float64{1, 2, 1} {
		add := func(contender, how, what, place string, size int, value float64, unit string, own float64) {
			if unit == sample.Nanoseconds {
				value *= slow
			} else {
				value /= slow
			}
			r.Samples = append(r.Samples, sample.Sample{
				Round: round + 1, Value: value, Unit: unit, Ratio: own, Mean: contender == "libfabric",
				Key: sample.Key{Contender: contender, How: how, What: what, Place: place, Size: size},
			})
		}
		add("vmmc", "", "latency", "local", 4, 70, "ns", 1.2)
		add("vmmc's limit", "", "latency", "local", 4, 60, "ns", 0)
		add("C", "flag, yield", "latency", "local", 4, 57, "ns", 0)
		add("vmmc", "", "latency", "local", 64, 80, "ns", 1.2)
		add("UCX", "put", "latency", "local", 64, 60, "ns", 0)
		for _, size := range []int{64, 4096} {
			add("vmmc", "", "latency", "loopback", size, 4200, "ns", 1.05)
			add("C", "TCP, spin", "latency", "loopback", size, 4000, "ns", 1.07)
			add("C", "TCP, yield", "latency", "loopback", size, 4100, "ns", 1.02)
			add("UCX", "put", "latency", "loopback", size, 9000, "ns", 0)
			add("MPICH", "put", "latency", "loopback", size, 12000, "ns", 0)
			add("Open MPI", "put", "latency", "loopback", size, 7000, "ns", 0)
			add("libfabric", "msg", "latency", "loopback", size, 5000, "ns", 0)
		}
		for _, size := range []int{64 << 10, 256 << 10, 1 << 20, 4 << 20} {
			add("vmmc", "async", "bandwidth", "loopback", size, 3900, "MB/s", 1)
			add("vmmc", "sync", "bandwidth", "loopback", size, 3000, "MB/s", .8)
			add("C", "TCP, spin", "bandwidth", "loopback", size, 4000, "MB/s", .96)
			add("MPICH", "put", "bandwidth", "loopback", size, 1200, "MB/s", 0)
			add("C", "TCP, acknowledged", "bandwidth", "loopback", size, 3800, "MB/s", 0)
			add("vmmc", "stream", "bidir", "loopback", size, 4500, "MB/s", .9)
			add("vmmc's limit", "stream", "bidir", "loopback", size, 5000, "MB/s", 0)
			add("C", "TCP, acknowledged", "bidir", "loopback", size, 4400, "MB/s", 0)
		}
		add("vmmc", "successive", "rate", "local", 8, 74e6, "1/s", .5)
		add("UCX", "put", "rate", "local", 8, 80e6, "1/s", 0)
		add("vmmc", "null, vmmc : libtirpc over TCP", "rpc", "local", 0, 900, "ns", .08)
		add("vmmc's limit", "null, vmmc : libtirpc over TCP", "rpc", "local", 0, 11250, "ns", 0)
		add("vmmc", "null, vmmc : raw TCP, there and back", "rpc", "loopback", 0, 11000, "ns", 1.3)
		add("vmmc", "argument, vmmc : Send", "rpc", "loopback", 1<<20, 3000, "MB/s", .9)
		add("vmmc", "first, 1 exports", "import", "local", 4096, 300e3, "ns", 0)
		add("vmmc", "first, 10 exports", "import", "local", 4096, 330e3, "ns", 0)
		add("vmmc", "linked, 1 exports", "import", "local", 4096, 40e3, "ns", 0)
		add("vmmc", "linked, 10 exports", "import", "local", 4096, 48e3, "ns", 0)
		add("vmmc's limit", "first, 1 exports", "import", "local", 4096, 120e3, "ns", 0)
		add("C", "", "import", "local", 4096, 90e3, "ns", 0)
		add("vmmc", "latency beside 1000 links", "scale", "local", 4, 80, "ns", 1.01)
		add("vmmc", "memory of an idle link, both ends, 1000 links", "scale", "local", 4, 40<<10, "bytes", 0)
	}
	return r
}

func TestDocument(t *testing.T) {
	dir := t.TempDir()
	// A figure of another run must not stay.
	old := filepath.Join(dir, "performance", "latency-veth.svg")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := report.Write(run(), dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Error("the figure of another run is still there:", err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "performance.md")
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); d != "" {
		t.Errorf("the document is not the golden one (-update writes it anew): %s", d)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "performance", "latency-loopback.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"<svg", "MPICH, put", "run golden", ">C, TCP, spin<"} {
		if !strings.Contains(string(svg), text) {
			t.Errorf("no %q in the figure of latency", text)
		}
	}
}

// The bars that hold, those that do not, and those of which something was not measured.
func TestBars(t *testing.T) {
	dir := t.TempDir()
	if err := report.Write(run(), dir); err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| one word, one way : raw shared flag | local | ≤ 1.25 | 1.20 | yes |",
		"| 64 B one way : UCX put over posix | local | ≤ 1.1 | 1.33 | **no** |",
		"| 8-byte sends a second, in millions; and : UCX put | local | ≥ 40; ≥ 1 | 74.0, : 0.93 | **no** |",
		"| 64 B one way : raw C TCP | loopback | ≤ 1.1 | TCP, spin 1.07, TCP, yield 1.02 | yes |",
		"| 64 B one way : raw C TCP | veth | ≤ 1.1 | TCP, spin –, TCP, yield – | not measured |",
		"| 64 B one way : best one-sided peer over TCP | loopback | ≤ 0.5 | UCX, put 0.47, (Open MPI, whose puts are made of messages, 0.60) | yes |",
		"| null call : libtirpc over TCP | local | ≤ 0.25 | 0.08 | yes |",
		"| null call : gRPC-Go over a unix socket | local | ≤ 0.1 | – | not measured |",
		"| null call : raw TCP round trip | loopback | ≤ 1.2 | 1.30 | **no** |",
		"| calls with 1 MiB, seen in place : Send | loopback | ≥ 0.8 | 0.90 | yes |",
		"| our raw flag : C's | local | ≤ 1.1 | 1.05 | yes |",
	} {
		if !strings.Contains(string(doc), row+"\n") {
			t.Errorf("no row %s", row)
		}
	}
}

func TestNothingIsWrittenOfNothing(t *testing.T) {
	dir := t.TempDir()
	if err := report.Write(&sample.Run{ID: "x"}, dir); err == nil {
		t.Error("a document of no samples")
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("%v was written", files)
	}
}
