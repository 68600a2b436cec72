package link

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

const gatherable = 64 << 10

// begin begins a message and says whether it is gathered.
func begin(t *testing.T, o *Out, size int) (r Request, gathered bool) {
	t.Helper()
	r, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)})
	if err != nil {
		t.Fatal(err)
	}
	return r, o.gathered.Load() && o.due.Load()
}

// gathering has two messages on their way and a third one that waits for more. The guard may come in between.
func gathering(t *testing.T) (o *Out, far int, third Request) {
	t.Helper()
	for range 20 {
		o, far = importer(t)
		rests(t, o)
		for range 2 {
			if _, gathered := begin(t, o, gatherable); gathered {
				t.Fatal("a message is gathered, and little is on its way")
			}
		}
		if r, gathered := begin(t, o, gatherable); gathered {
			return o, far, r
		}
	}
	t.Fatal("no message was gathered")
	return nil, 0, Request{}
}

// What was gathered is written once there is a call's worth, by who waits next, by who asks, together with short messages,
// and in any case by the guard.
func TestGatheredIsWritten(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(t *testing.T, o *Out, third Request)
		more int // bytes on the stream, of what then sends
		soon bool
	}{
		{"the guard", func(*testing.T, *Out, Request) {}, 0, false},
		{"more", func(t *testing.T, o *Out, _ Request) {
			for range 3 {
				begin(t, o, gatherable)
			}
		}, 3 * framed(gatherable), true},
		{"long", func(t *testing.T, o *Out, _ Request) { begin(t, o, wire.MaxChunk) }, framed(wire.MaxChunk), true},
		{"who asks", func(t *testing.T, _ *Out, third Request) {
			if done, err := third.Result(); done || err != nil {
				t.Errorf("%v, %v, and the far end has said nothing", done, err)
			}
		}, 0, true},
		{"who waits for anything", func(t *testing.T, o *Out, _ Request) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_ = o.e.Wait(ctx, wait.Look{Word: new(atomic.Uint32)})
		}, 0, true},
		{"a short one", func(t *testing.T, o *Out, _ Request) {
			begin(t, o, 8)
			o.e.batch.mu.Lock()
			defer o.e.batch.mu.Unlock()
			if !o.listed && o.due.Load() {
				t.Error("the timer does not come for it")
			}
		}, framed(8), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, far, third := gathering(t)
			c.then(t, o, third)
			if stuck, _ := left(o); c.soon && !stuck && o.due.Load() {
				t.Error("it is not written yet, and the socket has room")
			}
			swallow(t, far, 3*framed(gatherable)+c.more)
		})
	}
}

// What may be long until somebody sees to it is not gathered, nor is one call's worth, nor what is sent when little is on its way.
func TestNotGathered(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *Out, int){
		"no waiter": func(*testing.T, *Out, int) {},
		"a sleeper": func(t *testing.T, o *Out, _ int) {
			sleeper(t, o)
			rests(t, o)
		},
		"acknowledged": func(t *testing.T, o *Out, far int) {
			rests(t, o)
			begin(t, o, gatherable)
			begin(t, o, gatherable)
			say(t, far, wire.Header{Type: wire.Ack, Ack: 2}, nil)
			for o.acked.Load() < 2 {
				if o.try() {
					o.receive(drain)
					o.rest()
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, far := importer(t)
			prepare(t, o, far)
			for range 2 {
				if _, gathered := begin(t, o, gatherable); gathered {
					t.Error("it is gathered")
				}
			}
			if _, gathered := begin(t, o, gatherable); gathered && name != "acknowledged" {
				t.Error("the third one is gathered")
			}
		})
	}
	o, _, _ := gathering(t)
	if _, gathered := begin(t, o, wire.MaxChunk); gathered {
		t.Error("a call's worth is gathered")
	}
}

// What is on its way is what was written and not acknowledged, as far as it is remembered.
func TestFlight(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var f flight
		sizes := map[uint64]uint64{}
		seq := uint64(0)
		for range rng.IntN(60) {
			seq += 1 + rng.Uint64N(3) // those between are short
			sizes[seq] = 1 + rng.Uint64N(1<<20)
			f.add(seq, int(sizes[seq]))
			acked, want, n := rng.Uint64N(seq+1), uint64(0), 0
			for s := seq; s > acked; s-- {
				if size := sizes[s]; size > 0 && n < len(f.last)-1 {
					want += size
					n++
				}
			}
			if got := f.beyond(acked); got < want || n < len(f.last)-1 && got != want {
				t.Fatalf("%d bytes beyond %d of %d messages up to %d, want %d", got, acked, f.n, seq, want)
			}
		}
	}
}
