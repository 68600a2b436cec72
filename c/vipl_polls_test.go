//go:build linux && (amd64 || arm64)

package c_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

var compiledPolls sync.Once

// compilePolls links the program that looks inside of libvipl with the objects in build.
func compilePolls(t testing.TB, build, path string, flags ...string) {
	t.Helper()
	var objects []string
	for _, dir := range []string{"src", "vipl"} {
		found, err := filepath.Glob(filepath.Join(build, dir, "*.o"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%d objects in %s/%s: %v", len(found), build, dir, err)
		}
		objects = append(objects, found...)
	}
	args := slices.Concat([]string{
		"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread",
		"-Iinclude", "-Isrc", "-Ivipl/include", "-o", path, "vipl/test/inside/polls.c",
	}, objects, flags, []string{"-ldl"})
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}

// polls is a command of that program, with the Go part beside it.
func polls(t testing.TB, on *vmmctest.Node, args ...string) *exec.Cmd {
	t.Helper()
	build := testutil.CLibrary(t)
	path := filepath.Join(build, "viplpolls")
	compiledPolls.Do(func() { compilePolls(t, build, path) })
	c := exec.CommandContext(t.Context(), path, args...)
	c.Env = append(os.Environ(), on.Environ()...)
	return c
}

func runPolls(t *testing.T, args ...string) {
	t.Helper()
	c := polls(t, vmmctest.Nodes(t, 1)[0], args...)
	c.Env = append(c.Env, "GOGC=1") // Go collects often, and so unmaps what nothing keeps
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// Polls that find nothing do not enter Go. The first poll after a message, an end of a connection or
// the end of a handle finds that.
func TestVIPLPollsStayInC(t *testing.T) { runPolls(t, "probe") }

// Two threads poll completion queues that end.
func TestVIPLPollsOfEndingQueues(t *testing.T) { runPolls(t, "queues", "500") }

// Two threads poll queues of a NIC whose links end, with the pages whose words they load.
func TestVIPLPollsOfEndingLinks(t *testing.T) { runPolls(t, "links", "60") }

// Signal handlers that poll, and that leave a poll by siglongjmp.
func TestVIPLPollsLeft(t *testing.T) { runPolls(t, "leaving") }

// side is a NIC with a VI, two pages of registered memory and a completion queue of no VI.
type side struct {
	nic        *via.NIC
	vi         *via.VI
	cq         *via.CompletionQueue
	send, recv via.Descriptor
}

func openSide(b *testing.B, p *vmmc.Process) *side {
	b.Helper()
	nic, err := via.Open(p, "nic0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = nic.Close() })
	nic.OnError(func(via.AsyncError) {})
	tag, err := nic.NewTag()
	if err != nil {
		b.Fatal(err)
	}
	m, err := nic.Register(make([]byte, 8192), via.MemoryAttributes{Tag: tag})
	if err != nil {
		b.Fatal(err)
	}
	s := &side{nic: nic}
	s.send.Segments, s.recv.Segments = []via.Segment{m.Segment(0, 64)}, []via.Segment{m.Segment(4096, 64)}
	if s.cq, err = nic.NewCompletionQueue(16); err != nil {
		b.Fatal(err)
	}
	s.vi, err = nic.NewVI(via.VIAttributes{Level: via.ReliableDelivery, MaxTransferSize: 4096, Tag: tag}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// request requests a VI that requests this one.
func (s *side) request(b *testing.B, own, other string) {
	b.Helper()
	host := s.nic.Attributes().Address
	err := s.vi.ConnectPeer(b.Context(), via.Address{Host: host, Discriminator: own},
		via.Address{Host: host, Discriminator: other})
	if err != nil {
		b.Fatal(err)
	}
}

// await polls until done returns a descriptor, or an error.
func await(done func() (*via.Descriptor, error)) error {
	for i := 1; ; i++ {
		if _, err := done(); !errors.Is(err, via.ErrNotDone) {
			return err
		}
		if i%64 == 0 {
			runtime.Gosched()
		}
	}
}

func (s *side) answer() error {
	if err := s.vi.PostReceive(&s.recv); err != nil {
		return err
	}
	if err := s.vi.PostSend(&s.send); err != nil {
		return err
	}
	return await(s.vi.SendDone)
}

// An empty poll of a completion queue, and 64 bytes there and back between two threads that poll: by
// VIPL in C, and by package via in Go beside it, blocks of each by turns.
func BenchmarkVIPL(b *testing.B) {
	node := vmmctest.Nodes(b, 1)[0]
	c := polls(b, node, "bench")
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = c.Wait()
	}()
	p := node.Open(b)
	x, y := openSide(b, p), openSide(b, p)
	if err := y.vi.PostReceive(&y.recv); err != nil {
		b.Fatal(err)
	}
	x.request(b, "x", "y")
	y.request(b, "y", "x")
	for _, s := range []*side{x, y} {
		if _, err := s.vi.ConnectPeerWait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	go func() {
		for await(y.vi.ReceiveDone) == nil && y.answer() == nil {
		}
	}()
	for _, w := range []struct {
		name  string
		block int
		once  func() error
	}{
		{"polls", 100000, func() error {
			if _, err := x.cq.Done(); !errors.Is(err, via.ErrNotDone) {
				return fmt.Errorf("an empty queue: %w", err)
			}
			return nil
		}},
		{"pingpong", 200, func() error {
			if err := x.answer(); err != nil {
				return err
			}
			return await(x.vi.ReceiveDone)
		}},
	} {
		b.Run(w.name, func(b *testing.B) {
			var ratios, ours, theirs []float64
			for b.Loop() {
				_, _ = fmt.Fprintln(in, w.name, w.block)
				var n int64
				if _, err := fmt.Fscan(out, &n); err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				for range w.block {
					if err := w.once(); err != nil {
						b.Fatal(err)
					}
				}
				took := time.Since(start)
				ratios = append(ratios, float64(n)/float64(took))
				ours = append(ours, float64(n)/float64(w.block))
				theirs = append(theirs, float64(took)/float64(w.block))
			}
			for i, v := range [][]float64{ours, theirs, ratios} {
				slices.Sort(v)
				b.ReportMetric(v[len(v)/2], []string{"ns/C", "ns/Go", "C/Go"}[i])
			}
		})
	}
}
