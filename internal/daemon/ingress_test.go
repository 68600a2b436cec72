//go:build linux

package daemon_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// There are far more connections than may be unauthenticated, each with one byte of a record that
// it never ends. An honest peer gets through between them, and the oldest of them are closed.
func TestFloodOfUnauthConns(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	crowd := min(10_000, int(limit.Cur)/3)
	c := newCluster(t)
	tr := newTraffic(t, c.a, c.b)
	begun := [][]byte{nil, {0x16}, {0x16, 3, 1, 2}, helloFor(1, 1)[:1], helloFor(1, 1)}
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for i := range crowd {
		conn, err := net.Dial("tcp", c.b.Addr())
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		conns = append(conns, conn)
		_, _ = conn.Write(begun[i%len(begun)])
		if i%1000 == 999 {
			tr.goesOn(t)
			newTraffic(t, c.a, c.b).goesOn(t) // a new link, over a new connection
			if _, err := client(t, c.b.Addr(), c.ids["a"].ClientTLS("b")).Ping(t.Context(),
				connect.NewRequest(&nodev1.PingRequest{})); err != nil {
				t.Fatalf("a node is not served beside %d connections: %v", i+1, err)
			}
		}
	}
	// Those that had to go have heard of it.
	_ = conns[0].SetReadDeadline(time.Now().Add(bound))
	if _, err := io.ReadAll(conns[0]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest connection is still there")
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), what)
}

func (s *syncBuffer) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *syncBuffer) awaits(t *testing.T, what string) {
	t.Helper()
	for end := time.Now().Add(bound); s.count(what) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not say %q: %s", what, s.text())
		}
	}
}

// certified is a node with a port and its certificate in a directory.
func certified(t *testing.T, authority string, log io.Writer) (n *daemon.Node, certs string) {
	t.Helper()
	dir := t.TempDir()
	certs = filepath.Join(dir, "certs")
	if err := cert.IssueNode(authority, "n1", certs); err != nil {
		t.Fatal(err)
	}
	id, err := cert.Load(certs)
	if err != nil {
		t.Fatal(err)
	}
	n, err = daemon.Start(daemon.Config{
		Name: "n1", Socket: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Identity: id, Certs: certs,
		Hosts: []hosts.Host{{Name: "n1", Control: "127.0.0.1:0"}}, Log: slog.New(slog.NewTextHandler(log,
			nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n, certs
}

func authority(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	if err := cert.Init(dir, "lab"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func userOf(t *testing.T, authority string) *cert.Identity {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ann")
	if err := cert.IssueUser(authority, "ann", dir); err != nil {
		t.Fatal(err)
	}
	id, err := cert.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Each connection of an unauthenticated peer is refused, and one is logged.
func TestRefusalsAreLoggedOnce(t *testing.T) {
	log := &syncBuffer{}
	n, _ := certified(t, authority(t), log)
	other := userOf(t, authority(t)) // of a cluster of the same name
	for range 20 {
		conn := dialPort(t, n.Addr())
		_, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		over(t, conn)
		cfg := other.ClientTLS("n1")
		cfg.VerifyConnection = nil
		if tc, err := tls.Dial("tcp", n.Addr(), cfg); err == nil { // it learns by reading
			_ = tc.SetDeadline(time.Now().Add(bound))
			if _, err := tc.Read(make([]byte, 1)); err == nil {
				t.Error("a user of another authority was let in")
			}
			_ = tc.Close()
		}
	}
	// A peer may learn that it was refused before that is counted.
	all := func() bool { r := n.Figures().Refused; return r["speech"] >= 20 && r["certificate"] >= 20 }
	for end := time.Now().Add(bound); !all() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	log.awaits(t, "why=certificate")
	log.awaits(t, "why=speech")
	if got := log.count("an unauthenticated connection was refused"); got != 2 {
		t.Errorf("%d lines about refusals for two reasons: %s", got, log.text())
	}
	if r := n.Figures().Refused; r["speech"] != 20 || r["certificate"] != 20 {
		t.Errorf("refused were %v, want 20 each", r)
	}
}

// leaf is the certificate that a node shows.
func leaf(t *testing.T, addr string, id *cert.Identity) *tls.ConnectionState {
	t.Helper()
	c, err := tls.Dial("tcp", addr, id.ClientTLS("n1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cs := c.ConnectionState()
	return &cs
}

// A certificate that is renewed is shown from the next connection on; one for another
// node, or half a one, is not; and connections that are there go on.
func TestCertificateIsRenewed(t *testing.T) {
	ca := authority(t)
	log := &syncBuffer{}
	n, certs := certified(t, ca, log)
	ann := userOf(t, ca)
	kept := asUser(t, n.Addr(), ann.ClientTLS("n1"))
	look := func() {
		t.Helper()
		if _, err := kept.Nodes(t.Context(), connect.NewRequest(&nodev1.NodesRequest{})); err != nil {
			t.Fatalf("a connection that was there: %v", err)
		}
	}
	look()
	first := leaf(t, n.Addr(), ann).PeerCertificates[0]

	// Another node's is not taken.
	if err := cert.IssueNode(ca, "n2", certs); err != nil {
		t.Fatal(err)
	}
	n.Reload()
	log.awaits(t, "cannot be renewed")
	if !leaf(t, n.Addr(), ann).PeerCertificates[0].Equal(first) {
		t.Error("the node shows another certificate")
	}
	// Nor is a key without its certificate.
	if err := os.WriteFile(filepath.Join(certs, "cert.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.Reload()
	if !leaf(t, n.Addr(), ann).PeerCertificates[0].Equal(first) {
		t.Error("the node shows another certificate")
	}
	look()

	if err := cert.IssueNode(ca, "n1", certs); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(bound); leaf(t, n.Addr(),
		ann).PeerCertificates[0].Equal(first); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) { // looked at again at a handshake, without being told
			t.Fatalf("the old certificate is still shown: %s", log.text())
		}
	}
	log.awaits(t, "the certificate was renewed")
	look()
}

// A peer that sends a byte now and then has no more time than one that sends none.
func TestSlowUnauthConnsAreRefused(t *testing.T) {
	log := &syncBuffer{}
	n, _ := certified(t, authority(t), log)
	begun := time.Now()
	var all sync.WaitGroup
	for _, b := range [][]byte{
		append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}, make([]byte, 500)...), append(helloFor(1, 1),
			make([]byte, 500)...),
	} {
		conn := dialPort(t, n.Addr())
		all.Go(func() {
			for i := range b { // until it is closed at the other end, which a write sees
				if _, err := conn.Write(b[i : i+1]); err != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
			t.Error("a slow connection is still there")
		})
	}
	all.Wait()
	if took := time.Since(begun); took < timeout.Hello/2 {
		t.Errorf("closed after %v", took)
	}
	log.awaits(t, "why=silent")
}
