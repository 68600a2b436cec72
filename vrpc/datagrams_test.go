package vrpc_test

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/vrpc"
)

// A client hears from the address that it asked, whichever of the machine's it is.
func TestAnswersFrom(t *testing.T) {
	testutil.Require(t, runtime.GOOS == "linux", "only Linux has all of 127.0.0.0/8 on loopback")
	for _, network := range []string{"udp4", "udp"} {
		l, err := net.ListenPacket(network, ":0")
		if err != nil {
			t.Fatal(err)
		}
		s := vrpc.NewServer()
		if err := everyxdr.RegisterEveryvers(s, one{}); err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := s.ServePacket(l); !errors.Is(err, vrpc.ErrClosed) {
				t.Error(err)
			}
		})
		_, port, err := net.SplitHostPort(l.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		hosts := []string{"127.0.0.1", "127.0.0.2", "127.9.8.7"}
		if six, err := net.ListenPacket("udp6", "[::1]:0"); err == nil {
			if network == "udp" {
				hosts = append(hosts, "::1")
			}
			_ = six.Close()
		}
		for _, host := range hosts {
			c, err := vrpc.Dial(t.Context(), "udp", net.JoinHostPort(host, port))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := everyxdr.NewEveryversClient(c).Length(t.Context(), host); err != nil || int(n) != len(host) {
				t.Errorf("%s %s: %d, %v", network, host, n, err)
			}
			_ = c.Close()
		}
		_ = s.Close()
		serving.Wait()
	}
}
