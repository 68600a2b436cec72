package limit

import (
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
}

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

// Serve answers n messages of size bytes, then swallows total bytes and answers
// with one.
func (t *TCP) Serve(ctx context.Context, size, n, total int) error {
	b := make([]byte, size)
	for range n {
		if err := t.read(ctx, b); err != nil {
			return err
		}
		if err := t.write(ctx, b); err != nil {
			return err
		}
	}
	sink := make([]byte, 256<<10)
	for total > 0 {
		part := sink[:min(len(sink), total)]
		if err := t.read(ctx, part); err != nil {
			return err
		}
		total -= len(part)
	}
	return t.write(ctx, sink[:1])
}

// Measure is the other side of Serve: it reports each one way's time, and
// returns bytes a second for total bytes written in pieces of piece.
func (t *TCP) Measure(ctx context.Context, size, n, total, piece int, each func(time.Duration)) (float64, error) {
	b := make([]byte, size)
	for range n {
		start := time.Now()
		if err := t.write(ctx, b); err != nil {
			return 0, err
		}
		if err := t.read(ctx, b); err != nil {
			return 0, err
		}
		each(time.Since(start) / 2)
	}
	src := make([]byte, piece)
	start := time.Now()
	for left := total; left > 0; left -= piece {
		if err := t.write(ctx, src[:min(piece, left)]); err != nil {
			return 0, err
		}
	}
	if err := t.read(ctx, b[:1]); err != nil {
		return 0, err
	}
	return float64(total) / time.Since(start).Seconds(), nil
}

func (t *TCP) read(ctx context.Context, b []byte) error {
	return t.turn(ctx, b, func(b []byte) (int, error) { return t.io.Recv(t.fd, b, nil) })
}

func (t *TCP) write(ctx context.Context, b []byte) error {
	return t.turn(ctx, b, func(b []byte) (int, error) { return t.io.Send(t.fd, b, nil) })
}

// turn repeats a call until all of b is done.
func (t *TCP) turn(ctx context.Context, b []byte, call func([]byte) (int, error)) error {
	var start time.Time
	for looks := 0; len(b) > 0; {
		n, err := call(b)
		if err != nil {
			if err == io.EOF { //nolint:errorlint // returned as it is
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		b = b[n:]
		if looks++; n == 0 && looks >= 8 {
			looks = 0
			if start.IsZero() {
				start = time.Now()
			}
			if time.Since(start) > patience {
				return errPatience
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			unix.Yield()
		}
	}
	return nil
}
