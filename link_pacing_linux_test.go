package vmmc

import (
	"net"
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// A data connection begins without BBR, and with all else that the system has.
func TestDialsUnpaced(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	congestion := func(c net.Conn, err error) (now string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		rc, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Control(func(fd uintptr) { now = unix.Congestion(int(fd)) }); err != nil {
			t.Fatal(err)
		}
		return now
	}
	want := congestion(net.Dial("tcp", l.Addr().String()))
	if want == "bbr" {
		want = "reno"
	}
	if now := congestion(dialTCP(t.Context(), l.Addr().String())); now != want {
		t.Errorf("it is %q, want %q", now, want)
	}
}
