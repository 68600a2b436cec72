package vrpc_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
)

// one serves the first version of the program.
type one struct {
	everyxdr.UnimplementedEveryversServer
}

func (one) Echo(_ context.Context, v *everyxdr.Every) (*everyxdr.Every, error) { return v, nil }

func (one) Length(_ context.Context, s string) (int32, error) { return int32(len(s)), nil }

func (one) Paint(context.Context, everyxdr.Colour) (everyxdr.Colour, error) {
	return 0, errors.New("no paint")
}

// two serves the second.
type two struct {
	everyxdr.UnimplementedEveryversManyServer
	mu  sync.Mutex
	put []uint32
	ran atomic.Int64
}

func (*two) Add(_ context.Context, a int32, b int64) (int64, error) { return int64(a) + b, nil }

// Put is called without a reply, but for offset 0.
func (v *two) Put(_ context.Context, offset uint32, _ everyxdr.Blob) error {
	v.ran.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.put = append(v.put, offset)
	if offset > 0 {
		return vrpc.ErrNoReply
	}
	return nil
}

// served is a server with its addresses.
type served struct {
	*vrpc.Server
	two            *two
	tcp, udp, unix string
	node           *node.Node
	p              *vmmc.Process
}

// serve has a server serve on all transports, until the test ends.
func serve(t *testing.T, blob blobFunc, opts ...vrpc.ServerOption) *served {
	t.Helper()
	s := &served{Server: vrpc.NewServer(opts...), two: new(two), unix: filepath.Join(t.TempDir(), "s")}
	if err := errors.Join(
		everyxdr.RegisterEveryvers(s, one{}),
		s.Register(bytesService(blob)),
		everyxdr.RegisterEveryversMany(s, s.two)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	run := func(f func() error) {
		wg.Go(func() {
			if err := f(); !errors.Is(err, vrpc.ErrClosed) {
				t.Error(err)
			}
		})
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.tcp = tcp.Addr().String()
	unix, err2 := net.Listen("unix", s.unix)
	udp, err3 := net.ListenPacket("udp", "127.0.0.1:0")
	if err := errors.Join(err2, err3); err != nil {
		t.Fatal(err)
	}
	s.udp = udp.LocalAddr().String()
	run(func() error { return s.Serve(tcp) })
	run(func() error { return s.Serve(unix) })
	run(func() error { return s.ServePacket(udp) })
	if s.node, err = node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.node.Close)
	s.p = s.process(t)
	run(func() error { return s.ServeVMMC(s.p, vrpc.Meeting) })
	t.Cleanup(func() {
		_ = s.Close()
		wg.Wait()
	})
	return s
}

// address is where the server is on a network.
func (s *served) address(network string) string {
	return map[string]string{"tcp": s.tcp, "udp": s.udp, "unix": s.unix}[network]
}

// process is one of the server's node.
func (s *served) process(t *testing.T) *vmmc.Process {
	t.Helper()
	p, err := vmmc.Open(t.Context(), vmmc.WithSocket(s.node.Socket()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (s *served) dial(t *testing.T, network string, opts ...vrpc.ClientOption) *vrpc.Client {
	t.Helper()
	if network == "vmmc" || network == "stream" {
		if network == "stream" {
			opts = append(opts, vrpc.WithExport(vmmc.Unmapped()))
		}
		c, err := vrpc.DialVMMC(t.Context(), s.process(t), s.p.ID(), vrpc.Meeting, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c, err := vrpc.Dial(t.Context(), network, s.address(network), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// everywhere runs a test on each transport.
func everywhere(t *testing.T, f func(t *testing.T, network string)) {
	for _, network := range []string{"tcp", "udp", "unix", "vmmc", "stream"} {
		t.Run(network, func(t *testing.T) { f(t, network) })
	}
}
