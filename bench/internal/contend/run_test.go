package contend

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/bench/internal/place"
	"github.com/vmmc-go/vmmc/bench/internal/sample"
	"github.com/vmmc-go/vmmc/bench/internal/setup"
)

// writesItsPages checks that a C program's memory is not from calloc, which the sources do not call
// but compilers insert. Such memory was never written, so all of it is one zero page, and sends
// from there read the first-level cache.
func writesItsPages(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, "malloc") || slices.Contains(names, "calloc") {
		t.Errorf("%s takes its memory from others than malloc: %q", filepath.Base(program), names)
	}
}

// streams runs both ends of a peer as "vmmc bench" does: they say how fast each order went, or
// took, and end with their input.
func streams(ctx context.Context, t *testing.T, command []string, pings bool) {
	t.Helper()
	run := func(args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, command[0], slices.Concat(command[1:], args)...)
	}
	server := run("serve", "remote", "127.0.0.1")
	in, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	at, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Errorf("%q does not say where it listens: %v", command, err)
	}
	client := run("send", strings.TrimSpace(at))
	client.Stdin = strings.NewReader("65536 20\n1048576 20\n")
	said, err := client.Output()
	rates := strings.Fields(string(said))
	if err != nil || len(rates) != 2 {
		t.Errorf("%q says %q: %v", command, said, err)
	}
	for _, r := range rates {
		if v, err := strconv.ParseFloat(r, 64); err != nil || v <= 0 {
			t.Errorf("%q has moved %q megabytes a second", command, r)
		}
	}
	if pings {
		client = run("ping", strings.TrimSpace(at))
		client.Stdin = strings.NewReader("64 3\n")
		said, err := client.Output()
		var took []int64
		if err == nil {
			err = json.Unmarshal(said, &took)
		}
		if err != nil || len(took) != 3 || slices.Min(took) <= 0 {
			t.Errorf("%q says %q of three round trips: %v", command, said, err)
		}
	}
	_ = in.Close()
	if err := server.Wait(); err != nil {
		t.Errorf("%q serves no more: %v", command, err)
	}
}

// The C programs run, briefly, and what they print is understood.
func TestRawPrograms(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the C programs need Linux")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("the C programs need gcc; install it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	dir := t.TempDir()
	programs := &setup.Programs{Raw: filepath.Join(dir, "raw"), Floor: filepath.Join(dir, "floor")}
	for program, source := range map[string]string{programs.Raw: "raw.c", programs.Floor: "floor.c"} {
		if err := setup.Compile(ctx, "gcc", program, filepath.Join("..", "..", "c", source)); err != nil {
			t.Fatal(err)
		}
		writesItsPages(t, program)
	}
	local, net := &kit{programs, place.Memory()}, &kit{programs, place.Loop()}
	few := func(int) int { return 20 }
	var acknowledged []sample.Key
	for _, size := range large {
		acknowledged = append(acknowledged, net.key("C", "TCP, acknowledged", "bidir", size))
	}
	for _, c := range []struct {
		job  Job
		want []sample.Key
	}{
		{local.rawLocal("", "flag", "yield", "100"), []sample.Key{local.key("C", "flag, yield", "latency", 4)}},
		{local.rawLocal("", "memmove", "65536", "1000000"), []sample.Key{local.key("C", "memmove", "bandwidth", 65536)}},
		{net.rawTCP("", "latency", "yield", "-1", []int{1, 4096}, few), []sample.Key{
			net.key("C", "TCP, yield", "latency", 1), net.key("C", "TCP, yield", "latency", 4096),
		}},
		{net.rawTCP("", "latency", "yield", "0", []int{64}, few), []sample.Key{net.key("C", "TCP, yield, one CPU", "latency", 64)}},
		{net.floorTCP("", large, few), acknowledged},
		{Job{run: func(ctx context.Context) ([]sample.Sample, error) {
			return local.c(ctx, programs.Floor, "import", "20")
		}}, []sample.Key{local.key("C", "", "import", 4096)}},
		{net.rawTCP("", "bidir", "yield", "-1", []int{1 << 20}, few), []sample.Key{net.key("C", "TCP, yield", "bidir", 1<<20)}},
	} {
		got, err := c.job.run(ctx)
		if err != nil {
			t.Errorf("%v: %v", c.want, err)
			continue
		}
		var keys []sample.Key
		for _, s := range got {
			keys = append(keys, s.Key)
			if s.Value <= 0 {
				t.Errorf("%+v has no value", s)
			}
		}
		if !slices.Equal(keys, c.want) {
			t.Errorf("%v was measured, not %v", keys, c.want)
		}
	}
	for way, command := range net.turns("bandwidth --size 1") {
		streams(ctx, t, strings.Fields(command), way != "TCP, acknowledged")
	}
	for program, wrong := range map[string][][]string{
		programs.Raw: {
			{},
			{"flag"},
			{"flag", "spin", "many"},
			{"memmove", "0", "1"},
			{"serve", "nowhere"},
			{"tcp", "127.0.0.1", "1", "sleep", "spin", "-1", "1", "10"},
			{"peer", "spin"},
			{"peer", "spin", "send"},
			{"peer", "spin", "send", "127.0.0.1"},
			{"peer", "sleep", "send", "127.0.0.1 1"},
			{"peer", "spin", "serve", "remote", "nowhere"},
		},
		programs.Floor: {
			{},
			{"import"},
			{"import", "1"},
			{"serve", "nowhere"},
			{"tcp", "127.0.0.1", "1", "bidir", "65536", "10"},
			{"tcp", "127.0.0.1", "1", "64", "10"},
			{"peer"},
			{"peer", "send", "127.0.0.1"},
			{"peer", "ping", "127.0.0.1 1"},
		},
	} {
		for _, args := range wrong {
			err := exec.CommandContext(ctx, program, args...).Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("%s %q: %v, and not exit status 2", filepath.Base(program), args, err)
			}
		}
	}
}

