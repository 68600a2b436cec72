package vrpc_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/internal/rpcmsg"
	"github.com/vmmc-go/vmmc/internal/rpcrecord"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// short is the time of calls that wait for a peer.
const short = 50 * time.Millisecond

// ends fails the test unless f ends with its context, by a deadline and when it is cancelled.
func ends(t *testing.T, what string, f func(ctx context.Context)) {
	t.Helper()
	testutil.Within(t, what, short, func() {
		ctx, stop := context.WithTimeout(t.Context(), short)
		defer stop()
		f(ctx)
	})
	testutil.Within(t, what+" that is cancelled", 0, func() {
		ctx, stop := context.WithCancel(t.Context())
		defer time.AfterFunc(short, stop).Stop()
		f(ctx)
	})
}

// A server takes connections and says nothing: each call of its client ends with its context, and
// closing waits for no server.
func TestCallsEndBesideASilentServer(t *testing.T) {
	long := make([]byte, 200<<10)
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			l, err := net.Listen(network, address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c, err := vrpc.Dial(t.Context(), network, l.Addr().String(), vrpc.WithSilence(0))
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 50 { // more than the kernel takes
				all.Go(func() { ends(t, "Call", func(ctx context.Context) { _, _ = callBytes(ctx, c, long) }) })
				all.Go(func() {
					ends(t, "Post", func(ctx context.Context) {
						b := octets(long)
						_ = c.Post(ctx, everyxdr.EVERYPROG, bytesVers, 1, &b)
					})
				})
				all.Go(func() { ends(t, "Flush", func(ctx context.Context) { _ = c.Flush(ctx) }) })
			}
			all.Wait()
			pending := make(chan struct{})
			go func() {
				defer close(pending)
				_, _ = callBytes(t.Context(), c, long)
			}()
			testutil.Within(t, "Close", 0, func() {
				_ = c.Close()
				<-pending
			})
		})
	}
}

// A process exports nothing that a client could meet its server in, or says nothing when it was
// met.
func TestDialEndsBesideASilentServer(t *testing.T) {
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	var p [2]*vmmc.Process
	for i := range p {
		if p[i], err = vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket())); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p[i].Close() })
	}
	dial := func(ctx context.Context) {
		if c, err := vrpc.DialVMMC(ctx, p[0], p[1].ID(), vrpc.Meeting); err == nil {
			t.Error("a server is met that is not there")
			_ = c.Close()
		}
	}
	ends(t, "DialVMMC, and nothing is exported", dial)
	m, err := p[1].Alloc(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p[1].Export(vrpc.Meeting, m.Bytes()); err != nil {
		t.Fatal(err)
	}
	ends(t, "DialVMMC, and nobody answers", dial)
}

// Clients do not go on with what they have begun, or do not read: a server ends within its time all
// the same.
func TestServerEndsBesideSilentClients(t *testing.T) {
	call, err := xdr.Append(make([]byte, rpcrecord.MarkLen), &rpcmsg.Call{Program: everyxdr.EVERYPROG, Version: bytesVers, Procedure: 1})
	if err == nil {
		var none octets
		call, err = xdr.Append(call, &none)
	}
	if err != nil {
		t.Fatal(err)
	}
	rpcrecord.Mark(call, len(call)-rpcrecord.MarkLen)
	for name, end := range map[string]func(s *vrpc.Server){
		"Close": func(s *vrpc.Server) { testutil.Within(t, "Close", 0, func() { _ = s.Close() }) },
		"Shutdown": func(s *vrpc.Server) {
			testutil.Within(t, "Shutdown", short, func() {
				ctx, stop := context.WithTimeout(t.Context(), short)
				defer stop()
				_ = s.Shutdown(ctx)
			})
		},
		"Shutdown that is cancelled": func(s *vrpc.Server) {
			testutil.Within(t, "Shutdown that is cancelled", 0, func() {
				ctx, stop := context.WithCancel(t.Context())
				defer time.AfterFunc(short, stop).Stop()
				_ = s.Shutdown(ctx)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{}, 100)
			s := serve(t, func(_ context.Context, b []byte) ([]byte, error) {
				begun <- struct{}{}
				return make([]byte, 400<<10), nil
			})
			for _, network := range []string{"tcp", "unix"} {
				for _, b := range [][]byte{nil, {0x80}, {0x80, 0, 0, 40, 1}} {
					c, err := net.Dial(network, s.address(network))
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if _, err := c.Write(b); err != nil {
						t.Fatal(err)
					}
				}
				c, err := net.Dial(network, s.address(network))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for range 16 { // whose answers are more than the kernel takes
					if _, err := c.Write(call); err != nil {
						t.Fatal(err)
					}
				}
				<-begun
			}
			for _, network := range []string{"vmmc", "stream"} {
				s.dial(t, network)
			}
			end(s.Server)
		})
	}
}
