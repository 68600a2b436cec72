package vmmc_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/simnet"
)

// cutting cuts the connection again and again until the function that it gives is called.
func (s *shaky) cutting(every time.Duration) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				s.cut(true)
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// unheard receives and drops events until the returned function is called.
func unheard(events chan vmmc.Event) (stop func()) {
	end := make(chan struct{})
	go func() {
		for {
			select {
			case <-events:
			case <-end:
				return
			}
		}
	}()
	return func() { close(end) }
}

// hold lets nothing through any more.
func (s *shaky) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Part()
	}
}

// An answer that begins anew with each connection, and fits into none, is no progress.
func TestAnswerThatNeverFits(t *testing.T) {
	a, b, s, events := surviving(t, 300*time.Millisecond)
	t.Cleanup(unheard(events))
	const n = 64 << 20
	if _, err := b.Export(7, alloc(t, b, n)); err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(t.Context(), b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer s.cutting(4 * time.Millisecond)()
	ctx := within(t)
	for range 5 { // a machine that lets the cutter wait lets one through
		if err = im.Get(ctx, make([]byte, n), 0); err != nil {
			break
		}
	}
	if !errors.Is(err, vmmc.ErrPeerGone) {
		t.Errorf("a get that fits between no two cuts: %v", err)
	}
	_ = a.Close() // its events need a receiver until then
}

// A long message that goes on with each connection is progress, also when all of it takes longer
// than the limit.
func TestLongMessageOverCuts(t *testing.T) {
	const (
		limit = 3 * time.Second
		n     = 96 << 20
		parts = 16
		pause = limit / (parts / 2) // half of them are as long as the limit
	)
	a, b, s, events := surviving(t, limit)
	t.Cleanup(unheard(events))
	s.pause, s.faults = pause, []simnet.Fault{{At: n / parts, Kind: simnet.Reset}} // each connection lasts for a part
	mem := alloc(t, b, n)
	if _, err := b.Export(7, mem); err != nil {
		t.Fatal(err)
	}
	im, err := a.Import(t.Context(), b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	src := bytes.Repeat([]byte("over cuts "), n/10+1)[:n]
	ctx := within(t)
	begin := time.Now()
	r, err := im.SendAsync(ctx, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(ctx); err != nil || !bytes.Equal(src, mem) {
		t.Errorf("%v, and it has arrived: %v", err, bytes.Equal(src, mem))
	}
	s.mu.Lock()
	cuts := len(s.conns) - 1
	s.mu.Unlock()
	if took := time.Since(begin); took < limit || cuts < parts {
		t.Errorf("it took %v with %d cuts, and was to take longer than %v with %d", took, cuts, limit, parts)
	}
	_ = a.Close() // its events need a receiver until then
}

// A link that was idle since it was cut last is not late when it is cut with a message under way.
func TestIdleLinkIsNotLate(t *testing.T) {
	const limit = 2 * time.Second // a redial takes some milliseconds, on a busy machine more
	a, b, s, events := surviving(t, limit)
	ctx := within(t)
	im := imported(ctx, t, a, b, 64)
	s.cut(true)
	awaitEvent(t, events, vmmc.LinkResumed)
	time.Sleep(limit + limit/2) // so that the limit since then is over
	s.hold()
	r, err := im.SendAsync(ctx, word, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.cut(true)
	awaitEvent(t, events, vmmc.LinkDown)
	awaitEvent(t, events, vmmc.LinkResumed)
	if err := r.Wait(ctx); err != nil {
		t.Errorf("a message on a link that was cut once: %v", err)
	}
}
