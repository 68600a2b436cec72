package vmmc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
)

// An export that is closed while a link has no connection is revoked when it has one:
// nothing that is sent after that arrives, and nothing is said to have arrived.
func TestRevokedInACut(t *testing.T) {
	a, b, s, events := surviving(t, time.Hour)
	mem := alloc(t, b, 1<<20)
	exp, err := b.Export(7, mem)
	if err != nil {
		t.Fatal(err)
	}
	other := alloc(t, b, 4096)
	if _, err := b.Export(8, other); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	lasting, err := a.Import(ctx, b.Node(), b.PID(), 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := im.Send(ctx, w32(1), 0); err != nil {
		t.Fatal(err)
	}
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	s.cut(false)
	awaitEvent(t, events, vmmc.LinkDown)
	calls := make(chan error, 3)
	begin := func(f func() error) { go func() { calls <- f() }() }
	begin(func() error { return im.Send(ctx, bytes.Repeat(w32(7), 64<<10), 0) })
	begin(func() error { return im.Get(ctx, make([]byte, 64), 0) })
	begin(func() error { _, err := im.FetchAdd64(ctx, 8, 1); return err })
	if err := exp.Close(); err != nil { // waits for no importer
		t.Fatal(err)
	}
	s.cut(true)
	for range cap(calls) {
		if err := <-calls; !errors.Is(err, vmmc.ErrRevoked) {
			t.Errorf("a call that waited: %v", err)
		}
	}
	if e := awaitEvent(t, events, vmmc.ImportRevoked); e.Import != im {
		t.Errorf("another import was revoked: %v", e.Err)
	}
	if err := im.Send(ctx, w32(2), 0); !errors.Is(err, vmmc.ErrRevoked) {
		t.Errorf("a send after it: %v", err)
	}
	if n := binary.LittleEndian.Uint32(mem); n != 1 || binary.LittleEndian.Uint64(mem[8:]) != 0 {
		t.Errorf("the memory has %d", n)
	}
	if err := lasting.Send(ctx, w32(3), 0); err != nil {
		t.Error(err)
	}
	if err := lasting.Fence(ctx); err != nil || other[0] != 3 {
		t.Errorf("the other import: %v, %d", err, other[0])
	}
}

// An import that is closed while its link has no connection is closed for the exporter when it has
// one, after what was sent by it before. The link goes on.
func TestClosedImportInACut(t *testing.T) {
	a, b, s, events := surviving(t, time.Hour)
	mem := alloc(t, b, 4096)
	for id := range uint32(2) {
		if _, err := b.Export(id, mem[2048*id:2048*(id+1)]); err != nil {
			t.Fatal(err)
		}
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	other, err := a.Import(ctx, b.Node(), b.PID(), 1)
	if err != nil {
		t.Fatal(err)
	}
	s.cut(false)
	awaitEvent(t, events, vmmc.LinkDown)
	if err := im.Close(); err != nil {
		t.Fatal(err)
	}
	if n := vmmc.Grants(b); n != 2 {
		t.Errorf("%d imports are known before anybody could say so", n)
	}
	s.cut(true)
	if _, err := other.FetchAdd64(ctx, 0, 1); err != nil {
		t.Fatal(err)
	}
	until(t, "the closed import is forgotten", func() bool { return vmmc.Grants(b) == 1 })
	if err := im.Send(ctx, w32(1), 0); !errors.Is(err, vmmc.ErrClosed) {
		t.Error(err)
	}
}

// A process that closes while its links have no connection does not wait for anybody, and
// its exporters do not wait for it until the limit.
func TestCloseInACut(t *testing.T) {
	a, b, s, events := surviving(t, time.Hour)
	ended := make(chan vmmc.Event, 16)
	vmmc.SetEvents(b, func(e vmmc.Event) { ended <- e })
	ctx := within(t)
	im := imported(ctx, t, a, b, 4096)
	s.cut(false)
	awaitEvent(t, events, vmmc.LinkDown)
	wait := make(chan error, 1)
	go func() { wait <- im.Get(ctx, make([]byte, 8), 0) }()
	begun := time.Now()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(begun); d > bound/2 {
		t.Errorf("it took %v", d)
	}
	if err := <-wait; !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a get: %v", err)
	}
	if e := awaitEvent(t, ended, vmmc.PeerGone); !strings.Contains(e.Err.Error(), "has ended") {
		t.Error(e.Err)
	}
	if n := vmmc.Grants(b); n != 0 {
		t.Errorf("%d imports are left", n)
	}
}

// A message that is redirected goes on where it was, in the same range.
func TestRedirectedOverCuts(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { redirectedOverCuts(t) })
	t.Run("encrypted", func(t *testing.T) { redirectedOverCuts(t, vmmc.WithEncryption()) })
}

