package link

import (
	"sync/atomic"

	"github.com/vmmc-go/vmmc/internal/page"
	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

const (
	watched = 4 // how many links' rings are watched
	glances = 8 // looks at each ring that are worth one of a wait's looks

	// patience is for a ring that rouses, or has notes, for nothing: after so many
	// times since the last handler its link is left to its bell. An importer could
	// otherwise keep this process awake by plain stores.
	patience = 16

	// crowded is how often polling begins anew where its thread cannot sleep: the
	// other goroutines may be about to.
	crowded = 3
)

// watch is the rings that the goroutine of the notifications polls for a while
// after each notification, as waits do for words, and then sleeps on: the next one
// is there without a bell, and without another thread or goroutine. Only that
// goroutine uses it.
type watch struct {
	seats  [watched]seat
	n      int
	budget wait.Budget

	spare   wait.Spare
	words   unix.WordSet
	rests   uint32 // how often polling has found nothing for its time
	refused int    // how often in a row it could not sleep
}

// seat is a link in a watch.
type seat struct {
	in    *In
	head  uint32         // notes found in its ring
	stamp *atomic.Uint32 // of the next one
	used  uint32         // rests, when its last handler ran
	vain  int            // see patience
}

// to moves on to the note after the first head ones.
func (s *seat) to(head uint32) { s.head, s.stamp = head, s.in.pages.Ring.Stamp(head) }

func (s *seat) there() bool { return s.stamp.Load() == s.head+1 }

// add has the ring of in watched, or says that there is none or no seat. The
// importer does not ring from here on, what it has put before is found.
func (w *watch) add(q *noteQueue, in *In) bool {
	if in.pages == nil || in.broken.Load() {
		return false
	}
	at := 0
	for at < w.n && w.seats[at].in != in {
		at++
	}
	if at == watched {
		if at = w.idle(); at < 0 {
			return false
		}
		w.drop(q, at)
		at = w.n
	}
	s := &w.seats[at]
	if at == w.n {
		w.n++
		*s = seat{in: in}
		in.watched.Store(true)
		in.pages.Back.Awake().Store(page.Polls)
	}
	in.nmu.Lock()
	s.to(in.head)
	in.nmu.Unlock()
	s.used, s.vain = w.rests, 0
	return true
}

// idle is the seat that was used longest ago, if that was before the last rest: links
// that are busy at the same time do not drive one another out.
func (w *watch) idle() int {
	at := -1
	for i := range w.n {
		if s := &w.seats[i]; s.used != w.rests && (at < 0 || w.rests-s.used > w.rests-w.seats[at].used) {
			at = i
		}
	}
	return at
}

// poll runs the handlers of what comes until something is posted, or the time is up:
// then it says that it is quiet.
func (w *watch) poll(q *noteQueue) (quiet bool) {
	w.prune(q)
	sp := w.budget.Begin(false)
	defer sp.End()
	for w.n > 0 && q.posted.Load() == 0 {
		found := false
		for g := 0; g < glances && !found; g++ {
			for i := range w.seats[:w.n] {
				if s := &w.seats[i]; s.there() {
					found = true
					if w.serve(q, s); q.inner != 0 {
						return false // the handler has left notifications blocked
					}
				}
			}
		}
		switch {
		case found:
			sp.Again()
			w.prune(q)
		case !sp.Next(w.n):
			w.rests++
			return true
		}
	}
	return false
}

// enqueue puts the links whose rings have a note behind those that wait for their
// turn, among which whoever sends without end would be before them for ever. The
// queue's lock is held.
func (w *watch) enqueue(q *noteQueue) {
	for i := range w.seats[:w.n] {
		s := &w.seats[i]
		if !s.there() {
			continue
		}
		s.to(s.head + 1) // one that cannot be run yet must not be found for ever
		if s.in.queued.CompareAndSwap(false, true) {
			q.jobs = append(q.jobs, job{in: s.in})
		}
	}
}

// serve runs the handler of the note that is there, if it is its turn.
func (w *watch) serve(q *noteQueue, s *seat) {
	n, head, more, ok := s.in.polled()
	if ok {
		running.Add(1)
		s.in.run(n)
		running.Add(-1)
		s.used, s.vain, w.refused = w.rests, 0, 0
	} else {
		s.vain++
		if int32(head-s.head) <= 0 {
			head = s.head + 1 // one that cannot be run yet must not be found for ever
		}
	}
	s.to(head)
	if more {
		q.add(s.in)
	}
}

// sleep sleeps on the rings until a note comes or something is posted, and says
// whether it could: else the caller is to end the watch, or poll.
func (w *watch) sleep(q *noteQueue) bool {
	besides := int(dozing.Add(1)) - 1
	defer dozing.Add(-1)
	if q.e.spinning.Load() {
		besides-- // it ends soon; one that has only begun to look, plainly, counts as who computes
	}
	if !unix.CanSleepOnWords() || !w.spare.Left(besides) {
		return false
	}
	w.words.Clear()
	w.words.Add(&q.posted, 0)
	note := false
	for i := range w.seats[:w.n] {
		s := &w.seats[i]
		s.in.pages.Back.Awake().Store(page.Sleeps) // before the look, see page.Exporter.Awake
		v := s.stamp.Load()
		note = note || v == s.head+1
		w.words.Add(s.stamp, v)
	}
	var err error
	if !note {
		var which int
		if which, err = w.words.Sleep(); err == nil {
			w.blame(which - 1)
		}
	}
	for i := range w.seats[:w.n] {
		w.seats[i].in.pages.Back.Awake().Store(page.Polls)
	}
	if err != nil {
		return false
	}
	w.refused = 0
	return true
}

// dozing counts the watches of this program that sleep, or are about to.
var dozing atomic.Int32

// blame counts a sleep that ended without a note for the ring that ended it, if that
// is known, or else whose word has changed.
func (w *watch) blame(at int) {
	for i := range w.seats[:w.n] {
		s := &w.seats[i]
		if !s.there() && (i == at || at < 0 && w.words.Moved(i+1)) {
			s.vain++
		}
	}
}

// prune leaves links that have ended, or rouse in vain.
func (w *watch) prune(q *noteQueue) {
	for i := w.n - 1; i >= 0; i-- {
		if s := &w.seats[i]; s.vain > patience || s.in.broken.Load() {
			w.drop(q, i)
		}
	}
}

// drop leaves a link to its bell: from here on the importer rings, and what came
// before is queued.
func (w *watch) drop(q *noteQueue, at int) {
	in := w.seats[at].in
	in.watched.Store(false)
	in.nmu.Lock()
	in.pages.Back.Head().Store(in.head)     // before it matters,
	in.pages.Back.Awake().Store(page.Rings) // and both before the look, see page.Exporter.Awake
	_, there, err := in.pages.Ring.Peek(in.head)
	there = there || len(in.notes) > 0 // what was taken out of the ring for a closed import
	in.nmu.Unlock()
	w.n--
	w.seats[at] = w.seats[w.n]
	w.seats[w.n] = seat{}
	if there || err != nil {
		q.add(in)
	}
}

// end leaves all links.
func (w *watch) end(q *noteQueue) {
	for w.n > 0 {
		w.drop(q, w.n-1)
	}
	w.words.Clear()
	w.refused = 0
}
