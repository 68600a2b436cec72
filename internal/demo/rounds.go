package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/childproc"
)

const (
	roundCount = 5 // ours and the limit in turn, so that a disturbed moment hits both
	warmUp     = 1000
	piece      = 1 << 20
	pieces     = 256 // a round's bandwidth: 256 MiB
)

// latencies collects one round's.
type latencies struct {
	h    *hdrhistogram.Histogram
	skip int
}

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, int64(time.Minute), 3), skip: warmUp}
}

func (l *latencies) add(d time.Duration) {
	if l.skip > 0 {
		l.skip--
		return
	}
	_ = l.h.RecordValue(int64(d))
}

func (l *latencies) p50() float64 { return float64(l.h.ValueAtQuantile(50)) }

// rounds measures this path and the machine's limit by turns, and keeps the
// median of each.
func (s *sender) rounds(ctx context.Context, f *childproc.Group, t target, path *Path) error {
	var lat, limLat, bw, limBW []float64
	n := 20000
	if path.Path == "remote" {
		n = 6000
	}
	next := uint32(1)
	for range roundCount {
		l := newLatencies()
		clock := baseline.NewClock() // as for the limit
		for range warmUp + n {
			d, err := s.ping(ctx, t, clock, path.LatencyMessageBytes, next)
			if err != nil {
				return err
			}
			l.add(d)
			next++
		}
		lat = append(lat, l.p50())
		v, err := s.pump(ctx, t)
		if err != nil {
			return err
		}
		bw = append(bw, v)
		a, b, err := limits(ctx, f, path, warmUp+n)
		if err != nil {
			return fmt.Errorf("the machine's limit: %w", err)
		}
		limLat, limBW = append(limLat, a), append(limBW, b)
	}
	path.LatencyP50NS, path.LimitLatencyP50NS = median(lat), median(limLat)
	path.BandwidthMBps, path.LimitBandwidthMBps = median(bw)/1e6, median(limBW)/1e6
	path.LimitRounds = roundCount
	return path.remeasure(func() (p50, bandwidth float64, err error) { return limits(ctx, f, path, warmUp+n) })
}

// remeasure repeats the measurement without vmmc while it is slower than that with vmmc: whatever
// disturbed it may be over. The best of it counts then.
func (p *Path) remeasure(limits func() (p50, bandwidth float64, err error)) error {
	for p.LimitRounds < 2*roundCount && (p.slowerLatency() || p.slowerBandwidth()) {
		p50, bandwidth, err := limits()
		if err != nil {
			return fmt.Errorf("the machine's limit, again: %w", err)
		}
		p.LimitRounds++
		if p.slowerLatency() {
			p.LimitLatencyP50NS = min(p.LimitLatencyP50NS, p50)
		}
		if p.slowerBandwidth() {
			p.LimitBandwidthMBps = max(p.LimitBandwidthMBps, bandwidth/1e6)
		}
	}
	return nil
}

func (p *Path) slowerLatency() bool   { return p.LimitLatencyP50NS > p.LatencyP50NS }
func (p *Path) slowerBandwidth() bool { return p.LimitBandwidthMBps < p.BandwidthMBps }

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// ping sends a message whose last word is v and waits for the same back.
func (s *sender) ping(
	ctx context.Context, t target, clock baseline.Clock, size int, v uint32,
) (time.Duration, error) {
	var b [64]byte
	w, err := s.answer.Word(pongAt + size - 4)
	if err != nil {
		return 0, err
	}
	binary.LittleEndian.PutUint32(b[size-4:], v)
	start := clock.Now()
	if err := t.ping.Send(ctx, b[:size], 0); err != nil {
		return 0, err
	}
	if err := waitFor(ctx, w, v); err != nil {
		return 0, err
	}
	return clock.Since(start) / 2, nil
}

// pump sends a round's pieces and returns bytes a second until all have arrived.
func (s *sender) pump(ctx context.Context, t target) (float64, error) {
	// pages that were never written are all one page, and in the cache
	src := bytes.Repeat([]byte{1}, piece)
	start := time.Now()
	for range pieces {
		if err := t.data.Send(ctx, src, 0); err != nil {
			return 0, err
		}
	}
	if err := t.data.Fence(ctx); err != nil {
		return 0, err
	}
	return piece * pieces / time.Since(start).Seconds(), nil
}

// limits measures the raw flag and memmove, or raw TCP.
func limits(
	ctx context.Context, f *childproc.Group, path *Path, n int,
) (p50, bandwidth float64, err error) {
	l := newLatencies()
	if path.Path == "local" {
		if err := rawFlag(ctx, f, n, l); err != nil {
			return 0, 0, err
		}
		bandwidth, err = baseline.Copies(piece, pieces)
		return l.p50(), bandwidth, err
	}
	bandwidth, err = rawTCP(ctx, f, path.LatencyMessageBytes, n, l)
	return l.p50(), bandwidth, err
}

func rawFlag(ctx context.Context, f *childproc.Group, n int, l *latencies) error {
	flag, err := baseline.NewFlag()
	if err != nil {
		return err
	}
	defer flag.Close()
	fd, err := flag.Descriptor()
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "flag")
	c, err := f.Start([]*os.File{file}, Child, "flag", "-", strconv.Itoa(n))
	_ = file.Close()
	if err != nil {
		return err
	}
	if err := flag.Measure(ctx, n, l.add); err != nil {
		return err
	}
	return c.Finish()
}

func rawTCP(ctx context.Context, f *childproc.Group, size, n int, l *latencies) (float64, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	c, err := f.Start(nil, Child, "tcp", ln.Addr().String(), strconv.Itoa(size), strconv.Itoa(n), strconv.Itoa(piece*pieces))
	if err != nil {
		return 0, err
	}
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
	nc, err := ln.Accept()
	if err != nil {
		return 0, err
	}
	t, err := baseline.NewTCP(nc.(*net.TCPConn))
	if err != nil {
		return 0, err
	}
	defer t.Close()
	bw, err := t.Measure(ctx, size, n, piece*pieces, piece, l.add)
	if err != nil {
		return 0, err
	}
	return bw, c.Finish()
}
