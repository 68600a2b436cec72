package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// atRest says whether o is on the guard's list, and armed for reading.
func atRest(o *Out) (listed, armed bool) {
	g := &o.e.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.resting) > 0, o.listening.Load()
}

// A link at rest that nobody polls any more is armed, without another call.
func TestGuardArms(t *testing.T) {
	o, _ := importer(t)
	for range 3 {
		rests(t, o)
		for start := time.Now(); ; time.Sleep(time.Millisecond / 4) {
			listed, armed := atRest(o)
			if armed && !listed {
				break
			}
			if time.Since(start) > 10*time.Second {
				t.Fatalf("after 10s it is on the list: %v, armed: %v", listed, armed)
			}
		}
	}
}

// alone takes the guard's timer away, so that the test alone has it act, and the list.
func alone(t *testing.T, o *Out) *guard {
	t.Helper()
	g := &o.e.guard
	g.mu.Lock()
	g.timer.Set(0)
	g.mu.Unlock()
	return g
}

// A waiter that passes by arms links that no wait has taken since another one did, and leaves others alone.
func TestGuardVisits(t *testing.T) {
	o, _ := importer(t)
	rests(t, o)
	g := alone(t, o)
	visit := func() {
		g.last = unix.Monotonic()
		g.visited.Store(0)
		g.visit()
	}
	visit()
	if listed, armed := atRest(o); !listed || armed {
		t.Fatalf("a link that was just used is on the list: %v, armed: %v", listed, armed)
	}
	rests(t, o)
	visit()
	if listed, armed := atRest(o); !listed || armed {
		t.Fatalf("a link that is used again and again is on the list: %v, armed: %v", listed, armed)
	}
	visit()
	if listed, armed := atRest(o); listed || !armed {
		t.Fatalf("a link that nobody uses is on the list: %v, armed: %v", listed, armed)
	}
}

// The timer is set for twice as long each time that it is put off, up to a bound, and for a short time at first, and while anything is gathered.
func TestGuardPutsOff(t *testing.T) {
	o, _ := importer(t)
	rests(t, o)
	g := &o.e.guard
	putOff := func(want time.Duration) {
		t.Helper()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.putOff()
		if g.span != want {
			t.Errorf("it is put off by %v, want %v", g.span, want)
		}
	}
	if g.span != restTick {
		t.Errorf("it goes off after %v at first, want %v", g.span, restTick)
	}
	putOff(2 * restTick)
	putOff(longestTick)
	putOff(longestTick)
	g.hasten()
	if g.span != restTick {
		t.Errorf("something is gathered, and it goes off after %v, want %v", g.span, restTick)
	}
	putOff(restTick)
	putOff(2 * restTick)
}

// A sender of long messages puts a link to rest again that was armed between two waits, but not where nobody has waited lately, or somebody sleeps.
func TestHush(t *testing.T) {
	o, _ := importer(t)
	g := &o.e.guard
	o.e.warm(&o.stream)
	o.hush()
	if _, armed := atRest(o); !armed {
		t.Error("nobody has waited, and the link is at rest")
	}
	g.visited.Store(unix.Monotonic() + int64(time.Hour)) // as if somebody just had, for as long as this takes
	o.hush()
	if listed, armed := atRest(o); !listed || armed {
		t.Errorf("the link is on the guard's list: %v, armed: %v", listed, armed)
	}
	sleeper(t, o)
	alone(t, o)
	g.expired(o.e.ep)
	o.hush()
	if _, armed := atRest(o); !armed {
		t.Error("somebody sleeps, and the link is at rest")
	}
}

// Who goes to sleep arms all links at rest: what it sleeps for may come on one that another one has left so.
func TestSleeperArmsAll(t *testing.T) {
	o, _ := importer(t)
	rests(t, o)
	alone(t, o)
	sleeper(t, o)
	if listed, armed := atRest(o); listed || !armed {
		t.Errorf("somebody sleeps, and a link that nobody polled is on the guard's list: %v, armed: %v", listed, armed)
	}
}

// Who leaves a link at rest looks for sleepers once more: one that came meanwhile has found nothing to arm.
func TestRestSeesSleeper(t *testing.T) {
	o, _ := importer(t)
	for !o.tryQuiet() {
		time.Sleep(time.Millisecond)
	}
	sleeper(t, o)
	o.rest()
	if _, armed := atRest(o); !armed {
		t.Error("somebody sleeps, and the link was left at rest")
	}
}
