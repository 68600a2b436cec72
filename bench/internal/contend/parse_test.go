package contend

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

var (
	loopback = &kit{nil, place.Loop()}
	near     = cmpopts.EquateApprox(0, 1e-6)
)

// What the programs printed is kept in testdata as they printed it.
func printed(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func key(contender, how, what string, size int) sample.Key {
	return loopback.key(contender, how, what, size)
}

func TestParseUCX(t *testing.T) {
	for _, c := range []struct {
		file  string
		key   sample.Key
		value float64
		unit  string
	}{
		{"ucx-am-lat.txt", key(ucx, "am", sample.Latency, 64), 4963, "ns"},
		{"ucx-put-rate.txt", key(ucx, "put", sample.Rate, 8), 77450025, "1/s"},
		{"ucx-am-bw.txt", key(ucx, "am", sample.Bandwidth, 1<<20), 1048576 / 164.610, "MB/s"},
	} {
		got, err := parseUCX(printed(t, c.file), c.key)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
		if d := cmp.Diff(sample.Sample{Key: c.key, Value: c.value, Unit: c.unit}, got, near); d != "" {
			t.Errorf("%s: %s", c.file, d)
		}
	}
}

func TestParseFabric(t *testing.T) {
	got, err := parseFabric(printed(t, "fi-msg-64.txt"), key(libfabric, "msg", sample.Latency, 64))
	want := sample.Sample{Key: key(libfabric, "msg", sample.Latency, 64), Value: 5430, Unit: "ns", Mean: true}
	if d := cmp.Diff(want, got, near); err != nil || d != "" {
		t.Error(err, d)
	}
	got, err = parseFabric(printed(t, "fi-rdm-1m.txt"), key(libfabric, "rdm", sample.Bandwidth, 1<<20))
	want = sample.Sample{Key: key(libfabric, "rdm", sample.Bandwidth, 1<<20), Value: 1048576 / 272.57, Unit: "MB/s"}
	if d := cmp.Diff(want, got, near); err != nil || d != "" {
		t.Error(err, d)
	}
}

func TestParseWorks(t *testing.T) {
	got, err := loopback.parseWorks(mpich, printed(t, "mpi.txt"))
	want := []sample.Sample{
		{Key: key(mpich, "send", sample.Latency, 64), Value: 6630, Unit: "ns", Min: 4717, P99: 8688, P999: 25548},
		{Key: key(mpich, "put", sample.Latency, 64), Value: 11081.5, Unit: "ns", Min: 10485.5, P99: 16970, P999: 28872.5},
		{Key: key(mpich, "get", sample.Fetch, 64), Value: 17746, Unit: "ns", Min: 17366, P99: 23705, P999: 51426},
		{Key: key(mpich, "send", sample.Bandwidth, 1<<20), Value: 5433.8, Unit: "MB/s"},
		{Key: key(mpich, "put", sample.Bandwidth, 1<<20), Value: 1233.4, Unit: "MB/s"},
	}
	if d := cmp.Diff(want, got, near); err != nil || d != "" {
		t.Error(err, d)
	}
}

func TestParseRaw(t *testing.T) {
	got, err := loopback.parseRaw(printed(t, "raw.txt"))
	want := []sample.Sample{
		{Key: key(sample.C, "flag, spin", sample.Latency, 4), Value: 60, Unit: "ns", Min: 55, P99: 65, P999: 100, Batch: 55.7},
		{Key: key(sample.C, "memmove", sample.Bandwidth, 65536), Value: 57113.1, Unit: "MB/s"},
		{Key: key(sample.C, "TCP, yield, one CPU", sample.Latency, 64), Value: 6790, Unit: "ns", Min: 6675, P99: 9899.5, P999: 29939, Batch: 7541.4},
		{Key: key(sample.C, "TCP, spin", sample.Bandwidth, 1<<20), Value: 6147.4, Unit: "MB/s"},
		{Key: key(sample.C, "TCP, yield", sample.Bidir, 1<<20), Value: 5093.5, Unit: "MB/s"},
	}
	if d := cmp.Diff(want, got, near); err != nil || d != "" {
		t.Error(err, d)
	}
}

func TestParseOurs(t *testing.T) {
	got, err := loopback.parseOurs(printed(t, "vmmc.txt"))
	want := []sample.Sample{
		{Key: key(sample.Ours, "one CPU", sample.Latency, 64), Value: 18887, Unit: "ns", P99: 24000, P999: 31000, Ratio: 1.8761292784067267},
		{Key: key(sample.Limit, "one CPU", sample.Latency, 64), Value: 10067, Unit: "ns"},
		{Key: key(sample.Ours, "successive", sample.Rate, 8), Value: 74432562.6617054, Unit: "1/s", Ratio: 0.5587795554099657},
		{Key: key(sample.Limit, "successive", sample.Rate, 8), Value: 133206210.16047312, Unit: "1/s"},
		{Key: key(sample.Ours, "completion", "overhead", 8), Value: 4838, Unit: "ns"},
		{Key: key(sample.Ours, "null, vmmc : raw TCP, there and back", sample.RPC, 0), Value: 11431, Unit: "ns", Ratio: 1.33},
		{Key: key(sample.Limit, "null, vmmc : raw TCP, there and back", sample.RPC, 0), Value: 8615, Unit: "ns"},
		{Key: key(sample.Ours, "null, vmmc : gRPC-Go", sample.RPC, 0), Value: 11431, Unit: "ns", Ratio: .15},
		{Key: key(sample.Limit, "null, vmmc : gRPC-Go", sample.RPC, 0), Value: 76031, Unit: "ns"},
		{Key: key(sample.Ours, "async", sample.Bandwidth, 1<<20), Value: 8400, Unit: "MB/s", Ratio: .99},
		{Key: key(sample.Limit, "async", sample.Bandwidth, 1<<20), Value: 8500, Unit: "MB/s"},
		{Key: key(sample.C, "TCP, spin", sample.Bandwidth, 1<<20), Value: 8800, Unit: "MB/s", Ratio: .96},
		{Key: key(sample.Ours, "", sample.Latency, 64), Value: 4200, Unit: "ns", P99: 8000, P999: 9000, Ratio: 1.05},
		{Key: key(sample.Limit, "", sample.Latency, 64), Value: 4000, Unit: "ns"},
		{Key: key(sample.C, "TCP, yield", sample.Latency, 64), Value: 3900, Unit: "ns", P99: 6000, P999: 7000, Ratio: 1.08},
	}
	if d := cmp.Diff(want, got, near); err != nil || d != "" {
		t.Error(err, d)
	}
}

// What is not a figure must not become one.
func TestParseNonsense(t *testing.T) {
	header := "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n"
	for _, out := range []string{
		"", "\n", "{", "[]", "{}", "[{}]", "null", "a,b\n1,2\n", header, header + "1,x,1,1,1,1,1,1\n", header + "1,0,0,0,0,0,0,0\n",
		"bytes usec/xfer\n64 0\n", "bytes usec/xfer\n64 many\n", "bytes usec/xfer\n64\n", `{"what":"send","size":64}`,
		`{"what":"send","size":0,"p50":1}`, `{"what":"send","size":64,"p50":1,"mbps":2}`, `[{"value":3,"unit":"ns"}]`,
	} {
		b := []byte(out)
		if s, err := parseUCX(b, key(ucx, "put", sample.Latency, 64)); err == nil {
			t.Errorf("UCX: %q became %+v", out, s)
		}
		if s, err := parseFabric(b, key(libfabric, "msg", sample.Latency, 64)); err == nil {
			t.Errorf("libfabric: %q became %+v", out, s)
		}
		if s, err := loopback.parseWorks(mpich, b); err == nil {
			t.Errorf("works: %q became %+v", out, s)
		}
		if s, err := loopback.parseRaw(b); err == nil {
			t.Errorf("raw: %q became %+v", out, s)
		}
		if s, err := loopback.parseOurs(b); err == nil {
			t.Errorf("vmmc: %q became %+v", out, s)
		}
	}
}
