package wait

import (
	"testing"
	"time"
)

// A thread that shares a CPU which it cannot leave migrates rarely, and soon again once it had a
// CPU of its own.
func TestCPUMigrator(t *testing.T) {
	var s CPUMigrator
	now, moves := int64(time.Hour), 0
	for end := now + int64(time.Second); now < end; now += int64(10 * time.Microsecond) {
		if s.due(now) {
			moves++
		}
	}
	if most := int(time.Second/maxStay) + 10; moves < 10 || moves > most {
		t.Errorf("%d times in a second, want 10 to %d", moves, most)
	}
	if s.due(s.since + int64(maxStay) - 1) {
		t.Error("it moved before the longest stay was over")
	}
	now = s.since + 5*int64(maxStay)
	if !s.due(now) || s.limit != maxStay {
		t.Errorf("after a while in which it never had one to itself it stays for %v, want %v", s.limit, maxStay)
	}
	s.Yielded(false)
	now = s.since + 5*int64(maxStay)
	if !s.due(now) || s.limit != minStay {
		t.Errorf("after a while alone it stays for %v, want %v", s.limit, minStay)
	}
}

// One yield alone among shared ones is no reason to leave.
func TestMigratorNeedsSharedYieldsInARow(t *testing.T) {
	var s CPUMigrator
	for i := range 100 * sharedYields {
		if s.Yielded(i%sharedYields != 0) {
			t.Fatalf("it left a processor that it had to itself %d yields before", i%sharedYields)
		}
	}
}

// Late yields after each of which there is what was waited for are a reason to leave, those in vain
// are none.
func TestMigratorWhereLateYieldsHelp(t *testing.T) {
	if singleProc.Load() {
		t.Skip("a process that runs one goroutine at a time stays where it is")
	}
	const late = 10 * lateYield
	for _, c := range []struct {
		pays   []bool
		counts int // at last, of those in a row
		leaves bool
	}{
		{[]bool{true}, lateUsefulYields, false},
		{[]bool{true, true, true}, 3 * lateUsefulYields, false},
		{[]bool{true, true, true, true}, 0, true},
		{[]bool{true, true, true, false}, 0, false},
		{[]bool{true, true, true, false, true, true, true}, 3 * lateUsefulYields, false},
		{[]bool{false, false, false, false, false, false, false, false}, 0, false},
	} {
		var b Budget
		for _, pays := range c.pays {
			was := b.migrator.shared
			sp := b.Begin(false)
			sp.yielded(late)
			if b.migrator.shared != was {
				t.Errorf("%v: a late yield counts %d before its use is known", c.pays, b.migrator.shared-was)
			}
			if !pays {
				sp.Next(1)
			}
			sp.End()
		}
		if b.migrator.shared != c.counts {
			t.Errorf("%v counts %d, want %d", c.pays, b.migrator.shared, c.counts)
		}
		if left := b.migrator.since != 0; left != c.leaves { // it has asked the coin then
			t.Errorf("after %v it would leave: %v, want %v", c.pays, left, c.leaves)
		}
	}
	var b Budget
	sp := b.Begin(false)
	sp.yielded(late)
	sp.Restart() // what was found was for another goroutine
	sp.End()
	if b.migrator.shared != lateUsefulYields {
		t.Errorf("a late yield after which a wait looks on counts %d, want %d", b.migrator.shared, lateUsefulYields)
	}
}

// A yield that let another thread run is told from one that did not by its time on this machine.
func TestOthers(t *testing.T) {
	for _, c := range []struct {
		least, took time.Duration
		shared      bool
	}{
		{180, 330, false},
		{180, 700, false},
		{180, 1150, true},
		{50, 550, false},
		{500, 1150, false},
		{500, 2100, true},
		{1150, 1900, false}, // it has never been alone
		{1150, 2100, true},
	} {
		var b Budget
		b.otherRan(c.least)
		if got := b.otherRan(c.took); got != c.shared {
			t.Errorf("one of %v where the quickest took %v: %v, want %v", c.took, c.least, got, c.shared)
		}
	}
}
