package baseline

import (
	"bytes"
	"context"
	"io"
	"net"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// TCP is a raw connection: non-blocking calls on the descriptor, and yields
// between looks as in the library's waits.
type TCP struct {
	io unix.IO
	fd int
	// The last yield let another thread run: the looks before it do not count.
	shared bool
}

// otherRanYield is the least time of a yield, in nanoseconds, if another thread ran.
const otherRanYield = 2000

// NewTCP takes a connection over.
func NewTCP(c *net.TCPConn) (*TCP, error) {
	fd, err := unix.TakeOver(c)
	if err != nil {
		return nil, err
	}
	return &TCP{fd: fd}, nil
}

// Close ends the connection.
func (t *TCP) Close() { _ = unix.Close(t.fd) }

// Ping writes n requests, reads the answer to each, and reports each round trip's
// time.
func (t *TCP) Ping(ctx context.Context, request, answer, n int, each func(time.Duration)) error {
	out, in := make([]byte, request), make([]byte, answer)
	clock := NewClock()
	for range n {
		start := clock.Now()
		if err := t.write(ctx, out); err != nil {
			return err
		}
		if err := t.read(ctx, in); err != nil {
			return err
		}
		each(clock.Since(start))
	}
	return nil
}

// Pong is the other side of Ping.
func (t *TCP) Pong(ctx context.Context, request, answer, n int) error {
	in, out := make([]byte, request), make([]byte, answer)
	for range n {
		if err := t.read(ctx, in); err != nil {
			return err
		}
		if err := t.write(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// Pump writes src n times, and waits until all has been read: one byte says so.
func (t *TCP) Pump(ctx context.Context, src []byte, n int) error {
	for range n {
		if err := t.write(ctx, src); err != nil {
			return err
		}
	}
	return t.read(ctx, make([]byte, 1))
}

// Swallow is the other side of Pump where what arrives is not kept.
func (t *TCP) Swallow(ctx context.Context, total int) error {
	sink := make([]byte, 256<<10)
	for left := total; left > 0; left -= len(sink) {
		if err := t.read(ctx, sink[:min(len(sink), left)]); err != nil {
			return err
		}
	}
	return t.write(ctx, sink[:1])
}

// Send writes b, for what is not one of the patterns here.
func (t *TCP) Send(ctx context.Context, b []byte) error { return t.write(ctx, b) }

// Receive fills b.
func (t *TCP) Receive(ctx context.Context, b []byte) error { return t.read(ctx, b) }

// ReceiveBlocking sleeps until something can be read, as blocking programs do, and fills b.
func (t *TCP) ReceiveBlocking(ctx context.Context, b []byte) error {
	for start := time.Now(); ; {
		if n, err := t.io.Recv(t.fd, b, nil); n > 0 || err != nil {
			if b = b[n:]; len(b) == 0 || err != nil {
				return err
			}
			continue
		}
		if err := unix.AwaitInput(t.fd, 100*time.Millisecond); err != nil {
			return err
		}
		if time.Since(start) > maxWait {
			return errNoAnswer
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Look is Receive with a call before each look.
func (t *TCP) Look(ctx context.Context, b []byte, look func()) error {
	return t.recvAll(ctx, b, func(b []byte) (int, error) {
		look()
		return t.io.Recv(t.fd, b, nil)
	})
}

// Serve is Pong with answers of the same size, and then Sink of total bytes.
func (t *TCP) Serve(ctx context.Context, size, n, total int) error {
	if err := t.Pong(ctx, size, size, n); err != nil {
		return err
	}
	return t.Swallow(ctx, total)
}

// Measure is the other side of Serve: it reports each one way's time, and
// returns bytes a second for total bytes written in pieces of piece.
func (t *TCP) Measure(
	ctx context.Context, size, n, total, piece int, each func(time.Duration),
) (float64, error) {
	if err := t.Ping(ctx, size, size, n, func(d time.Duration) { each(d / 2) }); err != nil {
		return 0, err
	}
	// pages that were never written are all one page, and in the cache
	src := bytes.Repeat([]byte{1}, piece)
	start := time.Now()
	for left := total; left > 0; left -= piece {
		if err := t.write(ctx, src[:min(piece, left)]); err != nil {
			return 0, err
		}
	}
	if err := t.read(ctx, src[:1]); err != nil {
		return 0, err
	}
	return float64(total) / time.Since(start).Seconds(), nil
}

func (t *TCP) read(ctx context.Context, b []byte) error {
	return t.recvAll(ctx, b, func(b []byte) (int, error) { return t.io.Recv(t.fd, b, nil) })
}

func (t *TCP) write(ctx context.Context, b []byte) error {
	return t.recvAll(ctx, b, func(b []byte) (int, error) { return t.io.Send(t.fd, b, nil) })
}

// recvAll repeats a call until all of b is done.
func (t *TCP) recvAll(ctx context.Context, b []byte, call func([]byte) (int, error)) error {
	return t.until(ctx, func() (moved, done bool, err error) {
		n, err := call(b)
		b = b[n:]
		return n > 0, len(b) == 0, err
	})
}

// until repeats a step until it is done, and yields where nothing moves.
func (t *TCP) until(ctx context.Context, step func() (moved, done bool, err error)) error {
	var start time.Time
	for looks := 0; ; {
		moved, done, err := step()
		if err == io.EOF { //nolint:errorlint // returned as it is
			err = io.ErrUnexpectedEOF
		}
		switch {
		case err != nil || done:
			return err
		case moved:
			continue
		}
		if looks++; looks < 8 && !t.shared {
			continue
		}
		looks = 0
		before := unix.Monotonic()
		if err := yield(ctx, &start); err != nil {
			return err
		}
		t.shared = unix.Monotonic()-before > otherRanYield
	}
}
