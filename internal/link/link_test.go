package link

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/shm"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// pair joins two engines of this process by a socket pair, with or without the
// pages that a same-node link has.
type pair struct {
	a, b *Engine
	out  *Requester
	in   *Responder
	lost chan error
}

// memory is off the Go heap: what orders the engine's stores with the test's
// reads goes over sockets, which the race detector does not see.
func memory(t *testing.T, n int) []byte {
	t.Helper()
	r, err := shm.New("test", n, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Retire)
	return r.Bytes()[:n]
}

func engine(t *testing.T) (*Engine, shmlayout.Process) {
	t.Helper()
	p, err := shmlayout.NewProcess()
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEngine(p.Board())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); p.Retire() })
	return e, p
}

func view[T any](t *testing.T, r *shm.Region, open func(int) (T, error)) T {
	t.Helper()
	fd, err := r.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	v, err := open(fd)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func join(t *testing.T, pages bool, targets ...*Target) *pair {
	t.Helper()
	a, pa := engine(t)
	b, pb := engine(t)
	fa, fb, err := unix.StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	var ga, gb *Pages
	if pages {
		ga, gb = sharedPages(t, pa, pb)
	}
	p := &pair{a: a, b: b, lost: make(chan error, 2)}
	if p.in, err = NewResponder(b, fb, gb, Terms{}, targets, nil, func(uint32) {}, func(err error) { p.lost <- err }); err != nil {
		t.Fatal(err)
	}
	if p.out, err = NewRequester(a, fa, ga, Terms{}, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		t.Fatal(err)
	}
	return p
}

// sharedPages are the pages of a link between two processes, as each needs them.
func sharedPages(t *testing.T, pa, pb shmlayout.Process) (ga, gb *Pages) {
	t.Helper()
	ring, err := shmlayout.NewImporter()
	if err != nil {
		t.Fatal(err)
	}
	back, err := shmlayout.NewExporter()
	if err != nil {
		t.Fatal(err)
	}
	return &Pages{Peer: view(t, pb.Region, shmlayout.OpenProcess), Ring: ring, Back: view(t, back.Region, shmlayout.OpenExporter)},
		&Pages{Peer: view(t, pa.Region, shmlayout.OpenProcess), Ring: view(t, ring.Region, shmlayout.OpenImporter), Back: back}
}

func TestSendAndGetEverySize(t *testing.T) {
	mem := memory(t, 3<<20)
	p := join(t, false, &Target{Handle: 1, Mem: mem, Write: true, Read: true})
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(7, 7))
	for _, n := range []int{4, 8, 60, 64, 4096, 16 << 10, 64 << 10, 64<<10 + 4, 256 << 10, 256<<10 + 4, 1 << 20, 2<<20 + 12} {
		src := make([]byte, n)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		off := uint64(rng.IntN((len(mem)-n)/4)) * 4
		if _, err := p.out.Send(ctx, Message{Handle: 1, Off: off, Src: src}); err != nil {
			t.Fatal(err)
		}
		if err := p.out.WaitApplied(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(mem[off:off+uint64(n)], src) {
			t.Fatalf("%d bytes at %d: contents differ", n, off)
		}
		dst := make([]byte, n)
		if err := p.out.Get(ctx, Read{Handle: 1, Off: off, Dst: dst}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(dst, src) {
			t.Fatalf("get of %d bytes at %d: contents differ", n, off)
		}
	}
	odd := []byte("odd length")
	if _, err := p.out.Send(ctx, Message{Handle: 1, Off: 3, Src: odd[:7], Bytes: true}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 7)
	if err := p.out.Get(ctx, Read{Handle: 1, Off: 3, Dst: got, Bytes: true}); err != nil || !bytes.Equal(got, odd[:7]) {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestNotificationsRunInOrderOverBothWays(t *testing.T) {
	r, err := shm.New("test", shm.PageSize, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Retire()
	var next atomic.Uint32
	wrong := make(chan [2]uint32, 1)
	run := func(_ int, w uint32, _ []byte) {
		if n := next.Add(1); n != w {
			select {
			case wrong <- [2]uint32{n, w}:
			default:
			}
		}
	}
	heap := memory(t, 64)
	p := join(t, true,
		&Target{Handle: 1, Mem: r.Bytes(), Write: true, Notify: run},
		&Target{Handle: 2, Mem: heap, Write: true, Notify: run})
	if err := r.Seal(false); err != nil {
		t.Fatal(err)
	}
	// The state word of slot 0 is what the exporter would set.
	far := view(t, r, func(fd int) (*shm.Region, error) { return shm.Open(fd, shm.PageSize, true) })
	m := NewMapped(p.out, 1, far, 0, shm.PageSize, 0, 0, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	rng := rand.New(rand.NewPCG(3, 3))
	const total = 5000
	for i := uint32(1); i <= total; i++ {
		var b [4]byte
		setLastWord(b[:], i)
		if rng.IntN(2) == 0 {
			err = m.SendNotify(ctx, 0, b[:])
		} else {
			_, err = p.out.Send(ctx, Message{Handle: 2, Src: b[:], Notify: true})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for next.Load() < total {
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d notifications ran", next.Load(), total)
		case w := <-wrong:
			t.Fatalf("notification %d ran in place of %d", w[1], w[0])
		case <-time.After(time.Millisecond):
		}
	}
}

func TestRevokeStopsAMessageUnderWay(t *testing.T) {
	mem := memory(t, 1<<20)
	p := join(t, false, &Target{Handle: 1, Mem: mem, Write: true, Read: true})
	src := bytes.Repeat([]byte{0xaa}, len(mem))
	errs := make(chan error, 1)
	go func() {
		for {
			if err := p.out.Get(t.Context(), Read{Handle: 1, Off: 0, Dst: src, Bytes: false}); err != nil {
				errs <- err
				return
			}
		}
	}()
	p.in.Revoke(1)
	clear(mem)
	if _, err := p.out.Send(t.Context(), Message{Handle: 1, Src: src}); err != nil && !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	if err := p.out.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(mem, make([]byte, len(mem))) {
		t.Error("a send after revocation reached the memory")
	}
	if err := <-errs; !errors.Is(err, ErrRevoked) {
		t.Errorf("a get after revocation: %v", err)
	}
}

func TestCancelledSendNeverStoresItsLastWord(t *testing.T) {
	mem := memory(t, 8<<20)
	p := join(t, false, &Target{Handle: 1, Mem: mem, Write: true, Read: true})
	p.in.rmu.Lock() // the receiver stands still, so the socket fills
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	src := bytes.Repeat([]byte{0xbb}, len(mem))
	go func() {
		_, err := p.out.Send(ctx, Message{Handle: 1, Src: src})
		errs <- err
	}()
	for p.out.lastSeq.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	err := <-errs
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the middle: %v", err)
	}
	clear(src) // it is the caller's again
	p.in.rmu.Unlock()
	one := []byte{1, 2, 3, 4}
	if _, err := p.out.Send(t.Context(), Message{Handle: 1, Off: 4, Src: one}); err != nil {
		t.Fatal(err)
	}
	if err := p.out.WaitApplied(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if w := loadLast(mem, uint64(len(mem)-4)); w != 0 {
		t.Errorf("last word of a cancelled message: %#x", w)
	}
	if !bytes.Equal(mem[4:8], one) {
		t.Error("the message after a cancelled one did not arrive")
	}
}

func TestPeerGone(t *testing.T) {
	p := join(t, false, &Target{Handle: 1, Mem: make([]byte, 64), Write: true, Read: true})
	p.in.Close()
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		err = p.out.Get(t.Context(), Read{Handle: 1, Dst: make([]byte, 8)})
	}
	if !errors.Is(err, ErrGone) {
		t.Errorf("get from a closed peer: %v", err)
	}
	if _, err := p.out.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 8)}); !errors.Is(err, ErrGone) {
		t.Errorf("send to a closed peer: %v", err)
	}
}
