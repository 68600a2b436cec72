package vmmctest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("prints", func(context.Context, *vmmc.Process, ...string) error {
		for i := range 4 {
			fmt.Println(strings.Repeat(fmt.Sprint(i), 1<<20))
		}
		return nil
	})
	vmmctest.Role("fails", func(context.Context, *vmmc.Process, ...string) error { return errors.New("on purpose") })
}

func TestExamples(t *testing.T) {
	t.Run("over a cut", countOverACut)
	t.Run("without a server", countWithoutServer)
	t.Run("greeted", greeted)
	t.Run("joined otherwise", joinedOtherwise)
}

// bound is a guard against hanging.
const bound = time.Minute

func within(t *testing.T) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), bound)
	t.Cleanup(stop)
	return ctx
}

// joined is an import of a of a new buffer of b.
func joined(ctx context.Context, t *testing.T, a, b *vmmc.Process) (*vmmc.Import, []byte) {
	t.Helper()
	const size = 1 << 20
	mem, err := b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	exp, err := b.Export(7, mem.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(ctx, b.Node(), b.PID(), exp.ID())
	if err != nil {
		t.Fatal(err)
	}
	return im, mem.Bytes()
}

// Each of three nodes reaches both others, and a cut ends only the links that it is to end, in
// both directions.
func TestCutBetweenTwoOfThree(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 3)
	var ims [3][3]*vmmc.Import
	for i, from := range nodes {
		for j, to := range nodes {
			if i != j {
				b := to.Open(t, vmmc.WithResume(0))
				if b.Node() != to.ID() || b.Node().String() != to.Name() {
					t.Fatalf("node %s is %s", to.Name(), b.Node())
				}
				ims[i][j], _ = joined(ctx, t, from.Open(t, vmmc.WithResume(0)), b)
			}
		}
	}
	nodes[0].Cut(nodes[1])
	for i := range ims {
		for j, im := range ims[i] {
			switch {
			case i == j:
			case i+j == 1:
				if _, err := im.FetchAdd64(ctx, 0, 1); !errors.Is(err, vmmc.ErrPeerGone) {
					t.Errorf("the link of n%d with n%d: %v", i+1, j+1, err)
				}
			default:
				if err := im.Send(ctx, []byte{1, 2, 3, 4}, 0); err != nil {
					t.Error(err)
				}
				if err := im.Fence(ctx); err != nil {
					t.Errorf("the link of n%d with n%d: %v", i+1, j+1, err)
				}
			}
		}
	}
	a, b := nodes[0].Open(t), nodes[1].Open(t)
	if _, err := b.Export(7, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	soon, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if _, err := a.Import(soon, b.Node(), b.PID(), 7); err == nil {
		t.Fatal("an import over a cut")
	}
	nodes[0].Heal(nodes[1])
	for {
		im, err := a.Import(ctx, b.Node(), b.PID(), 7)
		if err == nil {
			if err := im.Fence(ctx); err != nil {
				t.Fatal(err)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatal("no import after the cut was healed: ", err)
		}
	}
}

// A link that is resumed after a cut has lost nothing.
func TestCutAndHeal(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 2)
	events := make(chan vmmc.Event, 64)
	a := nodes[0].Open(t, vmmc.WithResume(bound), vmmc.WithEvents(func(e vmmc.Event) { events <- e }))
	im, mem := joined(ctx, t, a, nodes[1].Open(t, vmmc.WithResume(bound)))
	await := func(kind vmmc.EventKind) {
		t.Helper()
		select {
		case e := <-events:
			if e.Kind != kind {
				t.Fatalf("%v where %v is due: %v", e.Kind, kind, e.Err)
			}
		case <-ctx.Done():
			t.Fatalf("no event %v", kind)
		}
	}
	for i := range byte(5) {
		nodes[i%2].Cut()
		await(vmmc.LinkDown)
		data := bytes.Repeat([]byte{i + 1}, len(mem))
		sent := make(chan error, 1)
		go func() { sent <- im.Send(ctx, data, 0) }()
		nodes[i/2%2].Heal()
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if err := im.Fence(ctx); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem, data) {
			t.Fatalf("round %d: other data has arrived", i)
		}
		await(vmmc.LinkResumed)
	}
}

// All is late by the delay each way, and in order.
func TestDelay(t *testing.T) {
	const delay = 20 * time.Millisecond
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 2)
	im, mem := joined(ctx, t, nodes[0].Open(t), nodes[1].Open(t))
	nodes[0].Delay(delay)
	began := time.Now()
	if err := im.Get(ctx, make([]byte, 8), 0); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a round trip took %v", took)
	}
	data := make([]byte, len(mem))
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := im.Send(ctx, data, 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Fence(ctx); err != nil || !bytes.Equal(mem, data) {
		t.Fatalf("other data has arrived, %v", err)
	}
}

