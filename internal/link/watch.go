package link

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/wait"
)

// watched is how many links' rings are polled.
const watched = 4

// watch is the rings that the goroutine of the notifications polls for a while
// after each notification, as waits do for words: the next one is then there
// without a bell and without a wake-up. Only that goroutine uses it.
type watch struct {
	links  [watched]*In
	heads  [watched]uint32 // notes taken out of their rings
	n      int
	budget wait.Budget
}

// add has the ring of in polled, or says that there is none or no room. The
// importer does not ring from here on, what it has put before is found.
func (w *watch) add(in *In) bool {
	if in.pages == nil || in.broken.Load() {
		return false
	}
	at := 0
	for at < w.n && w.links[at] != in {
		at++
	}
	if at == watched {
		return false
	}
	if at == w.n {
		w.links[at] = in
		w.n++
		in.pages.Back.Awake().Store(1)
	}
	w.refresh(at)
	return true
}

func (w *watch) refresh(at int) {
	in := w.links[at]
	in.nmu.Lock()
	w.heads[at] = in.head
	in.nmu.Unlock()
}

// poll looks until a ring has a note, something was posted, or the time is up: then
// it is to end.
func (w *watch) poll(posted *atomic.Bool) (on bool) {
	sp := w.budget.Begin()
	defer sp.End()
	for !posted.Load() {
		for i, in := range w.links[:w.n] {
			if in.pages.Ring.There(w.heads[i]) {
				return true
			}
		}
		if !sp.Next(w.n) {
			return false
		}
	}
	return true
}

// enqueue puts the links whose rings have a note behind those that wait for their
// turn, among which whoever sends without end would be before them for ever. The
// queue's lock is held.
func (w *watch) enqueue(q *noteQueue) {
	for i, in := range w.links[:w.n] {
		if in.pages.Ring.There(w.heads[i]) {
			w.heads[i]++ // one that cannot be run yet must not be found for ever
			if in.queued.CompareAndSwap(false, true) {
				q.jobs = append(q.jobs, job{in: in})
			}
		}
	}
}

// end stops the polling: from here on importers ring, and what came before is
// queued.
func (w *watch) end(q *noteQueue) {
	for i, in := range w.links[:w.n] {
		in.nmu.Lock()
		in.pages.Back.Awake().Store(0) // before the look, see page.Exporter.Awake
		_, there, err := in.pages.Ring.Peek(in.head)
		in.nmu.Unlock()
		w.links[i] = nil
		if there || err != nil {
			q.add(in)
		}
	}
	w.n = 0
}
