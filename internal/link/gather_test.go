package link

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
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

// unguarded leaves o at rest as a waiter does, but for the guard, which does not know of it: what happens then others do.
func unguarded(t *testing.T, o *Out) {
	t.Helper()
	o.guarded.Store(true)
	rests(t, o)
}

// guarded gives it to the guard after all.
func guarded(t *testing.T, o *Out) {
	t.Helper()
	o.guarded.Store(false)
	rests(t, o)
}

// gathering has two messages on their way and a third one that waits for more.
func gathering(t *testing.T) (o *Out, far int, third Request) {
	t.Helper()
	o, far = importer(t)
	unguarded(t, o)
	for range 2 {
		if _, gathered := begin(t, o, gatherable); gathered {
			t.Fatal("a message is gathered, and little is on its way")
		}
	}
	if stuck, _ := left(o); stuck {
		t.Skip("the system's sockets have no room for 128 KiB")
	}
	third, gathered := begin(t, o, gatherable)
	if !gathered {
		t.Fatal("the third message is not gathered")
	}
	return o, far, third
}

// What was gathered is written once there is a call's worth, by who waits next, by who asks, and together with short messages.
func TestGatheredIsWritten(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(t *testing.T, o *Out, third Request)
		more int  // bytes on the stream, of what then sends
		soon bool // when then returns
	}{
		{"more", func(t *testing.T, o *Out, _ Request) {
			for range 3 {
				begin(t, o, gatherable)
			}
		}, 3 * framed(gatherable), true},
		{"long", func(t *testing.T, o *Out, _ Request) { begin(t, o, chunk) }, framed(chunk), true},
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
		{"a short one", func(t *testing.T, o *Out, _ Request) { begin(t, o, 8) }, framed(8), false},
		{"a synchronous one", func(t *testing.T, o *Out, _ Request) {
			if _, err := o.Send(t.Context(), Message{Handle: 1, Src: make([]byte, 8)}); err != nil {
				t.Error(err)
			}
		}, framed(8), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, far, third := gathering(t)
			over := make(chan struct{})
			go func() { // who sends synchronously may have to wait for room
				defer close(over)
				c.then(t, o, third)
				if stuck, _ := left(o); c.soon && !stuck && o.due.Load() {
					t.Error("it is not written yet, and the socket has room")
				}
				if c.soon {
					guarded(t, o) // what the socket has no room for
				}
			}()
			defer func() { <-over }()
			swallow(t, far, 3*framed(gatherable)+c.more)
		})
	}
}

// And in any case by the guard, also where waiters come again and again.
func TestGatheredIsTheGuards(t *testing.T) {
	gathered := 0
	for range 20 { // it may come in between
		o, far := importer(t)
		rests(t, o)
		for range 3 {
			if _, left := begin(t, o, gatherable); left {
				gathered++
			}
		}
		swallow(t, far, 3*framed(gatherable))
	}
	if gathered == 0 {
		t.Error("no message was gathered")
	}
}

// What may be long until somebody sees to it is not gathered, nor is one call's worth, nor what is sent when little is on its way.
func TestNotGathered(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(*testing.T, *Out, int)
		sizes   []int
	}{
		{"no waiter", func(*testing.T, *Out, int) {}, []int{gatherable, gatherable, gatherable}},
		{"a sleeper", func(t *testing.T, o *Out, _ int) {
			sleeper(t, o)
			unguarded(t, o)
		}, []int{gatherable, gatherable, gatherable}},
		{"acknowledged", func(t *testing.T, o *Out, far int) {
			unguarded(t, o)
			begin(t, o, gatherable)
			begin(t, o, gatherable)
			say(t, far, wire.Header{Type: wire.Ack, Ack: 2}, nil)
			for o.acked.Load() < 2 {
				if err := o.err(); err != nil {
					t.Fatal(err)
				}
				if o.try() {
					o.receive(drain)
					o.rest()
				}
				runtime.Gosched()
			}
			swallow(t, far, 2*framed(gatherable))
		}, []int{gatherable, gatherable}},
		{"a call's worth", func(t *testing.T, o *Out, _ int) { unguarded(t, o) }, []int{gatherable, gatherable, 2 * chunk}},
		{"more than a chunk", func(t *testing.T, o *Out, _ int) { unguarded(t, o) }, []int{gatherable, gatherable, chunk + 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, far := importer(t)
			c.prepare(t, o, far)
			size := 0
			for i, n := range c.sizes {
				if _, gathered := begin(t, o, n); gathered {
					if stuck, _ := left(o); !stuck {
						t.Errorf("message %d is gathered", i)
					}
				}
				size += framed(n)
			}
			guarded(t, o)
			swallow(t, far, size)
		})
	}
}

// Messages are gathered up to a chunk, or to as many as any call may write, and begun then.
func TestGatheredTogether(t *testing.T) {
	for _, c := range []struct{ size, messages int }{{chunk / 8, 8}, {gatherable, fewestParts}, {chunk / 2, fewestParts}, {chunk, fewestParts}} {
		o, far := importer(t)
		unguarded(t, o)
		o.tmu.Lock()
		for range gatherFrom/c.size + 2 { // as if they were on their way
			o.flight.add(o.flight.n+1, c.size)
		}
		o.tmu.Unlock()
		for n := 1; n < c.messages; n++ {
			if _, gathered := begin(t, o, c.size); !gathered {
				t.Fatalf("message %d of %d bytes is not gathered, of %d", n, c.size, c.messages)
			}
		}
		begin(t, o, c.size)
		o.tmu.Lock()
		if got := max(int(o.tx.gone), o.tx.count); got == 0 { // some of it at least: the socket may have little room
			t.Errorf("%d messages of %d bytes are not begun", c.messages, c.size)
		}
		o.tmu.Unlock()
		guarded(t, o)
		swallow(t, far, c.messages*framed(c.size))
	}
}

// Where a waiter has just looked for what comes the other way, messages are gathered though nothing is on its way, up to bothWays.
func TestGatheredBothWays(t *testing.T) {
	for _, c := range []struct{ size, messages int }{{gatherable, manyParts}, {chunk / 2, manyParts}, {chunk, fewestParts}, {2 * chunk, 2}, {4 * chunk, 1}} {
		o, far := importer(t)
		unguarded(t, o)
		o.e.glancer.looked.Store(unix.Monotonic() + int64(time.Hour))
		for n := 1; n < c.messages; n++ {
			if _, gathered := begin(t, o, c.size); !gathered {
				t.Fatalf("message %d of %d bytes is not gathered, of %d", n, c.size, c.messages)
			}
		}
		if _, gathered := begin(t, o, c.size); gathered {
			if stuck, _ := left(o); !stuck {
				t.Errorf("%d messages of %d bytes are gathered, all of them", c.messages, c.size)
			}
		}
		guarded(t, o)
		swallow(t, far, c.messages*framed(c.size))
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
