package link

import "testing"

// The idlers do not wait for somebody who writes, but the time counts.
func TestWhoWritesIsNotIdle(t *testing.T) {
	o, _ := importer(t)
	o.tmu.Lock()
	for n := 1; n < 8; n++ {
		if !o.idle(idleTick) { // which would wait for ever if it looked
			t.Error("the link of somebody who writes is not looked after any more")
		}
	}
	o.tmu.Unlock()
	if o.busy != 7*idleTick {
		t.Errorf("it was not looked at for %v, want %v", o.busy, 7*idleTick)
	}
	if o.idle(idleTick); o.busy != 0 {
		t.Errorf("it was looked at, and %v are left", o.busy)
	}
}
