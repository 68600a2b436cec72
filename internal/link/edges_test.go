package link

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// half is one side of a link whose other side the test plays by hand.
func half(t *testing.T) (e *Engine, fd, far int) {
	t.Helper()
	e, _ = engine(t)
	fd, far, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(far) })
	return e, fd, far
}

func importer(t *testing.T) (o *Out, far int) {
	t.Helper()
	e, fd, far := half(t)
	o, err := NewOut(e, fd, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return o, far
}

// hand is a side of a connection that a test plays.
type hand struct {
	t  *testing.T
	fd int
}

// numbers has the numbers of the next frames there and back.
var numbers sync.Map // of *[2]uint32 by hand

// numbers of the frames that the test says and hears on fd.
func (h hand) numbers() (said, heard *uint32) {
	n, _ := numbers.LoadOrStore(h, new([2]uint32))
	return &n.(*[2]uint32)[0], &n.(*[2]uint32)[1]
}

// say puts a frame on the socket; hear takes one off it.
func say(t *testing.T, fd int, h wire.Header, payload []byte) {
	t.Helper()
	b := make([]byte, wire.HeaderSize)
	said, _ := hand{t, fd}.numbers()
	h.Put(b, *said)
	*said++
	var io unix.IO
	for b = append(b, payload...); len(b) > 0; {
		n, err := io.Send(fd, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		b = b[n:]
	}
}

func hear(t *testing.T, fd int) (h wire.Header) {
	t.Helper()
	b := make([]byte, wire.HeaderSize)
	var io unix.IO
	for at := 0; at < len(b); {
		n, err := io.Recv(fd, b[at:], nil)
		if err != nil {
			t.Fatal(err)
		}
		at += n
	}
	_, heard := hand{t, fd}.numbers()
	if err := h.Parse(b, *heard); err != nil {
		t.Fatal(err)
	}
	*heard++
	return h
}

// The payload of a frame of a later version goes nowhere, in the middle of a
// message too.
func TestUnknownFrameInAMessage(t *testing.T) {
	mem := memory(t, 4096)
	e, fd, far := half(t)
	in, err := NewIn(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: mem[:64], Write: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	say(t, far, wire.Header{Type: wire.Data, Handle: 1, Seq: 1, Size: 16, Chunk: 8}, bytes.Repeat([]byte{1}, 8))
	say(t, far, wire.Header{Type: 200, Flags: wire.Skip, Chunk: 1024}, bytes.Repeat([]byte{2}, 1024))
	say(t, far, wire.Header{Type: wire.Data, Flags: wire.Last, Handle: 1, Seq: 1, Off: 8, Size: 16, Chunk: 4, Word: 3}, bytes.Repeat([]byte{1}, 4))
	for in.applied.Load() == 0 && in.err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := in.err(); err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Repeat([]byte{1}, 12), 3, 0, 0, 0)
	if !bytes.Equal(mem[:64], append(want, make([]byte, 48)...)) {
		t.Errorf("the memory has %v", mem[:64])
	}
}

// A credit that is given back without a notification goes to who waits for one.
func TestCreditGivenBack(t *testing.T) {
	o, _ := importer(t)
	for range page.Credits {
		if err := o.credit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	go func() { got <- o.credit(ctx, nil) }()
	for !o.e.sleepers.Asleep() {
		time.Sleep(time.Millisecond)
	}
	o.uncredit(true)
	if err := <-got; err != nil {
		t.Errorf("who waits for a credit: %v", err)
	}
}

// However many goroutines get at once, no more gets are unanswered than an
// exporter takes.
func TestUnansweredGetsAreBounded(t *testing.T) {
	o, _ := importer(t)
	o.tmu.Lock() // all of them come as far as that
	var wg sync.WaitGroup
	for range 4 * maxFetches {
		wg.Go(func() {
			if _, err := o.GetAsync(t.Context(), Read{Handle: 1, Dst: make([]byte, 4)}); err != nil && !errors.Is(err, ErrGone) {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	o.tmu.Unlock()
	for o.reads.Load() < maxFetches {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if n := o.reads.Load(); n > maxFetches {
		t.Errorf("%d gets are unanswered, an exporter takes %d", n, maxFetches)
	}
	o.fail(ErrGone) // those that wait for a place
	wg.Wait()
}

// An atomic that was asked for may have been done when the link ends.
func TestAtomicOfALostLink(t *testing.T) {
	o, far := importer(t)
	got := make(chan error, 1)
	go func() {
		_, err := o.Change(t.Context(), Change{Handle: 1, Op: wire.FetchAdd, A: 1})
		got <- err
	}()
	if h := hear(t, far); h.Type != wire.Atomic {
		t.Fatal(h)
	}
	o.fail(ErrGone)
	if err := <-got; !errors.Is(err, ErrGone) || !errors.Is(err, ErrUnknown) {
		t.Errorf("the atomic: %v", err)
	}
}

// A message that its import's end cuts short has not arrived, though it is
// acknowledged.
func TestCancelCountsNoHalfMessage(t *testing.T) {
	o, _ := importer(t)
	ctx, stop := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := o.Send(ctx, Message{Handle: 1, Src: make([]byte, 16<<20)})
		sent <- err
	}()
	for o.seq.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if good := o.Cancel(1); good != 0 {
		t.Errorf("message %d counts as arrived, nothing has", good)
	}
	stop()
	if err := <-sent; !errors.Is(err, ErrUnknown) {
		t.Errorf("the message: %v", err)
	}
}

// Until a request is over its memory is the link's, and not any longer: also
// when the link ends.
func TestRequestOfALostLink(t *testing.T) {
	o, _ := importer(t)
	src := make([]byte, 16<<20)
	r, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: src})
	if err != nil {
		t.Fatal(err)
	}
	o.rmu.Lock() // so far the socket stays open
	o.fail(ErrGone)
	if done, _ := r.Result(); done {
		t.Error("the request is over and its memory still being sent")
	}
	o.rmu.Unlock()
	if done, err := r.Wait(t.Context()); !done || !errors.Is(err, ErrGone) || !errors.Is(err, ErrUnknown) {
		t.Errorf("the request: %v, %v", done, err)
	}
}

// An exporter cannot acknowledge what was not sent yet: its memory would be
// sent when it is the caller's again.
func TestAcknowledgedTooEarly(t *testing.T) {
	o, far := importer(t)
	r, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 16<<20)})
	if err != nil {
		t.Fatal(err)
	}
	say(t, far, wire.Header{Type: wire.Ack, Ack: 1}, nil)
	if _, err := r.Wait(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Errorf("the request: %v", err)
	}
}

// What is wholly in frames may still lie in the sender's memory: it cannot have
// arrived either.
func TestAcknowledgedInTheSocket(t *testing.T) {
	o, far := importer(t)
	var r Request
	for full := false; !full; {
		var err error
		if r, err = o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, chunk)}); err != nil {
			t.Fatal(err)
		}
		o.tmu.Lock()
		if full = o.tx.left() > 0; full && o.written.Load() != r.seq {
			t.Errorf("%d of %d messages are in frames", o.written.Load(), r.seq)
		}
		o.tmu.Unlock()
	}
	say(t, far, wire.Header{Type: wire.Ack, Ack: r.seq}, nil)
	if _, err := r.Wait(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Errorf("the request: %v", err)
	}
}
