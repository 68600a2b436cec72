package wait

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Cond is what a goroutine waits for: a word that differs from Old or Old64, or Until, or Failed or
// Ended becoming true. It is a value, so that waiting allocates nothing.
type Cond struct {
	Word   *atomic.Uint32
	Old    uint32
	Until  func() bool
	Failed *atomic.Bool
	Ended  *atomic.Bool

	Word64 *atomic.Uint64
	Old64  uint64

	// Address of Word as senders know it. 0: they cannot tell what is awaited.
	Addr uint64
	// Only this process changes the condition, and calls Wake then.
	LocalOnly bool
	// And nothing that arrives changes it: [Sleepers.Arrived] does not wake the waiter.
	NotArrivals bool
}

// Done looks once. The loads are sequentially consistent. The sleeper's count was raised before, so
// either Done sees the word or the process that stored it sees the count.
func (l *Cond) Done() bool {
	if l.Word != nil && l.Word.Load() != l.Old {
		return true
	}
	if l.Until != nil && l.Until() {
		return true
	}
	if l.Word64 != nil && l.Word64.Load() != l.Old64 {
		return true
	}
	return l.Failed != nil && l.Failed.Load() || l.Ended != nil && l.Ended.Load()
}

// Sleepers are the goroutines of this process that sleep.
type Sleepers struct {
	Board Board
	// nil, or called when a sleeper is counted, before its last look; takes care of what no
	// goroutine polls any more.
	OnSleep func()

	mu   sync.Mutex
	list []sleeper
	n    atomic.Int32 // len(list).
}

type sleeper struct {
	wake        chan struct{}
	notArrivals bool
}

// Asleep reports whether a goroutine sleeps.
func (s *Sleepers) Asleep() bool { return s.n.Load() != 0 }

// wakeChans are reused. A wake-up left in one would only cost an extra look.
var wakeChans = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

// ErrStopped is the end of all waiting.
var ErrStopped = errors.New("waiting was stopped")

// Sleep parks the goroutine until l holds, the context ends (its error is returned) or stop is
// closed ([ErrStopped]). A goroutine that is woken for something else within nap returns too, with
// found false: more of that may come.
func (s *Sleepers) Sleep(
	ctx context.Context, l *Cond, stop <-chan struct{}, nap time.Duration,
) (found bool, err error) {
	bed := wakeChans.Get().(chan struct{})
	s.mu.Lock()
	s.list = append(s.list, sleeper{bed, l.NotArrivals})
	s.n.Add(1)
	sign := s.Board.add(l) // before the look; see Done
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
		case <-bed: // one look decides: the condition may be over at the next
			if found := l.Done(); found || time.Since(start) < nap {
				return found, nil
			}
		case <-ctx.Done():
			return false, timeout.Ended(ctx)
		case <-stop:
			if l.Done() {
				return true, nil
			}
			return false, ErrStopped
		}
	}
	return true, nil
}

// check compares the counts of sleepers. The caller holds mu. When waiting is over for good, the
// board's page may have been released.
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

// Wake makes every sleeper look again. A wake-up sticks: one that comes between a sleeper's look
// and its parking is not lost. The caller has stored its word before.
func (s *Sleepers) Wake() { s.wake(true) }

// Arrived is Wake after data has arrived. Sleepers whose condition has NotArrivals sleep on.
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

// The time for looking before sleeping.
const (
	maxBudget = 50 * time.Microsecond
	minBudget = 5 * time.Microsecond
	// A yield that returns later than this and finds nothing means that the CPUs are full of other
	// work. More looking would take time from the threads that store.
	lateYield = 20 * time.Microsecond
	// A yield that took longer than longYield, or than sharedBy times the fastest one and
	// shortYield, has let another thread run, maybe the awaited one. A yield alone takes 0.2 us on
	// one machine and 0.5 on another; two context switches, there and back, take four to six times
	// as much.
	longYield  = 2 * time.Microsecond
	shortYield = 600 * time.Nanosecond
	sharedBy   = 4
)

// Budget is how long waits of this process look before they sleep. It shrinks when yields return
// late and recovers when they do not. Looking in vain does not shrink it: the next message may be a
// quick one, and a process whose budget is shorter than a round trip would never find out.
type Budget struct {
	ns         atomic.Int64
	shared     atomic.Bool   // Other threads want this CPU.
	yields     atomic.Uint32 // Of a process that runs one goroutine at a time.
	answerHint atomic.Bool   // See [Budget.AnswerHint].
	// Waits that have begun with plain looks. The count orders nothing.
	plainCount atomic.Uint32
	// Of the polling goroutine; there is one at a time.
	migrator CPUMigrator
	// Looks since the runtime was notified. Used by the polling goroutine.
	looksSinceNotify int
	// Time of the fastest yield; 0 before the first. Used by the polling goroutine.
	fastestYield time.Duration
}

