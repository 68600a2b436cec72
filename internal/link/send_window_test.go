package link

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/link/pacing"
	"github.com/vmmc-go/vmmc/internal/shmlayout"
	"github.com/vmmc-go/vmmc/internal/simnet"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// Many long messages in flight, whose acknowledgements are shared and put off, over links of each
// kind, and while connections end beneath them: each is complete and whole.
func TestManyInFlight(t *testing.T) {
	const (
		window = 8
		count  = 4*window + 3 // the last ones make no acknowledgement that is full
	)
	for _, kind := range []struct {
		name   string
		sealed bool
		terms  Terms
	}{{"clear", false, Terms{}}, {"checked", false, Terms{Checked: true}}, {"encrypted", true, Terms{}}} {
		for _, size := range []int{gatherable, chunk} {
			for _, broken := range []bool{false, true} {
				var by *secrets
				if kind.sealed {
					by = newSecrets(t)
				}
				var all []faults
				if broken { // in a message; between acknowledgements, whose places under encryption are not known; in a message
					some := int64(inside + 3*size + 999)
					all = []faults{{there: []simnet.Fault{{At: some, Kind: simnet.Reset}}}, {there: []simnet.Fault{{At: 2 * some, Kind: simnet.Cut}}}}
					if !kind.sealed {
						all = slices.Insert(all, 1, faults{back: []simnet.Fault{{At: wire.HeaderSize + 5, Kind: simnet.Reset}}})
					}
				}
				manyInFlight(t, kind.name, by, kind.terms, pacing.Burst{}, size, window, count, all)
			}
		}
	}
}

// manyInFlight sends count messages, of which window are in flight. Each connection begins with the
// load that begin is, and where that is more than the first one of all has, with as much to write
// as fills it.
func manyInFlight(t *testing.T, name string, by *secrets, terms Terms, begin pacing.Burst, size, window, count int, all []faults) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	mem := memory(t, count*size)
	var b *bridge
	if begin.ExtraParts > 0 {
		terms.Redial = func(ctx context.Context, n, replied uint64, notices uint32) (int, Cipher, wire.Answer, error) {
			for b.out.lastSeq.Load()-b.out.ackedSeq.Load() < uint64(window) { // so much is sent again, or for the first time, that a load is full
				if ctx.Err() != nil {
					return -1, nil, wire.Answer{}, context.Cause(ctx)
				}
				time.Sleep(time.Millisecond)
			}
			return b.redial(ctx, n, replied, notices)
		}
	}
	b = bridgedBy(t, t, by, terms, []*Target{{Handle: 1, Mem: mem, Write: true}}, all...)
	defer b.close()
	b.out.tmu.Lock()
	b.out.tx.burst = begin
	b.out.onConnChange = func(to shmlayout.ConnState, _ error) { // tmu is held, and nothing is written on the connection that takes another's place
		if b.out.tx.burst = begin; to.Connected() && max(len(b.out.retransmits), int(b.out.queuedOps.Load())) < begin.MaxParts() && begin.ExtraParts > 0 {
			t.Errorf("%s, %d bytes: with %d messages sent again and %d queued no load is full", name, size, len(b.out.retransmits), b.out.queuedOps.Load())
		}
	}
	b.out.tmu.Unlock()
	gone, looked := make(chan struct{}), make(chan struct{})
	looking, quit := context.WithCancel(ctx)
	go func() { // polls at the exporter's end
		defer close(looked)
		for looking.Err() == nil {
			_ = b.b.Wait(looking, wait.Cond{Word: new(atomic.Uint32)})
		}
	}()
	go func() {
		defer close(gone)
		rs := make([]Request, window)
		for i := range count + window {
			if i >= window {
				if done, err := rs[i%window].Wait(ctx); !done || err != nil {
					t.Errorf("%s, %d bytes, message %d: %v, %v; %s", name, size, i-window, done, err, b.out.state())
					return
				}
			}
			if i < count {
				r, err := b.out.SendAsync(ctx, Message{Handle: 1, Off: uint64(i * size), Src: bytes.Repeat([]byte{byte(i + 1)}, size)})
				if err != nil {
					t.Error(name, size, i, err)
					return
				}
				rs[i%window] = r
			}
		}
	}()
	<-gone
	quit()
	<-looked
	b.in.rmu.Lock() // a message is complete when it is stored, which the race detector does not know
	defer b.in.rmu.Unlock()
	for i := range count {
		if n := bytes.Count(mem[i*size:(i+1)*size], []byte{byte(i + 1)}); n != size && !t.Failed() {
			t.Errorf("%s, %d bytes: of message %d %d bytes are there", name, size, i, n)
		}
	}
	lost, resumed := b.out.ConnStats()
	for until := time.Now().Add(10 * time.Second); lost != resumed && time.Now().Before(until); lost, resumed = b.out.ConnStats() {
		time.Sleep(time.Millisecond)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.conns) - 1; lost != resumed || n != len(all) { // a fault that a handshake met, which took too long, makes one more, too
		t.Errorf("%s, %d bytes: %d connections were lost, %d resumed, %d made for %d faults", name, size, lost, resumed, n, len(all))
	}
}
