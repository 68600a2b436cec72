package link

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// through joins two engines by a link over a network with faults.
func through(t *testing.T, terms Terms, target *Target, there, back []simnet.Fault) *pair {
	t.Helper()
	a, _ := engine(t)
	b, _ := engine(t)
	x, y, c, err := simnet.Pair(there, back)
	if err != nil {
		t.Fatal(err)
	}
	near, err := unix.TakeOver(x)
	if err != nil {
		t.Fatal(err)
	}
	far, err := unix.TakeOver(y)
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{a: a, b: b, lost: make(chan error, 2)}
	if p.in, err = NewResponder(b, far, nil, terms, []*Target{target}, nil, func(uint32) {}, func(err error) { p.lost <- err }); err != nil {
		t.Fatal(err)
	}
	if p.out, err = NewRequester(a, near, nil, terms, func(uint32, uint64, error) {}, func(error) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.out.Close()
		p.in.Close()
		c.Close()
	})
	return p
}

func TestCheckedLinkCarriesEverything(t *testing.T) {
	mem := memory(t, 1<<20)
	p := through(t, Terms{Checked: true}, &Target{Handle: 1, Mem: mem, Write: true, Read: true}, nil, nil)
	rng := rand.New(rand.NewPCG(1, 7))
	for _, n := range []int{4, 8, 448, 452, 456, 4096, wire.MaxChecked, wire.MaxChecked + 4, 300 << 10, 1 << 20} {
		src := make([]byte, n)
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		if _, err := p.out.Send(t.Context(), Message{Handle: 1, Src: src[:n/8*4], More: [][]byte{src[n/8*4:]}}); err != nil {
			t.Fatal(n, err)
		}
		dst := make([]byte, n)
		if err := p.out.Get(t.Context(), Read{Handle: 1, Dst: dst}); err != nil || !bytes.Equal(dst, src) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		r, err := p.out.SendAsync(t.Context(), Message{Handle: 1, Src: src})
		if err != nil {
			t.Fatal(n, err)
		}
		if done, err := r.Wait(t.Context()); !done || err != nil {
			t.Fatalf("%d bytes: %v, %v", n, done, err)
		}
	}
	if err := p.out.Get(t.Context(), Read{Handle: 1, Off: 1, Dst: make([]byte, 3), Bytes: true}); err != nil {
		t.Fatal(err)
	}
	if n := p.in.ChecksumErrors() + p.out.ChecksumErrors(); n != 0 {
		t.Errorf("%d frames were damaged", n)
	}
}

// A write to memory that is being sent gives a mixture of both contents; the link survives.
func TestCheckedMemoryThatChanges(t *testing.T) {
	mem := memory(t, 1<<20)
	p := through(t, Terms{Checked: true}, &Target{Handle: 1, Mem: mem, Write: true, Read: true}, nil, nil)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // words, as others would write to it
		defer close(done)
		for v := uint32(1); ; v++ {
			for off := uint64(0); off < uint64(len(mem)); off += 4096 {
				storeLast(mem, off, v)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		if err := p.out.Get(t.Context(), Read{Handle: 1, Dst: make([]byte, len(mem))}); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-done
}

// Damage that the network does not notice: a message of which a byte is another one ends
// the link before its last word is stored.
func TestDamagedPayload(t *testing.T) {
	for _, n := range []int{8, 400, 4096, 200 << 10} {
		mem := memory(t, 256<<10)
		var ran atomic.Bool
		target := &Target{Handle: 1, Mem: mem, Write: true, Notify: func(int, uint32, []byte) { ran.Store(true) }}
		p := through(t, Terms{Checked: true}, target, []simnet.Fault{{At: int64(wire.HeaderSize + n/2 - 4), Kind: simnet.Flip, Bit: 3}}, nil)
		_, err := p.out.Send(t.Context(), Message{Handle: 1, Src: bytes.Repeat([]byte{0xee}, n), Notify: true})
		if err != nil && !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
		if err := <-p.lost; !errors.Is(err, wire.ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
		if w := loadLast(mem, uint64(n-4)); w != 0 || ran.Load() {
			t.Errorf("%d bytes: the last word is %#x, the handler ran: %v", n, w, ran.Load())
		}
		if p.in.ChecksumErrors() != 1 {
			t.Errorf("%d frames were damaged", p.in.ChecksumErrors())
		}
	}
}

func TestDamagedReply(t *testing.T) {
	mem := memory(t, 4096)
	p := through(t, Terms{Checked: true}, &Target{Handle: 1, Mem: mem, Read: true}, nil, []simnet.Fault{{At: wire.HeaderSize + 100, Kind: simnet.Flip}})
	if err := p.out.Get(t.Context(), Read{Handle: 1, Dst: make([]byte, 4096)}); !errors.Is(err, wire.ErrCorrupt) {
		t.Error(err)
	}
}

// Headers are checked always.
func TestDamagedHeader(t *testing.T) {
	mem := memory(t, 64)
	p := through(t, Terms{}, &Target{Handle: 1, Mem: mem, Write: true}, []simnet.Fault{{At: 9, Kind: simnet.Flip}}, nil)
	if _, err := p.out.Send(t.Context(), Message{Handle: 1, Src: []byte{1, 2, 3, 4}}); err != nil {
		t.Fatal(err)
	}
	if err := <-p.lost; !errors.Is(err, wire.ErrCorrupt) || p.in.ChecksumErrors() != 1 {
		t.Errorf("%v, %d damaged", err, p.in.ChecksumErrors())
	}
	if err := p.b.Wait(t.Context(), wait.Cond{Until: func() bool { return p.in.failed.Load() }}); err != nil || loadLast(mem, 0) != 0 {
		t.Errorf("%v, the memory has %d", err, loadLast(mem, 0))
	}
}
