package queue_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/cluster"
	"github.com/vmmc-go/vmmc/internal/daemon"
	"github.com/vmmc-go/vmmc/internal/hosts"
	"github.com/vmmc-go/vmmc/queue"
)

// The benchmarks measure the queue and its limits in turns, one of each an iteration. They print the
// median of each, and for each limit the median of the queue's ratio to it. Values have 64 bytes,
// and their receivers read all of them. Both ends are in one process, so take the figures of a quiet
// machine.

const (
	benchValues = 1 << 17 // of a turn that measures a rate
	benchTrips  = 2000    // of a turn that measures a latency
	benchSlots  = 4096
)

type payload [8]uint64

func (v *payload) sum() (s uint64) {
	for _, w := range v {
		s += w
	}
	return s
}

func payloads(n int) []payload {
	vs := make([]payload, n)
	for i := range vs {
		vs[i] = payload{1, 2, 3, 4, 5, 6, 7, 8}
	}
	return vs
}

const payloadSum = 36

// A contender is what a benchmark measures. turn returns what a number of operations have taken.
type contender struct {
	name string
	turn func() time.Duration
}

// turns measures by turns until the benchmark's time is over. The first contender is the queue.
func turns(b *testing.B, n int, unit string, all ...contender) {
	b.Helper()
	rate := func(d time.Duration) float64 {
		if unit == "M/s" {
			return float64(n) / d.Seconds() / 1e6
		}
		return d.Seconds() * 1e6 / float64(n)
	}
	for _, c := range all {
		c.turn()
	}
	rates, ratios := make([][]float64, len(all)), make([][]float64, len(all))
	for b.Loop() {
		for i, c := range all {
			r := rate(c.turn())
			rates[i] = append(rates[i], r)
			ratios[i] = append(ratios[i], rates[0][len(rates[0])-1]/r)
		}
	}
	median := func(v []float64) float64 {
		slices.Sort(v)
		return v[len(v)/2]
	}
	for i, c := range all {
		if i > 0 {
			b.ReportMetric(median(ratios[i]), "queue/"+c.name)
		}
		b.ReportMetric(median(rates[i]), c.name+"-"+unit)
	}
	b.ReportMetric(0, "ns/op")
}

// benchProcesses are two processes, the second on the last of so many nodes. Unlike vmmctest's,
// these have no other process's wire between them.
func benchProcesses(b *testing.B, nodes int) (first, last *vmmc.Process) {
	b.Helper()
	names := []string{"n1", "n2"}[:nodes]
	ids, err := cert.Ephemeral("bench", names...)
	if err != nil {
		b.Fatal(err)
	}
	addrs, err := cluster.FreeAddresses(nodes)
	if err != nil {
		b.Fatal(err)
	}
	var list []hosts.Host
	for i, n := range names {
		list = append(list, hosts.Host{Name: n, Control: addrs[i], Data: addrs[i]})
	}
	var ps []*vmmc.Process
	dir := b.TempDir()
	for _, n := range names {
		d, err := daemon.Start(daemon.Config{
			Name: n, Socket: filepath.Join(dir, n), Hosts: list, Identity: ids[n],
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(d.Close)
		for range 3 - nodes {
			p, err := vmmc.Open(within(b), vmmc.WithSocket(d.Socket()))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = p.Close() })
			ps = append(ps, p)
		}
	}
	return ps[0], ps[1]
}

// benchQueue is a queue from producer to consumer, with the name on the node that the consumer is
// on.
func benchQueue(
	b *testing.B, consumer, producer *vmmc.Process, name string,
) (*queue.Consumer[payload], *queue.Producer[payload]) {
	b.Helper()
	c, err := queue.Listen[payload](within(b), consumer, name, queue.Slots(benchSlots))
	if err != nil {
		b.Fatal(err)
	}
	q, err := queue.Dial[payload](within(b), producer, name)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := q.Close(within(b)); err != nil {
			b.Error(err)
		}
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	return c, q
}

