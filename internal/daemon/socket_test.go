//go:build linux

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func alone(t testing.TB) *daemon.Node {
	t.Helper()
	return startNode(t, daemon.Config{Name: "one", Socket: anonymous()})
}

func TestGarbageOnTheUnixSocket(t *testing.T) {
	n := alone(t)
	tr := newTraffic(t, n, n)
	for name, packets := range map[string][][]byte{
		"text":  {[]byte("hello?\n")},
		"short": {{1}},
		"large": {make([]byte, 70_000)},
		"good at first": {
			[]byte("VML1\x01\x00\x07\x00\x01\x00\x00\x00\x00\x00\x00\x00"), // a request for the nodes
			[]byte("VML1\x09\x00\x07\x00\x02\x00\x00\x00\x00\x00\x00\x00"),
		},
	} {
		c, err := net.Dial("unixpacket", n.Socket())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packets {
			if _, err := c.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.SetDeadline(time.Now().Add(bound))
		for err == nil { // an answer to what was good
			_, err = c.Read(make([]byte, nodeproto.MaxPacket))
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the node did not close the connection: %v", name, err)
		}
		c.Close()
		tr.goesOn(t)
	}
}

// What a process may not ask is refused, and its connection stays.
func TestRequestsOutOfPlace(t *testing.T) {
	n := alone(t)
	tr := newTraffic(t, n, n)
	c := join(t, n, nil)
	call := func(m nodeproto.Method, in any, n int) error {
		fds, w := pipe(t, n)
		got, err := c.Call(t.Context(), m, in, fds, nil)
		closeAll(fds)
		closeAll(got)
		testutil.PipeClosed(t, w) // whatever came of it
		return err
	}
	for _, m := range []nodeproto.Method{
		nodeproto.Export, nodeproto.Unexport, nodeproto.Import, nodeproto.Connect, nodeproto.Release, 0,
		nodeproto.Publish, nodeproto.Unpublish, nodeproto.ListNames, 999,
	} {
		check(t, fmt.Sprintf("request %d", m), call(m, nodeproto.Empty{}, 2), code.BadArg,
			"before registration")
	}
	check(t, "another protocol version", call(nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version + 1}, 1), code.Protocol, "one release")
	if err := call(nodeproto.Register, 5, 0); err == nil {
		t.Error("a number registered")
	}
	if err := call(nodeproto.Register, nodeproto.Hello{Version: nodeproto.Version, Incarnation: 3},
		1); err != nil {
		t.Fatal(err)
	}
	check(t, "register twice", call(nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: 4}, 0), code.BadArg, "already")
	for _, r := range []nodeproto.ExportRequest{
		{ID: 1, Rights: 1}, {ID: 1, Size: -4, Rights: 1}, {ID: 1, Size: 4}, {ID: 1, Size: 4, Rights: 4},
	} {
		check(t, fmt.Sprintf("export %+v", r), call(nodeproto.Export, r, 0), code.BadArg)
	}
	check(t, "unknown request", call(999, nodeproto.Empty{}, 4), code.BadArg, "newer than its daemon")
	for _, m := range []nodeproto.Method{
		nodeproto.Offer, nodeproto.Accept, nodeproto.Handover, nodeproto.Withdraw,
	} {
		check(t, fmt.Sprintf("a daemon's request %d", m), call(m, nodeproto.Empty{}, 1), code.BadArg)
	}
	check(t, "unknown process", call(nodeproto.Import,
		nodeproto.ImportRequest{Node: "one", PID: 999_999}, 3), code.NoSuchProcess, "999999", `"one"`)
	check(t, "unknown node", call(nodeproto.Import, nodeproto.ImportRequest{Node: "two", PID: 1}, 0),
		code.NoSuchNode, `"two"`)
	check(t, "no node", call(nodeproto.Import, nodeproto.ImportRequest{PID: 1}, 0), code.NoSuchNode)
	for _, m := range []nodeproto.Method{nodeproto.Connect, nodeproto.Release} {
		var r any = nodeproto.ConnectRequest{
			Exporter: nodeproto.ProcessID{Node: "one", PID: 1, Incarnation: 12345},
		}
		if m == nodeproto.Release {
			r = nodeproto.ReleaseRequest{
				Exporter: nodeproto.ProcessID{Node: "one", PID: 1, Incarnation: 12345},
			}
		}
		check(t, fmt.Sprintf("request %d about another incarnation", m), call(m, r, 2), code.StaleImport,
			"import again")
	}
	if err := call(nodeproto.Unexport, nodeproto.ExportRequest{ID: 77}, 0); err != nil {
		t.Errorf("the end of what is not exported can be repeated: %v", err)
	}
	if err := call(nodeproto.Unexport, nodeproto.ExportRequest{ID: 78}, 1); err != nil ||
		c.Err() != nil {
		t.Errorf("the connection did not survive: %v, %v", err, c.Err())
	}
	tr.goesOn(t)
}

