package link

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/wait"
)

// A wait of a process that has nothing but mapped memory to look at begins with plain looks at what it waits for. What comes through
// shared memory from another processor is there in less time than a wait that polls takes to begin and to end.
const (
	plainLooks = 64
	// One wait in so many begins as any other does: the runtime is told then that this thread runs (see package wait), and
	// of these it takes as many looks as of those that tell.
	plainWaits = 256
)

// plain counts the waits that began so.
type plain struct{ waits atomic.Uint32 }

// plainly says whether l holds, after a few looks. It counts before them, when nothing has come yet: what is done after the last
// one is what the caller waits for.
func (e *Engine) plainly(l *wait.Look) bool {
	if e.plain.waits.Add(1)%plainWaits == 0 || e.batch.some.Load() {
		return false
	}
	for i := range e.hot {
		if e.hot[i].Load() != nil {
			return false
		}
	}
	for range plainLooks {
		if l.Done() {
			return true
		}
	}
	return false
}