// drain takes n values, some at a time.
func drain(b *testing.B, n int, some func(dst []payload) (int, error)) {
	dst, sum := make([]payload, 1024), uint64(0)
	for got := 0; got < n; {
		k, err := some(dst)
		if err != nil {
			b.Error(err)
			return
		}
		for i := range dst[:k] {
			sum += dst[i].sum()
		}
		got += k
	}
	if sum != uint64(n)*payloadSum {
		b.Errorf("the sum of %d values is %d", n, sum)
	}
}

// streamed measures values put by put, and taken beside it by some.
func streamed(
	b *testing.B, put func(n int) error, some func(dst []payload) (int, error),
) func() time.Duration {
	return func() time.Duration {
		start, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			if err := put(benchValues); err != nil {
				b.Error(err)
			}
		}()
		drain(b, benchValues, some)
		d := time.Since(start)
		<-done
		return d
	}
}

// batches and singles put values into a queue.
func batches(q *queue.Producer[payload]) func(int) error {
	vs := payloads(64)
	return func(n int) error {
		for range n / len(vs) {
			if _, err := q.PutAll(context.Background(), vs); err != nil {
				return err
			}
		}
		return nil
	}
}

func singles(q *queue.Producer[payload]) func(int) error {
	v := payloads(1)[0]
	return func(n int) error {
		for range n {
			if err := q.Put(context.Background(), v); err != nil {
				return err
			}
		}
		return nil
	}
}

func some(c *queue.Consumer[payload]) func([]payload) (int, error) {
	return func(dst []payload) (int, error) { return c.GetSome(context.Background(), dst) }
}

// rawRing is a ring in memory that both ends share, with a counter of each: the raw limit on one
// node.
type rawRing struct {
	slots      []payload
	_          [64]byte
	head, tail atomic.Uint64
}

func (r *rawRing) put(batch int) func(int) error {
	vs := payloads(batch)
	return func(n int) error {
		for range n / len(vs) {
			tail := r.tail.Load()
			for tail+uint64(len(vs))-r.head.Load() > uint64(len(r.slots)) {
				runtime.Gosched()
			}
			for i := range vs {
				r.slots[(tail+uint64(i))%uint64(len(r.slots))] = vs[i]
			}
			r.tail.Store(tail + uint64(len(vs)))
		}
		return nil
	}
}

func (r *rawRing) some(dst []payload) (int, error) {
	head := r.head.Load()
	for r.tail.Load() == head {
		runtime.Gosched()
	}
	n := min(int(r.tail.Load()-head), len(dst))
	for i := range dst[:n] {
		dst[i] = r.slots[(head+uint64(i))%uint64(len(r.slots))]
	}
	r.head.Store(head + uint64(n))
	return n, nil
}

// rawTCP is a connection, the raw limit between nodes.
func rawTCP(b *testing.B) (near, far net.Conn) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		near.Close()
		far.Close()
	})
	return near, far
}

