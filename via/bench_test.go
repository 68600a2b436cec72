package via_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/via"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// 64 bytes there and back, which both sides wait for, on each level, and by Import.Send with
// Word.Wait beside it: blocks of each, by turns.
func BenchmarkThereAndBack(b *testing.B) {
	for _, w := range []way{ways[0], ways[2]} {
		for _, level := range levels {
			b.Run(fmt.Sprint(w.name, "/", level), func(b *testing.B) {
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
				ctx := context.Background()
				byTurns(b, 500, func() error {
					err := y.PostSend(s[1])
					if err == nil {
						_, err = y.SendWait(ctx)
					}
					if err == nil {
						_, err = y.ReceiveWait(ctx)
					}
					if err == nil {
						err = y.PostReceive(r[1])
					}
					return err
				}, sendTrip(b, w))
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

// sendTrip returns a function that sends 64 bytes and waits for the peer's.
func sendTrip(b *testing.B, w way) func() error {
	ctx := context.Background()
	nodes := vmmctest.Nodes(b, w.nodes)
	var ps [2]*vmmc.Process
	var words [2]vmmc.Word
	var im [2]*vmmc.Import
	for i := range ps {
		ps[i] = nodes[i*(w.nodes-1)].Open(b)
		mem, err := ps[i].Alloc(4096)
		var own *vmmc.Export
		if err == nil {
			own, err = ps[i].Export(1, mem.Bytes())
		}
		if err == nil {
			words[i], err = own.Word(60)
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
	send := func(i int, m []byte, k uint32) error {
		binary.NativeEndian.PutUint32(m[60:], k)
		return im[i].Send(ctx, m, 0)
	}
	beside(b, func(ctx context.Context) {
		m := make([]byte, 64)
		for k := uint32(0); ; k++ {
			if _, err := words[1].Wait(ctx, k); err != nil || send(1, m, k+1) != nil {
				return
			}
		}
	})
	m, k := make([]byte, 64), uint32(0)
	return func() error {
		k++
		err := send(0, m, k)
		if err == nil {
			_, err = words[0].Wait(ctx, k-1)
		}
		return err
	}
}

// queued is a NIC with a completion queue for the receives of VIs, which are connected with those of
// NICs of as many processes as there are peers.
type queued struct {
	cq      *via.CompletionQueue
	others  []*via.VI
	devices []*device // of others, by turns
}

func manyVIs(b *testing.B, peers, vis int) queued {
	node := vmmctest.Nodes(b, 1)[0]
	p := openOn(b, node, ways[0])
	cq, err := p.NewCompletionQueue(vis)
	if err != nil {
		b.Fatal(err)
	}
	q := queued{cq: cq}
	l := p.listen(b, "test")
	for range peers {
		q.devices = append(q.devices, openOn(b, node, ways[0]))
	}
	for i := range vis {
		x, err := p.NewVI(p.attr(via.ReliableDelivery), nil, cq)
		if err != nil {
			b.Fatal(err)
		}
		post(b, x.PostReceive(p.at(64*i, 64)))
		y := q.devices[i%peers].vi(b, via.ReliableDelivery)
		connect(b, l, x, y)
		q.others = append(q.others, y)
	}
	return q
}

// message sends one message and takes it from the completion queue.
func (q *queued) message(y *via.VI, d *via.Descriptor) error {
	if err := y.PostSend(d); err != nil {
		return err
	}
	if _, err := y.SendDone(); err != nil {
		return err
	}
	c, err := q.cq.Done()
	for errors.Is(err, via.ErrNotDone) {
		c, err = q.cq.Done()
	}
	if err != nil {
		return err
	}
	r, err := c.VI.ReceiveDone()
	if err != nil {
		return err
	}
	return c.VI.PostReceive(r)
}

// A message by any of 1,024 VIs of 16 processes, and one of a process with one VI, beside it: blocks of
// each, by turns.
func BenchmarkManyVIs(b *testing.B) {
	const peers, vis = 16, 1024
	many, one := manyVIs(b, peers, vis), manyVIs(b, 1, 1)
	descriptors := make([]*via.Descriptor, vis)
	for i := range descriptors { // the memory is any that the VI's NIC has
		descriptors[i] = many.devices[i%peers].at(0, 64)
	}
	i, single := 0, one.devices[0].at(0, 64)
	byTurns(b, 5000, func() error {
		i = (i*5 + 1) % vis
		return many.message(many.others[i], descriptors[i])
	}, func() error { return one.message(one.others[0], single) })
}

// A poll of a completion queue that is empty.
func BenchmarkEmptyPoll(b *testing.B) {
	for _, peers := range []int{1, 16} {
		b.Run(fmt.Sprint(peers, " peers"), func(b *testing.B) {
			q := manyVIs(b, peers, 128)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.cq.Done(); err == nil {
					b.Fatal("an entry")
				}
			}
		})
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
// turns.
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
// first one's time to the second one's.
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
		ratios = append(ratios, float64(first)/float64(second))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ours/raw")
	b.ReportMetric(float64(spent[0].Nanoseconds())/float64(len(ratios)*block), "ns/ours")
	b.ReportMetric(float64(spent[1].Nanoseconds())/float64(len(ratios)*block), "ns/raw")
}
