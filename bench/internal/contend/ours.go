package contend

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/rpc"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// onOneCPU and atSize are how measurements of ours are asked for, and what those beside them are
// known by.
const onOneCPU = " --pin same --size 64"

func atSize(size int) string { return " --size " + strconv.Itoa(size) }

// ours is our tool, one measurement at a time, so that others come between them.
func (k *kit) ours() []Job {
	path, whats := "remote", []string{"latency", "latency" + onOneCPU, "bidir", "fetch", "overhead", "notify"}
	if k.shared() {
		path, whats = "local", []string{"latency", "bandwidth", "bidir", "fetch", "rate", "overhead", "notify", "import", "scale"}
	}
	if !k.shared() {
		for size := large[0]; size <= large[len(large)-1]; size *= 2 {
			whats = append(whats, sample.Bandwidth+atSize(size))
		}
	}
	if k.at.Name == sample.Loopback {
		whats = append(whats, "scale") // of memory, which a namespace does not change
	}
	whats = append(whats, "rpc")
	var jobs []Job
	for _, what := range whats {
		rounds := 2
		switch {
		case path == "local" && what == "latency":
			rounds = 8 // each has a page of its own, and pages differ by half
		case path == "remote" && (what == "latency" || what == "fetch"), path == "local" && what == sample.Bandwidth:
			rounds = 6
		case path == "remote" && what == "bidir":
			rounds = 8 // short ones: the machine's speed changes within a tenth of a second
		case path == "remote" && strings.HasPrefix(what, sample.Bandwidth):
			rounds = 12
		}
		words := append([]string{"bench"}, strings.Fields(what)...)
		words = append(words, "--path", path, "--rounds", strconv.Itoa(rounds), "--json")
		if k.at.Apart() {
			words = append(words, "--far-netns", k.at.NS[place.Far],
				"--near-addr", k.at.Addr[place.Near], "--far-addr", k.at.Addr[place.Far])
		}
		if what == "rpc" {
			words = append(words, "--peer", rpc.GRPC+"="+k.Self+" rpc-peer")
		}
		ways := k.turns(what)
		for _, how := range slices.Sorted(maps.Keys(ways)) {
			words = append(words, "--peer", inTurn+how+"="+ways[how])
		}
		jobs = append(jobs, Job{Name: "vmmc " + what, Beside: what, run: func(ctx context.Context) ([]sample.Sample, error) {
			out, err := output(k.at.Command(ctx, place.Near, k.VMMC, words...))
			if err != nil {
				return nil, err
			}
			return k.parseOurs(out)
		}})
	}
	return jobs
}

// inTurn begins the names of what takes turns with ours, by which the limit of a figure is known to
// be one of them.
const inTurn = sample.C + ", "

// turns are the ways of C's programs that take turns with ours within one measurement of it, and
// their commands: what the machine does to one of them it does to all.
func (k *kit) turns(what string) map[string]string {
	ways := map[string]string{}
	if stream := strings.HasPrefix(what, sample.Bandwidth); !k.shared() &&
		(stream || what == sample.Latency) {
		ways[tcp+"spin"], ways[tcp+"yield"] = k.Raw+" peer spin", k.Raw+" peer yield"
		if stream {
			ways[tcp+"acknowledged"] = k.Floor + " peer"
		}
	}
	return ways
}

// figure is what our tool prints of one measurement; the limit is the machine's, measured beside
// it.
type figure struct {
	What    string  `json:"what"`
	Variant string  `json:"variant"`
	Pin     string  `json:"pin"`
	Size    int     `json:"size"`
	Value   float64 `json:"value"`
	Limit   float64 `json:"limit"`
	Ratio   float64 `json:"ratio"`
	Unit    string  `json:"unit"`
	LimitIs string  `json:"limit_is"`
	P99     float64 `json:"p99"`
	P999    float64 `json:"p99.9"`

	LimitP99  float64 `json:"limit_p99"`
	LimitP999 float64 `json:"limit_p99.9"`
}

var units = map[string]struct {
	unit  string
	times float64
}{
	"ns": {sample.Nanoseconds, 1}, "us": {sample.Nanoseconds, 1e3}, "µs": {sample.Nanoseconds, 1e3}, "ms": {sample.Nanoseconds, 1e6},
	"MB/s": {sample.Megabytes, 1}, "GB/s": {sample.Megabytes, 1e3},
	"1/s": {sample.PerSecond, 1}, "M/s": {sample.PerSecond, 1e6},
}

func (k *kit) parseOurs(out []byte) ([]sample.Sample, error) {
	var figures []figure
	if err := json.Unmarshal(out, &figures); err != nil {
		return nil, fmt.Errorf("reading what vmmc bench printed: %w", err)
	}
	if len(figures) == 0 {
		return nil, fmt.Errorf("vmmc bench printed no figure")
	}
	var all []sample.Sample
	for _, f := range figures {
		u, ok := units[f.Unit]
		if !ok {
			u.unit, u.times = f.Unit, 1
		}
		if f.What == "" {
			return nil, fmt.Errorf("vmmc bench printed a figure of nothing: %+v", f)
		}
		if c, ok := strings.CutPrefix(f.LimitIs, inTurn); ok {
			if f.Variant != "sync" { // that is beside the same rounds of C's as the asynchronous one
				all = append(all, sample.Sample{
					Key: k.key(sample.C, c, f.What, f.Size), Value: f.Limit * u.times, Unit: u.unit,
					P99: f.LimitP99 * u.times, P999: f.LimitP999 * u.times, Ratio: f.Ratio,
				})
			}
			continue
		}
		how := f.Variant
		if f.What == sample.RPC { // one figure of ours beside several limits
			how += " : " + f.LimitIs
		}
		if f.Pin == "same" {
			how = strings.TrimPrefix(how+oneCPU, ", ")
		}
		all = append(all, sample.Sample{
			Key: k.key(sample.Ours, how, f.What, f.Size), Value: f.Value * u.times, Unit: u.unit,
			P99: f.P99 * u.times, P999: f.P999 * u.times, Ratio: f.Ratio,
		})
		if f.Limit > 0 {
			all = append(all, sample.Sample{Key: k.key(sample.Limit, how, f.What, f.Size), Value: f.Limit * u.times, Unit: u.unit})
		}
	}
	return all, nil
}
