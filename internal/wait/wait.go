package wait

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Cond is what is waited for: a word that differs from Old, or Until, or that
// Broken or Ended becomes true. It is a value, so that waiting allocates nothing.
type Cond struct {
	Word   *atomic.Uint32
	Old    uint32
	Until  func() bool
	Failed *atomic.Bool
	Ended  *atomic.Bool

	Addr        uint64 // where Word is, as senders know it; 0: they cannot tell what is waited for
	LocalOnly   bool   // only this process changes what is waited for, and calls Wake then
	NotArrivals bool   // and nothing that arrives is it: [Sleepers.Arrived] does not wake who waits
}

// Done takes one look. The loads are sequentially consistent: with the
// sleeper's count raised before, either this sees the word or the one who
// stored the word sees the count.
func (l *Cond) Done() bool {
	if l.Word != nil && l.Word.Load() != l.Old {
		return true
	}
	if l.Until != nil && l.Until() {
		return true
	}
	return l.Failed != nil && l.Failed.Load() || l.Ended != nil && l.Ended.Load()
}

// Sleepers are the goroutines of this process that sleep.
type Sleepers struct {
	Board   Board
	OnSleep func() // nil, or sees to what nobody looks at any more: called when a sleeper is known, before its last look

	mu   sync.Mutex
	list []sleeper
	n    atomic.Int32 // their number
}

type sleeper struct {
	wake        chan struct{}
	notArrivals bool
}

// Asleep says whether anybody sleeps.
func (s *Sleepers) Asleep() bool { return s.n.Load() != 0 }

// wakeChans are reused; a wake-up left in one would only cost an extra look.
var wakeChans = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

// ErrStopped is the end of all waiting.
var ErrStopped = errors.New("waiting was stopped")

