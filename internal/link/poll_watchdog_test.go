package link

import (
	"testing"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// unarmed says whether o is on the watchdog's list, and armed for reading.
func unarmed(rq *Requester) (listed, armed bool) {
	g := &rq.e.watchdog
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.list) > 0, rq.readArmed.Load()
}

// An unarmed link that is no longer polled is armed without another call.
func TestWatchdogArms(t *testing.T) {
	rq, _ := requesterTo(t)
	for range 3 {
		releasedUnarmed(t, rq)
		for start := time.Now(); ; time.Sleep(time.Millisecond / 4) {
			listed, armed := unarmed(rq)
			if armed && !listed {
				break
			}
			if time.Since(start) > 10*time.Second {
				t.Fatalf("after 10s it is on the list: %v, armed: %v", listed, armed)
			}
		}
	}
}

// onlyOnWatchdog gives the watchdog a timer that is in no set, so that the test alone has it act.
// It comes before a link is on the watchdog's list: the timer of before was never set then.
func onlyOnWatchdog(t *testing.T, rq *Requester) *rearmWatchdog {
	t.Helper()
	deaf, err := unix.NewTimer()
	if err != nil {
		t.Fatal(err)
	}
	g := &rq.e.watchdog
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.list) > 0 {
		t.Fatal("a link is on the list")
	}
	g.timer.Close()
	g.timer = deaf // the engine closes it
	return g
}

// A waiter that passes by arms links that no wait has taken since another one did, and leaves
// others alone.
func TestWatchdogSweeps(t *testing.T) {
	rq, _ := requesterTo(t)
	g := onlyOnWatchdog(t, rq)
	releasedUnarmed(t, rq)
	visit := func() {
		for !rq.e.polling.CompareAndSwap(false, true) {
			time.Sleep(time.Millisecond)
		}
		defer rq.e.polling.Store(false)
		g.lastWaitEnd = unix.Monotonic()
		g.lastSweep.Store(0)
		g.sweep()
	}
	visit()
	if listed, armed := unarmed(rq); !listed || armed {
		t.Fatalf("a link that was just used is on the list: %v, armed: %v", listed, armed)
	}
	releasedUnarmed(t, rq)
	visit()
	if listed, armed := unarmed(rq); !listed || armed {
		t.Fatalf("a link that is used again and again is on the list: %v, armed: %v", listed, armed)
	}
	visit()
	if listed, armed := unarmed(rq); listed || !armed {
		t.Fatalf("an unused link is on the list: %v, armed: %v", listed, armed)
	}
}

// The timer is set for twice as long each time that it is put off, up to a bound, and for a short
// time at first, and while anything is gathered.
func TestWatchdogPostpones(t *testing.T) {
	rq, _ := requesterTo(t)
	g := onlyOnWatchdog(t, rq)
	releasedUnarmed(t, rq)
	putOff := func(want time.Duration) {
		t.Helper()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.postpone()
		if g.interval != want {
			t.Errorf("it is put off by %v, want %v", g.interval, want)
		}
	}
	interval := func() time.Duration {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.interval
	}
	if d := interval(); d != rearmTick {
		t.Errorf("it goes off after %v at first, want %v", d, rearmTick)
	}
	putOff(2 * rearmTick)
	putOff(maxRearmTick)
	putOff(maxRearmTick)
	g.expedite()
	if d := interval(); d != rearmTick {
		t.Errorf("something is gathered, and it goes off after %v, want %v", d, rearmTick)
	}
	putOff(rearmTick)
	putOff(2 * rearmTick)
}

// A sender of long messages makes a link unarmed that was armed between two waits, but not where no
// goroutine has waited lately, or one sleeps.
func TestDisarmRead(t *testing.T) {
	rq, _ := requesterTo(t)
	g := onlyOnWatchdog(t, rq)
	rq.e.markHot(&rq.stream)
	rq.disarmRead()
	if _, armed := unarmed(rq); !armed {
		t.Error("no goroutine has waited, and the link is unarmed")
	}
	// as if a waiter had just swept, for as long as this takes
	g.lastSweep.Store(unix.Monotonic() + int64(time.Hour))
	rq.disarmRead()
	if listed, armed := unarmed(rq); !listed || armed {
		t.Errorf("the link is on the watchdog's list: %v, armed: %v", listed, armed)
	}
	startSleeper(t, rq)
	g.timerExpired()
	rq.disarmRead()
	if _, armed := unarmed(rq); !armed {
		t.Error("a goroutine sleeps, and the link is unarmed")
	}
}

// A goroutine that goes to sleep arms all unarmed links: its condition may come on one that another
// waiter has left so.
func TestSleeperArmsAll(t *testing.T) {
	rq, _ := requesterTo(t)
	onlyOnWatchdog(t, rq)
	releasedUnarmed(t, rq)
	startSleeper(t, rq)
	eventually(t, "a goroutine sleeps, and an unpolled link is unarmed", func() bool {
		listed, armed := unarmed(rq)
		return !listed && armed
	})
}

// A waiter that releases a link unarmed checks for sleepers once more: one that came meanwhile
// found nothing to arm.
func TestReleaseUnarmedSeesSleeper(t *testing.T) {
	rq, _ := requesterTo(t)
	for !rq.tryTokenDisarmed() {
		time.Sleep(time.Millisecond)
	}
	startSleeper(t, rq)
	rq.releaseUnarmed()
	if _, armed := unarmed(rq); !armed {
		t.Error("a goroutine sleeps, and the link was released unarmed")
	}
}
