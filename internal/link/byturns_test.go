package link

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// longCome has the engine take it that long messages come, until the test is over.
func longCome(e *Engine) { e.glancer.came.Store(unix.Monotonic() + int64(time.Hour)) }

// Where long messages come, an event is to come for what is left only if nobody else sees to it, and it is written without another call.
func TestWhatIsLeftBothWays(t *testing.T) {
	const size = 4 << 20
	for name, c := range map[string]struct {
		prepare, after func(*testing.T, *Out)
		armed          bool
	}{
		"armed":   {armed: true},
		"at rest": {prepare: rests},
		"a sleeper": {prepare: func(t *testing.T, o *Out) {
			sleeper(t, o)
			rests(t, o)
		}, armed: true},
		"at rest, then a sleeper": {prepare: rests, after: sleeper, armed: true},
		"after a wait": {after: func(t *testing.T, o *Out) {
			o.attend()
			rests(t, o)
			o.handOver()
		}},
		"after a wait of a link that is armed": {after: func(_ *testing.T, o *Out) {
			o.attend()
			o.handOver()
		}, armed: true},
		"before a sleep": {prepare: rests, after: func(_ *testing.T, o *Out) {
			o.attend()
			o.leave()
		}, armed: true},
	} {
		t.Run(name, func(t *testing.T) {
			o, far := importer(t)
			longCome(o.e)
			if c.prepare != nil {
				c.prepare(t, o)
			}
			for range 2 {
				if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
			}
			if c.after != nil {
				c.after(t, o)
			}
			if c.armed {
				soon(t, "no event is to come for what is left", func() bool { // who sleeps is known before it has seen to links
					stuck, armed := left(o)
					return stuck && armed
				})
			} else if stuck, armed := left(o); !stuck || armed && o.guarded.Load() { // the guard may have come meanwhile, which arms
				t.Errorf("anything left: %v, an event to come for it: %v", stuck, armed)
			}
			swallow(t, far, 2*framed(size))
		})
	}
}

// So is what is left of the answer to a get.
func TestAnswerLeftBothWays(t *testing.T) {
	const size = 4 << 20
	e, fd, far := half(t)
	in, err := NewIn(e, fd, nil, Terms{}, []*Target{{Handle: 1, Mem: make([]byte, size), Read: true}}, nil, func(uint32) {}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	say(t, far, wire.Header{Type: wire.Get, Handle: 1, Seq: 1, Size: size}, nil)
	soon(t, "nothing of an answer is left that nobody reads", in.tx.stuck.Load)
	longCome(e)
	in.attend()
	for !in.tryQuiet() {
		time.Sleep(time.Millisecond)
	}
	in.rest()
	in.handOver()
	swallow(t, far, framed(size))
}

// Who has written his turn writes no more before the next one, whatever room there is.
func TestTurnEnds(t *testing.T) {
	const size = 4 << 20
	o, far := importer(t)
	o.attend() // nobody else writes
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	taken := 0
	room := func() {
		swallow(t, far, 64<<10)
		taken += 64 << 10
	}
	pump := func() (wrote int) {
		o.tmu.Lock()
		defer o.tmu.Unlock()
		before := o.tx.left()
		o.pump()
		if !o.tx.stuck.Load() {
			t.Error("more is left, and nobody would know")
		}
		return before - o.tx.left()
	}
	set := func(turn int) {
		o.tmu.Lock()
		o.tx.turn = turn
		o.tmu.Unlock()
	}
	set(1)
	room()
	if pump() == 0 {
		t.Error("nothing is written of a turn that begins")
	}
	room()
	if n := pump(); n > 0 {
		t.Errorf("%d bytes are written when the turn is over", n)
	}
	set(0)
	if pump() == 0 {
		t.Error("nothing is written, and there is room and no bound")
	}
	o.leave()
	swallow(t, far, framed(size)-taken)
}

// Who writes in passing for others leaves nothing of a turn to nobody, and what is left by a waiter is written though an event for it has been passed over.
func TestNobodyIsLeft(t *testing.T) {
	const size = 64 << 20
	for name, look := range map[string]func(*Out){
		"looking": func(o *Out) { o.e.look(context.Background(), &wait.Look{Word: new(atomic.Uint32)}, nil) },
		"passing": func(o *Out) { o.e.batch.write(nil) },
		"pausing": func(o *Out) {
			o.attend()
			o.advance(true)
			o.handOver()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 10 {
				o, far := importer(t)
				longCome(o.e)
				if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				go func() {
					defer close(over)
					for range 50 { // and then nobody comes any more
						if _, err := o.SendAsync(context.Background(), Message{Handle: 1, Src: make([]byte, 4)}); err != nil {
							return
						}
						look(o)
					}
				}()
				swallow(t, far, framed(size))
				<-over
				o.fail(ErrClosed)
			}
		})
	}
}

// A synchronous message for which its sender cannot look arrives, though an event for one before it was passed over.
func TestPassedOver(t *testing.T) {
	const size = 4 << 20
	o, far := importer(t)
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		for o.tx.stuck.Load() || o.due.Load() {
			o.advance(false)
		}
	}()
	swallow(t, far, framed(size))
	<-over
	longCome(o.e)
	o.e.spinning.Store(true) // another waiter looks
	defer o.e.spinning.Store(false)
	rests(t, o)
	ctx, stop := context.WithCancel(t.Context())
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = o.Send(ctx, Message{Handle: 1, Src: make([]byte, size)}) // until the far end acknowledges, which it does not
	}()
	defer func() { stop(); <-sent }()
	swallow(t, far, framed(size))
}
