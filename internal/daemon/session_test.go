//go:build linux

package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cgroup"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

func init() { testutil.RegisterRole("lead", leadRole) }

// supervisorArg makes the test binary a supervisor, whatever its environment.
const supervisorArg = "supervise a session"

// sessionCluster is one with users' certificates, whose nodes have sessions.
type sessionCluster struct {
	t     *testing.T
	dir   string
	hosts []hosts.Host
	nodes map[string]*daemon.Node
}

func newSessionCluster(t *testing.T) *sessionCluster {
	t.Helper()
	c := &sessionCluster{t: t, dir: t.TempDir(), nodes: map[string]*daemon.Node{}}
	if err := cert.Init(c.at("ca"), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // when the nodes have ended
		ctx, stop := context.WithTimeout(context.Background(), bound)
		defer stop()
		for _, n := range []string{"a", "b"} {
			if err := daemon.EndSessions(ctx, n, c.at("state-"+n)); err != nil {
				t.Error(err)
			}
		}
	})
	for _, n := range []string{"a", "b"} {
		if err := cert.IssueNode(c.at("ca"), n, c.at("node-"+n)); err != nil {
			t.Fatal(err)
		}
		addr := freePort(t)
		c.hosts = append(c.hosts, hosts.Host{Name: n, Control: addr, Data: addr})
	}
	for _, n := range []string{"a", "b"} {
		c.start(n)
	}
	return c
}

func (c *sessionCluster) at(name string) string { return filepath.Join(c.dir, name) }

func (c *sessionCluster) start(name string) {
	c.t.Helper()
	id, err := cert.Load(c.at("node-" + name))
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[name] = startNode(c.t, daemon.Config{
		Name: name, Socket: c.at(name + ".sock"), Hosts: c.hosts, Identity: id, SpawnRoot: true,
		State: c.at("state-" + name), Supervisor: []string{"/proc/self/exe", os.Args[0], supervisorArg},
	})
}

// as is a node's service for sessions, asked with an identity.
func (c *sessionCluster) as(
	kind, name, node string, h http.Header,
) nodev1connect.SessionServiceClient {
	c.t.Helper()
	dir := c.at(kind + "-" + name)
	if _, err := os.Stat(dir); err != nil {
		if err := cert.IssueUser(c.at("ca"), name, dir); err != nil {
			c.t.Fatal(err)
		}
	}
	id, err := cert.Load(dir)
	if err != nil {
		c.t.Fatal(err)
	}
	host, _ := hosts.Lookup(c.hosts, node)
	tr := &http.Transport{TLSClientConfig: id.ClientTLS(node), ForceAttemptHTTP2: true}
	c.t.Cleanup(tr.CloseIdleConnections)
	return nodev1connect.NewSessionServiceClient(&http.Client{
		Transport: withHeader{tr, h}, Timeout: bound,
	}, "https://"+host.Control)
}

type withHeader struct {
	http.RoundTripper
	h http.Header
}

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	for k, v := range w.h {
		r.Header[k] = v
	}
	return w.RoundTripper.RoundTrip(r)
}

func me(t *testing.T) string {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return u.Username
}

// add makes a session.
func (c *sessionCluster) add(s nodev1connect.SessionServiceClient, name, base string) {
	c.t.Helper()
	_, err := s.AddSession(c.t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
		Name: name, Drive: "-", Share: base, OutputDirectory: "/out",
	}))
	if err != nil {
		c.t.Fatal(err)
	}
}

