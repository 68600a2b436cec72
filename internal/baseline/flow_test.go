package baseline

import (
	"runtime"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// taken waits until the other end has read all that a has written.
func taken(t *testing.T, a, b *TCP) {
	t.Helper()
	var io unix.IO
	for until := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		if unix.Unsent(a.fd) == 0 { // so it is in the other end's socket, if it is not read
			if n, err := io.Peek(b.fd, make([]byte, 1)); n == 0 && err == nil {
				return
			}
		}
		if time.Now().After(until) {
			t.Fatal("what was written is not read")
		}
	}
}

// What counts begins when what warms up has been read, and not before, and ends when the last of it
// was: the test says what comes when.
func TestSpan(t *testing.T) {
	const size, warm, n = 64, 3, 2
	for name, c := range map[string]struct {
		read func(*TCP) (Span, error)
		back int // bytes that the reader writes
	}{
		"sink": {func(b *TCP) (Span, error) { return b.Sink(t.Context(), make([]byte, size), warm, n) }, 1},
		"both": {func(b *TCP) (Span, error) {
			return b.Both(t.Context(), make([]byte, size), make([]byte, size), warm, n)
		}, (warm + n) * size},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := joined(t)
			t.Cleanup(b.Close)
			var s Span
			errs := make(chan error, 2)
			go func() {
				var err error
				s, err = c.read(b)
				errs <- err
			}()
			go func() { errs <- (&TCP{fd: a.fd}).Receive(t.Context(), make([]byte, c.back)) }()
			say := func(bytes int) (before int64) {
				before = unix.Monotonic()
				if err := a.Send(t.Context(), make([]byte, bytes)); err != nil {
					t.Fatal(err)
				}
				return before
			}
			say(warm*size - 1)
			taken(t, a, b)
			warmed := say(1)
			say(1)
			taken(t, a, b) // of what counts, too
			say(n*size - 2)
			last := say(1)
			for range 2 {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			over := unix.Monotonic()
			if s.Begun < warmed || s.Begun > last || s.Ended < last || s.Ended > over {
				t.Errorf("from %d to %d; all that warms up was read after %d, the last of the others between %d and %d", s.Begun, s.Ended, warmed, last, over)
			}
			if s.Took() <= 0 || s.Took() != time.Duration(s.Ended-s.Begun) {
				t.Errorf("%v took %v", s, s.Took())
			}
		})
	}
}

// Of both ways what is from the first beginning to the last end counts.
func TestSpansTogether(t *testing.T) {
	for _, c := range [][3]Span{
		{{10, 20}, {12, 18}, {10, 20}},
		{{10, 20}, {12, 28}, {10, 28}},
		{{10, 20}, {1, 18}, {1, 20}},
	} {
		if got, back := c[0].With(c[1]), c[1].With(c[0]); got != c[2] || back != c[2] {
			t.Errorf("%v with %v is %v, or %v, want %v", c[0], c[1], got, back, c[2])
		}
	}
}