// A link that was not granted is refused by the exporter itself.
func TestConnectWithoutAGrant(t *testing.T) {
	n := alone(t)
	var id nodeproto.ProcessID
	q := open(t, n)
	if _, err := q.Export(1, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	granted := newRaw(t, n, 10, nil)
	g, _, err := nodeproto.Ask[nodeproto.Grant](t.Context(), granted.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: "one", PID: uint32(q.PID()), ID: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	id = g.Exporter
	stranger := newRaw(t, n, 11, nil)
	fds, w := pipe(t, 2)
	_, err = stranger.Call(t.Context(), nodeproto.Connect, nodeproto.ConnectRequest{Exporter: id}, fds,
		nil)
	closeAll(fds)
	if err == nil {
		t.Error("a link without a grant")
	}
	testutil.PipeClosed(t, w)
}

// Both ways of waiting in vain end when the awaited process does.
func TestProcessEndsWhileAnImportWaits(t *testing.T) {
	c := newCluster(t)
	for _, from := range []*daemon.Node{c.a, c.b} {
		p := open(t, from)
		q, err := vmmc.Open(t.Context(), vmmc.WithSocket(c.b.Socket()))
		if err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 4)
		for id := range uint32(cap(errs)) {
			go func() {
				_, err := p.Import(t.Context(), q.Node(), q.PID(), id)
				errs <- err
			}()
		}
		if _, err := q.Export(100, make([]byte, 4)); err != nil { // waiters look again, and wait on
			t.Fatal(err)
		}
		q.Close()
		for range cap(errs) {
			select {
			case err := <-errs:
				check(t, "import from a process that ended", err, vmmc.ErrNoSuchProcess, q.ID().String())
			case <-time.After(bound):
				t.Fatal("an import still waits for a process that has ended")
			}
		}
	}
}

// A process that is killed cannot say goodbye.
func TestProcessIsKilledWhileAnImportWaits(t *testing.T) {
	n := alone(t)
	p := open(t, n)
	child := testutil.Command(t, "sit", n.Socket())
	var pid vmmc.PID
	testutil.Start(t, child, &pid)
	im, err := p.Import(t.Context(), p.Node(), pid, 1)
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 1)
	go func() {
		_, err := p.Import(t.Context(), p.Node(), pid, 2)
		errs <- err
	}()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-errs:
		check(t, "import from a process that was killed", err, vmmc.ErrNoSuchProcess)
	case <-time.After(bound):
		t.Fatal("an import still waits for a process that was killed")
	}
	for end := time.Now().Add(bound); ; {
		err := im.Send(t.Context(), make([]byte, 4), 0)
		if err != nil {
			check(t, "send to a process that was killed", err, vmmc.ErrPeerGone, "mapped")
			break
		}
		if time.Now().After(end) {
			t.Fatal("sends to a process that was killed go on")
		}
	}
}

