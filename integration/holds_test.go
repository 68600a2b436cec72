package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestSendAndGetAllocateNothing(t *testing.T) {
	if invariant.Enabled {
		t.Skip("the checks allocate")
	}
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	cl := up(t, 2, nil, nil)
	p := join(t, cl, 0)
	for node, path := range []string{"mapped", "stream"} {
		pid, _, _ := spawn(t, cl, node, "hold")
		im := import1(t, p, node, pid, 1)
		if im.Path().String() != path {
			t.Fatalf("path %s, want %s", im.Path(), path)
		}
		ctx := t.Context()
		for _, size := range []int{4, 64, 4096, 256 << 10} {
			b := make([]byte, size)
			for what, f := range map[string]func() error{
				"Send": func() error { return im.Send(ctx, b, 0) },
				"Get":  func() error { return im.Get(ctx, b, 0) },
			} {
				n := testing.AllocsPerRun(500, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				})
				if n != 0 {
					t.Errorf("%s of %d bytes, %s: %v allocations", what, size, path, n)
				}
			}
		}
	}
}

// busy exports, then computes on all processors and never calls the library.
func busy(_ context.Context, p *vmmc.Process, _ []string) error {
	m, err := p.Alloc(1 << 16)
	if err != nil {
		return err
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		return err
	}
	var sink atomic.Uint64
	for range runtime.GOMAXPROCS(0) + 1 {
		go func() {
			for x := uint64(1); ; x = x*6364136223846793005 + 1 {
				if x == 0 {
					sink.Add(1)
				}
			}
		}()
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
	return nil
}

func TestReceiverThatOnlyComputes(t *testing.T) {
	cl := up(t, 2, nil, nil)
	p := join(t, cl, 0)
	for node, path := range []string{"mapped", "stream"} {
		cmd := testutil.Command(t, "busy")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		pid, _, _ := launch(t, cmd, cl.socket(node))
		im := import1(t, p, node, pid, 1)
		src, dst := make([]byte, 4096), make([]byte, 4096)
		var worst, sum time.Duration
		const rounds = 50
		for i := range rounds {
			for j := range src {
				src[j] = byte(i + j)
			}
			start := time.Now()
			if err := im.Send(t.Context(), src, 0); err != nil {
				t.Fatal(err)
			}
			if err := im.Get(t.Context(), dst, 0); err != nil {
				t.Fatal(err)
			}
			d := time.Since(start)
			worst, sum = max(worst, d), sum+d
			if !bytes.Equal(src, dst) {
				t.Fatal("a get after a send returned other contents")
			}
		}
		t.Logf("%s: send and get of 4 KiB with a computing receiver: mean %v, worst %v", path, sum/rounds, worst)
		_ = in.Close()
		kill(t, cmd)
	}
}

// both exports buffer 1 mapped and buffer 2 in the Go heap; for each round the
// sender writes the number through one and the flag through the other. Args:
// rounds, and which of the two carries the flag.
func both(ctx context.Context, p *vmmc.Process, args []string) error {
	rounds, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	mapped, err := p.Export(1, m.Bytes())
	if err != nil {
		return err
	}
	heap, err := p.Export(2, make([]byte, 4096))
	if err != nil {
		return err
	}
	done, err := p.Export(3, make([]byte, 4))
	if err != nil {
		return err
	}
	flagOf, dataOf := mapped, heap
	if args[1] == "stream" {
		flagOf, dataOf = heap, mapped
	}
	flag, err := flagOf.Word(0)
	if err != nil {
		return err
	}
	data, err := dataOf.Word(2048)
	if err != nil {
		return err
	}
	for v := uint32(0); v < uint32(rounds); {
		if v, err = flag.Wait(ctx, v); err != nil {
			return err
		}
		if d := data.Load(); d < v {
			return fmt.Errorf("flag %d is there, its data is still %d", v, d)
		}
	}
	w, err := done.Word(0)
	if err != nil {
		return err
	}
	_, err = w.Wait(ctx, 0)
	return err
}

func TestFlagNeverOvertakesData(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p := join(t, cl, 0)
	rounds := scaled(40_000)
	for _, flag := range []string{"mapped", "stream"} {
		pid, cmd, _ := spawn(t, cl, 0, "both", strconv.Itoa(rounds), flag)
		mapped, heap, done := import1(t, p, 0, pid, 1), import1(t, p, 0, pid, 2), import1(t, p, 0, pid, 3)
		if mapped.Path() != vmmc.PathMapped || heap.Path() != vmmc.PathStream {
			t.Fatalf("paths %s and %s", mapped.Path(), heap.Path())
		}
		flagTo, dataTo := mapped, heap
		if flag == "stream" {
			flagTo, dataTo = heap, mapped
		}
		big := make([]byte, 2052-4)
		b := make([]byte, 4)
		for i := 1; i <= rounds; i++ {
			binary.LittleEndian.PutUint32(b, uint32(i))
			copy(big[len(big)-4:], b)
			if err := dataTo.Send(t.Context(), big, 4); err != nil { // ends with the word at 2048
				t.Fatal(err)
			}
			if err := flagTo.Send(t.Context(), b, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := done.Send(t.Context(), []byte{1, 0, 0, 0}, 0); err != nil {
			t.Fatal(err)
		}
		finish(t, cmd)
	}
}

// waiter waits for a word that never changes.
func waiter(ctx context.Context, p *vmmc.Process, _ []string) error {
	m, err := p.Alloc(64)
	if err != nil {
		return err
	}
	e, err := p.Export(1, m.Bytes())
	if err != nil {
		return err
	}
	w, err := e.Word(0)
	if err != nil {
		return err
	}
	_, err = w.Wait(ctx, 0)
	return err
}

// ticks is the processor time of a process, in clock ticks.
func ticks(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	u, err1 := strconv.Atoi(f[11])
	s, err2 := strconv.Atoi(f[12])
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return u + s
}

func TestWaitingCostsNothing(t *testing.T) {
	span := 3 * time.Second
	if long() {
		span = 30 * time.Second
	}
	cl := up(t, 2, nil, nil)
	p := join(t, cl, 0)
	pid, here, _ := spawn(t, cl, 0, "waiter")
	far, there, _ := spawn(t, cl, 1, "waiter")
	// With links to it, and after it was woken once in vain.
	for node, id := range []vmmc.PID{pid, far} {
		im := import1(t, p, node, id, 1)
		if err := im.Send(t.Context(), make([]byte, 4), 4); err != nil {
			t.Fatal(err)
		}
	}
	pids := []int{cl.nodes[0].Process.Pid, cl.nodes[1].Process.Pid, here.Process.Pid, there.Process.Pid}
	time.Sleep(500 * time.Millisecond) // what starting and linking left to do is not idling
	before := make([]int, len(pids))
	for i, id := range pids {
		before[i] = ticks(t, id)
	}
	time.Sleep(span) // the span is what is measured
	for i, id := range pids {
		used := ticks(t, id) - before[i]
		t.Logf("process %d of %d used %d clock ticks in %v of idling", i, len(pids), used, span)
		// 0.2 % of 30 s, at 100 ticks a second. A timer of 1 ms takes more than 1 %, a poll that
		// spins 100 %.
		if allowed := max(2, int(span/(5*time.Second))); used > allowed {
			t.Errorf("process %d of %d used more than %d clock ticks in %v of idling", i, len(pids), allowed, span)
		}
	}
}

// pauses is the histogram of the collector's stop-the-world times.
func pauses() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64Histogram()
}

func TestLargeSendsDoNotStopTheCollector(t *testing.T) {
	cl := up(t, 1, nil, nil)
	p, q := join(t, cl, 0), join(t, cl, 0)
	const size = 256 << 20
	m, err := q.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Export(1, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	im := import1(t, p, 0, q.PID(), 1)
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		src := make([]byte, size)
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := im.Send(context.Background(), src, 0); err != nil {
				done <- err
				return
			}
		}
	}()
	before := pauses()
	for range 40 {
		runtime.GC()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	after := pauses()
	var n, seen uint64
	for i := range after.Counts {
		n += after.Counts[i] - before.Counts[i]
	}
	for i := range after.Counts {
		if seen += after.Counts[i] - before.Counts[i]; seen*2 >= n {
			t.Logf("stop-the-world over %d pauses: p50 below %.0f µs", n, after.Buckets[i+1]*1e6)
			// The bar is 1 ms; without copying in pieces it is 2.9 s. The test
			// allows for a crowded machine.
			if after.Buckets[i+1] > 0.05 {
				t.Errorf("large sends hold up the collector: p50 %v s", after.Buckets[i+1])
			}
			return
		}
	}
}
