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
	untold  = 16384
	brought = 64 // looks that one is worth which has brought something
)

// count counts looks until the runtime is to be told.
func (s *Spin) count(looks int) {
	if s.all += looks; s.all >= untold {
		s.all = 0
		tell()
	}
}

// Looked is for looks that are no wait's, of which some have brought something; one goroutine at a time does, and no wait begins meanwhile.
func (b *Budget) Looked(looks, some int) {
	if b.looked += looks + some*brought; b.looked >= untold {
		b.looked = 0
		tell()
	}
}

// alone says that this process runs one goroutine at a time, as of when the runtime was told last.
var alone atomic.Bool

func init() { reckon() }

// reckon asks how many goroutines can run at a time: the runtime follows the limits of the process.
func reckon() { alone.Store(runtime.GOMAXPROCS(0) == 1) }

// tell lets the runtime see this thread, and those run who have no other.
func tell() {
	unix.YieldOpenly()
	reckon()
	if alone.Load() { // waits that end before they yield would never let anybody run
		runtime.Gosched()
	}
}