func tcpPut(conn net.Conn, batch int) func(int) error {
	var buf []byte
	for _, v := range payloads(batch) {
		for _, w := range v {
			buf = binary.NativeEndian.AppendUint64(buf, w)
		}
	}
	return func(n int) error {
		for range n / batch {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
		return nil
	}
}

func tcpSome(conn net.Conn) func([]payload) (int, error) {
	buf := make([]byte, 64<<10)
	have := 0
	return func(dst []payload) (int, error) {
		k, err := conn.Read(buf[have:])
		have += k
		n := min(have/64, len(dst))
		for i := range dst[:n] {
			for j := range dst[i] {
				dst[i][j] = binary.NativeEndian.Uint64(buf[64*i+8*j:])
			}
		}
		have = copy(buf, buf[64*n:have])
		return n, err
	}
}

// BenchmarkRate is how many values go through a queue, in batches of 64 and singly.
func BenchmarkRate(b *testing.B) {
	for _, w := range []way{ways[0], ways[2]} {
		for _, batch := range []int{64, 1} {
			name := map[int]string{64: "batches of 64", 1: "singly"}[batch]
			b.Run(w.name+"/"+name, func(b *testing.B) {
				consumer, producer := benchProcesses(b, w.nodes)
				c, q := benchQueue(b, consumer, producer, "n1/bench")
				put := batches(q)
				if batch == 1 {
					put = singles(q)
				}
				raw := &rawRing{slots: make([]payload, benchSlots)}
				limit := contender{"ring", streamed(b, raw.put(batch), raw.some)}
				if w.nodes > 1 {
					near, far := rawTCP(b)
					limit = contender{"TCP", streamed(b, tcpPut(near, batch), tcpSome(far))}
				}
				ours := contender{"queue", streamed(b, put, some(c))}
				turns(b, benchValues, "M/s", ours, limit)
			})
		}
	}
}

// BenchmarkLatency is a value there and one back by two queues, halved, beside its limits: a message
// and a wait for its last word, which is what the library itself takes, and between nodes TCP.
func BenchmarkLatency(b *testing.B) {
	for _, w := range []way{ways[0], ways[2]} {
		b.Run(w.name, func(b *testing.B) {
			p, far := benchProcesses(b, w.nodes)
			there, put := benchQueue(b, p, far, "n1/there")
			back, putBack := benchQueue(b, far, p, "n"+itoa(w.nodes)+"/back")
			ctx, cancel := context.WithCancel(context.Background())
			echoed := make(chan struct{})
			go func() {
				defer close(echoed)
				for {
					v, err := there.Get(ctx)
					if err != nil || putBack.Put(ctx, v) != nil {
						return
					}
				}
			}()
			defer func() {
				cancel()
				<-echoed
			}()
			ours := func() time.Duration {
				start, v := time.Now(), payloads(1)[0]
				for range benchTrips {
					if err := put.Put(context.Background(), v); err != nil {
						b.Fatal(err)
					}
					if _, err := back.Get(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				return time.Since(start)
			}
			all := []contender{{"queue", ours}, {"message", rawMessages(b, p, far)}}
			if w.nodes > 1 {
				all = append(all, contender{"TCP", rawTrips(b)})
			}
			turns(b, 2*benchTrips, "µs", all...)
		})
	}
}

// rawTrips sends 64 bytes there and back by TCP.
func rawTrips(b *testing.B) func() time.Duration {
	var echoing sync.WaitGroup
	b.Cleanup(echoing.Wait) // after the connection is closed
	near, far := rawTCP(b)
	echoing.Go(func() {
		buf := make([]byte, 64)
		for {
			if _, err := io.ReadFull(far, buf); err != nil {
				return
			}
			if _, err := far.Write(buf); err != nil {
				return
			}
		}
	})
	return func() time.Duration {
		start, buf := time.Now(), make([]byte, 64)
		for range benchTrips {
			if _, err := near.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(near, buf); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
}

// rawMessages sends 64 bytes there and back by messages, whose last word the other end waits for.
func rawMessages(b *testing.B, p, q *vmmc.Process) func() time.Duration {
	ends := [2]*vmmc.Process{p, q}
	var words [2]vmmc.Word
	var ims [2]*vmmc.Import
	for i, o := range ends {
		mem, err := o.Alloc(64)
		if err != nil {
			b.Fatal(err)
		}
		e, err := o.Export(77, mem.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		if words[i], err = e.Word(60); err != nil {
			b.Fatal(err)
		}
		if ims[1-i], err = ends[1-i].Import(within(b), o.Node(), o.PID(), 77); err != nil {
			b.Fatal(err)
		}
	}
	message := func(end int, n uint32, src []byte) error {
		binary.NativeEndian.PutUint32(src[60:], n)
		return ims[end].Send(context.Background(), src, 0)
	}
	ctx, stop := context.WithCancel(context.Background())
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		src := make([]byte, 64)
		for last := uint32(0); ; {
			v, err := words[1].Wait(ctx, last)
			if err != nil || message(1, v, src) != nil {
				return
			}
			last = v
		}
	}()
	b.Cleanup(func() {
		stop()
		<-echoed
	})
	n := uint32(0)
	return func() time.Duration {
		start, src := time.Now(), make([]byte, 64)
		for range benchTrips {
			n++
			if err := message(0, n, src); err != nil {
				b.Fatal(err)
			}
			if _, err := words[0].Wait(context.Background(), n-1); err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(start)
	}
}
