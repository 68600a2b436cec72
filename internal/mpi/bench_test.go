package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// 8 bytes there and back: messages, and Import.Send with Word.Wait beside it. One way is half.
func BenchmarkThereAndBack(b *testing.B) {
	for _, w := range ways[:3] {
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
		b.Run(w.name+"/Send", func(b *testing.B) { benchSend(b, w) })
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
	for _, ranks := range []int{2, 8} {
		b.Run(fmt.Sprint(ranks, " ranks"), func(b *testing.B) {
			es := job(b, ways[0], ranks)
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
