package soak

import (
	"bufio"
	"encoding/json"
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
	layout "github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// member is a process that is looked at.
type member struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	tell string // the address of a daemon's metrics
	done int64
}

// remembered is more than a node remembers of processes that have ended.
const remembered = 17_000

// Two nodes, a process that exports and two that use it, with imports, exports and links that come
// and go: after a while none of them takes more memory, descriptors, goroutines or threads than
// before.
func TestSoak(t *testing.T) {
	total := 6 * time.Second
	if s := os.Getenv("VMMC_SOAK"); s != "" {
		var err error
		total, err = time.ParseDuration(s)
		check(t, err)
	} else {
		testutil.Require(t, !testing.Short(), "takes some seconds")
	}
	many := 0
	if total >= time.Minute {
		many = remembered
	}
	all := town(t, many)
	var curves []*curve
	begun := time.Now()
	heaps := map[string]sites{} // by process, when the time begins for which the curves are judged
	for every := max(total/60, 200*time.Millisecond); time.Since(begun) < total; {
		next := time.Now().Add(every)
		if len(heaps) == 0 && time.Since(begun) > total/3 {
			for _, m := range all {
				heaps[m.name] = m.heap(t)
			}
		}
		at := 0
		for _, m := range all {
			m.sample(t, func(figure string, v float64) {
				if at == len(curves) {
					curves = append(curves, &curve{process: m.name, figure: figure})
				}
				curves[at].at, curves[at].values = append(curves[at].at, time.Since(begun)), append(curves[at].values, v)
				at++
			})
		}
		time.Sleep(time.Until(next))
	}
	for _, m := range all {
		if m.tell == "" {
			t.Logf("%s: %d operations", m.name, m.done)
			if m.done == 0 {
				t.Errorf("%s has done nothing", m.name)
			}
		}
	}
	for _, c := range curves {
		grown, median, over := c.trend()
		t.Logf("%-7s %-11s median %8.4g, in %v grown by %.3g: %s", c.process, c.figure, median/unit(c.figure), over.Round(time.Second), grown/unit(c.figure), c.sketch())
		if total < time.Minute && c.memory() {
			continue // the collector and the tables of the first seconds are still finding their size
		}
		if grown > c.most(median) {
			t.Errorf("%s: %s grow: by %.3g in %v, at most %.3g", c.process, c.figure, grown, over, c.most(median))
			for _, m := range all {
				if m.name == c.process && c.memory() {
					t.Logf("its heap has grown here:%s", m.heap(t).since(heaps[m.name]))
				}
			}
		}
	}
	if dir := os.Getenv("VMMC_SOAK_OUT"); dir != "" {
		write(t, dir, curves)
	}
	for _, m := range all[2:] { // guests, and then the host
		check(t, m.in.Close())
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	for _, m := range all[:2] {
		check(t, m.cmd.Process.Signal(syscall.SIGTERM))
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// town starts all: the daemons, the guests, and their host.
func town(t *testing.T, many int) (all []*member) {
	dir, err := os.MkdirTemp("", "vmmc") // short: sockets' paths are limited
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(dir)) })
	path := func(name string) string { return filepath.Join(dir, name) }
	check(t, cert.Init(path("ca"), "soak"))
	addrs, err := layout.FreeAddresses(4)
	check(t, err)
	var hs []hosts.Host
	for i, a := range addrs[:2] {
		n := fmt.Sprintf("n%d", i)
		check(t, cert.IssueNode(path("ca"), n, path(n+".certs")))
		hs = append(hs, hosts.Host{Name: n, Control: a, Data: a})
	}
	check(t, os.WriteFile(path("hosts"), []byte(hosts.Format(hs)), 0o600))
	for i, h := range hs {
		c := testutil.Command(t, "vmmcd", "--name", h.Name, "--hosts", path("hosts"), "--certs", path(h.Name+".certs"),
			"--socket", path(h.Name), "--state", path(h.Name+".state"), "--log-level", "warn", "--metrics", addrs[2+i])
		m := start(t, "daemon"+h.Name[1:], c)
		m.tell = addrs[2+i]
		all = append(all, m)
	}
	for i := range hs {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			_, err := goroutines(all[i].tell)
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	host := launch(t, "host", path("n0"), "host")
	pid := host.line(t)
	for i := range hs {
		g := launch(t, fmt.Sprintf("guest%d", i), path(fmt.Sprintf("n%d", i)), "guest", "n0", pid, strconv.Itoa(many))
		g.line(t)
		all = append(all, g)
	}
	return append(all, host)
}

func launch(t *testing.T, name, socket, role string, args ...string) *member {
	t.Helper()
	c := testutil.Command(t, role, args...)
	c.Env = append(c.Env, nodeproto.Env+"="+socket)
	return start(t, name, c)
}

func start(t *testing.T, name string, c *exec.Cmd) *member {
	t.Helper()
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	check(t, err)
	out, err := c.StdoutPipe()
	check(t, err)
	check(t, c.Start())
	return &member{name: name, cmd: c, in: in, out: bufio.NewReader(out)}
}

func (m *member) line(t *testing.T) string {
	t.Helper()
	s, err := m.out.ReadString('\n')
	if err != nil {
		t.Fatalf("%s says nothing more: %v", m.name, err)
	}
	return strings.TrimSpace(s)
}

// sample looks at a process.
func (m *member) sample(t *testing.T, tell func(figure string, v float64)) {
	t.Helper()
	_, err := fmt.Fprintln(m.in)
	check(t, err)
	var n, heap float64
	_, err = fmt.Sscan(m.line(t), &n, &heap, &m.done)
	check(t, err)
	if m.tell != "" {
		n, err = goroutines(m.tell)
		check(t, err)
	}
	tell("goroutines", n)
	tell("heap", heap)
	dir := fmt.Sprintf("/proc/%d/", m.cmd.Process.Pid)
	for _, of := range [][2]string{{"descriptors", "fd"}, {"threads", "task"}} {
		entries, err := os.ReadDir(dir + of[1])
		check(t, err)
		tell(of[0], float64(len(entries)))
	}
	rollup, err := os.ReadFile(dir + "smaps_rollup")
	check(t, err)
	for line := range strings.Lines(string(rollup)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "Rss:" || f[0] == "Pss:") {
			n, err := strconv.ParseFloat(f[1], 64)
			check(t, err)
			tell(strings.ToLower(f[0][:3]), n*1024)
		}
	}
}

// heap says where a process's heap is. A profile is of the collection before the last one.
func (m *member) heap(t *testing.T) (s sites) {
	t.Helper()
	for range 3 {
		s = nil
		_, err := fmt.Fprintln(m.in, "heap")
		check(t, err)
		check(t, json.Unmarshal([]byte(m.line(t)), &s))
	}
	return s
}

// goroutines asks a daemon how many it has.
func goroutines(addr string) (n float64, err error) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	r, err := c.Get("http://" + addr + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Body.Close() }()
	for in := bufio.NewScanner(r.Body); in.Scan(); {
		if _, err := fmt.Sscanf(in.Text(), "go_goroutines %g", &n); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s does not say how many goroutines there are", addr)
}
