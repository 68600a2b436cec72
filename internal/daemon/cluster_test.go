//go:build linux

package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	layout "github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// bound is how long a test waits for what must happen.
const bound = 30 * time.Second

// cluster is two nodes, a and b, and the identities of three, in one process.
type cluster struct {
	a, b  *daemon.Node
	hosts []hosts.Host
	ids   map[string]*cert.Identity
}

// freePort returns an address without a listener.
func freePort(t testing.TB) string {
	t.Helper()
	as, err := layout.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	return as[0]
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	ids, err := cert.Ephemeral("test", "a", "b", "c")
	if err != nil {
		t.Fatal(err)
	}
	return clusterOf(t, ids)
}

func clusterOf(t testing.TB, ids map[string]*cert.Identity) *cluster {
	t.Helper()
	c := &cluster{ids: ids}
	for _, n := range []string{"a", "b"} {
		addr := freePort(t)
		c.hosts = append(c.hosts, hosts.Host{Name: n, Control: addr, Data: addr})
	}
	c.a, c.b = c.start(t, "a", c.hosts), c.start(t, "b", c.hosts)
	return c
}

func (c *cluster) start(t testing.TB, name string, hs []hosts.Host) *daemon.Node {
	t.Helper()
	return startNode(t, daemon.Config{
		Name: name, Socket: anonymous(), Hosts: hs, Identity: c.ids[name],
	})
}

func startNode(t testing.TB, cfg daemon.Config) *daemon.Node {
	t.Helper()
	n, err := daemon.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// anonymous is a socket without a file that no other test has.
func anonymous() string { return "@vmmc-test-" + rand.Text() }

func open(t testing.TB, n *daemon.Node, opts ...vmmc.Option) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(context.Background(), append(opts, vmmc.WithSocket(n.Socket()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// traffic is an established link of processes that have nothing to do with what
// the test attacks.
type traffic struct {
	im *vmmc.Import
	n  uint32
}

func newTraffic(t testing.TB, from, to *daemon.Node) *traffic {
	t.Helper()
	p, q := open(t, from), open(t, to)
	m, err := q.Alloc(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Export(1, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	im, err := p.Import(t.Context(), q.Node(), q.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return &traffic{im: im}
}

// goesOn sends and reads back, so that it fails if the link was disturbed.
func (tr *traffic) goesOn(t testing.TB) {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), bound)
	defer stop()
	src, dst := make([]byte, 4096), make([]byte, 4096)
	for range 4 {
		tr.n++
		for i := 0; i < len(src); i += 4 {
			binary.LittleEndian.PutUint32(src[i:], tr.n)
		}
		if err := tr.im.Send(ctx, src, 0); err != nil {
			t.Fatalf("the traffic of others was disturbed: %v", err)
		}
		if err := tr.im.Get(ctx, dst, 0); err != nil || !bytes.Equal(src, dst) {
			t.Fatalf("the traffic of others was disturbed: %v", err)
		}
	}
}

// raw is a process that speaks the local protocol by itself, and so can say
// what the library never would.
type raw struct {
	*nodeproto.Conn
	id nodeproto.ProcessID
}

// newRaw joins n as a process of incarnation inc. answer may be nil.
func newRaw(t testing.TB, n *daemon.Node, inc uint64, answer nodeproto.Handler) *raw {
	t.Helper()
	if answer == nil {
		answer = func(_ context.Context, m nodeproto.Method, _ []byte, fds []int) (any, []int, error) {
			closeAll(fds)
			return nil, nil, fmt.Errorf("request %d was not expected", m)
		}
	}
	r := &raw{Conn: join(t, n, answer)}
	w, _, err := nodeproto.Ask[nodeproto.Welcome](t.Context(), r.Conn, nodeproto.Register,
		nodeproto.Hello{Version: nodeproto.Version, Incarnation: inc}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.id = w.Process
	return r
}

// join gives a connection that has not registered.
func join(t testing.TB, n *daemon.Node, answer nodeproto.Handler) *nodeproto.Conn {
	t.Helper()
	c, err := nodeproto.Dial(t.Context(), n.Socket())
	if err != nil {
		t.Fatal(err)
	}
	l := nodeproto.NewConn(c, answer)
	t.Cleanup(func() {
		l.Close()
		<-l.Done()
	})
	return l
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// pipe gives descriptors of a pipe's reading end, and the other.
func pipe(t testing.TB, n int) (fds []int, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	t.Cleanup(func() { w.Close() })
	for range n {
		fd, err := unix.Borrow(r)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return fds, w
}

// userIdentity makes a cluster on disk, for nodes a, b, c and user ann.
func userIdentity(t testing.TB) (ids map[string]*cert.Identity, ann *cert.Identity) {
	t.Helper()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	if err := cert.Init(ca, "test"); err != nil {
		t.Fatal(err)
	}
	load := func(name string, issue func(dir, name, out string) error) *cert.Identity {
		out := filepath.Join(dir, "id-"+name)
		if err := issue(ca, name, out); err != nil {
			t.Fatal(err)
		}
		id, err := cert.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ids = map[string]*cert.Identity{}
	for _, n := range []string{"a", "b", "c"} {
		ids[n] = load(n, cert.IssueNode)
	}
	return ids, load("ann", cert.IssueUser)
}

// check fails the test unless err has the code and says all of what.
func check(t testing.TB, what string, err error, want error, says ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: %q does not say %q", what, err, s)
		}
	}
}
