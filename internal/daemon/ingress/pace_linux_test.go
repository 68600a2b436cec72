package ingress

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/vmmc-go/vmmc/internal/daemon/systemlog"
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
	logs := &systemlog.Logs{}
	logs.Open(slog.New(slog.DiscardHandler), "")
	in, err := Listen(Config{
		Addrs: []string{"127.0.0.1:0"}, Handler: http.NotFoundHandler(),
		Descriptors: NewDescriptors("n1", logs), Refusals: NewRefusals(logs),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	want := congestion(t, plain)
	if want == "bbr" {
		want = "reno"
	}
	for _, l := range in.listeners {
		if now := congestion(t, l); now != want {
			t.Errorf("it is %q at %v, want %q", now, l.Addr(), want)
		}
	}
}
