package wait

import (
	"runtime"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// Looking is loads and calls that the runtime does not know of, which keeps it fast, and keeps the runtime from seeing
// that anything goes on. Its monitor (sysmon) sleeps while no goroutine runs, and is woken by calls that it knows of
// alone. A goroutine that the network woke and that goes on to look may hence have the only thread that would have
// looked at the network: nobody else of the process hears anything then, for as long as it looks, and its other links
// are lost for their silence. So the runtime is told every so often.

// untold is how many looks of a [Budget], over all waits, go untold: half a millisecond to a few, or to 13 where each brings
// as much as a call can.
const (
	notifyAfter = 16384
	usefulLooks = 64 // looks that one is worth which has brought something
)

// count counts looks until the runtime is to be told.
func (s *Spin) count(looks int) {
	if s.looksSinceNotify += looks; s.looksSinceNotify >= notifyAfter {
		s.looksSinceNotify = 0
		notifyRuntime()
	}
}

// AddLooks is for looks that are no wait's, of which some have brought something; one goroutine at a time does, and no wait begins meanwhile.
func (b *Budget) AddLooks(looks, some int) {
	if b.looksSinceNotify += looks + some*usefulLooks; b.looksSinceNotify >= notifyAfter {
		b.looksSinceNotify = 0
		notifyRuntime()
	}
}

// singleProc says that this process runs one goroutine at a time, as of when the runtime was told last.
var singleProc atomic.Bool

func init() { updateSingleProc() }

// updateSingleProc asks how many goroutines can run at a time: the runtime follows the limits of the process.
func updateSingleProc() { singleProc.Store(runtime.GOMAXPROCS(0) == 1) }

// notifyRuntime lets the runtime see this thread, and those run who have no other.
func notifyRuntime() {
	unix.YieldOpenly()
	updateSingleProc()
	if singleProc.Load() { // waits that end before they yield would never let anybody run
		runtime.Gosched()
	}
}
