//go:build linux

package daemon_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func init() {
	testutil.RegisterRole("spawn as", spawnAsRole)
	testutil.RegisterRole("node as", nodeAsRole)
}

// nobody has an account on every system.
const nobody = 65_534

func become(uid int, groups ...int) error {
	return errors.Join(syscall.Setgroups(groups), syscall.Setgid(uid), syscall.Setuid(uid))
}

// spawnAsRole becomes another user and spawns: user, socket, node, program.
func spawnAsRole() int {
	a := testutil.Args()
	uid, _ := strconv.Atoi(a[0])
	var node vmmc.NodeID
	_ = node.UnmarshalText([]byte(a[2]))
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	err := become(uid, 64_500)
	var p *vmmc.Process
	if err == nil {
		p, err = vmmc.Open(ctx, vmmc.WithSocket(a[1]))
	}
	if err != nil {
		fmt.Println("open:", err)
		return 1
	}
	defer p.Close()
	pid, err := p.Spawn(ctx, node, a[3], a[4:]...)
	if err != nil {
		fmt.Println("rights:", errors.Is(err, vmmc.ErrNoRights), err)
		return 0
	}
	_, err = p.Import(ctx, node, pid, 1) // until it ends
	fmt.Println("ended:", errors.Is(err, vmmc.ErrNoSuchProcess), err)
	return 0
}

