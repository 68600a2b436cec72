package call_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/call"
	"github.com/vmmc-go/vmmc/internal/everyxdr"
	"github.com/vmmc-go/vmmc/vmmctest"
	"github.com/vmmc-go/vmmc/vrpc"
)

// word is the smallest value.
type word struct{ N uint32 }

// serveBench is a child: which. It serves calls, vRPC's or raw messages.
func serveBench(ctx context.Context, p *vmmc.Process, args ...string) error {
	switch args[0] {
	case "call":
		_, err := call.Serve(ctx, p, "bench", func(_ context.Context, q, a *word) error {
			a.N = q.N
			return nil
		})
		if err != nil {
			return err
		}
	case "vrpc":
		s := vrpc.NewServer()
		if err := everyxdr.RegisterEveryvers(s, null{}); err != nil {
			return err
		}
		go func() { _ = s.ServeVMMC(p, vrpc.Meeting) }()
	case "raw":
		go func() { _ = echo(ctx, p) }()
	}
	fmt.Println("ready")
	<-ctx.Done() // never: the test kills it
	return nil
}

type null struct {
	everyxdr.UnimplementedEveryversServer
}

// Null is the procedure without arguments.
func (null) Null(context.Context) error { return nil }

// echo sends each word back.
func echo(ctx context.Context, p *vmmc.Process) error {
	mem, err := p.Alloc(64)
	if err != nil {
		return err
	}
	e, err := p.Publish(ctx, "raw", mem.Bytes())
	if err != nil {
		return err
	}
	w, err := e.Word(60)
	if err != nil {
		return err
	}
	back, err := p.ImportName(ctx, "raw back")
	var b [64]byte
	for v := uint32(0); err == nil; {
		if v, err = back.WaitWord(ctx, w, v); err == nil {
			binary.NativeEndian.PutUint32(b[60:], v)
			err = back.Send(ctx, b[:], 0)
		}
	}
	return err
}

// BenchmarkCall compares a null call with vRPC's, and with a message of 64 bytes there and back,
// between two processes on one node. Run it several times, so that they have their turns.
func BenchmarkCall(b *testing.B) {
	node := vmmctest.Nodes(b, 1)[0]
	ctx := context.Background()
	begin := func(b *testing.B, which string) (*vmmc.Process, *vmmctest.Proc) {
		child := vmmctest.Child(b, node, "bench", which)
		if s := child.Line(); s != "ready" {
			b.Fatal(s)
		}
		return node.Open(b), child
	}
	loop := func(b *testing.B, f func() error) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("call", func(b *testing.B) {
		p, _ := begin(b, "call")
		c, err := call.Dial[word, word](ctx, p, "bench")
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		var q, a word
		loop(b, func() error { q.N++; return c.Call(ctx, &q, &a) })
	})
	b.Run("vrpc", func(b *testing.B) {
		p, child := begin(b, "vrpc")
		c, err := vrpc.DialVMMC(ctx, p, child.ID(), vrpc.Meeting)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		e := everyxdr.NewEveryversClient(c)
		loop(b, func() error { return e.Null(ctx) })
	})
	b.Run("raw", func(b *testing.B) {
		p, _ := begin(b, "raw")
		im, err := p.ImportName(ctx, "raw")
		mem, err2 := p.Alloc(64)
		if err := errors.Join(err, err2); err != nil {
			b.Fatal(err)
		}
		e, err := p.Publish(ctx, "raw back", mem.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		w, err := e.Word(60)
		if err != nil {
			b.Fatal(err)
		}
		var m [64]byte
		v := uint32(0)
		loop(b, func() error {
			binary.NativeEndian.PutUint32(m[60:], v+1)
			err := im.Send(ctx, m[:], 0)
			if err == nil {
				v, err = im.WaitWord(ctx, w, v)
			}
			return err
		})
	})
}

// BenchmarkClients is calls of many clients at a time, each from a goroutine of its own, to a server
// in another process.
func BenchmarkClients(b *testing.B) {
	node := vmmctest.Nodes(b, 1)[0]
	ctx := context.Background()
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			if s := vmmctest.Child(b, node, "bench", "call").Line(); s != "ready" {
				b.Fatal(s)
			}
			p := node.Open(b)
			var all []*call.Client[word, word]
			for range n {
				c, err := call.Dial[word, word](ctx, p, "bench")
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				all = append(all, c)
			}
			b.ResetTimer()
			var wg sync.WaitGroup
			for _, c := range all[:min(n, 4)] { // the others are looked at
				wg.Go(func() {
					var q, a word
					for range b.N / min(n, 4) {
						if err := c.Call(ctx, &q, &a); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
