package lock_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/lock"
)

// rawCall is a notification to a process that answers by a message, of which the caller awaits the last
// word: what a request of the host costs at least.
func (w way) rawCall(b *testing.B, host, client *vmmc.Process) func() error {
	ctx := within(b)
	export := func(p *vmmc.Process, id uint32, opts ...vmmc.ExportOption) *vmmc.Export {
		mem, err := p.Alloc(64)
		if err != nil {
			b.Fatal(err)
		}
		if w.unmapped {
			opts = append(opts, vmmc.Unmapped())
		}
		e, err := p.Export(id, mem.Bytes(), opts...)
		if err != nil {
			b.Fatal(err)
		}
		return e
	}
	answers := export(client, 1)
	word, err := answers.Word(0)
	if err != nil {
		b.Fatal(err)
	}
	back, err := host.Import(ctx, client.Node(), client.PID(), 1)
	if err != nil {
		b.Fatal(err)
	}
	export(host, 1, vmmc.WithHandler(func(n vmmc.Notification) {
		_ = back.Send(context.Background(), binary.NativeEndian.AppendUint32(nil, n.Word), 0)
	}))
	im, err := client.Import(ctx, host.Node(), host.PID(), 1)
	if err != nil {
		b.Fatal(err)
	}
	n, src := uint32(0), make([]byte, 4)
	return func() error {
		n++
		binary.NativeEndian.PutUint32(src, n)
		err := im.SendNotify(ctx, src, 0)
		if err == nil {
			_, err = im.WaitWord(ctx, word, n-1)
		}
		return err
	}
}

// loop measures f.
func loop(b *testing.B, f func() error) {
	b.ReportAllocs()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSemaphore compares a permit that is there, and its return, with a notification and its
// answer.
func BenchmarkSemaphore(b *testing.B) {
	for _, w := range ways {
		nodes := w.started(b)
		host, client := nodes[0].Open(b), nodes[len(nodes)-1].Open(b)
		raw := w.rawCall(b, host, client)
		b.Run("raw/"+w.name, func(b *testing.B) { loop(b, raw) })
		h, err := lock.HostSemaphore(within(b), host, name, 4, w.options()...)
		if err != nil {
			b.Fatal(err)
		}
		closing(b, h)
		s, ctx := openSemaphore(b, client), within(b)
		b.Run("semaphore/"+w.name, func(b *testing.B) {
			loop(b, func() error {
				a, err := s.Acquire(ctx)
				if err == nil {
					err = a.Release(ctx)
				}
				return err
			})
		})
	}
}

// BenchmarkCounter compares an addition with its raw limit, an atomic in the memory of the host.
func BenchmarkCounter(b *testing.B) {
	for _, w := range ways {
		nodes := w.started(b)
		host, client, ctx := nodes[0].Open(b), nodes[len(nodes)-1].Open(b), within(b)
		h, err := lock.HostCounter(ctx, host, name, 0, w.options()...)
		if err != nil {
			b.Fatal(err)
		}
		closing(b, h)
		c, err := lock.OpenCounter(ctx, client, name)
		if err != nil {
			b.Fatal(err)
		}
		closing(b, c)
		raw, err := client.ImportName(ctx, name)
		if err != nil {
			b.Fatal(err)
		}
		closing(b, raw)
		b.Run("raw/"+w.name, func(b *testing.B) {
			loop(b, func() error {
				_, err := raw.FetchAdd64(ctx, 24, 1) // not the counter
				return err
			})
		})
		b.Run("counter/"+w.name, func(b *testing.B) {
			loop(b, func() error {
				_, err := c.Add(ctx, 1)
				return err
			})
		})
	}
}

// BenchmarkOnce is a Do when the function has run long ago, and the first Do of a Once: a request, the
// function, and telling the host. Its raw limit is a notification and its answer.
func BenchmarkOnce(b *testing.B) {
	nothing := func(context.Context) error { return nil }
	for _, w := range ways {
		nodes := w.started(b)
		host, client, ctx := nodes[0].Open(b), nodes[len(nodes)-1].Open(b), within(b)
		raw := w.rawCall(b, host, client)
		b.Run("raw/"+w.name, func(b *testing.B) { loop(b, raw) })
		b.Run("first/"+w.name, func(b *testing.B) {
			for i := range b.N {
				b.StopTimer()
				name := fmt.Sprint("n1/once", i)
				h, err := lock.HostOnce(ctx, host, name, w.options()...)
				if err != nil {
					b.Fatal(err)
				}
				o, err := lock.OpenOnce(ctx, client, name)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := o.Do(ctx, nothing); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := o.Close(ctx); err != nil {
					b.Fatal(err)
				}
				if err := h.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		h, err := lock.HostOnce(ctx, host, name, w.options()...)
		if err != nil {
			b.Fatal(err)
		}
		closing(b, h)
		o := openOnce(b, client)
		if err := o.Do(ctx, nothing); err != nil {
			b.Fatal(err)
		}
		b.Run("done/"+w.name, func(b *testing.B) {
			loop(b, func() error { return o.Do(ctx, nothing) })
		})
	}
}
