package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wire"
)

// longCome has the engine take it that long messages come, until the test is over.
func longCome(e *Engine) { e.glancer.came.Store(unix.Monotonic() + int64(time.Hour)) }

// Where long messages come, an event is to come for what is left only if nobody else sees to it, and it is written without another call.
func TestWhatIsLeftBothWays(t *testing.T) {
	const size = 4 << 20
	for name, c := range map[string]struct {
		prepare func(*testing.T, *Out)
		armed   bool
	}{
		"armed":   {func(*testing.T, *Out) {}, true},
		"at rest": {rests, false},
		"a sleeper": {func(t *testing.T, o *Out) {
			sleeper(t, o)
			rests(t, o)
		}, true},
		"at rest, then a sleeper": {func(t *testing.T, o *Out) {
			rests(t, o)
			sleeper(t, o)
		}, true},
		"between two waits": {func(t *testing.T, o *Out) {
			o.attend()
			rests(t, o)
			o.leave()
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, far := importer(t)
			longCome(o.e)
			c.prepare(t, o)
			for range 2 {
				if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
					t.Fatal(err)
				}
				o.tmu.Lock()
				// The guard may have come meanwhile, which arms.
				if stuck, armed := o.tx.stuck.Load(), o.tx.armed; !stuck || armed != c.armed && o.guarded.Load() {
					t.Errorf("anything left: %v, an event to come for it: %v", stuck, armed)
				}
				o.tmu.Unlock()
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
	in.leave()
	swallow(t, far, framed(size))
}

// Who has written his turn writes no more before the next one, whatever room there is.
func TestTurnEnds(t *testing.T) {
	const size = 4 << 20
	o, far := importer(t)
	o.attend() // nobody else writes
	defer o.leave()
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
	go func() {
		for o.tx.stuck.Load() {
			o.advance()
		}
	}()
	swallow(t, far, framed(size)-taken)
}

// Who writes for others and goes on leaves nothing of a turn to nobody.
func TestPasserByWritesAll(t *testing.T) {
	const size = 16 << 20
	o, far := importer(t)
	if _, err := o.SendAsync(t.Context(), Message{Handle: 1, Src: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	longCome(o.e)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for o.queued.Load() > 0 {
			o.advance()
		}
	}()
	swallow(t, far, framed(size))
	<-over
}
