package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vmmc-go/vmmc/internal/baseline"
	"github.com/vmmc-go/vmmc/internal/doctor"
	"github.com/vmmc-go/vmmc/manual"
)

// cProgram is both ends in C, in a folder of libraries: c/bench has its text.
const cProgram = "vmmc/bench-c"

// longestInC is the longest message of that program.
const longestInC = 4 << 20

// findC finds the program in C in one of the folders.
func findC(dirs []string) (Peer, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, cProgram)
		if s, err := os.Stat(path); err == nil && s.Mode().IsRegular() {
			return Peer{"C", []string{path}}, nil
		}
	}
	return Peer{}, fmt.Errorf("%s is in no folder of libraries: run \"make -C c install\", "+
		"or \"make -C c\" and name c/build in LD_LIBRARY_PATH", cProgram)
}

// whyNotC is why the library for C is not measured in this run. Otherwise C is the program.
func (c *Config) whyNotC() error {
	var err error
	switch {
	case c.Pin != "":
		return errors.New("the ends in C are not pinned")
	case c.Encrypt:
		return errors.New("the ends in C have no encrypted links")
	}
	c.C, err = findC(doctor.LibraryDirs()) // where the dynamic linker finds its library
	return err
}

// inC measures the library for C beside the one for Go, both by addresses in DestSpace: one way of
// messages that are answered one after another, and messages back to back until all have arrived.
func inC(ctx context.Context, e *end, size int) (err error) {
	if e.C.Command == nil { // the command has said why
		return nil
	}
	if size > longestInC {
		fmt.Fprintf(os.Stderr, "c: %d bytes are not measured: the ends in C send at most %d MiB\n", size, longestInC>>20)
		return nil
	}
	if err := e.oneWayInC(ctx, size); err != nil {
		return err
	}
	return e.burstInC(ctx, size)
}

const byAddress = "Go, by address"

func (e *end) oneWayInC(ctx context.Context, size int) (err error) {
	n := e.count(size, e.often(20000, 4000), 128<<20)
	skip := n / 10
	p, err := e.startOn(ctx, e.C, "ping", e.socket, e.farSocket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	cAt, goAt := e.pages(size), e.pages(size)
	c := func(_ context.Context, h *hist) (float64, error) {
		each := h.skipping(skip)
		return 0, p.times("round trips", n+skip, func(d time.Duration) { each(d / 2) }, size, n+skip, cAt())
	}
	g := func(ctx context.Context, h *hist) (float64, error) {
		j := job{Do: "pong", Mode: byAddress, Size: size, At: goAt(), N: n + skip, First: e.next(n + skip)}
		_, err := e.with(ctx, j, func() error { return e.ping(ctx, j, h.skipping(skip)) })
		return 0, err
	}
	return e.compare(ctx, Result{What: "c", Variant: "one way", Size: size, Unit: Nanos, Count: n, LimitIs: byAddress}, c, g)
}

func (e *end) burstInC(ctx context.Context, size int) (err error) {
	n := e.count(size, e.often(1<<16, 1<<14), e.often(512<<20, 256<<20))
	warm := n/10 + 1
	p, err := e.startOn(ctx, e.C, "burst", e.socket, e.farSocket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	c := func(context.Context, *hist) (mean float64, err error) {
		for _, n := range []int{warm, n} {
			err = errors.Join(err, p.times("means", 1, func(d time.Duration) { mean = float64(d) }, size, n))
		}
		return mean, err
	}
	g := func(ctx context.Context, _ *hist) (mean float64, err error) {
		for _, n := range []int{warm, n} {
			j := job{Do: "flagged", Size: size, N: n, First: e.next(2)}
			if _, err := e.with(ctx, j, func() (err error) {
				mean, err = e.burstByAddress(ctx, j)
				return err
			}); err != nil {
				return 0, err
			}
		}
		return mean, nil
	}
	return e.compare(ctx, Result{What: "c", Variant: "back to back", Size: size, Unit: Nanos, Count: n, LimitIs: byAddress}, c, g)
}

// burstByAddress sends the job's messages to successive addresses, and returns how many nanoseconds
// each took, until the far end has answered that all have arrived.
func (e *end) burstByAddress(ctx context.Context, j job) (float64, error) {
	src := make([]byte, j.Size)
	for i := range src {
		src[i] = 1 // pages that were never written are all one page
	}
	span := manual.ProxyAddr(max(1, ring/j.Size) * j.Size)
	clock := baseline.NewClock()
	start := clock.Now()
	for i, off := 0, manual.ProxyAddr(0); i < j.N; i++ {
		if err := e.dest.Send(ctx, src, e.addr+off); err != nil {
			return 0, err
		}
		if off += manual.ProxyAddr(j.Size); off == span {
			off = 0
		}
	}
	flag := binary.LittleEndian.AppendUint32(nil, j.First)
	if err := e.dest.Send(ctx, flag, e.addr+manual.ProxyAddr(e.inbox())); err != nil {
		return 0, err
	}
	err := e.lookAt(ctx, e.inbox(), j.First)
	return float64(clock.Since(start)) / float64(j.N), err
}

// flagged is the far end of burstByAddress.
func flagged(ctx context.Context, e *end, j job) ([]float64, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	if err := e.lookAt(ctx, e.inbox(), j.First); err != nil {
		return nil, err
	}
	flag := binary.LittleEndian.AppendUint32(nil, j.First)
	return nil, e.dest.Send(ctx, flag, e.addr+manual.ProxyAddr(e.inbox()))
}

// post sends a message of a ping: to an address, or through the import.
func (e *end) post(ctx context.Context, j job, src []byte) error {
	if j.Mode == byAddress {
		return e.dest.Send(ctx, src, e.addr+manual.ProxyAddr(j.At))
	}
	return e.out.Send(ctx, src, j.At)
}
