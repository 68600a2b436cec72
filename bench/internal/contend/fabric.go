package contend

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

const libfabric = "libfabric"

// fabric is fi_pingpong, the only test that Debian has of libfabric. It is two-sided, and tells
// means.
func (k *kit) fabric() []Job {
	ways := map[string][]string{"msg": {"-p", "tcp", "-e", "msg"}, "rdm": {"-p", "tcp;ofi_rxm", "-e", "rdm"}}
	if k.shared() {
		ways = map[string][]string{"shm": {"-p", "shm", "-e", "rdm"}}
	}
	var jobs []Job
	for how, args := range ways {
		jobs = append(jobs, Job{Name: "libfabric " + how, run: func(ctx context.Context) ([]sample.Sample, error) {
			var all []sample.Sample
			for _, size := range []int{64, 4096, 64 << 10, 1 << 20} { // a launch each, of most of a second
				n := max(min(1<<28/size, 20000), 100)
				s, err := k.runFabric(ctx, how, args, size, n)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return all, nil
		}})
	}
	slices.SortFunc(jobs, func(a, b Job) int { return strings.Compare(a.Name, b.Name) })
	return jobs
}

func (k *kit) runFabric(
	ctx context.Context, how string, args []string, size, n int,
) (sample.Sample, error) {
	args = append(slices.Clone(args), "-I", strconv.Itoa(n), "-S", strconv.Itoa(size))
	out, err := k.pair(ctx,
		func(side int, port string) *exec.Cmd {
			return k.at.Command(ctx, side, "fi_pingpong", append([]string{"-B", port}, args...)...)
		},
		func(side int, port string) *exec.Cmd {
			return k.at.Command(ctx, side, "fi_pingpong", append(append([]string{"-P", port}, args...), k.at.Addr[1])...)
		})
	if err != nil {
		return sample.Sample{}, err
	}
	what := sample.Latency
	if slices.Contains(large, size) {
		what = sample.Bandwidth
	}
	return parseFabric(out, k.key(libfabric, how, what, size))
}

// parseFabric reads the table of fi_pingpong. A transfer is one way.
func parseFabric(out []byte, key sample.Key) (sample.Sample, error) {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) < 2 {
		return sample.Sample{}, fmt.Errorf("fi_pingpong printed no table: %q", out)
	}
	names, values := strings.Fields(lines[len(lines)-2]), strings.Fields(lines[len(lines)-1])
	i := slices.Index(names, "usec/xfer")
	if i < 0 || i >= len(values) {
		return sample.Sample{}, fmt.Errorf("no usec/xfer in what fi_pingpong printed: %q", out)
	}
	us, err := strconv.ParseFloat(values[i], 64)
	if err != nil || us <= 0 {
		return sample.Sample{}, fmt.Errorf("usec/xfer of fi_pingpong is %q: %w", values[i], err)
	}
	if key.What == sample.Latency {
		return sample.Sample{Key: key, Value: us * 1e3, Unit: sample.Nanoseconds, Mean: true}, nil
	}
	return bandwidth(key, float64(key.Size)/us), nil
}
