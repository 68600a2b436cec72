package vrpc_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/node"
	"github.com/vmmc-go/vmmc/vrpc"
	"github.com/vmmc-go/vmmc/xdr"
)

// benched is a server with a client on a network; both are this process's.
func benched(b *testing.B, network string) (*vrpc.Client, *vmmc.Process) {
	s := vrpc.NewServer()
	v := bytesService(func(_ context.Context, in []byte) ([]byte, error) { return in[:4], nil })
	if err := errors.Join(everyxdr.RegisterEveryvers(s, one{}), s.InPlace().Register(v)); err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	b.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	if network == "tcp" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		serving.Go(func() { _ = s.Serve(l) })
		c, err := vrpc.Dial(b.Context(), "tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		return c, nil
	}
	n, err := node.Start()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(n.Close)
	p, err := vmmc.Open(b.Context(), vmmc.WithSocket(n.Socket()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(); _ = p.Close() })
	q := p
	if network != "vmmc, one Process" {
		if q, err = vmmc.Open(b.Context(), vmmc.WithSocket(n.Socket())); err != nil {
			b.Fatal(err)
		}
	}
	serving.Go(func() { _ = s.ServeVMMC(p, vrpc.Meeting) })
	c, err := vrpc.DialVMMC(b.Context(), q, p.ID(), vrpc.Meeting)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		if q != p {
			_ = q.Close()
		}
	})
	return c, q
}

func BenchmarkNull(b *testing.B) {
	for _, network := range []string{"tcp", "vmmc", "vmmc, one Process"} {
		b.Run(network, func(b *testing.B) {
			c, _ := benched(b, network)
			e := everyxdr.NewEveryversClient(c)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Null(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMiB is 1 MiB of arguments that the procedure sees in place, beside a Send of as much.
func BenchmarkMiB(b *testing.B) {
	const size = 1 << 20
	for _, network := range []string{"tcp", "vmmc"} {
		b.Run(network, func(b *testing.B) {
			c, _ := benched(b, network)
			ctx := context.Background()
			in, out := octets(make([]byte, size)), octets(nil)
			var args xdr.Marshaler = &in
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.Call(ctx, everyxdr.EVERYPROG, bytesVers, 1, args, &out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("send", func(b *testing.B) {
		_, p := benched(b, "vmmc")
		m, err := p.Alloc(size)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Export(5, m.Bytes()); err != nil {
			b.Fatal(err)
		}
		im, err := p.Import(b.Context(), p.Node(), p.PID(), 5)
		if err != nil {
			b.Fatal(err)
		}
		src := make([]byte, size)
		b.SetBytes(size)
		for b.Loop() {
			if err := im.Send(b.Context(), src, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
