package update

import (
	"testing"
	"time"
)

// Idle bindings look at the same times, so the processor is woken once for all, and
// seldom enough.
func TestIdleBindingsLookTogether(t *testing.T) {
	for _, nap := range []time.Duration{1, firstNap, firstNap + 1, 5 * firstNap, longestNap} {
		at := int64(12345678)
		quick, slow := at+int64(until(firstNap, at)), at+int64(until(nap, at))
		if slow <= at || (slow-quick)%int64(firstNap) != 0 {
			t.Errorf("a nap of %v ends at %d, one of %v at %d", nap, slow, firstNap, quick)
		}
		if again := until(nap, slow); again < nap || again >= 2*nap && again > firstNap {
			t.Errorf("the beat for %v is %v", nap, again)
		}
	}
	var d Duty
	one := d.pause()
	mine := make([]time.Duration, 100)
	for i := range mine {
		for range 100 {
			d.change(&mine[i], time.Microsecond)
		}
	}
	all := d.pause()
	if all < 100*dutyFactor*time.Microsecond || all > one+100*dutyFactor*2*(switchCost+time.Microsecond) {
		t.Errorf("one binding looks every %v, 100 every %v", one, all)
	}
	for i := range mine {
		d.change(&mine[i], 0)
	}
	if d.pause() != one {
		t.Errorf("none is idle, and they cost %v", d.cost.Load())
	}
}
