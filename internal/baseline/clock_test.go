package baseline

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// What a reading takes is taken off once, and no interval is negative for that.
func TestClock(t *testing.T) {
	c := NewClock()
	if c.reading < 0 {
		t.Errorf("a reading takes %d ns", c.reading)
	}
	const long = 1_000_000
	begin := unix.Monotonic()
	got := int64(Clock{reading: 1000}.Since(begin - long))
	if most := unix.Monotonic() - begin + long - 1000; got < long-1000 || got > most {
		t.Errorf("an interval of 1 ms is %d ns without 1000 of them, want %d to %d", got, long-1000, most)
	}
	if d := (Clock{reading: 1 << 62}).Since(unix.Monotonic()); d != 0 {
		t.Errorf("an interval shorter than a reading is %v, want 0", d)
	}
}