// sitRole joins a node, exports buffer 1, and waits to be killed.
func sitRole() int {
	p, err := vmmc.Open(context.Background(), vmmc.WithSocket(testutil.Args()[0]))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	m, err := p.Alloc(4096)
	if err == nil {
		_, err = p.Export(1, m.Bytes())
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(uint32(p.PID()))
	_, _ = io.Copy(io.Discard, os.Stdin)
	select {}
}

func TestAnotherSession(t *testing.T) {
	c := newCluster(t)
	q := open(t, c.b, vmmc.WithSession("mine"))
	if _, err := q.Export(1, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*daemon.Node{c.a, c.b} {
		_, err := open(t, n, vmmc.WithSession("yours")).Import(t.Context(), q.Node(), q.PID(), 1)
		check(t, "import by another session", err, vmmc.ErrNoRights, q.ID().String(), `"mine"`, `"yours"`)
		check(t, "import by another session", err, vmmc.ErrBadIbufState)
		if _, err := open(t, n, vmmc.WithSession("mine")).Import(t.Context(), q.Node(), q.PID(),
			1); err != nil {
			t.Errorf("import by the same session: %v", err)
		}
	}
}

// The long session name of one process must not break another one that gets it in an error.
func TestLongSession(t *testing.T) {
	n := alone(t)
	q := open(t, n, vmmc.WithSession(strings.Repeat("\x01", 8000)))
	p := open(t, n)
	_, err := p.Import(t.Context(), q.Node(), q.PID(), 1)
	check(t, "import by another session", err, vmmc.ErrNoRights)
	if _, err := p.Export(1, make([]byte, 4)); err != nil {
		t.Errorf("its connection to the node: %v", err)
	}
}

// otherUser is the number of no user here; it needs no entry.
const otherUser = 64_321

// importRole becomes another user and imports: socket, node, process, buffer.
func importRole() int {
	a := testutil.Args()
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(otherUser),
		syscall.Setuid(otherUser)); err != nil {
		fmt.Println("setuid:", err)
		return 1
	}
	p, err := vmmc.Open(context.Background(), vmmc.WithSocket(a[0]))
	if err != nil {
		fmt.Println("open:", code.Code(0), err)
		return 0
	}
	defer p.Close()
	var node vmmc.NodeID
	var pid vmmc.PID
	_ = node.UnmarshalText([]byte(a[1]))
	_, _ = fmt.Sscan(a[2], &pid)
	_, err = p.Import(context.Background(), node, pid, 1)
	fmt.Println("import:", errors.Is(err, vmmc.ErrNoRights), err)
	return 0
}

func TestAnotherUser(t *testing.T) {
	testutil.Require(t, os.Getuid() == 0, "becoming another user needs root; run the tests as root")
	dir, err := os.MkdirTemp("", "vmmc-user") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ socket, want string }{
		"a socket with a file":    {filepath.Join(dir, "node.sock"), "import: true"},
		"a socket without a file": {anonymous(), "open:"},
	} {
		n := startNode(t, daemon.Config{Name: "one", Socket: c.socket})
		q := open(t, n)
		if _, err := q.Export(1, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		out, err := testutil.Command(t, "import", c.socket, "one", fmt.Sprint(q.PID())).Output()
		if err != nil || !strings.HasPrefix(string(out), c.want) {
			t.Errorf("%s: another user gets %q (%v), want %q", name, out, err, c.want)
		}
	}
}

// What a hostile process answers its daemon goes no further than it must.
func TestHostileAnswers(t *testing.T) {
	c := newCluster(t)
	victim := open(t, c.b)
	mem := make([]byte, 4096)
	if _, err := victim.Export(1, mem); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		g   any
		fds []int
		err error
	}
	var next atomic.Pointer[answer]
	bad := newRaw(t, c.b, 5, func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any,
		[]int, error,
	) {
		closeAll(fds)
		if m == nodeproto.Offer {
			a := next.Load()
			return a.g, a.fds, a.err
		}
		return nil, nil, code.New(code.NoRights, "no")
	})
	if _, err := bad.Call(t.Context(), nodeproto.Export,
		nodeproto.ExportRequest{ID: 1, Size: 4096, Rights: 3}, nil, nil); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]struct {
		g    any
		fds  int
		err  error
		want error
	}{
		"no grant at all":          {g: "x", want: nil},
		"no size":                  {g: nodeproto.Grant{Rights: 3}, want: vmmc.ErrProtocol},
		"a negative size":          {g: nodeproto.Grant{Size: -8, Rights: 3}, want: vmmc.ErrProtocol},
		"a huge size":              {g: nodeproto.Grant{Size: 1 << 60, Rights: 3}, want: vmmc.ErrProtocol},
		"mapped, no memory":        {g: nodeproto.Grant{Size: 4096, Rights: 3, Mapped: true}, want: vmmc.ErrProtocol},
		"descriptors for a stream": {g: nodeproto.Grant{Size: 4096, Rights: 3}, fds: 3, want: nil},
		"refused, in one's words":  {err: code.New(code.NoMem, "%s", strings.Repeat("\x02", 60_000)), want: vmmc.ErrNoMem},
	} {
		for _, n := range []*daemon.Node{c.a, c.b} {
			fds, w := pipe(t, a.fds)
			next.Store(&answer{a.g, fds, a.err})
			p := open(t, n)
			_, err := p.Import(t.Context(), victim.Node(), vmmc.PID(bad.id.PID), 1)
			if err == nil || a.want != nil && n == c.b && !errors.Is(err, a.want) {
				t.Errorf("%s: %v, want %v", name, err, a.want)
			}
			testutil.PipeClosed(t, w)
			if _, err := p.Import(t.Context(), victim.Node(), victim.PID(), 1); err != nil {
				t.Errorf("%s: the importer cannot import from others any more: %v", name, err)
			}
		}
	}
	// It names another process as the exporter: the importer would write there.
	id := nodeproto.ProcessID{Node: "b", PID: uint32(victim.PID()), Incarnation: 1}
	next.Store(&answer{g: nodeproto.Grant{Exporter: id, Handle: 1, Size: 4096, Rights: 3}})
	r := newRaw(t, c.a, 6, nil)
	g, _, err := nodeproto.Ask[nodeproto.Grant](t.Context(), r.Conn, nodeproto.Import,
		nodeproto.ImportRequest{Node: "b", PID: bad.id.PID, ID: 1}, nil)
	if err != nil || g.Exporter != bad.id {
		t.Errorf("a grant by %+v comes as one by %+v (%v)", bad.id, g.Exporter, err)
	}
}