// A contender that fails is told of and does not stop the others, and each round has its own order.
func TestRounds(t *testing.T) {
	var ran []string
	job := func(name string, err error) Job {
		return Job{Name: name, run: func(context.Context) ([]sample.Sample, error) {
			ran = append(ran, name)
			if err != nil {
				return nil, err
			}
			return []sample.Sample{{Key: sample.Key{Contender: name}, Value: 1}}, nil
		}}
	}
	jobs := []Job{job("local/a", nil), job("local/b", errors.New("no such thing")), job("veth/c", nil), job("veth/d", nil), job("veth/e", nil)}
	run := &sample.Run{ID: "x", Seed: 7}
	orders := map[string]bool{}
	for round := 1; round <= 4; round++ {
		ran = nil
		var log strings.Builder
		if err := Round(t.Context(), jobs, run, round, &log); err != nil {
			t.Fatal(err)
		}
		orders[strings.Join(ran, " ")] = true
		if len(ran) != len(jobs) || !strings.Contains(log.String(), "no such thing") {
			t.Errorf("round %d ran %v and said %s", round, ran, log.String())
		}
	}
	if len(orders) < 2 {
		t.Errorf("all rounds had one order: %v", orders)
	}
	if len(run.Samples) != 16 || len(run.Failures) != 4 || run.Samples[15].Round != 4 {
		t.Errorf("%d samples, %d failures", len(run.Samples), len(run.Failures))
	}
	again, want := &sample.Run{Seed: 7}, slices.Clone(ran)
	ran = nil
	if err := Round(t.Context(), jobs, again, 4, os.Stderr); err != nil || !slices.Equal(ran, want) {
		t.Errorf("the seed gave %v before and %v now: %v", want, ran, err)
	}
	if kept := Only(jobs, regexp.MustCompile("^veth/")); len(kept) != 3 {
		t.Errorf("%d jobs of veth", len(kept))
	}
}

