package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
)

func init() {
	testutil.RegisterRole("sends both ways", child(sendsBothWays))
}

// sendsBothWays imports buffer 1 of a process, given by node and pid, and sends, notifies and adds
// as fast as it can.
func sendsBothWays(ctx context.Context, p *vmmc.Process, args []string) error {
	m, err := p.Alloc(4096)
	if err != nil {
		return err
	}
	if _, err := p.Export(1, m.Bytes()); err != nil {
		return err
	}
	node, pid, err := target(p, args[0], args[1])
	if err != nil {
		return err
	}
	im, err := p.Import(ctx, node, pid, 1)
	if err != nil {
		return err
	}
	fmt.Println("in")
	errs := make(chan error, 3)
	for _, call := range []func(b []byte) error{
		func(b []byte) error { return im.Send(ctx, b, sentAt) },
		func(b []byte) error { return im.SendNotify(ctx, b, notifiedAt) },
		func([]byte) error { _, err := im.FetchAdd64(ctx, addedAt, 1); return err },
	} {
		go func() {
			b := make([]byte, 4)
			for n := uint32(1); ; n++ {
				binary.LittleEndian.PutUint32(b, n)
				if err := call(b); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

const (
	sentAt     = 0
	notifiedAt = 64
	addedAt    = 128
)

// arrived is what has come of a process.
type arrived struct{ sent, notified, ran, added uint64 }

// Two processes on two nodes import from each other. One is killed while it sends, and the
// processors of the other one are busy. It is told once that the process is gone, and nothing of
// that process arrives later.
func TestNothingArrivesAfterPeerGone(t *testing.T) {
	kills := 8
	if s := os.Getenv("VMMC_KILLS"); s != "" {
		var err error
		if kills, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	cl := up(t, 2, nil, nil)
	m, events := (*vmmc.Memory)(nil), make(chan vmmc.Event, 100)
	var ran atomic.Uint64
	var last atomic.Pointer[arrived]
	look := func() arrived {
		word := func(off int) uint64 { return uint64(binary.LittleEndian.Uint32(m.Bytes()[off:])) }
		return arrived{word(sentAt), word(notifiedAt), ran.Load(), word(addedAt)}
	}
	p := join(t, cl, 0, vmmc.WithEvents(func(e vmmc.Event) {
		if e.Kind == vmmc.PeerGone {
			a := look()
			last.Store(&a)
			events <- e
		}
	}))
	var err error
	if m, err = p.Alloc(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Export(1, m.Bytes(), vmmc.WithHandler(func(vmmc.Notification) { ran.Add(1) })); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	for range 8 * runtime.GOMAXPROCS(0) { // busy
		go func() {
			for n := 0; ; n++ {
				if n%(1<<20) == 0 {
					select {
					case <-stop:
						return
					default:
					}
				}
			}
		}()
	}
	late, twice, least := 0, 0, arrived{sent: 1 << 62}
	for n := range kills {
		clear(m.Bytes())
		ran.Store(0)
		pid, cmd, r := spawn(t, cl, 1, "sends both ways", "n0", number(p.PID()))
		im := import1(t, p, 1, pid, 1)
		says(t, r, "in")
		if err := im.Send(t.Context(), make([]byte, 4), 0); err != nil {
			t.Fatal(err)
		}
		for begun := look(); look().sent < begun.sent+uint64(rand.N(2000)); {
			time.Sleep(100 * time.Microsecond)
		}
		kill(t, cmd)
		for next(t, events, vmmc.PeerGone, time.Minute).Peer.PID != pid { // of one before
			twice++
		}
		at := *last.Load()
		if at.sent < least.sent {
			least = at
		}
		// What comes after it comes soon, if it does: a longer wait would find more, and never too
		// much.
		select {
		case <-events:
			twice++
		case <-time.After(100 * time.Millisecond):
		}
		if now := look(); now != at {
			late++
			t.Errorf("kill %d: at the event %+v had come, and later %+v", n, at, now)
		}
	}
	t.Logf("%d kills: %d times something came later, %d times it was told twice; at least %+v had come before", kills, late, twice, least)
	if twice > 0 {
		t.Errorf("%d events were told twice", twice)
	}
}