func TestStartErrors(t *testing.T) {
	c := newCluster(t)
	path := filepath.Join(t.TempDir(), "s")
	startNode(t, daemon.Config{Name: "one", Socket: path})
	for name, s := range map[string]struct {
		cfg  daemon.Config
		says string
	}{
		"no name":      {daemon.Config{Socket: anonymous()}, "node name"},
		"bad name":     {daemon.Config{Name: "a b", Socket: anonymous()}, "node name"},
		"no socket":    {daemon.Config{Name: "one"}, "no socket path"},
		"socket taken": {daemon.Config{Name: "one", Socket: path}, "another vmmcd serves"},
		"long socket":  {daemon.Config{Name: "one", Socket: "/tmp/" + strings.Repeat("x", 120)}, "shorter directory"},
		"not in hosts": {daemon.Config{Name: "z", Socket: anonymous(), Hosts: c.hosts}, "a, b"},
		"no certificate": {
			daemon.Config{Name: "a", Socket: anonymous(), Hosts: c.hosts}, "no certificate",
		},
		"another's": {daemon.Config{
			Name: "a", Socket: anonymous(), Hosts: c.hosts, Identity: c.ids["b"],
		}, "this node is \"a\""},
		"port taken": {daemon.Config{
			Name: "a", Socket: anonymous(), Hosts: c.hosts, Identity: c.ids["a"],
		}, c.a.Addr()},
		"directory is none": {
			daemon.Config{Name: "one", Socket: path + "/x/s"}, "directory of the socket",
		},
	} {
		n, err := daemon.Start(s.cfg)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), s.says) {
			t.Errorf("%s: %v, want %q in it", name, err, s.says)
		}
	}
}
