// Package rpc has both ends of remote procedure calls, by gRPC-Go and by net/rpc, as programs use
// them: the defaults, no security, and a limit on messages that lets the sizes of a run through.
package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of contenders.
const (
	GRPC   = "gRPC-Go"
	NetRPC = "net/rpc"
)

// Kinds are the names of both.
func Kinds() []string { return []string{GRPC, NetRPC} }

// caller is a client. Echo gets its bytes back; Take gets nothing.
type caller interface {
	Echo(ctx context.Context, b []byte) ([]byte, error)
	Take(ctx context.Context, b []byte) error
	Close() error
}

// Serve prints where it listens, and serves until ctx ends.
func Serve(ctx context.Context, kind, network, addr string, out io.Writer) error {
	if network == "unix" {
		if err := os.Remove(addr); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	} else {
		addr = net.JoinHostPort(addr, "0")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	if kind == GRPC {
		return serveGRPC(ctx, l)
	}
	return serveNetRPC(ctx, l)
}

// Call does works, call:SIZE:COUNT and callbw:SIZE:COUNT, and prints an object of JSON for each.
func Call(
	ctx context.Context, kind, network, addr string, works []string, out io.Writer,
) (err error) {
	dial := dialNetRPC
	if kind == GRPC {
		dial = dialGRPC
	}
	c, err := dial(ctx, network, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, w := range works {
		part := strings.Split(w, ":")
		if len(part) != 3 {
			return fmt.Errorf("a work is NAME:SIZE:COUNT, not %q", w)
		}
		size, err1 := strconv.Atoi(part[1])
		count, err2 := strconv.Atoi(part[2])
		if err1 != nil || err2 != nil || size < 1 || count < 1 {
			return fmt.Errorf("a work is NAME:SIZE:COUNT, not %q", w)
		}
		switch part[0] {
		case "call":
			err = latency(ctx, c, size, count, out)
		case "callbw":
			err = bandwidth(ctx, c, size, count, out)
		default:
			err = fmt.Errorf("unknown work %q", w)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	return nil
}

// latency is half of what it takes to have as many bytes back.
func latency(ctx context.Context, c caller, size, count int, out io.Writer) error {
	b := make([]byte, size)
	times := make([]float64, 0, count)
	for i := -count / 10; i < count; i++ {
		start := time.Now()
		back, err := c.Echo(ctx, b)
		if err != nil {
			return err
		}
		if len(back) != size {
			return fmt.Errorf("%d bytes came back", len(back))
		}
		if i >= 0 {
			times = append(times, float64(time.Since(start).Nanoseconds())/2)
		}
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[min(int(q*float64(count)), count-1)] }
	_, err := fmt.Fprintf(out, "{\"what\":\"call\",\"size\":%d,\"min\":%.1f,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f}\n",
		size, times[0], at(.5), at(.99), at(.999))
	return err
}

// inFlight calls are made at once: one alone would measure latency again.
const inFlight = 8

func bandwidth(ctx context.Context, c caller, size, count int, out io.Writer) error {
	if err := take(ctx, c, size, count/10+1); err != nil {
		return err
	}
	start := time.Now()
	if err := take(ctx, c, size, count); err != nil {
		return err
	}
	mbps := float64(size) * float64(count) / time.Since(start).Seconds() / 1e6
	_, err := fmt.Fprintf(out, "{\"what\":\"callbw\",\"size\":%d,\"mbps\":%.1f}\n", size, mbps)
	return err
}

func take(ctx context.Context, c caller, size, count int) error {
	var all sync.WaitGroup
	turns := make(chan struct{})
	failed := make(chan error, inFlight)
	for range inFlight {
		all.Go(func() {
			b := bytes.Repeat([]byte{1}, size) // written, as ours are
			var err error
			for range turns {
				if err == nil {
					err = c.Take(ctx, b)
				}
			}
			failed <- err
		})
	}
	for range count {
		turns <- struct{}{}
	}
	close(turns)
	all.Wait()
	close(failed)
	var err error
	for one := range failed {
		err = errors.Join(err, one)
	}
	return err
}