// What is beside each other comes in turn, each job once, and in an order that is drawn.
func TestBeside(t *testing.T) {
	jobs := make([]Job, 40)
	for i := range jobs {
		if i%3 > 0 {
			jobs[i].Beside = "group " + string(rune('a'+i%5))
		}
	}
	within := map[string]bool{}
	for seed := range uint64(50) {
		got := order(rand.New(rand.NewPCG(seed, 1)), jobs)
		if all := slices.Sorted(slices.Values(got)); len(all) != len(jobs) || all[0] != 0 || len(slices.Compact(all)) != len(jobs) {
			t.Fatalf("seed %d gives %v", seed, got)
		}
		last, over := "", map[string]bool{}
		var group []string
		for _, at := range got {
			b := jobs[at].Beside
			if b != last {
				over[last] = true
			}
			if b != "" && over[b] {
				t.Fatalf("seed %d gives %v: what is beside %d is elsewhere too", seed, got, at)
			}
			if last = b; b == "group a" {
				group = append(group, strconv.Itoa(at))
			}
		}
		within[strings.Join(group, " ")] = true
	}
	if len(within) < 10 {
		t.Errorf("one group has only these orders: %v", within)
	}
}

// The bars that compare ours with C's have both in turn; what is one way over TCP is in turn within
// one job, see TestWhatTakesTurns.
func TestBarsAreBeside(t *testing.T) {
	groups := map[string][]string{}
	for _, j := range Jobs(&setup.Programs{}, []*place.Place{place.Memory(), place.Loop()}) {
		groups[j.Beside] = append(groups[j.Beside], j.Name)
	}
	for group, want := range map[string][]string{
		"loopback/latency --pin same --size 64": {"loopback/C TCP on one CPU", "loopback/vmmc latency --pin same --size 64"},
		"local/latency":                         {"local/C flag, spinning", "local/C flag, yielding", "local/UCX put latency", "local/vmmc latency"},
		"loopback/bidir": {
			"loopback/C TCP both ways, acknowledged", "loopback/C TCP both ways, spin", "loopback/C TCP both ways, yield", "loopback/vmmc bidir",
		},
		"local/rate":      {"local/UCX put rate", "local/vmmc rate"},
		"local/bandwidth": {"local/C memmove", "local/vmmc bandwidth"},
		"local/import":    {"local/C import", "local/vmmc import"},
	} {
		if got := slices.Sorted(slices.Values(groups[group])); !slices.Equal(got, want) {
			t.Errorf("beside each other in %s are %q, want %q", group, got, want)
		}
	}
}

// What is one way over TCP has C's in turn within its own measurement, and nothing else has.
func TestWhatTakesTurns(t *testing.T) {
	p := &setup.Programs{Raw: "raw", Floor: "floor"}
	local, net := &kit{p, place.Memory()}, &kit{p, place.Loop()}
	for _, c := range []struct {
		at   *kit
		what string
		want []string
	}{
		{net, "latency", []string{"TCP, spin", "TCP, yield"}},
		{net, "bandwidth" + atSize(1<<20), []string{"TCP, acknowledged", "TCP, spin", "TCP, yield"}},
		{net, "latency" + onOneCPU, nil},
		{net, "bidir", nil},
		{net, "rpc", nil},
		{local, "latency", nil},
		{local, "bandwidth", nil},
	} {
		if got := slices.Sorted(maps.Keys(c.at.turns(c.what))); !slices.Equal(got, c.want) {
			t.Errorf("%s in %s takes turns with %q, want %q", c.what, c.at.at.Name, got, c.want)
		}
	}
}

func TestCancelledRoundSavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run := &sample.Run{}
	jobs := []Job{{Name: "a", run: func(ctx context.Context) ([]sample.Sample, error) {
		cancel()
		return nil, ctx.Err()
	}}}
	if err := Round(ctx, jobs, run, 1, os.Stderr); !errors.Is(err, context.Canceled) || len(run.Failures) != 0 {
		t.Error(err, run.Failures)
	}
}

func TestNamesOfJobsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, j := range Jobs(&setup.Programs{}, []*place.Place{place.Memory(), place.Loop(), {Name: sample.Veth}}) {
		if seen[j.Name] {
			t.Errorf("two jobs are named %s", j.Name)
		}
		seen[j.Name] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d jobs", len(seen))
	}
}
