package via_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// 64 bytes there and back: SENDs that both sides wait for, and Import.Send with Word.Wait beside it.
func BenchmarkThereAndBack(b *testing.B) {
	for _, w := range []way{ways[0], ways[2]} {
		b.Run(w.name+"/Send", func(b *testing.B) { benchSend(b, w) })
		for _, level := range levels {
			b.Run(fmt.Sprint(w.name, "/via/", level), func(b *testing.B) {
				x, y, s, r := benchCouple(b, w, level, 64)
				beside(b, func(ctx context.Context) {
					for {
						if _, err := x.ReceiveWait(ctx); err != nil {
							return
						}
						_ = x.PostReceive(r[0]) // the other side fails otherwise
						_ = x.PostSend(s[0])
						_, _ = x.SendWait(ctx)
					}
				})
				b.ReportAllocs()
				for b.Loop() {
					post(b, y.PostSend(s[1]))
					sent(b, y, 0)
					received(b, y, 0)
					post(b, y.PostReceive(r[1]))
				}
			})
		}
	}
}

// beside runs f beside the benchmark. Its context ends before what the benchmark has opened is
// closed, and the benchmark waits for it.
func beside(b *testing.B, f func(ctx context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	b.Cleanup(func() {
		stop()
		wg.Wait()
	})
}

// benchCouple connects two VIs with a receive posted, and gives descriptors for SENDs and receives
// of each.
func benchCouple(
	b *testing.B, w way, level via.Level, n int,
) (x, y *via.VI, s, r [2]*via.Descriptor) {
	p, q, x, y := joined(b, w, level)
	for i, d := range []*device{p, q} {
		s[i], r[i] = d.at(0, n), d.at(2<<20, n)
	}
	post(b, x.PostReceive(r[0]))
	post(b, y.PostReceive(r[1]))
	return x, y, s, r
}

func benchSend(b *testing.B, w way) {
	ctx := context.Background()
	nodes := vmmctest.Nodes(b, w.nodes)
	var ps [2]*vmmc.Process
	var own [2]*vmmc.Export
	var im [2]*vmmc.Import
	for i := range ps {
		ps[i] = nodes[i*(w.nodes-1)].Open(b)
		mem, err := ps[i].Alloc(4096)
		if err == nil {
			own[i], err = ps[i].Export(1, mem.Bytes())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := range ps {
		var err error
		if im[i], err = ps[i].Import(ctx, ps[1-i].Node(), ps[1-i].PID(), 1); err != nil {
			b.Fatal(err)
		}
	}
	// turn sends message k and waits for the peer's, or the other way round.
	turn := func(ctx context.Context, i int, k uint32, first bool) error {
		w, err := own[i].Word(60)
		if err != nil {
			return err
		}
		var m [64]byte
		binary.NativeEndian.PutUint32(m[60:], k)
		if first {
			if err := im[i].Send(ctx, m[:], 0); err != nil {
				return err
			}
		}
		for w.Load() != k {
			if _, err := w.Wait(ctx, k-1); err != nil {
				return err
			}
		}
		if !first {
			return im[i].Send(ctx, m[:], 0)
		}
		return nil
	}
	beside(b, func(ctx context.Context) {
		for k := uint32(1); turn(ctx, 1, k, false) == nil; k++ {
		}
	})
	b.ReportAllocs()
	for k := uint32(1); b.Loop(); k++ {
		if err := turn(ctx, 0, k, true); err != nil {
			b.Fatal(err)
		}
	}
}

// A poll of a completion queue that is empty, with one peer and more VIs.
func BenchmarkEmptyPoll(b *testing.B) {
	p, q := start(b, ways[0])
	cq, err := p.NewCompletionQueue(16)
	if err != nil {
		b.Fatal(err)
	}
	l := p.listen(b, "test")
	for range 100 {
		x, err := p.NewVI(p.attr(via.ReliableDelivery), cq, cq)
		if err != nil {
			b.Fatal(err)
		}
		connect(b, l, x, q.vi(b, via.ReliableDelivery))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cq.Done(); err == nil {
			b.Fatal("an entry")
		}
	}
}

// Messages of 1 MiB, one after another.
func BenchmarkLong(b *testing.B) {
	for _, w := range []way{ways[0], ways[2]} {
		b.Run(w.name, func(b *testing.B) {
			x, y, s, r := benchCouple(b, w, via.ReliableReception, 1<<20)
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for b.Loop() {
				post(b, y.PostSend(s[1]))
				received(b, x, 0)
				post(b, x.PostReceive(r[0]))
				sent(b, y, 0)
			}
		})
	}
}

// RDMA writes and reads of 1 MiB, and Send and Get of the same memory beside them: blocks of each, by
// turns. The ratio is that of their rates.
func BenchmarkRDMA(b *testing.B) {
	const n, block = 1 << 20, 20
	for _, w := range []way{ways[0], ways[2]} {
		b.Run(w.name, func(b *testing.B) {
			p, q := start(b, w)
			m := p.region(b, n)
			_, y := rdmaCouple(b, p, q, via.ReliableDelivery, true, true)
			if w == ways[0] {
				direct(b, y, m, q)
			}
			own, err := p.p.Alloc(n)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = p.p.Export(1, own.Bytes()); err != nil {
				b.Fatal(err)
			}
			ctx := within(b)
			im, err := q.p.Import(ctx, p.p.Node(), p.p.PID(), 1)
			if err != nil {
				b.Fatal(err)
			}
			d := q.at(0, n)
			d.Remote = m.Remote(0)
			operate := func(op via.Control) func() error {
				return func() error {
					d.Control = op
					if err := y.PostSend(d); err != nil {
						return err
					}
					_, err := y.SendWait(ctx)
					return err
				}
			}
			src := q.mem.Bytes()[:n]
			for _, c := range []struct {
				name      string
				ours, raw func() error
			}{
				{"write/Send", operate(via.OpRDMAWrite), func() error { return im.Send(ctx, src, 0) }},
				{"read/Get", operate(via.OpRDMARead), func() error { return im.Get(ctx, src, 0) }},
			} {
				b.Run(c.name, func(b *testing.B) { byTurns(b, block, c.ours, c.raw) })
			}
		})
	}
}

// byTurns measures blocks of two operations by turns, and reports the median of the ratios of the
// second one's time to the first one's.
func byTurns(b *testing.B, block int, ours, raw func() error) {
	var ratios []float64
	measure := func(f func() error) time.Duration {
		start := time.Now()
		for range block {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
	var spent [2]time.Duration
	for b.Loop() {
		first, second := measure(ours), measure(raw)
		spent[0] += first
		spent[1] += second
		ratios = append(ratios, float64(second)/float64(first))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "speed/raw")
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(len(ratios)*block), "ns/ours")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(len(ratios)*block), "ns/raw")
}