func redirectedOverCuts(t *testing.T, more ...vmmc.Option) {
	const size = 4 << 20
	a, b, s, events := surviving(t, time.Hour, more...)
	target, err := b.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	mem := alloc(t, b, size)
	exp, err := b.Export(7, mem, vmmc.Redirectable(target))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint32(10) {
		clear(mem)
		src := pattern(size, i)
		if err := exp.PostRedir(target.Bytes(), 0); err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- im.Send(ctx, src, 0) }()
		time.Sleep(time.Duration(i%3) * time.Millisecond) // anywhere in the message
		s.cut(true)
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		n, first, err := exp.EndRedir(ctx)
		if err != nil || n != size || first != 0 || !bytes.Equal(target.Bytes(), src) {
			t.Fatalf("message %d: %d bytes from %d were redirected, whole: %v, %v", i, n, first, bytes.Equal(target.Bytes(), src), err)
		}
		if bytes.ContainsFunc(mem, func(r rune) bool { return r != 0 }) {
			t.Fatalf("message %d went to the buffer, too", i)
		}
	}
	// The last cut may come after the last message: nothing waits for that resumption.
	until(t, "all are resumed", func() bool {
		losses, resumptions := vmmc.Resumed(a)
		return losses > 0 && losses == resumptions
	})
	awaitEvent(t, events, vmmc.LinkResumed)
}

// Asynchronous messages with notifications are run once each, and in order, over cuts, and requests
// are over only when they have arrived.
func TestAsynchronousOverCuts(t *testing.T) {
	t.Run("in clear", func(t *testing.T) { asynchronousOverCuts(t) })
	t.Run("encrypted", func(t *testing.T) { asynchronousOverCuts(t, vmmc.WithEncryption()) })
}

func asynchronousOverCuts(t *testing.T, more ...vmmc.Option) {
	a, b, s, _ := surviving(t, time.Hour, more...)
	const rounds = 2000
	ran := make(chan uint32, rounds)
	mem := alloc(t, b, 64<<10)
	if _, err := b.Export(7, mem, vmmc.WithHandler(func(n vmmc.Notification) { ran <- n.Word })); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	im, err := a.Import(ctx, b.Node(), b.PID(), 7)
	if err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	var arrived atomic.Uint32
	go func() {
		defer close(stopped)
		for last := uint32(0); ; {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				// Nothing ever arrives where each connection is cut before it is made, as on a
				// machine that others slow down.
				if n := arrived.Load(); n != last {
					last = n
					s.cut(true)
				}
			}
		}
	}()
	for i := range uint32(rounds) {
		src := bytes.Repeat(w32(i), 1+int(i*37%2000))
		r, err := im.SendNotifyAsync(ctx, src, 0)
		if err != nil {
			t.Fatal(i, err)
		}
		if i%16 == 0 {
			if err := r.Wait(ctx); err != nil {
				t.Fatal(i, err)
			}
			arrived.Store(i + 1)
		}
		if i%50 == 0 {
			time.Sleep(time.Millisecond) // or it would all be over before a cut
		}
	}
	close(stop)
	<-stopped
	if err := im.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(rounds) {
		select {
		case w := <-ran:
			if w != i {
				t.Fatalf("the handler ran for %d, want %d", w, i)
			}
		case <-ctx.Done():
			t.Fatalf("%d handlers ran", i)
		}
	}
	losses, resumptions := vmmc.Resumed(a)
	t.Logf("%d connections were lost, %d links resumed", losses, resumptions)
	if losses == 0 || losses != resumptions || len(ran) > 0 {
		t.Errorf("%d connections were lost, %d links resumed, %d handlers too many ran", losses, resumptions, len(ran))
	}
}