// output runs a script in a session, and gives what it prints.
func output(
	t *testing.T, s nodev1connect.SessionServiceClient, session, script string,
) (string, *nodev1.Process) {
	t.Helper()
	r, err := s.Run(t.Context(), connect.NewRequest(&nodev1.RunRequest{
		Session: session, Path: []byte("sh"), Args: [][]byte{[]byte("-c"), []byte(script)},
		Directory: []byte("/"),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return printed(t, s, session, r.Msg.GetProcess().GetPid())
}

func printed(
	t *testing.T, s nodev1connect.SessionServiceClient, session string, pid uint32,
) (string, *nodev1.Process) {
	t.Helper()
	var b bytes.Buffer
	for {
		a, err := s.ReadLog(t.Context(), connect.NewRequest(&nodev1.ReadLogRequest{
			Session: session, Pid: pid, Offset: int64(b.Len()), TimeoutNs: int64(bound),
		}))
		if err != nil {
			t.Fatal(err)
		}
		if b.Write(a.Msg.GetData()); a.Msg.GetDone() {
			break
		}
	}
	w, err := s.Wait(t.Context(), connect.NewRequest(&nodev1.WaitRequest{
		Session: session, Pid: pid, TimeoutNs: int64(bound),
	}))
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), w.Msg.GetProcess()
}

func TestSessionsAreTheirUsers(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	c := newSessionCluster(t)
	base := openDir(t)
	none := c.as("user", "nobody", "a", nil)
	c.add(none, "theirs", base)
	if got, p := output(t, none, "theirs",
		"id -u; id -G; umask >made; stat -c %u made"); !strings.HasPrefix(got, "65534\n") ||
		!strings.HasSuffix(got, "\n65534\n") || p.GetExitStatus() != 0 {
		t.Errorf("a program of it ran as %q", got)
	}
	long, err := none.Run(t.Context(), connect.NewRequest(&nodev1.RunRequest{
		Session: "theirs", Path: []byte("sleep"), Args: [][]byte{[]byte("1000")}, Directory: []byte("/"),
	}))
	if err != nil {
		t.Fatal(err)
	}
	pid := long.Msg.GetProcess().GetPid()

	// Another user, also one who claims to be root, and a node that names no user.
	for caller, s := range map[string]nodev1connect.SessionServiceClient{
		"another user":       c.as("user", "daemon", "a", nil),
		"one with a header":  c.as("user", "daemon", "a", http.Header{"Vmmc-User": {"root"}}),
		"a node for no user": c.as("node", "b", "a", nil),
		"a node's user":      c.as("node", "b", "a", http.Header{"Vmmc-User": {"daemon"}}),
	} {
		ctx := t.Context()
		try := func(what string, err error) {
			t.Helper()
			if !errors.Is(ownCode(err), code.NoRights) {
				t.Errorf("%s may %s: %v", caller, what, err)
			}
		}
		_, err := s.Run(ctx, connect.NewRequest(&nodev1.RunRequest{
			Session: "theirs", Path: []byte("true"), Directory: []byte("/"),
		}))
		try("run", err)
		_, err = s.ListProcesses(ctx, connect.NewRequest(&nodev1.ListProcessesRequest{Session: "theirs"}))
		try("list", err)
		_, err = s.SessionOrigin(ctx, connect.NewRequest(&nodev1.SessionOriginRequest{Session: "theirs"}))
		try("learn how it was made", err)
		_, err = s.Wait(ctx, connect.NewRequest(&nodev1.WaitRequest{Session: "theirs", Pid: pid}))
		try("wait", err)
		_, err = s.Kill(ctx, connect.NewRequest(&nodev1.KillRequest{
			Session: "theirs", Pid: pid, Signal: 9,
		}))
		try("kill", err)
		_, err = s.Kill(ctx, connect.NewRequest(&nodev1.KillRequest{Session: "theirs", Signal: 9}))
		try("kill all", err)
		_, err = s.ReadLog(ctx, connect.NewRequest(&nodev1.ReadLogRequest{Session: "theirs", Pid: pid}))
		try("read", err)
		_, err = s.DeleteSession(ctx, connect.NewRequest(&nodev1.DeleteSessionRequest{Name: "theirs"}))
		try("delete", err)
		_, err = s.AddSession(ctx, connect.NewRequest(&nodev1.AddSessionRequest{
			Name: "new", User: "nobody", Drive: "-", Share: base, OutputDirectory: "/out",
		}))
		try("make one for another", err)
		if l, err := s.ListSessions(ctx, connect.NewRequest(&nodev1.ListSessionsRequest{})); err == nil &&
			len(l.Msg.GetSessions()) > 0 {
			t.Errorf("%s sees %v", caller, l.Msg.GetSessions())
		}
	}
	if _, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.nodes["a"].Socket()),
		vmmc.WithSession("theirs")); !errors.Is(err, vmmc.ErrNoRights) {
		t.Errorf("a process of root joins it: %v", err)
	}

	// What the user may not enter is no base.
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = none.AddSession(t.Context(), connect.NewRequest(&nodev1.AddSessionRequest{
		Name: "new", Drive: "-", Share: closed, OutputDirectory: "/out",
	}))
	if err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("a base that the user may not enter: %v", err)
	}

	// Root may all, by itself or by its node's word, and runs as the session's user.
	for _, root := range []nodev1connect.SessionServiceClient{
		c.as("user", "root", "a", nil), c.as("node", "b", "a", http.Header{"Vmmc-User": {"root"}}),
	} {
		if got, _ := output(t, root, "theirs", "id -u"); got != "65534\n" {
			t.Errorf("for root a program ran as %q", got)
		}
		l, err := root.ListSessions(t.Context(), connect.NewRequest(&nodev1.ListSessionsRequest{}))
		if err != nil || len(l.Msg.GetSessions()) != 1 {
			t.Errorf("root sees %v (%v)", l, err)
		}
	}
	if _, err := c.as("user", "root", "a", nil).Kill(t.Context(),
		connect.NewRequest(&nodev1.KillRequest{Session: "theirs", Pid: pid, Signal: 15})); err != nil {
		t.Error(err)
	}
	if _, p := printed(t, none, "theirs", pid); p.GetSignal() != 15 {
		t.Errorf("it ended with %v", p)
	}
}

