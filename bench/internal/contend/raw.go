package contend

import (
	"context"
	"os/exec"
	"strconv"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
)

// raw is what the machine does without a library, in C.
func (k *kit) raw() []Job {
	if k.shared() {
		return []Job{
			k.rawLocal("C flag, spinning", "flag", "spin", "400000").beside(sample.Latency),
			k.rawLocal("C flag, yielding", "flag", "yield", "400000").beside(sample.Latency),
			{Name: "C memmove", Beside: sample.Bandwidth, run: func(ctx context.Context) ([]sample.Sample, error) {
				var all []sample.Sample
				for _, size := range large {
					some, err := k.rawLocal("", "memmove", strconv.Itoa(size), "4000000000").run(ctx)
					if err != nil {
						return nil, err
					}
					all = append(all, some...)
				}
				return all, nil
			}},
			{Name: "C import", Beside: sample.Import, run: func(ctx context.Context) ([]sample.Sample, error) { return k.c(ctx, k.Floor, "import", "2000") }},
		}
	}
	var jobs []Job // what is one way takes turns with ours, see turns
	for _, wait := range []string{"spin", "yield"} {
		jobs = append(jobs,
			k.rawTCP("C TCP both ways, "+wait, sample.Bidir, wait, "-1", large, times(1<<29)).beside(sample.Bidir),
		)
	}
	return append(jobs,
		k.floorTCP("C TCP both ways, acknowledged", large, times(1<<29)).beside(sample.Bidir),
		k.rawTCP("C TCP on one CPU", sample.Latency, "yield", "0", small[:1], func(int) int { return 10000 }).beside(sample.Latency+onOneCPU))
}

// times is how often a size is sent so that it makes total bytes.
func times(total int) func(int) int { return func(size int) int { return max(total/size, 100) } }

func (k *kit) rawLocal(name string, args ...string) Job {
	return Job{Name: name, run: func(ctx context.Context) ([]sample.Sample, error) { return k.c(ctx, k.Raw, args...) }}
}

// c runs a C program that is alone.
func (k *kit) c(ctx context.Context, program string, args ...string) ([]sample.Sample, error) {
	out, err := output(k.at.Command(ctx, place.Near, program, args...))
	if err != nil {
		return nil, err
	}
	return k.parseRaw(out)
}

func (k *kit) rawTCP(name, what, wait, cpu string, sizes []int, count func(int) int) Job {
	return k.cTCP(name, k.Raw, sizes, func(size int) []string {
		return []string{what, wait, cpu, strconv.Itoa(size), strconv.Itoa(count(size))}
	})
}

// floorTCP is what a link does over raw TCP both ways, in C.
func (k *kit) floorTCP(name string, sizes []int, count func(int) int) Job {
	return k.cTCP(name, k.Floor, sizes, func(size int) []string {
		return []string{strconv.Itoa(size), strconv.Itoa(count(size))}
	})
}

// cTCP runs both ends of a C program for each size.
func (k *kit) cTCP(name, program string, sizes []int, args func(size int) []string) Job {
	return Job{Name: name, run: func(ctx context.Context) ([]sample.Sample, error) {
		var all []sample.Sample
		for _, size := range sizes {
			server := k.at.Command(ctx, place.Far, program, "serve", k.at.Addr[place.Far])
			out, err := k.served(ctx, server, func(port string) *exec.Cmd {
				return k.at.Command(ctx, place.Near, program, append([]string{"tcp", k.at.Addr[place.Far], port}, args(size)...)...)
			}, false)
			if err != nil {
				return nil, err
			}
			some, err := k.parseRaw(out)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	}}
}

// Ways of the C programs.
const (
	flag    = "flag, "
	memmove = "memmove"
	tcp     = "TCP, "
	oneCPU  = ", one CPU"
)

func (k *kit) parseRaw(out []byte) ([]sample.Sample, error) {
	lines, err := parseLines(out)
	if err != nil {
		return nil, err
	}
	var all []sample.Sample
	for _, l := range lines {
		how, pinned := l.Wait, ""
		if l.CPU != nil && *l.CPU >= 0 {
			pinned = oneCPU
		}
		switch l.What {
		case "flag":
			all = append(all, latency(k.key(sample.C, flag+how, sample.Latency, l.Size), l))
		case memmove:
			all = append(all, bandwidth(k.key(sample.C, memmove, sample.Bandwidth, l.Size), l.MBps))
		case sample.Import:
			all = append(all, latency(k.key(sample.C, "", sample.Import, l.Size), l))
		case sample.Latency:
			all = append(all, latency(k.key(sample.C, tcp+how+pinned, sample.Latency, l.Size), l))
		default:
			all = append(all, bandwidth(k.key(sample.C, tcp+how+pinned, l.What, l.Size), l.MBps))
		}
	}
	return all, nil
}
