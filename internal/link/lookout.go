package link

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/wait"
)

// A notification that comes over a stream is often followed by another one, as over rings (see watch). So the goroutine that has run its handler
// looks at the sockets for the time of a wait, as waiters do, and runs the next one itself: else the background's thread would be woken by
// the message, and would wake that goroutine's. It gives way to whoever waits for anything else, who would have to sleep.
type lookout struct {
	looks  atomic.Bool // that goroutine is who looks; stored by it, as long as it has the engine's spinning
	wanted atomic.Bool // somebody else wants to; a hint, as who misses it looks no longer than a wait does

	due func() bool // something is posted, or somebody wants to look
}

func (o *lookout) init(posted *atomic.Uint32) {
	o.due = func() bool { return posted.Load() != 0 || o.wanted.Load() }
}

// Looks that the goroutine of the notifications has to give way. One of its own may be a call that receives a lot, or a yield.
const givesWay = 64

// turn has the caller be the one who looks, and says whether it is.
func (e *Engine) turn() bool {
	if e.spinning.CompareAndSwap(false, true) {
		return true
	}
	o := &e.lookout
	if !o.looks.Load() {
		return false
	}
	o.wanted.Store(true)
	for range givesWay {
		runtime.Gosched()
		if e.spinning.CompareAndSwap(false, true) {
			return true
		}
		if !o.looks.Load() {
			break // somebody else was first
		}
	}
	return false
}

// lookOut looks until something is posted, which is seen or was posted after the last look, or somebody else wants to, or the time is up.
func (e *Engine) lookOut() {
	if !e.spinning.CompareAndSwap(false, true) {
		return
	}
	if e.sleepers.Asleep() { // the handler may have woken somebody, who is next on this processor
		runtime.Gosched()
	}
	o := &e.lookout
	o.wanted.Store(false)
	o.looks.Store(true)
	l := wait.Look{Until: o.due, Own: true}
	e.spin(context.Background(), &l, nil)
	o.looks.Store(false)
	e.spinning.Store(false)
}
