package baseline

import (
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Clock times intervals without the time of reading the clock, which is much of what a flag takes.
// The readings at an interval's begin and end contribute half of their time each.
type Clock struct{ reading int64 }

// NewClock measures the time of a reading: the least mean of several series, which takes 100 µs. So
// much of each interval is the clock's.
func NewClock() Clock {
	const series, readings = 5, 1000
	least := int64(1 << 62)
	for range series {
		start, last := unix.Monotonic(), int64(0)
		for range readings {
			last = unix.Monotonic()
		}
		least = min(least, (last-start)/readings)
	}
	return Clock{least}
}

// Now begins an interval.
func (c Clock) Now() int64 { return unix.Monotonic() }

// Since ends it.
func (c Clock) Since(start int64) time.Duration {
	return time.Duration(max(unix.Monotonic()-start-c.reading, 0))
}