// leadRole joins a session from its environment. "spawn NODE PROGRAM...": spawns
// and tells both pids. "hear NODE PID": tells what a child reports.
func leadRole() int {
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	p, err := vmmc.Open(ctx)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer p.Close()
	a := testutil.Args()
	var node vmmc.NodeID
	_ = node.UnmarshalText([]byte(a[1]))
	if a[0] == "spawn" {
		pid, err := p.Spawn(ctx, node, a[2], a[3:]...)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(p.ID().PID, pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	pid, _ := strconv.Atoi(a[2])
	im, err := p.Import(ctx, node, vmmc.PID(pid), 1)
	b := make([]byte, reportSize)
	if err == nil {
		err = im.Get(ctx, b, 0)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(strings.TrimRight(string(b), "\x00"))
	_ = im.Send(ctx, []byte{1, 0, 0, 0}, byeAt)
	return 0
}

// lead runs the role in a session of node a, in a directory.
func (c *sessionCluster) lead(dir, session string, args ...string) (string, func()) {
	c.t.Helper()
	cmd := testutil.Command(c.t, "lead", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, nodeproto.Env+"="+c.nodes["a"].Socket(),
		nodeproto.SessionEnv+"="+session, "PWD="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	line := ""
	for b := make([]byte, 1); ; {
		if n, err := out.Read(b); n == 0 || err != nil || b[0] == '\n' {
			break
		}
		line += string(b)
	}
	return line, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			c.t.Error(err)
		}
	}
}

func TestSpawnInASession(t *testing.T) {
	c := newSessionCluster(t)
	bases := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	at := map[string]nodev1connect.SessionServiceClient{}
	for n, base := range bases {
		if err := os.MkdirAll(filepath.Join(base, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, "sub", "where"),
			[]byte("#!/bin/sh\npwd; echo $VMMCSESSION\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		at[n] = c.as("user", me(t), n, nil)
		c.add(at[n], "job", base)
	}
	// The same way in the drive, which each node has elsewhere; by a relative and
	// an absolute path.
	for _, path := range []string{"./where", filepath.Join(bases["a"], "sub/where")} {
		line, end := c.lead(filepath.Join(bases["a"], "sub"), "job", "spawn", "b", path)
		var own, pid uint32
		if _, err := fmt.Sscan(line, &own, &pid); err != nil {
			t.Fatal(line)
		}
		if got, p := printed(t, at["b"], "job", pid); got != filepath.Join(bases["b"], "sub")+"\njob\n" ||
			p.GetGroup() != own {
			t.Errorf("spawned by %d, it printed %q and is %v", own, got, p)
		}
		b, err := os.ReadFile(filepath.Join(bases["b"], "out", fmt.Sprintf("job_%d", own)))
		if err != nil || !strings.Contains(string(b), fmt.Sprintf("\nVMMC_b %d # HOST=b ", pid)) {
			t.Errorf("the run group's file on b has %q (%v)", b, err)
		}
		for deadline := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
			// The session learns of processes that join.
			b, err = os.ReadFile(filepath.Join(bases["a"], "out", fmt.Sprintf("job_%d", own)))
			if strings.Contains(string(b), fmt.Sprintf("\nVMMC_a %d # HOST=a ", own)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("the run group's file on a has %q (%v)", b, err)
			}
		}
		end()
	}
	line, end := c.lead(t.TempDir(), "job", "spawn", "b", "./where")
	if !strings.Contains(line, "not in the drive") {
		t.Errorf("spawn from outside of the drive: %s", line)
	}
	_ = end // it has ended, with an error
	if _, err := at["b"].DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
		Name: "job",
	})); err != nil {
		t.Fatal(err)
	}
	line, _ = c.lead(bases["a"], "job", "spawn", "b", "sub/where")
	if !strings.Contains(line, `node "b" has no session "job"`) {
		t.Errorf("spawn where there is no session: %s", line)
	}
}

