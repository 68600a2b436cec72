package vmmc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// Sends, gets, atomics and notifications go on over connections that are reset all the
// time, each once and in order.
func TestLinkIsResumed(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { linkIsResumed(t, 30*time.Millisecond) })
	// A get begins again with each connection, and must fit between two cuts, behind a handshake.
	t.Run("encrypted", func(t *testing.T) { linkIsResumed(t, 150*time.Millisecond, vmmc.WithEncryption()) })
}

func linkIsResumed(t *testing.T, every time.Duration, more ...vmmc.Option) {
	a, b, s, events := surviving(t, 20*time.Second, more...)
	mem := alloc(t, b, 1<<20)
	var mu sync.Mutex
	var ran []uint32
	if _, err := b.Export(7, mem, vmmc.WithHandler(func(n vmmc.Notification) {
		mu.Lock()
		ran = append(ran, n.Word)
		mu.Unlock()
	})); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var arrived atomic.Int64
	wg.Go(func() {
		for last := int64(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(every):
				// Nothing arrives on a busy machine where each connection is cut too early.
				if n := arrived.Load(); n != last {
					last = n
					s.cut(true)
				}
			}
		}
	})
	rounds := 0
	for cuts := uint64(0); rounds < 1000 || cuts < 3; rounds++ { // how many cuts a thousand see is the machine's affair
		i := rounds
		cuts, _ = vmmc.Resumed(a)
		if i%10 == 0 {
			big := bytes.Repeat(w32(uint32(i)), 100<<10)
			if err := im.Send(ctx, big, 4096); err != nil {
				t.Fatal(i, err)
			}
			got := make([]byte, len(big))
			if err := im.Get(ctx, got, 4096); err != nil || !bytes.Equal(got, big) {
				t.Fatalf("round %d: a get has others, %v", i, err)
			}
		}
		if err := im.SendNotify(ctx, w32(uint32(i)), 64); err != nil {
			t.Fatal(i, err)
		}
		if old, err := im.FetchAdd64(ctx, 8, 1); err != nil || old != uint64(i) {
			t.Fatalf("round %d: the counter was %d, %v", i, old, err)
		}
		arrived.Store(int64(i) + 1)
	}
	close(stop)
	wg.Wait()
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	want := make([]uint32, rounds)
	for i := range want {
		want[i] = uint32(i)
	}
	for done := false; !done; time.Sleep(time.Millisecond) {
		mu.Lock()
		done = len(ran) >= rounds || ctx.Err() != nil
		mu.Unlock()
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ran, want) {
		t.Errorf("the handler ran for %v", ran)
	}
	if n := binary.LittleEndian.Uint64(mem[8:]); n != uint64(rounds) {
		t.Errorf("the counter is %d", n)
	}
	losses, resumptions := vmmc.Resumed(a)
	// The last cut may come after the last acknowledgement: nothing waits for that resumption.
	for ; resumptions != losses && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		losses, resumptions = vmmc.Resumed(a)
	}
	t.Logf("%d connections were lost, %d links resumed", losses, resumptions)
	if losses == 0 || resumptions != losses {
		t.Error("some were not resumed, or none was lost")
	}
	var down, up uint64
	for down+up < losses+resumptions {
		switch e := <-events; e.Kind {
		case vmmc.LinkDown:
			down++
		case vmmc.LinkResumed:
			up++
		default:
			t.Fatalf("%v: %v", e.Kind, e.Err)
		}
	}
}

// A link that is not resumed in time ends on both sides.
func TestLinkIsNotResumed(t *testing.T) {
	a, b, s, events := surviving(t, 100*time.Millisecond)
	ctx := within(t)
	im := imported(ctx, t, a, b, 4096)
	s.cut(false)
	err := im.Get(ctx, make([]byte, 8), 0)
	if !errors.Is(err, vmmc.ErrPeerGone) {
		t.Errorf("a get: %v", err)
	}
	for _, says := range []string{"not resumed within 100ms: data address", "(stream link 0x", fmt.Sprintf("process %d on node %q", b.PID(), b.Node()), "buffer 7"} {
		if !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("the error does not say %q: %v", says, err)
		}
	}
	if e := <-events; e.Kind != vmmc.LinkDown {
		t.Errorf("%v: %v", e.Kind, e.Err)
	}
	if e := <-events; e.Kind != vmmc.PeerGone || !errors.Is(e.Err, vmmc.ErrPeerGone) {
		t.Errorf("%v: %v", e.Kind, e.Err)
	}
}

// An exporter that leaves is not waited for.
func TestExporterThatLeftIsNotResumed(t *testing.T) {
	a, b, s, _ := surviving(t, time.Hour)
	ctx := within(t)
	im := imported(ctx, t, a, b, 4096)
	s.cut(false) // and so it cannot say that it leaves
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s.cut(true)
	err := im.Get(ctx, make([]byte, 8), 0)
	if !errors.Is(err, vmmc.ErrPeerGone) {
		t.Errorf("a get: %v", err)
	}
	ended := fmt.Sprintf("process %d on node %q has ended", b.PID(), b.Node())
	if says := fmt.Sprint(err); !strings.Contains(says, ended) || strings.Contains(says, "cannot be resumed") {
		t.Errorf("the error does not say that the exporter has ended: %v", err)
	}
}
