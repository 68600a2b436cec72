package link

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// A notification that comes over a stream is often followed by another one, as over rings (see watch). So the goroutine that has run its handler
// looks at the sockets for the time of a wait, as waiters do, and runs the next one itself: else the background's thread would be woken by
// the message, and would wake that goroutine's. It gives way to whoever waits for anything else, who would have to sleep.
type lookout struct {
	looks  atomic.Bool // that goroutine is who looks; stored by it, as long as it has the engine's spinning
	wanted atomic.Bool // somebody else wants to; a hint, as who misses it looks no longer than a wait does

	until int64       // it looks no longer, of [unix.Monotonic]; with the engine's spinning
	due   func() bool // something is posted, or somebody wants to look, or the time is up
}

// longestLookout is for a link that brings something all the time, and no notification: credits wait for the end.
const longestLookout = 200 * time.Microsecond

func (o *lookout) init(posted *atomic.Uint32) {
	o.due = func() bool {
		return posted.Load() != 0 || o.wanted.Load() || unix.Monotonic() >= o.until
	}
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
	if e.sleepers.Asleep() { // the handler may have woken somebody, who is next on this processor, and may wait for more
		runtime.Gosched()
	}
	if !e.spinning.CompareAndSwap(false, true) {
		return
	}
	o := &e.lookout
	o.wanted.Store(false)
	o.until = unix.Monotonic() + int64(longestLookout)
	o.looks.Store(true)
	l := wait.Look{Until: o.due, Own: true}
	e.spin(context.Background(), &l, nil)
	o.looks.Store(false)
	e.spinning.Store(false)
}
