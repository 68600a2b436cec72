package link

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// halfLink is one side of a link whose other side the test plays by hand.
func halfLink(t *testing.T) (e *Engine, fd, far int) {
	t.Helper()
	e, _ = engine(t)
	fd, far, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(far) })
	return e, fd, far
}

func requesterTo(t *testing.T) (rq *Requester, far int) {
	t.Helper()
	e, fd, far := halfLink(t)
	rq, err := NewRequester(e, fd, nil, Terms{}, func(uint32, uint64, error) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	return rq, far
}

// rawPeer is a side of a connection that a test plays.
type rawPeer struct {
	t  *testing.T
	fd int
}

// numbers has the numbers of the next frames there and back.
var numbers sync.Map // of *[2]uint32 by hand

// numbers of the frames that the test says and hears on fd.
func (h rawPeer) numbers() (said, heard *uint32) {
	n, _ := numbers.LoadOrStore(h, new([2]uint32))
	return &n.(*[2]uint32)[0], &n.(*[2]uint32)[1]
}

// sendRaw puts a frame on the socket; hear takes one off it.
func sendRaw(t *testing.T, fd int, h wire.Header, payload []byte) {
	t.Helper()
	b := make([]byte, wire.HeaderSize)
	said, _ := rawPeer{t, fd}.numbers()
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

func recvRaw(t *testing.T, fd int) (h wire.Header) {
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
	_, heard := rawPeer{t, fd}.numbers()
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
	e, fd, far := halfLink(t)
	rs, err := NewResponder(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: mem[:64], Write: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	sendRaw(t, far, wire.Header{Type: wire.Data, Handle: 1, Seq: 1, Size: 16, Chunk: 8}, bytes.Repeat([]byte{1}, 8))
	sendRaw(t, far, wire.Header{Type: 200, Flags: wire.Skip, Chunk: 1024}, bytes.Repeat([]byte{2}, 1024))
	sendRaw(t, far, wire.Header{Type: wire.Data, Flags: wire.Last, Handle: 1, Seq: 1, Off: 8, Size: 16, Chunk: 4, Word: 3}, bytes.Repeat([]byte{1}, 4))
	for rs.appliedSeq.Load() == 0 && rs.err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := rs.err(); err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Repeat([]byte{1}, 12), 3, 0, 0, 0)
	if !bytes.Equal(mem[:64], append(want, make([]byte, 48)...)) {
		t.Errorf("the memory has %v", mem[:64])
	}
}

// A credit that is returned without a notification goes to a waiter.
func TestCreditGivenBack(t *testing.T) {
	rq, _ := requesterTo(t)
	for range shmlayout.Credits {
		if err := rq.takeCredit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	go func() { got <- rq.takeCredit(ctx, nil) }()
	for !rq.e.sleepers.Asleep() {
		time.Sleep(time.Millisecond)
	}
	rq.untakeCredit(true)
	if err := <-got; err != nil {
		t.Errorf("waiter for a credit: %v", err)
	}
}

// However many goroutines get at once, no more gets are unanswered than an
// exporter takes.
func TestUnansweredGetsAreBounded(t *testing.T) {
	rq, _ := requesterTo(t)
	rq.tmu.Lock() // all of them come as far as that
	var wg sync.WaitGroup
	for range 4 * maxFetches {
		wg.Go(func() {
			if _, err := rq.GetAsync(t.Context(), Read{Handle: 1, Dst: make([]byte, 4)}); err != nil && !errors.Is(err, ErrGone) {
				t.Error(err)
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	rq.tmu.Unlock()
	for rq.fetches.count.Load() < maxFetches {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if n := rq.fetches.count.Load(); n > maxFetches {
		t.Errorf("%d gets are unanswered, an exporter takes %d", n, maxFetches)
	}
	rq.fail(ErrGone) // those that wait for a place
	wg.Wait()
}

// An atomic that was asked for may have been done when the link ends.
func TestAtomicOfALostLink(t *testing.T) {
	rq, far := requesterTo(t)
	got := make(chan error, 1)
	go func() {
		_, err := rq.Atomic(t.Context(), AtomicOp{Handle: 1, Op: wire.FetchAdd, A: 1})
		got <- err
	}()
	if h := recvRaw(t, far); h.Type != wire.Atomic {
		t.Fatal(h)
	}
	rq.fail(ErrGone)
	if err := <-got; !errors.Is(err, ErrGone) || !errors.Is(err, ErrUnknown) {
		t.Errorf("the atomic: %v", err)
	}
}

// A message that its import's end cuts short has not arrived, though it is
// acknowledged.
func TestCancelCountsNoHalfMessage(t *testing.T) {
	rq, _ := requesterTo(t)
	ctx, stop := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() {
		_, err := rq.Send(ctx, Message{Handle: 1, Src: make([]byte, 16<<20)})
		sent <- err
	}()
	for rq.lastSeq.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if good := rq.Cancel(1); good != 0 {
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
	rq, _ := requesterTo(t)
	src := make([]byte, 16<<20)
	r, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: src})
	if err != nil {
		t.Fatal(err)
	}
	rq.rmu.Lock() // so far the socket stays open
	rq.fail(ErrGone)
	if done, _ := r.Result(); done {
		t.Error("the request is over and its memory still being sent")
	}
	rq.rmu.Unlock()
	if done, err := r.Wait(t.Context()); !done || !errors.Is(err, ErrGone) || !errors.Is(err, ErrUnknown) {
		t.Errorf("the request: %v, %v", done, err)
	}
}

// An exporter cannot acknowledge what was not sent yet: its memory would be
// sent when it is the caller's again.
func TestAcknowledgedTooEarly(t *testing.T) {
	rq, far := requesterTo(t)
	r, err := rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, 16<<20)})
	if err != nil {
		t.Fatal(err)
	}
	sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: 1}, nil)
	if _, err := r.Wait(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Errorf("the request: %v", err)
	}
}

// What is wholly in frames may still lie in the sender's memory: it cannot have
// arrived either.
func TestAcknowledgedInTheSocket(t *testing.T) {
	rq, far := requesterTo(t)
	var r Request
	for full := false; !full; {
		var err error
		if r, err = rq.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, chunk)}); err != nil {
			t.Fatal(err)
		}
		rq.tmu.Lock()
		if full = rq.tx.unwritten() > 0; full && rq.writtenSeq.Load() != r.seq {
			t.Errorf("%d of %d messages are in frames", rq.writtenSeq.Load(), r.seq)
		}
		rq.tmu.Unlock()
	}
	sendRaw(t, far, wire.Header{Type: wire.Ack, Ack: r.seq}, nil)
	if _, err := r.Wait(t.Context()); !errors.Is(err, ErrProtocol) {
		t.Errorf("the request: %v", err)
	}
}
