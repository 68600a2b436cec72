package unix_test

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// with has a socket begin with a congestion control, if it may, and then be as BeginUnpaced would
// have it.
func with(name string, may *bool) func(string, string, syscall.RawConn) error {
	return func(network, address string, c syscall.RawConn) error {
		err := c.Control(func(fd uintptr) {
			*may = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, name) == nil
		})
		if err != nil {
			return err
		}
		return unix.BeginUnpaced(network, address, c)
	}
}

func congestion(t *testing.T, c net.Conn) (now string) {
	t.Helper()
	rc, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := rc.Control(func(fd uintptr) { now = unix.Congestion(int(fd)) }); err != nil {
		t.Fatal(err)
	}
	return now
}

// A connection begins without BBR at both ends, and with all else; where it goes far it has what
// the system's others have.
func TestBeginUnpaced(t *testing.T) {
	for was, is := range map[string]string{"bbr": "reno", "cubic": "cubic", "reno": "reno"} {
		t.Run(was, func(t *testing.T) {
			var may [2]bool
			l, err := (&net.ListenConfig{Control: with(was, &may[0])}).Listen(context.Background(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, err := (&net.Dialer{Control: with(was, &may[1])}).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			a, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			testutil.Require(t, may[0] && may[1], "needs a kernel that has TCP's congestion control "+was+", and that this user may choose it")
			for side, end := range []net.Conn{c, a} {
				if now := congestion(t, end); now != is {
					t.Errorf("end %d of what was to be %s is %q, want %q", side, was, now, is)
				}
			}
			other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			want := is
			if is == "reno" {
				want = congestion(t, other)
			}
			fd, err := unix.TakeOver(c.(*net.TCPConn))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Close(fd) }()
			if unix.Pace(fd); unix.Congestion(fd) != want {
				t.Errorf("far away it is %q, want %q", unix.Congestion(fd), want)
			}
		})
	}
}
