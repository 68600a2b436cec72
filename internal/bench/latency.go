package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/vmmc-go/vmmc/internal/baseline"
)

// latency is half the round trip of a message that the other end answers with one
// of the same size. Each exchange is timed; the next one begins when it is over, so
// an exchange that is late delays the next and not its clock.
func latency(ctx context.Context, e *end, size int) (err error) {
	n := e.count(size, e.often(20000, 4000), 128<<20)
	skip := n / 10
	at := e.pages(size)
	ours := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "pong", Size: size, At: at(), N: n + skip, First: e.next(n + skip)}
		_, err := e.with(ctx, j, func() error { return e.ping(ctx, j, h.skipping(skip)) })
		return 0, err
	}
	limitAt := e.pages(size)
	limit := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "pong", Raw: true, Size: size, At: limitAt(), N: n + skip, First: e.next(n + skip)}
		_, err := e.with(ctx, j, func() error {
			each := h.skipping(skip)
			if e.Path == Remote {
				return e.tcp.Ping(ctx, size, size, j.N, func(d time.Duration) { each(d / 2) })
			}
			return e.raw.Ping(ctx, make([]byte, size), j.At, j.First, j.N, each)
		})
		return 0, err
	}
	r := Result{What: "latency", Size: size, Unit: Nanos, Count: n, LimitIs: e.limitIs("a raw shared flag", "raw TCP")}
	peers, err := e.startAll(ctx, e.Pings, "ping")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endAll(peers)) }()
	pinged := func(p *peer, h *hist) (float64, error) { return 0, p.pings(size, n, skip, h) }
	return e.besidePeers(ctx, []Result{r}, []probe{ours}, limit, peers, pinged, 1)
}

// pages gives each round a page of its own for its messages. How far the two processors are from
// where the cache keeps a line of memory is its address's chance: from page to page a word takes 99
// to 154 ns on a virtual machine of two processors of an Intel Xeon, whatever it is part of. Over
// sockets, and of what lies on many pages, that makes no difference.
func (e *end) pages(size int) (next func() int) {
	const page = 4096
	round := -1
	return func() int {
		if e.Path == Remote || size > page {
			return 0
		}
		round++
		return round % (e.inbox() / page) * page
	}
}

// often is how many exchanges a round has, by the path.
func (e *end) often(local, remote int) int {
	if e.Path == Remote {
		return remote
	}
	return local
}

func (e *end) limitIs(local, remote string) string {
	if e.Path == Remote {
		return remote
	}
	return local
}

// ping sends messages and waits for each answer, and reports one way's time.
func (e *end) ping(ctx context.Context, j job, each func(time.Duration)) error {
	src := make([]byte, j.Size)
	clock := baseline.NewClock() // as for the limit
	for v := j.First; v != j.First+uint32(j.N); v++ {
		binary.LittleEndian.PutUint32(src[j.Size-4:], v)
		start := clock.Now()
		if err := e.post(ctx, j, src); err != nil {
			return err
		}
		if err := e.await(ctx, j.At+j.Size, v); err != nil {
			return err
		}
		each(clock.Since(start) / 2)
	}
	return nil
}

// pong is the far end of ping.
func pong(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	src := make([]byte, j.Size)
	switch {
	case j.Raw && e.Path == Remote:
		return nil, e.tcp.Pong(ctx, j.Size, j.Size, j.N)
	case j.Raw:
		return nil, e.raw.Pong(ctx, src, j.At, j.First, j.N)
	}
	for v := j.First; v != j.First+uint32(j.N); v++ {
		if err := e.await(ctx, j.At+j.Size, v); err != nil {
			return nil, err
		}
		binary.LittleEndian.PutUint32(src[j.Size-4:], v)
		if err := e.post(ctx, j, src); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
