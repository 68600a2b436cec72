package contend

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

const ucx = "UCX"

// ucxTest is one run of ucx_perftest.
type ucxTest struct {
	how, what string
	test      string
	args      []string // UCT's transport; UCP gets it from the environment
	size      int
	count     int
}

func (k *kit) ucx() []Job {
	env := []string{"UCX_TLS=posix"}
	var tests []ucxTest
	if k.shared() {
		posix := []string{"-x", "posix", "-d", "memory"}
		for _, s := range small {
			tests = append(tests,
				ucxTest{"put", sample.Latency, "put_lat", posix, s, 400000},
				ucxTest{"am", sample.Latency, "ucp_am_lat", nil, s, 200000})
		}
		tests = append(tests, ucxTest{"put", sample.Rate, "put_bw", posix, 8, 10000000})
	} else {
		env = []string{"UCX_TLS=tcp", "UCX_NET_DEVICES=" + k.at.Device}
		for _, s := range small {
			tests = append(tests,
				ucxTest{"put", sample.Latency, "ucp_put_lat", nil, s, 10000},
				ucxTest{"am", sample.Latency, "ucp_am_lat", nil, s, 20000})
		}
	}
	for _, s := range large {
		// A put over TCP is ten times slower than an active message, and needs fewer for a figure.
		puts := times(1 << 27)(s)
		if k.shared() {
			puts = times(1 << 33)(s)
		}
		tests = append(tests,
			ucxTest{"put", sample.Bandwidth, "ucp_put_bw", nil, s, puts},
			ucxTest{"am", sample.Bandwidth, "ucp_am_bw", nil, s, times(1 << 29)(s)})
	}
	beside := map[string]string{}
	if k.shared() {
		beside["UCX put latency"], beside["UCX put rate"] = sample.Latency, sample.Rate
	}
	jobs := map[string][]ucxTest{}
	for _, t := range tests {
		name := "UCX " + t.how + " " + t.what
		jobs[name] = append(jobs[name], t)
	}
	var all []Job
	for name, tests := range jobs {
		all = append(all, Job{Name: name, Beside: beside[name], run: func(ctx context.Context) ([]sample.Sample, error) {
			var samples []sample.Sample
			for _, t := range tests {
				s, err := k.runUCX(ctx, t, env)
				if err != nil {
					return nil, err
				}
				samples = append(samples, s)
			}
			return samples, nil
		}})
	}
	slices.SortFunc(all, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (k *kit) runUCX(ctx context.Context, t ucxTest, env []string) (sample.Sample, error) {
	start := func(side int, args ...string) *exec.Cmd {
		c := k.at.Command(ctx, side, "ucx_perftest", args...)
		c.Env = append(os.Environ(), env...)
		return c
	}
	out, err := k.pair(ctx,
		func(side int, port string) *exec.Cmd { return start(side, "-p", port) },
		func(side int, port string) *exec.Cmd {
			return start(side, slices.Concat([]string{
				k.at.Addr[1], "-p", port, "-t", t.test, "-f", "-v", "-s", strconv.Itoa(t.size),
				"-n", strconv.Itoa(t.count), "-w", strconv.Itoa(t.count/10 + 1),
			}, t.args)...)
		})
	if err != nil {
		return sample.Sample{}, err
	}
	return parseUCX(out, k.key(ucx, t.how, t.what, t.size))
}

// parseUCX reads the table that "-f -v" prints: a line of names and a line of numbers. Times are in
// microseconds, and half a round trip in tests of latency.
func parseUCX(out []byte, key sample.Key) (sample.Sample, error) {
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) != 2 {
		return sample.Sample{}, fmt.Errorf("a line of names and one of numbers were expected of ucx_perftest, not %q: %w", out, err)
	}
	figure := func(name string) (v float64) {
		i := slices.Index(rows[0], name)
		if i < 0 {
			err = fmt.Errorf("no %s in what ucx_perftest printed: %q", name, out)
			return 0
		}
		if v, err = strconv.ParseFloat(rows[1][i], 64); err == nil && v <= 0 {
			err = fmt.Errorf("%s is %v in what ucx_perftest printed", name, v)
		}
		return v
	}
	s := sample.Sample{Key: key}
	switch key.What {
	case sample.Latency:
		s.Unit, s.Value = sample.Nanoseconds, figure("50.0_percentile_lat")*1e3
	case sample.Rate:
		s.Unit, s.Value = sample.PerSecond, figure("overall_mr")
	default:
		// Its own MB are of 1,048,576 bytes.
		s.Unit, s.Value = sample.Megabytes, float64(key.Size)/figure("overall_lat")
	}
	return s, err
}
