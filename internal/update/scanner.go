package update

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
	"github.com/vmmc-go/vmmc/internal/wait"
)

// How long the scanner looks without a pause after a store, and how long with short ones. After
// that it takes longer and longer naps.
const (
	busyTime     = 200 * time.Microsecond
	shortNapTime = 5 * time.Millisecond
	shortNap     = 50 * time.Microsecond
	firstNap     = time.Millisecond

	// A page is hot for this long after its last change.
	hotTime = time.Millisecond
	// This long where finding it again takes a comparison of everything.
	hotTimeCompared = 50 * time.Millisecond

	// A yield that returns later than this means that the CPUs are full of other work, from which
	// more looking would take time.
	lateYield = 20 * time.Microsecond
	// A yield that takes longer than this has let another thread run.
	sharedYield = 1500 * time.Nanosecond
)

// yieldEvery is the number of passes between yields of the CPU, and manyYields the number of those
// between yields to goroutines of this process.
const (
	yieldEvery = 16
	manyYields = 16
)

var singleProc = runtime.GOMAXPROCS(0) == 1

// scanner is the state of run.
type scanner struct {
	last     int64 // When something changed.
	late     bool  // The CPUs are busy.
	naps     time.Duration
	cost     time.Duration // counted in Duty
	yields   int
	migrator wait.CPUMigrator
	sleeper  *time.Timer
}

// run passes over the memory until the binding ends.
func (b *Binding) run() {
	s := scanner{last: now(), sleeper: time.NewTimer(time.Hour)}
	defer func() {
		s.sleeper.Stop()
		b.c.Duty.change(&s.cost, 0)
		b.sem <- struct{}{} // for good: no pass runs any more
		b.release()
		close(b.released)
	}()
	for b.runPasses(&s) {
		quiet := time.Duration(now() - s.last)
		limit := busyTime
		if s.late {
			limit /= 10
		}
		switch {
		case quiet < limit:
			s.yield()
		case quiet < shortNapTime:
			unix.Nap(shortNap)
		default:
			b.nap(&s)
		}
	}
}

// runPasses makes some passes while it holds the lock.
func (b *Binding) runPasses(s *scanner) bool {
	if b.lock(b.ctx) != nil {
		return false
	}
	defer b.unlock()
	idle := s.naps > 0
	for range yieldEvery {
		start := now()
		changed, err := b.pass(b.ctx, idle)
		switch {
		case err != nil:
			b.Fail(err)
			return false
		case changed:
			s.last = now()
			if idle {
				s.naps = 0
				b.c.Duty.change(&s.cost, 0)
			}
		case idle:
			b.c.Duty.change(&s.cost, time.Duration(now()-start))
			return true
		}
		if b.waiters.Load() != 0 || b.Err() != nil {
			break
		}
	}
	hotFor := hotTime
	if b.watch == nil {
		hotFor = hotTimeCompared
	}
	if err := b.markCold(now() - int64(hotFor)); err != nil {
		b.Fail(err)
		return false
	}
	return true
}

func (s *scanner) yield() {
	before := now()
	if s.yields++; singleProc || s.yields%manyYields == 0 {
		runtime.Gosched()
	}
	unix.Yield()
	took := time.Duration(now() - before)
	s.late = took > lateYield
	s.migrator.Yielded(took > sharedYield && !s.late)
}

// nap sleeps, longer the longer nothing has changed, up to the time that keeps the cost of all
// bindings within the duty.
func (b *Binding) nap(s *scanner) {
	s.naps = min(max(2*s.naps, firstNap, firstPause*s.cost), b.c.Duty.pause())
	s.sleeper.Reset(until(s.naps, now()))
	select {
	case <-s.sleeper.C:
	case <-b.kick:
		s.naps = 0
		b.c.Duty.change(&s.cost, 0)
	case <-b.ended:
	}
}

// until returns the time to the next beat of a clock with the period nap, rounded up: idle bindings
// then look one after another, and the CPU is woken once for all. The period is a power of two
// milliseconds, so a short one's beats include each long one's.
func until(nap time.Duration, t int64) time.Duration {
	beat := firstNap
	for beat < nap {
		beat *= 2
	}
	return beat - time.Duration(t)%beat
}

// Duty bounds the time that the idle bindings of a process take together.
type Duty struct{ cost atomic.Int64 } // ns, of one pass over each

const (
	dutyFactor = 256                   // 0.4 % of one processor
	firstPause = 200                   // times its own cost, while the naps grow
	wakeCost   = 40 * time.Microsecond // of the processor
	switchCost = 2 * time.Microsecond  // of a goroutine that is woken with others
	longestNap = 65536 * firstNap      // comparing 1 GiB takes some 225 ms
)

// change replaces the caller's share in the cost.
func (d *Duty) change(mine *time.Duration, to time.Duration) {
	if to > 0 {
		if to += switchCost; *mine > 0 {
			to = (*mine*3 + to) / 4
		}
	}
	d.cost.Add(int64(to - *mine))
	*mine = to
}

func (d *Duty) pause() time.Duration {
	return min(dutyFactor*(wakeCost+time.Duration(d.cost.Load())), longestNap)
}
