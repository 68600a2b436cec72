package chaos

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/serve"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("vmmcd", vmmcd)
	testutil.RegisterRole("work", work)
	testutil.RegisterRole("figures", figures)
}

const metricsAt = "127.0.0.1:9464" // of the namespace

// vmmcd is the daemon's whole program.
func vmmcd() int {
	os.Args = append([]string{"vmmcd"}, testutil.Args()...)
	return serve.Execute(serve.Command("vmmcd"))
}

// figures prints what a daemon tells of itself.
func figures() int {
	c := http.Client{Timeout: 5 * time.Second}
	r, err := c.Get("http://" + metricsAt + "/metrics")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = r.Body.Close() }()
	_, _ = io.Copy(os.Stdout, r.Body)
	return 0
}

// world is three nodes in network namespaces, with their processes.
type world struct {
	dir     string
	net     []*testutil.NS
	daemons []*exec.Cmd
	before  []holdings // of the daemons
	board   *ledger
	lives   [processes]int
	procs   [processes]*exec.Cmd
	killed  map[[2]int]time.Time // when a life of a process was killed
	sums    map[string]float64   // of the daemons that are gone
	left    []remains            // of processes
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	w := &world{net: testutil.NewNet(t, nodes), killed: map[[2]int]time.Time{}, sums: map[string]float64{}}
	_, err := exec.LookPath("iptables")
	testutil.Require(t, err == nil, "connections that are reset need iptables")
	out, err := w.net[0].Command("iptables", "-w", "-L").CombinedOutput()
	testutil.Require(t, err == nil, fmt.Sprintf("connections that are reset need iptables that works: %v: %s", err, out))
	w.dir, err = os.MkdirTemp("", "vmmc") // short: sockets' paths are limited
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			w.tell(t)
		}
		check(t, os.RemoveAll(w.dir))
	})
	w.board, err = openLedger(w.dir, "board")
	check(t, err)
	t.Cleanup(w.board.close)
	check(t, cert.Init(w.path("ca"), "chaos"))
	var hs []hosts.Host
	for i := range nodes {
		check(t, cert.IssueNode(w.path("ca"), nodeOf(i), w.path(nodeOf(i)+".certs")))
		addr := w.net[i].Addr + ":7411"
		hs = append(hs, hosts.Host{Name: nodeOf(i), Control: addr, Data: addr})
	}
	check(t, os.WriteFile(w.path("hosts"), []byte(hosts.Format(hs)), 0o600))
	w.daemons = make([]*exec.Cmd, nodes)
	for i := range nodes {
		w.daemon(t, i)
		w.awaitDaemon(t, i)
		w.before = append(w.before, heldBy(w.daemons[i].Process.Pid))
	}
	return w
}

func (w *world) path(name string) string     { return filepath.Join(w.dir, name) }
func (w *world) socket(node int) string      { return w.path(nodeOf(node) + ".sock") }
func (w *world) alive(p, life int) bool      { return w.lives[p] == life }
func (w *world) ledger(n string) *ledger     { l, _ := openLedger(w.dir, n); return l }
func (w *world) exists(name string) bool     { _, err := os.Stat(w.path(name)); return err == nil }
func (w *world) ns(process int) *testutil.NS { return w.net[process%nodes] }

// launch starts a role in a namespace, and keeps what it says.
func (w *world) launch(t *testing.T, ns *testutil.NS, log string, role string, args ...string) *exec.Cmd {
	t.Helper()
	f, err := os.OpenFile(w.path(log), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(t, err)
	defer func() { _ = f.Close() }()
	c := ns.Enter(testutil.Command(t, role, args...))
	c.Stdout, c.Stderr = f, f
	c.Env = append(c.Env, nodeproto.Env+"=")
	if role == "work" {
		p, err := strconv.Atoi(args[1])
		check(t, err)
		c.Env = append(c.Env, nodeproto.Env+"="+w.socket(p))
	}
	check(t, c.Start())
	return c
}

func (w *world) daemon(t *testing.T, i int) {
	t.Helper()
	n := nodeOf(i)
	w.daemons[i] = w.launch(t, w.net[i], "out."+n, "vmmcd", "--name", n, "--hosts", w.path("hosts"), "--certs", w.path(n+".certs"),
		"--socket", w.socket(i), "--state", w.path(n+".state"), "--metrics", metricsAt, "--log-level", "warn")
}

// figuresOf are the sums of what links have counted on a node, by the ends that import, and figures
// without labels.
func (w *world) figuresOf(t *testing.T, i int) (map[string]float64, error) {
	t.Helper()
	out, err := w.net[i].Enter(testutil.Command(t, "figures")).Output()
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		name, role, ok := strings.Cut(line, "{")
		if !ok {
			name, _, _ = strings.Cut(line, " ")
		}
		if len(f) != 2 || ok && !strings.Contains(role, `role="imports"`) {
			continue
		}
		if sums[name], err = strconv.ParseFloat(f[1], 64); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

func (w *world) awaitDaemon(t *testing.T, i int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := w.figuresOf(t, i); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatalf("%s does not begin: %v", nodeOf(i), err)
		}
	}
}