// Sleep parks the goroutine until l holds, the context ends (its error is
// returned) or stop is closed ([ErrStopped]). Woken for something else within nap
// it returns too, with l not found: more of that may come.
func (s *Sleepers) Sleep(ctx context.Context, l *Cond, stop <-chan struct{}, nap time.Duration) (found bool, err error) {
	bed := wakeChans.Get().(chan struct{})
	s.mu.Lock()
	s.list = append(s.list, sleeper{bed, l.NotArrivals})
	s.n.Add(1)
	sign := s.Board.add(l) // before the look, see Done
	if invariant.Enabled {
		s.check(stop)
	}
	s.mu.Unlock()
	if s.OnSleep != nil {
		s.OnSleep()
	}
	defer func() {
		s.mu.Lock()
		s.n.Add(-1)
		s.Board.remove(sign)
		for i, b := range s.list {
			if b.wake == bed {
				last := len(s.list) - 1
				s.list[i], s.list[last] = s.list[last], sleeper{}
				s.list = s.list[:last]
				break
			}
		}
		if invariant.Enabled {
			s.check(stop)
		}
		s.mu.Unlock()
		select {
		case <-bed:
		default:
		}
		wakeChans.Put(bed)
	}()
	for !l.Done() {
		start := time.Now()
		select {
		case <-bed: // one look decides: what was found may be over at the next
			if found := l.Done(); found || time.Since(start) < nap {
				return found, nil
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-stop:
			if l.Done() {
				return true, nil
			}
			return false, ErrStopped
		}
	}
	return true, nil
}

// check compares what says who sleeps; mu is held. Where waiting is over for good
// the page of the board may be given back already.
func (s *Sleepers) check(stop <-chan struct{}) {
	select {
	case <-stop:
	default:
		n := int(s.n.Load())
		invariant.Check(n == len(s.list), "%d sleepers are counted, %d listed", n, len(s.list))
		shown := int(s.Board.Count.Load())
		invariant.Check(shown <= n, "%d sleepers are shown to senders, there are %d", shown, n)
	}
}

// Wake makes every sleeper look again. A wake-up sticks: one that comes between
// a sleeper's look and its parking is not lost. The caller has stored its word
// before.
func (s *Sleepers) Wake() { s.wake(true) }

// Arrived is Wake where something has arrived. Who waits apart sleeps on.
func (s *Sleepers) Arrived() { s.wake(false) }

func (s *Sleepers) wake(all bool) {
	if !s.Asleep() {
		return
	}
	s.mu.Lock()
	for _, b := range s.list {
		if b.notArrivals && !all {
			continue
		}
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
}

// The budget of looking before sleeping.
const (
	maxBudget = 50 * time.Microsecond
	minBudget = 5 * time.Microsecond
	// A yield that comes back later than this, to find nothing, means that the
	// processors are full of other work: looking on would take turns from those
	// who store.
	lateYield = 20 * time.Microsecond
	// A yield that took longer than longYield, or than sharedBy times the quickest one and shortYield, has let somebody else run, who may be
	// the one that is waited for. Alone one takes 0.2 us on one machine and 0.5 on another; two switches, there and back, four to six times as much.
	longYield  = 2 * time.Microsecond
	shortYield = 600 * time.Nanosecond
	sharedBy   = 4
)

// Budget is how long waits of this process look before they sleep. It shrinks
// when yields come back late, and comes back when they do not. That looking was
// in vain does not shrink it: the next message may be a quick one, and a process
// whose budget has shrunk below the time of a round trip would never find out.
type Budget struct {
	ns               atomic.Int64
	shared           atomic.Bool   // others want this processor
	yields           atomic.Uint32 // of a process that runs one goroutine at a time
	answerHint       atomic.Bool   // see [Budget.Answer]
	plainCount       atomic.Uint32 // waits that have begun with plain looks; a count, which orders nothing
	migrator         CPUMigrator   // of who looks; one at a time does
	looksSinceNotify int           // since the runtime was told; the same
	fastestYield     time.Duration // what the quickest yield took; 0 before the first; the same
}

// limit is how long a wait looks now.
func (b *Budget) limit() time.Duration {
	if ns := b.ns.Load(); ns != 0 {
		return time.Duration(ns)
	}
	return maxBudget
}

// How many looks come between yields. On a processor that is shared nothing new
// comes before the other end has run.
const (
	ownLooks    = 128
	sharedLooks = 16
)

// Spin is one wait's looking phase.
type Spin struct {
	b                *Budget
	start            int64 // of [unix.Monotonic], as of the first yield
	last             int64 // when the last yield was over; 0 before the first
	limit            time.Duration
	looks            int
	budgets          int  // the budget that may be used
	yieldAfter       int  // of them before a yield
	lastLate         bool // the last yield came back late
	late             bool
	looksSinceNotify int // looks since the runtime was told

	yields int
}

// How many yields to other processes come before one to goroutines. That wakes an
// idle processor's thread to take the goroutine over, which costs more than a
// message does; it is needed where goroutines of this process have no other
// processor to run on.
const (
	yieldsPerGosched       = 64
	yieldsPerGoschedSingle = 8 // over all waits, which may be short
)

// longBudgets is how many budgets are for a wait for the end of something long.
const longBudgets = 5

// Begin starts a looking phase. long says that what is waited for is on its way and takes longer than a short message, by far: to look for
// all that time costs less than to be woken, as the other end may have nothing else to do before it.
func (b *Budget) Begin(long bool) Spin {
	if b.looksSinceNotify >= notifyAfter { // now, and not at the end of the wait before, which had found what it was for
		b.looksSinceNotify = 0
		notifyRuntime()
	}
	s := Spin{b: b, yieldAfter: ownLooks, budgets: 1}
	if long {
		s.budgets = longBudgets
	}
	if b.shared.Load() {
		s.yieldAfter = sharedLooks
	}
	return s
}

// Next is called between looks; every so often it yields: to goroutines of this
// process (never from a locked thread) and to other processes, without which
// two ends on one processor take a scheduler tick (4 ms) a message. cost is
// about how many plain looks the caller's last one was worth. It returns false
// when it is time to sleep; never after a yield to either, before another look.
func (s *Spin) Next(cost int) bool {
	if s.lastLate { // who ran meanwhile was not who is waited for
		s.late, s.lastLate = true, false
		s.b.migrator.LateUseless()
	}
	s.looks += cost
	s.count(cost)
	if s.looks < s.yieldAfter {
		return true
	}
	s.looks = 0
	before := unix.Monotonic()
	if s.limit == 0 {
		s.start = before
		s.limit = time.Duration(s.budgets) * s.b.limit()
	}
	if before-s.start >= int64(s.limit) {
		return false
	}
	if s.yields++; singleProc.Load() && s.b.yields.Add(1)%yieldsPerGoschedSingle == 0 || s.yields%yieldsPerGosched == 0 {
		runtime.Gosched()
	}
	unix.Yield()
	s.last = unix.Monotonic()
	s.yielded(time.Duration(s.last - before))
	return true
}

// yielded notes a yield that took so long. Of a late one it is not known yet whether it was worth it.
func (s *Spin) yielded(took time.Duration) {
	s.lastLate = took > lateYield
	shared := s.b.otherRan(took)
	if !s.lastLate && s.b.migrator.Yielded(shared) {
		s.Restart()
	}
	if shared != (s.yieldAfter == sharedLooks) {
		s.b.shared.Store(shared)
		s.yieldAfter = ownLooks
		if shared {
			s.yieldAfter = sharedLooks
		}
	}
}

// Now is about when this wait ends, of [unix.Monotonic]: as of its last yield, where it has yielded.
func (s *Spin) Now() int64 {
	if s.last != 0 {
		return s.last
	}
	return unix.Monotonic()
}

// otherRan says whether somebody else ran during a yield that took so long.
func (b *Budget) otherRan(took time.Duration) bool {
	if b.fastestYield == 0 || took < b.fastestYield {
		b.fastestYield = took
	}
	return took > min(longYield, max(shortYield, sharedBy*b.fastestYield))
}

// Shared says whether others want this processor, as of the last yield.
func (s *Spin) Shared() bool { return s.yieldAfter == sharedLooks }

// Restart begins the phase anew: the caller's looks have brought something.
func (s *Spin) Restart() {
	s.lateYieldUseful()
	s.limit, s.looks = 0, 0
	s.count(usefulLooks)
}

// lateYieldUseful notes that what the last yield was followed by came while others ran, if they ran for long.
func (s *Spin) lateYieldUseful() {
	if s.lastLate {
		s.lastLate = false
		s.b.migrator.LateUseful()
	}
}

// End closes the phase.
func (s *Spin) End() {
	s.lateYieldUseful()
	s.b.looksSinceNotify += s.looksSinceNotify + 1 // many waits are short, and some never look twice
	limit := s.b.limit()
	switch {
	case s.yields == 0: // many waits end before the first
	case s.late:
		s.b.ns.Store(int64(max(minBudget, limit-limit/4)))
	case limit < maxBudget:
		s.b.ns.Store(int64(min(maxBudget, limit+limit/4)))
	}
}

// EventCount is a word that moves when something happened, for waits whose condition
// is checked under a lock.
type EventCount struct{ w atomic.Uint32 }

// Load reads it, before the condition is checked.
func (t *EventCount) Load() uint32 { return t.w.Load() }

// Advance is called after the condition changed.
func (t *EventCount) Advance() { t.w.Add(1) }

// Word is what to wait for.
func (t *EventCount) Word() *atomic.Uint32 { return &t.w }
