package wait

import (
	"runtime"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Polling consists of loads and system calls that the runtime does not know of. That keeps it fast,
// and hides from the runtime that anything goes on. Its monitor (sysmon) sleeps while no goroutine
// runs, and only calls that it knows of wake it. A goroutine that the network woke and that then
// polls may have the only thread that would have looked at the network. Then no other goroutine of
// the process hears anything while it polls, and the process's other links are lost for their
// silence. So the runtime is notified every so often.

// notifyAfter is how many looks of a [Budget], over all waits, pass without notifying the runtime:
// half a millisecond to a few, or to 13 where each look brings as much as a call can.
const (
	notifyAfter = 16384
	// Looks that one counts as which has brought something.
	usefulLooks = 64
)

// count counts looks until the runtime is to be notified.
func (s *Spin) count(looks int) {
	if s.looksSinceNotify += looks; s.looksSinceNotify >= notifyAfter {
		s.looksSinceNotify = 0
		notifyRuntime()
	}
}

// AddLooks counts looks outside a wait, some of which brought something. One goroutine at a time
// calls it, while no wait begins.
func (b *Budget) AddLooks(looks, some int) {
	if b.looksSinceNotify += looks + some*usefulLooks; b.looksSinceNotify >= notifyAfter {
		b.looksSinceNotify = 0
		notifyRuntime()
	}
}

// singleProc reports that this process runs one goroutine at a time, as of the last notification.
var singleProc atomic.Bool

func init() { updateSingleProc() }

// updateSingleProc asks how many goroutines can run at a time: the runtime follows the limits of
// the process.
func updateSingleProc() { singleProc.Store(runtime.GOMAXPROCS(0) == 1) }

// notifyRuntime lets the runtime see this thread, and lets goroutines run that have no other
// thread.
func notifyRuntime() {
	unix.YieldOpenly()
	updateSingleProc()
	if singleProc.Load() { // waits that end before they yield would never let another goroutine run
		runtime.Gosched()
	}
}