// Heal lets what is delayed go on at once.
func TestHealAfterDelay(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 2)
	im, mem := joined(ctx, t, nodes[0].Open(t, vmmc.WithSilence(0)), nodes[1].Open(t, vmmc.WithSilence(0)))
	nodes[0].Delay(time.Hour)
	data := []byte("late1234")
	for !nodes[0].Holds(nodes[1]) {
		if err := im.Send(ctx, data, 0); err != nil {
			t.Fatal(err)
		}
	}
	nodes[0].Heal()
	if err := im.Fence(ctx); err != nil {
		t.Fatalf("what was delayed has not arrived: %v", err)
	}
	if !bytes.Equal(mem[:len(data)], data) {
		t.Errorf("%q has arrived", mem[:len(data)])
	}
}

// A child that is stopped answers nothing, and goes on.
func TestStopAndContinue(t *testing.T) {
	ctx := within(t)
	nodes := vmmctest.Nodes(t, 2)
	server := vmmctest.Child(t, nodes[1], "server")
	im, err := nodes[0].Open(t).Import(ctx, server.ID().Node, server.ID().PID, 1)
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	soon, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if err := im.Get(soon, make([]byte, 8), 0); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("a get from a stopped process: %v", err)
	}
	server.Continue()
	if err := im.Get(ctx, make([]byte, 8), 0); err != nil {
		t.Error(err)
	}
}

// A child that prints more than its test reads does not stop, and a line may have any length.
func TestLinesOfAnyLength(t *testing.T) {
	p := vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "prints")
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		if s := p.Line(); s != strings.Repeat(fmt.Sprint(i), 1<<20) {
			t.Fatalf("line %d has %d bytes", i, len(s))
		}
	}
}

// A process ends with the test that it was opened for.
func TestOpenForASubtest(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	var p *vmmc.Process
	t.Run("subtest", func(t *testing.T) { p = node.Open(t) })
	if _, err := p.Alloc(4); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("the subtest is over: %v", err)
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	said     strings.Builder
	failed   bool
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(&r.said, format+"\n", args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool     { return r.failed }
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// said runs a test, and returns what it says when it fails.
func said(t *testing.T, f func(testing.TB)) string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(r)
	}()
	<-ended
	for len(r.cleanups) > 0 {
		last := r.cleanups[len(r.cleanups)-1]
		r.cleanups = r.cleanups[:len(r.cleanups)-1]
		last()
	}
	return r.said.String()
}

// A test that fails by this package's doing is told why.
func TestFailures(t *testing.T) {
	const leaves = "a process left open"
	var left *vmmc.Process
	for name, c := range map[string]struct {
		f    func(testing.TB)
		want string
	}{
		"no nodes": {func(t testing.TB) { vmmctest.Nodes(t, 0) }, "0 nodes: at least 1"},
		leaves: {func(t testing.TB) {
			n := vmmctest.Nodes(t, 1)[0]
			p, err := vmmc.Open(context.Background(), vmmc.WithSocket(n.Socket()))
			if err != nil {
				t.Error(err)
			}
			left = p
		}, "1 processes of node n1 are open at the test's end: close each Process that the test opens with vmmc.Open, or open it with Node.Open"},
		"no such role": {func(t testing.TB) { vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "none") }, `vmmctest: no role "none"; register it before Main`},
		"a role that fails, unseen": {func(t testing.TB) {
			p := vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "fails")
			<-vmmctest.Ended(p)
		}, `child "fails" on node n1 ended by itself: exit status 1`},
		"a role that fails, killed": {func(t testing.TB) {
			p := vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "fails")
			<-vmmctest.Ended(p)
			p.Kill()
		}, `child "fails" on node n1 ended by itself: exit status 1`},
		"a role that says nothing": {func(t testing.TB) {
			vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "fails").Line()
		}, `child "fails" on node n1 printed no further line and ended: exit status 1`},
		"a role that fails, awaited": {func(t testing.TB) {
			if err := vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "fails").Wait(); err == nil {
				t.Errorf("no error")
			}
		}, ""},
		"a stop too late": {func(t testing.TB) {
			p := vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "server")
			p.Kill()
			p.Stop()
		}, `signal stopped (signal) to child "server" on node n1: os: process already finished`},
		"a node of another test": {func(t testing.TB) {
			vmmctest.Nodes(t, 2)[0].Cut(vmmctest.Nodes(t, 2)[1])
		}, "node n1 has no link with node n2: not another node of one call of Nodes"},
	} {
		back := func() {}
		if name == leaves { // else 10 s
			back = vmmctest.SetSettle(100 * time.Millisecond)
		}
		got := said(t, c.f)
		back()
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: it says %q, want %q", name, got, c.want)
		}
		if left != nil {
			_ = left.Close()
		}
	}
}
