package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// 8 bytes there and back: messages, and Import.Send with Word.Wait beside it. One way is half.
func BenchmarkThereAndBack(b *testing.B) {
	for _, w := range append(slices.Clip(ways[:3]), ways[4:6]...) {
		b.Run(w.name+"/mpi", func(b *testing.B) {
			es := job(b, w, 2)
			ctx := context.Background()
			x, y := es[0], es[1]
			yes, no := []byte("12345678"), []byte{}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				buf := make([]byte, 8)
				from, to := y.from(0, 0), y.to(0, 0)
				for {
					if st, err := y.Recv(ctx, from, buf); err != nil || st.Bytes == 0 {
						return
					}
					_ = y.Send(ctx, to, buf, Standard)
				}
			}()
			to, from := x.to(1, 0), x.from(1, 0)
			b.ReportAllocs()
			for b.Loop() {
				if err := x.Send(ctx, to, yes, Standard); err != nil {
					b.Fatal(err)
				}
				if _, err := x.Recv(ctx, from, yes); err != nil {
					b.Fatal(err)
				}
			}
			_ = x.Send(ctx, to, no, Standard)
			<-ended
		})
		if w.module != "via" {
			b.Run(w.name+"/Send", func(b *testing.B) { benchSend(b, w) })
		}
	}
}

func benchSend(b *testing.B, w way) {
	ctx := context.Background()
	nodes := vmmctest.Nodes(b, w.nodes)
	var ps [2]*vmmc.Process
	var words [2]vmmc.Word
	var ims [2]*vmmc.Import
	for i := range ps {
		ps[i] = nodes[i%w.nodes].Open(b)
		mem, err := ps[i].Alloc(4096)
		if err != nil {
			b.Fatal(err)
		}
		var opts []vmmc.ExportOption
		if w.module == "tcp" {
			opts = append(opts, vmmc.Unmapped())
		}
		ex, err := ps[i].Export(1, mem.Bytes(), opts...)
		if err != nil {
			b.Fatal(err)
		}
		if words[i], err = ex.Word(4); err != nil {
			b.Fatal(err)
		}
	}
	for i := range ps {
		var err error
		if ims[i], err = ps[i].Import(ctx, ps[1-i].Node(), ps[1-i].PID(), 1); err != nil {
			b.Fatal(err)
		}
	}
	go func() {
		buf := make([]byte, 8)
		for old := uint32(0); ; {
			v, err := words[1].Wait(ctx, old)
			if err != nil || v == 1<<31 {
				return
			}
			old = v
			binary.NativeEndian.PutUint32(buf[4:], v)
			_ = ims[1].Send(ctx, buf, 0)
		}
	}()
	buf := make([]byte, 8)
	n := uint32(0)
	for b.Loop() {
		n++
		binary.NativeEndian.PutUint32(buf[4:], n)
		if err := ims[0].Send(ctx, buf, 0); err != nil {
			b.Fatal(err)
		}
		if _, err := words[0].Wait(ctx, n-1); err != nil {
			b.Fatal(err)
		}
	}
	binary.NativeEndian.PutUint32(buf[4:], 1<<31)
	_ = ims[0].Send(ctx, buf, 0)
}

// As many messages of 8 bytes there and back in all, by one pair of ranks and by four at the same time.
func BenchmarkPairs(b *testing.B) {
	for _, c := range []struct {
		ranks int
		w     way
	}{{2, ways[0]}, {8, ways[0]}, {2, ways[4]}, {8, ways[4]}} {
		ranks := c.ranks
		b.Run(fmt.Sprint(ranks, " ranks, ", c.w.name), func(b *testing.B) {
			es := job(b, c.w, ranks)
			each(b, es, func(ctx context.Context, e *Engine) error { // all have begun
				return e.pingPong(ctx, 100)
			})
			n := b.N * 2 / ranks
			b.ResetTimer()
			each(b, es, func(ctx context.Context, e *Engine) error {
				return e.pingPong(ctx, n)
			})
		})
	}
}

// Long messages one way, with each module alone.
func BenchmarkLong(b *testing.B) {
	for _, w := range alone {
		b.Run(w.name, func(b *testing.B) {
			const n = 1 << 20
			es := job(b, w, 2)
			ctx := context.Background()
			b.SetBytes(n)
			each(b, es, func(ctx context.Context, e *Engine) error { return e.pingPong(ctx, 10) })
			received := make(chan error, 1)
			count := b.N
			go func() {
				in, from := make([]byte, n), es[1].from(0, 0)
				for range count {
					if _, err := es[1].Recv(ctx, from, in); err != nil {
						received <- err
						return
					}
				}
				received <- nil
			}()
			out, to := make([]byte, n), es[0].to(1, 0)
			b.ResetTimer()
			for range count {
				if err := es[0].Send(ctx, to, out, Standard); err != nil {
					b.Fatal(err)
				}
			}
			if err := <-received; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// pingPong exchanges n messages with the neighbour there and back.
func (e *Engine) pingPong(ctx context.Context, n int) error {
	buf := make([]byte, 8)
	to, from := e.to(e.rank^1, 0), e.from(e.rank^1, 0)
	for range n {
		for k := range 2 {
			if (e.rank+k)%2 == 0 {
				if err := e.Send(ctx, to, buf, Standard); err != nil {
					return err
				}
			} else if _, err := e.Recv(ctx, from, buf); err != nil {
				return err
			}
		}
	}
	return nil
}
