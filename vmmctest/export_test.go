package vmmctest

import "time"

// SetSettle changes how long daemons have to see that processes have ended.
func SetSettle(d time.Duration) (back func()) {
	was := settle
	settle = d
	return func() { settle = was }
}

// Ended is closed when the child has ended. The test does not count as having seen it.
func Ended(p *Proc) <-chan struct{} { return p.done }
