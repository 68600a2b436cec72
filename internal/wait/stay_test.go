package wait

import (
	"testing"
	"time"
)

// Who shares a processor which it cannot leave sleeps seldom, and soon again once it had
// one to itself.
func TestStay(t *testing.T) {
	var s Stay
	now, moves := int64(time.Hour), 0
	for end := now + int64(time.Second); now < end; now += int64(10 * time.Microsecond) {
		if s.over(now) {
			moves++
		}
	}
	if most := int(time.Second/longestStay) + 10; moves < 10 || moves > most {
		t.Errorf("%d times in a second, want 10 to %d", moves, most)
	}
	if s.over(s.since + int64(longestStay) - 1) {
		t.Error("it moved before the longest stay was over")
	}
	now = s.since + 5*int64(longestStay)
	if !s.over(now) || s.limit != firstStay {
		t.Errorf("after a while alone it stays for %v, want %v", s.limit, firstStay)
	}
}

// One yield alone among shared ones is no reason to leave.
func TestStayNeedsSharedYieldsInARow(t *testing.T) {
	var s Stay
	for i := range 100 * sharedYields {
		if s.Yielded(i%sharedYields != 0) {
			t.Fatalf("it left a processor that it had to itself %d yields before", i%sharedYields)
		}
	}
}