// nodeAsRole is a node of another user: user, socket.
func nodeAsRole() int {
	uid, _ := strconv.Atoi(testutil.Args()[0])
	if err := become(uid); err != nil {
		fmt.Println(err)
		return 1
	}
	n, err := daemon.Start(daemon.Config{Name: "one", Socket: testutil.Args()[1]})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer n.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// openDir is a directory for all users.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vmmc-user") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// closeDir is for a socket of another user's daemon: others believe it where root
// alone could have put it.
func closeDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// A program runs as the user who asks, on each node.
func TestSpawnAsAnotherUser(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	c := newCluster(t)
	dir := openDir(t)
	socket := filepath.Join(dir, "a.sock")
	c.a.Close()
	c.a = startNode(t, daemon.Config{Name: "a", Socket: socket, Hosts: c.hosts, Identity: c.ids["a"]})
	account, err := user.LookupId(strconv.Itoa(nobody))
	testutil.Require(t, err == nil && account.Username == "nobody" && account.Gid == account.Uid,
		"this system's user 65534 is not nobody")
	const tell = `{ id -u; id -g; id -G; echo $USER $HOME $PATH; pwd; } >"$0.tmp"; mv "$0.tmp" "$0"`
	for name, s := range map[string]struct {
		user       int
		node, says string
		printed    string
	}{
		"here": {
			nobody, "a", "ended: true", "65534\n65534\n65534 64500\nnobody " + account.HomeDir +
				" /usr/local/bin:/usr/bin:/bin\n",
		},
		"here without account": {
			otherUser, "a", "ended: true",
			"64321\n64321\n64321 64500\n64321 / /usr/local/bin:/usr/bin:/bin\n",
		},
		"on the other node": {
			nobody, "b", "ended: true", "65534\n65534\n65534\nnobody " + account.HomeDir +
				" /usr/local/bin:/usr/bin:/bin\n",
		},
		"no account there": {otherUser, "b", "rights: true", ""},
		"root here":        {0, "a", "ended: true", "0\n"},
		"root there":       {0, "b", "rights: true", ""},
	} {
		out := filepath.Join(dir, "out")
		cmd := testutil.Command(t, "spawn as", strconv.Itoa(s.user), socket, s.node, "/bin/sh", "-c",
			tell, out)
		cmd.Dir = dir
		said, err := cmd.Output()
		if err != nil || !strings.HasPrefix(string(said), s.says) {
			t.Errorf("%s: %q (%v), want %s", name, said, err, s.says)
		}
		b, err := os.ReadFile(out)
		if s.printed == "" {
			if err == nil {
				t.Errorf("%s: it ran: %q", name, b)
			}
			continue
		}
		if err != nil || !bytes.HasPrefix(b, []byte(s.printed)) || !bytes.HasSuffix(b,
			[]byte("\n"+dir+"\n")) {
			t.Errorf("%s: it printed %q (%v), want %q", name, b, err, s.printed)
		}
		_ = os.Remove(out)
	}
}

// A user may not start what another one keeps to himself.
func TestSpawnWithTheUsersRights(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir := openDir(t)
	socket := filepath.Join(dir, "one.sock")
	startNode(t, daemon.Config{Name: "one", Socket: socket})
	private := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(private, "sh")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := testutil.Command(t, "spawn as", strconv.Itoa(nobody), socket, "one", filepath.Join(private,
		"sh"))
	cmd.Dir = dir
	if said, err := cmd.Output(); err != nil || !strings.HasPrefix(string(said), "rights: false") ||
		!strings.Contains(string(said), "permission denied") {
		t.Errorf("another user's program: %q, %v", said, err)
	}
}

// A daemon that is not root's starts programs for its own user only.
func TestSpawnByAnotherUsersNode(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir := openDir(t)
	socket := filepath.Join(dir, "one.sock")
	cmd := testutil.Command(t, "node as", strconv.Itoa(nobody), socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var up string
	if testutil.Start(t, cmd, &up); up != "up" {
		t.Fatal(up)
	}
	closeDir(t, dir)
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.Spawn(t.Context(), p.Node(), "/bin/true")
	check(t, "root at the node of another user", err, vmmc.ErrNoRights, `runs as user "nobody"`,
		`user "root"`)
	said, err := testutil.Command(t, "spawn as", strconv.Itoa(nobody), socket, "one",
		"/bin/true").Output()
	if err != nil || !strings.HasPrefix(string(said), "ended: true") {
		t.Errorf("the daemon's own user: %q, %v", said, err)
	}
}

// What another node asks is checked as what a process asks.
func TestSpawnForAnotherNode(t *testing.T) {
	ids, ann := userIdentity(t)
	c := clusterOf(t, ids)
	tr := newTraffic(t, c.a, c.b)
	me := &nodev1.ProcessID{Node: "a", Pid: 1, Incarnation: 1}
	good := func() *nodev1.SpawnRequest {
		return &nodev1.SpawnRequest{
			Parent: me, User: "no-such-user", Path: []byte("/bin/true"), Directory: []byte("/"),
		}
	}
	ask := func(node string, r *nodev1.SpawnRequest) error {
		id := ids[node]
		if id == nil {
			id = ann
		}
		_, err := client(t, c.b.Addr(), id.ClientTLS("b")).Spawn(t.Context(), connect.NewRequest(r))
		return ownCode(err)
	}
	check(t, "a user spawns", ask("ann", good()), code.NoRights, "may not speak for")
	check(t, "another node spawns", ask("c", good()), code.NoRights, "may not speak for")
	check(t, "nobody spawns", ask("a", &nodev1.SpawnRequest{}), code.NoRights, "may not speak for")
	check(t, "an unknown user", ask("a", good()), code.NoRights, `"no-such-user"`, `"b"`)
	for name, change := range map[string]func(*nodev1.SpawnRequest){
		"no path":          func(r *nodev1.SpawnRequest) { r.Path = nil },
		"zero":             func(r *nodev1.SpawnRequest) { r.Args = [][]byte{{'a', 0}} },
		"zero in session":  func(r *nodev1.SpawnRequest) { r.Session = "\x00" },
		"relative":         func(r *nodev1.SpawnRequest) { r.Directory = []byte("tmp") },
		"many arguments":   func(r *nodev1.SpawnRequest) { r.Args = make([][]byte, 20_000) },
		"many of the host": func(r *nodev1.SpawnRequest) { r.Hosts = bytes.Repeat([]byte("b "), 20_000) },
	} {
		r := good()
		change(r)
		check(t, name, ask("a", r), code.BadArg)
	}
	tr.goesOn(t)
}

// What a process asks may be what the library never would.
func TestHostileSpawn(t *testing.T) {
	c := newSpawnCluster(t)
	r := newRaw(t, c.a, 5, nil)
	ask := func(s nodeproto.SpawnRequest) error {
		_, _, err := nodeproto.Ask[nodeproto.Spawned](t.Context(), r.Conn, nodeproto.Spawn, s, nil)
		return err
	}
	for _, node := range []string{"a", "b"} {
		good := nodeproto.SpawnRequest{Node: node, Path: []byte("/bin/true"), Directory: []byte("/")}
		if err := ask(good); err != nil {
			t.Error(err)
		}
		bad := good
		bad.Directory = []byte("/no/such/directory")
		check(t, "a directory that is not there", ask(bad), code.BadArg, `"`+node+`"`,
			"/no/such/directory", "working directory")
		bad.Directory = []byte("tmp")
		check(t, "a relative directory", ask(bad), code.BadArg)
		bad.Directory, bad.Args = []byte("/"), [][]byte{make([]byte, 1)}
		check(t, "a zero byte", ask(bad), code.BadArg)
		bad.Args = make([][]byte, 10_000)
		check(t, "too much", ask(bad), code.BadArg, "at most")
	}
	fresh := join(t, c.a, nil)
	_, err := fresh.Call(t.Context(), nodeproto.Spawn, nodeproto.SpawnRequest{Node: "a"}, nil, nil)
	check(t, "spawn before registration", err, code.BadArg, "before registration")
}

// register joins with a token.
func register(t *testing.T, n *daemon.Node, token string) nodeproto.Welcome {
	t.Helper()
	c := join(t, n, nil)
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), c, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 9, Token: token}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A token makes one process the child, while it lasts.
func TestSpawnToken(t *testing.T) {
	n := alone(t)
	p := open(t, n)
	t.Chdir(t.TempDir())
	pid := spawn(t, p, p.Node(), []string{
		"/bin/sh", "-c", `echo "$VMMC_SPAWN" >t.tmp; mv t.tmp t; trap 'exit 0' TERM; while [ ! -e end ]; do sleep 0.01; done`,
	})
	var token []byte
	eventually(t, "no token", func() (ok bool) {
		var err error
		token, err = os.ReadFile("t")
		return err == nil
	})
	tok := strings.TrimSpace(string(token))
	for _, wrong := range []string{"", "x", tok + "x", tok[1:], strings.ToLower(tok)} {
		if w := register(t, n, wrong); w.Parent.Node != "" || w.Process.PID == uint32(pid) {
			t.Errorf("with token %q a process is %v, child of %v", wrong, w.Process, w.Parent)
		}
	}
	first := register(t, n, tok)
	if first.Process.PID != uint32(pid) || first.Parent.PID != uint32(p.PID()) ||
		first.Parent.Node != "one" {
		t.Errorf("the first is %v, child of %v; want pid %d of %v", first.Process, first.Parent, pid,
			p.ID())
	}
	if w := register(t, n, tok); w.Process.PID == uint32(pid) {
		t.Error("the token made two processes one")
	}
	if err := os.WriteFile("end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the token outlives the program", func() bool {
		return register(t, n, tok).Parent.Node == ""
	})
}

// A node that takes the request and is lost may have started the program.
func TestSpawnOnANodeThatIsLost(t *testing.T) {
	c := newSpawnCluster(t)
	p := open(t, c.a)
	addr := c.b.Addr()
	c.b.Close()
	l, err := tls.Listen("tcp", addr, c.ids["b"].ServerTLS())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(conn, make([]byte, 400)) // more than a greeting: the request is here
			conn.Close()
		}
	}()
	_, err = p.Spawn(t.Context(), nodeOf(t, p, "b"), "/bin/true", strings.Repeat("x", 1000))
	check(t, "a node that is lost", err, vmmc.ErrOutcomeUnknown, `"b"`, "not known")
}

// A node that does not answer, when the caller has no more time.
func TestSpawnOnANodeThatHangs(t *testing.T) {
	c := newSpawnCluster(t)
	p := open(t, c.a)
	addr := c.b.Addr()
	c.b.Close()
	l, err := tls.Listen("tcp", addr, c.ids["b"].ServerTLS())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan struct{}, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, 400))
		asked <- struct{}{}
		_, _ = io.Copy(io.Discard, conn)
	}()
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-asked
		stop()
	}()
	_, err = p.Spawn(ctx, nodeOf(t, p, "b"), "/bin/true", strings.Repeat("x", 1000))
	check(t, "a node that hangs", err, vmmc.ErrCanceled)
	check(t, "a node that hangs", err, vmmc.ErrOutcomeUnknown)
}
