package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/node"
)

// twoEnds are both ends of a stream in this process.
func twoEnds(t *testing.T, size int) (near, far *end) {
	t.Helper()
	n, err := node.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	ends := [2]*end{}
	for i := range ends {
		e := &end{Config: Config{Path: Remote, Sizes: []int{size}}, seq: 1 << 29}
		if e.p, err = vmmc.Open(t.Context(), vmmc.WithSocket(n.Socket())); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.p.Close() })
		m, err := e.p.Alloc(e.inbox() + markSize)
		if err != nil {
			t.Fatal(err)
		}
		if e.in, err = e.p.Export(inboxID, m.Bytes(), vmmc.Unmapped()); err != nil {
			t.Fatal(err)
		}
		ends[i] = e
	}
	near, far = ends[0], ends[1]
	for _, pair := range [][2]*end{{near, far}, {far, near}} {
		if pair[0].out, err = pair[0].p.Import(t.Context(), pair[1].p.Node(), pair[1].p.PID(), inboxID); err != nil {
			t.Fatal(err)
		}
	}
	here, there := net.Pipe()
	t.Cleanup(func() { _ = here.Close() })
	far.talk = &talk{c: here, e: json.NewEncoder(here)}
	go func() { _, _ = io.Copy(io.Discard, there) }()
	return near, far
}

// The receiver takes the time of a stream, from the first byte that counts. A sender
// that looks late at what warms the link up does not shorten it.
func TestTheReceiverTakesTheTimeOfAStream(t *testing.T) {
	const size, warm, n = 1 << 20, 2, 12
	for _, async := range []bool{false, true} {
		near, far := twoEnds(t, size)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		j := job{Do: "sink", Size: size, Warm: warm, N: n, First: 5}
		type answer struct {
			v   []float64
			err error
		}
		done := make(chan answer, 1)
		go func() {
			v, err := sink(ctx, far, j)
			done <- answer{v, err}
		}()
		begin := unix.Monotonic()
		mine, err := near.stream(ctx, bytes.Repeat([]byte{1}, size), warm, n, j.First+1, async)
		if err != nil {
			t.Fatal(err)
		}
		a := <-done
		s, err := spanOf(a.v, a.err)
		if err != nil {
			t.Fatal(err)
		}
		if s.Begun < begin || mine.Begun < s.Begun || s.Ended < s.Begun || mine.Ended < s.Ended {
			t.Errorf("async %v: the receiver's time is %+v, the sender's %+v", async, s, mine)
		}
	}
}
