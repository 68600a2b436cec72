package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	layout "github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.RegisterRole("node", runNode)
	testutil.RegisterRole("collect", child(collect))
	testutil.RegisterRole("produce", child(produce))
	testutil.RegisterRole("hold", child(hold))
	testutil.RegisterRole("busy", child(busy))
	testutil.RegisterRole("both", child(both))
	testutil.RegisterRole("waiter", child(waiter))
	testutil.Main(m)
}

// cluster is some nodes, each a process of its own.
type cluster struct {
	dir   string
	nodes []*exec.Cmd
	input []io.Closer // of the nodes
}

func (c *cluster) socket(i int) string { return filepath.Join(c.dir, fmt.Sprintf("n%d.sock", i)) }

// up starts n nodes at the given addresses, or on loopback; run prepares the
// command of each, to put it in a namespace for instance.
func up(t *testing.T, n int, addrs []string, run func(i int, c *exec.Cmd) *exec.Cmd) *cluster {
	t.Helper()
	return upBy(t, n, addrs, func(listen string) string { return listen }, run)
}

// upBy is up with nodes that are reached at other addresses than they listen at.
func upBy(t *testing.T, n int, addrs []string, at func(listen string) string, run func(i int, c *exec.Cmd) *exec.Cmd) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmmc") // short: sockets' paths are limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := cert.Init(filepath.Join(dir, "ca"), "test"); err != nil {
		t.Fatal(err)
	}
	var hs []hosts.Host
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		if err := cert.IssueNode(filepath.Join(dir, "ca"), name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		addr := freePort(t)
		if addrs != nil {
			addr = net.JoinHostPort(addrs[i], "7411")
		}
		hs = append(hs, hosts.Host{Name: name, Control: at(addr)})
		hs[i].Data = hs[i].Control
		if err := os.WriteFile(filepath.Join(dir, name, "listen"), []byte(addr), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "vmmc-hosts.txt"), []byte(hosts.Format(hs)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &cluster{dir: dir, nodes: make([]*exec.Cmd, n), input: make([]io.Closer, n)}
	for i := range n {
		c.start(t, i, run)
	}
	return c
}

// start starts a node, for the first time or again.
func (c *cluster) start(t *testing.T, i int, run func(i int, c *exec.Cmd) *exec.Cmd) {
	t.Helper()
	cmd := testutil.Command(t, "node", c.dir, fmt.Sprintf("n%d", i))
	if run != nil {
		cmd = run(i, cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	startAndRead(t, cmd)
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	c.nodes[i], c.input[i] = cmd, in
}

// kill ends a node as a power cut does.
func (c *cluster) kill(t *testing.T, i int) {
	t.Helper()
	kill(t, c.nodes[i])
}

// end has a node end by itself.
func (c *cluster) end(t *testing.T, i int) {
	t.Helper()
	_ = c.input[i].Close()
	if err := c.nodes[i].Wait(); err != nil {
		t.Errorf("node %d, told to end, ends with %v", i, err)
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	as, err := layout.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return as[0]
}

// runNode is the role of a node: it serves until its input ends.
func runNode() int {
	dir, name := testutil.Args()[0], testutil.Args()[1]
	id, err := cert.Load(filepath.Join(dir, name))
	if err != nil {
		return say(err)
	}
	hs, err := hosts.ReadFile(filepath.Join(dir, "vmmc-hosts.txt"))
	if err != nil {
		return say(err)
	}
	listen, err := os.ReadFile(filepath.Join(dir, name, "listen"))
	if err != nil {
		return say(err)
	}
	d, err := daemon.Start(daemon.Config{
		Listen: string(listen), Name: name, Socket: filepath.Join(dir, name+".sock"), Hosts: hs, Identity: id, SpawnRoot: true,
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return say(err)
	}
	defer d.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func say(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// startAndRead starts a command and gives its first line of output.
func startAndRead(t *testing.T, cmd *exec.Cmd) (line string, rest *bufio.Reader) {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("a child said nothing: %v", err)
	}
	return s[:len(s)-1], r
}

// join opens a process of the test itself.
func join(t *testing.T, c *cluster, node int, opts ...vmmc.Option) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(t.Context(), append(opts, vmmc.WithSocket(c.socket(node)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// spawn starts a child in a role on a node and returns its logical pid.
func spawn(t *testing.T, c *cluster, node int, role string, args ...string) (vmmc.PID, *exec.Cmd, *bufio.Reader) {
	t.Helper()
	return launch(t, testutil.Command(t, role, args...), c.socket(node))
}

func launch(t *testing.T, cmd *exec.Cmd, socket string) (vmmc.PID, *exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd.Env = append(cmd.Env, nodeproto.Env+"="+socket)
	line, r := startAndRead(t, cmd)
	pid, err := strconv.ParseUint(line, 10, 32)
	if err != nil {
		t.Fatalf("a child began with %q", line)
	}
	return vmmc.PID(pid), cmd, r
}

// child makes a role of a function: the process joins its node, says its pid,
// and runs f.
func child(f func(ctx context.Context, p *vmmc.Process, args []string) error, opts ...vmmc.Option) func() int {
	return func() int {
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
		defer stop()
		p, err := vmmc.Open(ctx, opts...)
		if err != nil {
			return say(err)
		}
		fmt.Println(p.PID())
		if err := f(ctx, p, testutil.Args()); err != nil {
			return say(err)
		}
		if err := p.Close(); err != nil {
			return say(err)
		}
		return 0
	}
}

func target(p *vmmc.Process, node, pid string) (vmmc.NodeID, vmmc.PID, error) {
	n, err := p.NameToNode(node)
	if err != nil {
		return n, 0, err
	}
	v, err := strconv.ParseUint(pid, 10, 32)
	return n, vmmc.PID(v), err
}

func number(p vmmc.PID) string { return strconv.FormatUint(uint64(p), 10) }

// finish waits for a child that ends by itself.
func finish(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Wait(); err != nil {
		t.Errorf("child: %v", err)
	}
}

// import1 imports with the test's patience.
func import1(t *testing.T, p *vmmc.Process, node int, pid vmmc.PID, id uint32) *vmmc.Import {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	n, err := p.NameToNode(fmt.Sprintf("n%d", node))
	if err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(ctx, n, pid, id)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// says reads a child's lines until one is what was awaited, and fails the test at others.
func says(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		s, err := r.ReadString('\n')
		if err != nil {
			s = err.Error()
		}
		got <- strings.TrimSpace(s)
	}()
	select {
	case s := <-got:
		if s != want {
			t.Fatalf("a child says %q, want %q", s, want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("a child does not say %q", want)
	}
}
