package mpi

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/vmmc-go/vmmc"
)

// What a rank takes while its way back is stalled is told when the way back is free. Otherwise the
// sender has no room for ever.
func TestTakenWhileStalled(t *testing.T) {
	eachWay(t, rings, func(t *testing.T, w way) {
		es := job(t, w, 2)
		meet(t, es)
		a, b := es[0], es[1]
		ctx := within(t)
		const n = 4 << 20
		in, out := make([]byte, n), fill(n, 1)
		r, err := b.Irecv(b.from(0, 1), in)
		if err != nil {
			t.Fatal(err)
		}
		back := b.peers[0].port.(*ring)
		b.mu.Lock() // b takes nothing but here, until the ring is stalled
		s, err := a.Isend(a.to(1, 1), out, Standard)
		for err == nil && r.state != matched && ctx.Err() == nil {
			b.pollAll()
		}
		stalled := back.stalled
		back.stalled = true // as stall does
		b.mu.Unlock()
		if err != nil || ctx.Err() != nil || stalled {
			t.Fatalf("the transfer has not begun: %v, stalled: %v", err, stalled)
		}
		for full := false; !full && ctx.Err() == nil; runtime.Gosched() {
			b.mu.Lock()
			b.pollAll()
			full = int(back.next-back.nextTold)+2*(headerSize+back.MaxPacket()) > back.size
			b.mu.Unlock()
		}
		back.m.tasks.Go(back.unstall) // the connection takes packets again
		if _, err := r.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		checkFill(t, in, 1)
	})
}

// A transfer is not stuck by other messages that take all room of the link.
func TestBusyLink(t *testing.T) {
	es := job(t, ways[1], 2)
	a, b := es[0], es[1]
	ctx := within(t)
	big := make([]byte, 32<<20)
	mem, err := a.p.Alloc(len(big))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.p.Export(77, mem.Bytes(), vmmc.Unmapped()); err != nil {
		t.Fatal(err)
	}
	im, err := b.p.Import(ctx, a.p.Node(), a.p.PID(), 77)
	if err != nil {
		t.Fatal(err)
	}
	busy := make(chan error, 1)
	go func() {
		for range 10 {
			if err := im.Send(ctx, big, 0); err != nil {
				busy <- err
				return
			}
		}
		busy <- im.Close()
	}()
	const n = 8 << 20
	in, out := make([]byte, n), fill(n, 1)
	r, err := b.Irecv(b.from(0, 1), in)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Isend(a.to(1, 1), out, Standard)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-busy; err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	checkFill(t, in, 1)
}

func checkFill(t *testing.T, b []byte, seed int) {
	t.Helper()
	if !bytes.Equal(b, fill(len(b), seed)) {
		t.Error("other bytes arrived than were sent")
	}
}