// begin starts the next life of a process.
func (w *world) begin(t *testing.T, p int) {
	t.Helper()
	w.lives[p]++
	w.board.set(boardLife+p, uint64(w.lives[p]))
	w.procs[p] = w.launch(t, w.ns(p), "out."+lifeName(p, w.lives[p]), "work", w.dir, strconv.Itoa(p), strconv.Itoa(w.lives[p]))
}

// kill ends a life of a process, and looks at the memory that it leaves.
func (w *world) kill(t *testing.T, p int) {
	t.Helper()
	w.left = append(w.left, w.remains(t, p)...)
	w.killed[[2]int{p, w.lives[p]}] = time.Now()
	check(t, w.procs[p].Process.Kill())
	_ = w.procs[p].Wait()
}

// endDaemon ends a node's daemon, by SIGKILL as a power cut does.
func (w *world) endDaemon(t *testing.T, i int, by syscall.Signal) {
	t.Helper()
	check(t, w.daemons[i].Process.Signal(syscall.SIGCONT)) // it may be stopped, and is to tell what it has counted
	sums, early := w.figuresOf(t, i)
	w.add(sums)
	check(t, w.daemons[i].Process.Signal(by))
	// One that was just started does not hear signals yet.
	if err := w.daemons[i].Wait(); err != nil && by != syscall.SIGKILL && early == nil {
		t.Errorf("%s, told to end, ends with %v", nodeOf(i), err)
	}
}

func (w *world) add(sums map[string]float64) {
	for k, v := range sums {
		w.sums[k] += v
	}
}

// heldBy are the descriptors of another process.
func heldBy(pid int) holdings {
	h := holdings{}
	dir := fmt.Sprintf("/proc/%d/fd/", pid)
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil {
			h[kind(to)]++
		}
	}
	return h
}

// inside are the processes of a namespace.
func (w *world) inside(t *testing.T, i int) []string {
	t.Helper()
	out, err := exec.Command("ip", "netns", "pids", w.net[i].Name).Output()
	check(t, err)
	return strings.Fields(string(out))
}

// stop ends the nodes, whose processes have ended, and sees that nothing is left of them.
func (w *world) stop(t *testing.T) {
	for i, d := range w.daemons {
		if in := w.inside(t, i); len(in) != 1 || in[0] != strconv.Itoa(d.Process.Pid) {
			t.Errorf("in the namespace of %s are processes %v, its daemon is %d", nodeOf(i), in, d.Process.Pid)
		}
		sums, err := w.figuresOf(t, i)
		check(t, err)
		w.add(sums)
		// Each way to each other node has a connection, which ends when it was idle for long.
		const control = 2 * 2 * (nodes - 1)
		var left string
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			h := heldBy(d.Process.Pid)
			h["socket:"] -= control
			if left = w.before[i].since(h); left == "" || time.Now().After(end) {
				break
			}
		}
		if left != "" {
			t.Errorf("%s has more descriptors than before there was a process: %s", nodeOf(i), left)
		}
		check(t, d.Process.Signal(syscall.SIGTERM))
	}
	for i, d := range w.daemons {
		if err := d.Wait(); err != nil {
			t.Errorf("%s ends with %v", nodeOf(i), err)
		}
		if w.exists(nodeOf(i) + ".sock") {
			t.Errorf("the socket of %s is left", nodeOf(i))
		}
		for _, d := range []string{"sessions", "run", "drives"} {
			if list, err := os.ReadDir(w.path(nodeOf(i) + ".state/" + d)); err == nil && len(list) > 0 {
				t.Errorf("%s has left %v in its %s", nodeOf(i), list, d)
			}
		}
	}
	if left, err := filepath.Glob("/dev/shm/*vmmc*"); err != nil || len(left) > 0 {
		t.Errorf("in /dev/shm there are %v, %v", left, err)
	}
}

// tell shows what daemons and processes have said.
func (w *world) tell(t *testing.T) {
	logs, _ := filepath.Glob(w.path("out.*"))
	for _, l := range logs {
		if b, _ := os.ReadFile(l); len(b) > 0 {
			t.Logf("%s: %s", filepath.Base(l), b[max(0, len(b)-2000):])
		}
	}
}