// limit returns how long a wait looks now.
func (b *Budget) limit() time.Duration {
	if ns := b.ns.Load(); ns != 0 {
		return time.Duration(ns)
	}
	return maxBudget
}

// Looks between yields. On a shared CPU nothing new comes before the peer has run.
const (
	ownLooks    = 128
	sharedLooks = 16
)

// Spin is the polling phase of one wait.
type Spin struct {
	b                *Budget
	start            int64 // In [unix.Monotonic] time, at the first yield.
	last             int64 // End of the last yield; 0 before the first.
	limit            time.Duration
	looks            int
	budgets          int  // Budgets that may be used.
	yieldAfter       int  // Looks before a yield.
	lastLate         bool // The last yield returned late.
	late             bool
	looksSinceNotify int // Looks since the runtime was notified.

	yields int
}

// How many yields to other processes precede one to goroutines. A yield to goroutines wakes an idle
// processor's thread to take the goroutine over, which costs more than a message. It is needed
// where goroutines of this process have no other processor to run on.
const (
	yieldsPerGosched       = 64
	yieldsPerGoschedSingle = 8 // Over all waits, which may be short.
)

// longBudgets is how many budgets a wait for the end of a long transfer has.
const longBudgets = 5

// Begin starts a polling phase. long says that what is awaited is in flight and takes far longer
// than a short message: polling all that time costs less than a wake-up, and the peer may have
// nothing else to do before it.
func (b *Budget) Begin(long bool) Spin {
	// now, not at the end of the previous wait, which had found its condition
	if b.looksSinceNotify >= notifyAfter {
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

// Next is called between looks. Every so often it yields: to goroutines of this process (never from
// a locked thread) and to other processes. Without the latter two ends on one CPU take a scheduler
// tick (4 ms) a message. cost is the number of plain looks that the caller's last one was worth.
// Next returns false when it is time to sleep, but never after a yield before another look.
func (s *Spin) Next(cost int) bool {
	if s.lastLate { // the thread that ran meanwhile did not store what is awaited
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
	if s.yields++; singleProc.Load() && s.b.yields.Add(1)%yieldsPerGoschedSingle == 0 ||
		s.yields%yieldsPerGosched == 0 {
		runtime.Gosched()
	}
	unix.Yield()
	s.last = unix.Monotonic()
	s.yielded(time.Duration(s.last - before))
	return true
}

// yielded records a yield and its time. Whether a late one was worth it is not known yet.
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

// Now returns about when this wait ends, in [unix.Monotonic] time: the end of its last yield if
// there was one.
func (s *Spin) Now() int64 {
	if s.last != 0 {
		return s.last
	}
	return unix.Monotonic()
}

// otherRan reports whether another thread ran during a yield of the given time.
func (b *Budget) otherRan(took time.Duration) bool {
	if b.fastestYield == 0 || took < b.fastestYield {
		b.fastestYield = took
	}
	return took > min(longYield, max(shortYield, sharedBy*b.fastestYield))
}

// Shared reports whether other threads want this CPU, as of the last yield.
func (s *Spin) Shared() bool { return s.yieldAfter == sharedLooks }

// Restart begins the phase again: the caller's looks have brought something.
func (s *Spin) Restart() {
	s.lateYieldUseful()
	s.limit, s.looks = 0, 0
	s.count(usefulLooks)
}

// lateYieldUseful records that the awaited word came during the last yield, if that was late.
func (s *Spin) lateYieldUseful() {
	if s.lastLate {
		s.lastLate = false
		s.b.migrator.LateUseful()
	}
}

// End ends the phase.
func (s *Spin) End() {
	s.lateYieldUseful()
	s.b.looksSinceNotify += s.looksSinceNotify + 1 // many waits are short, and some look only once
	limit := s.b.limit()
	switch {
	case s.yields == 0: // many waits end before the first yield
	case s.late:
		s.b.ns.Store(int64(max(minBudget, limit-limit/4)))
	case limit < maxBudget:
		s.b.ns.Store(int64(min(maxBudget, limit+limit/4)))
	}
}

// EventCount is a word that advances after an event, for waits whose condition is checked under a
// lock.
type EventCount struct{ w atomic.Uint32 }

// Load returns the count. It is called before the condition is checked.
func (t *EventCount) Load() uint32 { return t.w.Load() }

// Advance is called after the condition changed.
func (t *EventCount) Advance() { t.w.Add(1) }

// Word returns the word to wait for.
func (t *EventCount) Word() *atomic.Uint32 { return &t.w }
