package daemon

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/internal/unix"
)

func congestion(t *testing.T, l net.Listener) (now string) {
	t.Helper()
	rc, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := rc.Control(func(fd uintptr) { now = unix.Congestion(int(fd)) }); err != nil {
		t.Fatal(err)
	}
	return now
}

// What a node accepts begins as its listeners have it: without BBR, and with all else that the
// system has.
func TestListensUnpaced(t *testing.T) {
	dir := t.TempDir()
	authority, certs := filepath.Join(dir, "ca"), filepath.Join(dir, "certs")
	if err := cert.Init(authority, "lab"); err != nil {
		t.Fatal(err)
	}
	if err := cert.IssueNode(authority, "n1", certs); err != nil {
		t.Fatal(err)
	}
	id, err := cert.Load(certs)
	if err != nil {
		t.Fatal(err)
	}
	n, err := Start(Config{
		Name: "n1", Socket: filepath.Join(dir, "s"), Listen: "127.0.0.1:0", Identity: id, Certs: certs,
		Hosts: []hosts.Host{{Name: "n1", Control: "127.0.0.1:0"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	want := congestion(t, plain)
	if want == "bbr" {
		want = "reno"
	}
	for _, l := range n.tcp.listeners {
		if now := congestion(t, l); now != want {
			t.Errorf("it is %q at %v, want %q", now, l.Addr(), want)
		}
	}
}