// A program finds its argument 0 as it was given, on each node, whatever the drive is there.
func TestArgumentZeroInASession(t *testing.T) {
	c := newSessionCluster(t)
	bases := map[string]string{"a": t.TempDir(), "b": t.TempDir()}
	at := map[string]nodev1connect.SessionServiceClient{}
	for n, base := range bases {
		if err := os.Mkdir(filepath.Join(base, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		testutil.CopyProgram(t, "/bin/cat", filepath.Join(base, "bin"))
		if err := os.WriteFile(filepath.Join(base, "bin", "script"),
			[]byte("#!/bin/sh\nprintf %s \"$0\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		at[n] = c.as("user", me(t), n, nil)
		c.add(at[n], "job", base)
	}
	inA := filepath.Join(bases["a"], "bin")
	for _, s := range []struct{ node, dir, path, want string }{
		{"a", bases["a"], inA + "/cat", inA + "/cat"},
		{"a", inA, inA + "/cat", inA + "/cat"},
		{"a", inA, "./cat", "./cat"},
		{"a", bases["a"], "bin/cat", "bin/cat"},
		{"a", bases["a"], "/bin/cat", "/bin/cat"},
		{"a", bases["a"], inA + "/script", inA + "/script"},
		{"b", bases["a"], inA + "/cat", inA + "/cat"},
		{"b", inA, "./cat", "./cat"},
		{"b", bases["a"], "/bin/cat", "/bin/cat"},
	} {
		line, end := c.lead(s.dir, "job", "spawn", s.node, s.path, "/proc/self/cmdline")
		var own, pid uint32
		if _, err := fmt.Sscan(line, &own, &pid); err != nil {
			t.Fatal(line)
		}
		got, _ := printed(t, at[s.node], "job", pid)
		if zero, _, _ := strings.Cut(got, "\x00"); zero != s.want {
			t.Errorf("%s in %s on node %s: argument 0 is %q, want %q", s.path, s.dir, s.node, zero, s.want)
		}
		end()
	}
}

// A program that joins after its node was started again has the pid, the run group and the end that
// it would have had.
func TestProgramsOutliveTheDaemon(t *testing.T) {
	c := newSessionCluster(t)
	base := t.TempDir()
	c.add(c.as("user", me(t), "a", nil), "job", base)
	r := &nodev1.RunRequest{Session: "job", Directory: []byte("/")}
	for i, s := range testutil.Argv(t, "child", filepath.Join(base, "join")) {
		if i == 0 {
			r.Path = []byte(s)
		} else {
			r.Args = append(r.Args, []byte(s))
		}
	}
	a, err := c.as("user", me(t), "a", nil).Run(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	pid := a.Msg.GetProcess().GetPid()
	c.nodes["a"].Close()
	c.start("a")
	if err := os.WriteFile(filepath.Join(base, "join"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	line, end := c.lead(base, "job", "hear", "a", strconv.Itoa(int(pid)))
	end()
	var got report
	if err := json.Unmarshal([]byte(line), &got); err != nil || uint32(got.ID.PID) != pid ||
		got.Real != int(a.Msg.GetProcess().GetRealPid()) {
		t.Errorf("%s: it is not process %d (%v)", line, pid, err)
	}
	if _, p := printed(t, c.as("user", me(t), "a", nil), "job", pid); p.GetExitStatus() != 0 ||
		p.GetLost() {
		t.Errorf("it ended with %v", p)
	}
}

// sleeper starts a program with a child that leaves it, and gives both.
func sleeper(t *testing.T, s nodev1connect.SessionServiceClient) (pid uint32, real []int) {
	t.Helper()
	r, err := s.Run(t.Context(), connect.NewRequest(&nodev1.RunRequest{
		Session: "job", Path: []byte("sh"), Directory: []byte("/"),
		Args: [][]byte{[]byte("-c"), []byte("(setsid sleep 1000 >/dev/null & echo $!); exec sleep 1000")},
	}))
	if err != nil {
		t.Fatal(err)
	}
	p := r.Msg.GetProcess()
	l, err := s.ReadLog(t.Context(), connect.NewRequest(&nodev1.ReadLogRequest{
		Session: "job", Pid: p.GetPid(), TimeoutNs: int64(bound),
	}))
	if err != nil {
		t.Fatal(err)
	}
	below, err := strconv.Atoi(strings.TrimSpace(string(l.Msg.GetData())))
	if err != nil {
		t.Fatal(err)
	}
	return p.GetPid(), []int{int(p.GetRealPid()), below}
}

// What a dead supervisor leaves is ended without a request.
func TestSupervisorIsReplaced(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	pid, real := sleeper(t, s)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", real[0]))
	if err != nil {
		t.Fatal(err)
	}
	parent, err := strconv.Atoi(strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[1])
	if err != nil || syscall.Kill(parent, syscall.SIGKILL) != nil {
		t.Fatalf("kill supervisor %d: %v", parent, err)
	}
	for _, r := range real {
		reaped(t, r)
	}
	if _, p := printed(t, s, "job", pid); !p.GetLost() {
		t.Errorf("it is %v, want that it was lost", p)
	}
	if got, _ := output(t, s, "job", "echo again"); got != "again\n" {
		t.Errorf("after that a program prints %q", got)
	}
}

// What a daemon was deleting, or making, when it died is deleted by the next one.
func TestHalfDeleted(t *testing.T) {
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	_, real := sleeper(t, s)
	c.nodes["a"].Close()
	file := c.at("state-a/sessions/job.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(b, []byte(`"Ending": false`), []byte(`"Ending": true`),
		1), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	for _, r := range real {
		reaped(t, r)
	}
	for deadline := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		var left []string
		for _, dir := range []string{"sessions", "run", "drives"} {
			es, err := os.ReadDir(c.at("state-a/" + dir))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				left = append(left, dir+"/"+e.Name())
			}
		}
		if left == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v are left", left)
		}
	}
}

func TestSessionsNeedVmmcd(t *testing.T) {
	c := newCluster(t)
	s := nodev1connect.NewSessionServiceClient(&http.Client{
		Transport: &http.Transport{TLSClientConfig: c.ids["b"].ClientTLS("a")}, Timeout: bound,
	}, "https://"+c.a.Addr())
	r := connect.NewRequest(&nodev1.AddSessionRequest{
		Name: "x", Drive: "-", Share: "/", OutputDirectory: "/out",
	})
	r.Header().Set("Vmmc-User", me(t))
	if _, err := s.AddSession(t.Context(), r); err == nil {
		t.Error("a node that keeps no state has a session")
	}
}

// escape starts a process that nothing of the session tells of: another user, in a
// session of its own, with another parent, without environment.
func escape(t *testing.T, s nodev1connect.SessionServiceClient) int {
	t.Helper()
	const script = `(setsid setpriv --reuid 65534 --clear-groups env -i sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1' &); exec sleep 1000`
	r, err := s.Run(t.Context(), connect.NewRequest(&nodev1.RunRequest{
		Session: "job", Path: []byte("sh"), Directory: []byte("/"),
		Args: [][]byte{[]byte("-c"), []byte(script)},
	}))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.ReadLog(t.Context(), connect.NewRequest(&nodev1.ReadLogRequest{
		Session: "job", Pid: r.Msg.GetProcess().GetPid(), TimeoutNs: int64(bound),
	}))
	if err != nil {
		t.Fatal(err)
	}
	real, err := strconv.Atoi(strings.TrimSpace(string(l.Msg.GetData())))
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// dead waits until a process runs no more, whichever process reaps it.
func dead(t *testing.T, real int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d still runs", real), func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", real))
		return len(b) == 0
	})
}

func TestProgramsOfOtherUsersEnd(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	real := escape(t, s)
	if _, err := s.DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
		Name: "job",
	})); err != nil {
		t.Fatal(err)
	}
	dead(t, real)
}

// In a cgroup even what has lost its supervisor is ended.
func TestNothingLeavesACgroup(t *testing.T) {
	_, err := cgroup.Home()
	testutil.Require(t, err == nil && os.Getuid() == 0,
		"needs root and cgroups of version 2 that it may make")
	c := newSessionCluster(t)
	s := c.as("user", me(t), "a", nil)
	c.add(s, "job", t.TempDir())
	real := escape(t, s)
	l, err := s.ListSessions(t.Context(), connect.NewRequest(&nodev1.ListSessionsRequest{}))
	if err != nil || len(l.Msg.GetSessions()) != 1 {
		t.Fatal(l, err)
	}
	dir := l.Msg.GetSessions()[0].GetCgroup()
	if !cgroup.Holds(dir, real) {
		t.Fatalf("process %d is not in the session's cgroup %q", real, dir)
	}
	c.nodes["a"].Close()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", real))
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := strconv.Atoi(strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[1])
	if err != nil || supervisor == 1 || syscall.Kill(supervisor, syscall.SIGKILL) != nil {
		t.Fatalf("kill supervisor %d: %v", supervisor, err)
	}
	dead(t, supervisor)
	if st, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", real)); err != nil || len(st) == 0 ||
		bytes.Contains(st, []byte("VMMC")) {
		t.Fatalf("process %d ended with its supervisor, or has the session's mark: %q (%v)", real, st,
			err)
	}
	c.start("a")
	dead(t, real)
	if got, _ := output(t, s, "job", "echo again"); got != "again\n" {
		t.Errorf("after that a program prints %q", got)
	}
	if _, err := s.DeleteSession(t.Context(), connect.NewRequest(&nodev1.DeleteSessionRequest{
		Name: "job",
	})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup %s is left (%v)", dir, err)
	}
}
