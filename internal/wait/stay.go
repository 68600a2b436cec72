package wait

import (
	"math/rand/v2"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// After so many shared yields in a row a thread that looks leaves its processor, and
// again after a while that grows as long as it does not help.
const (
	sharedYields = 16
	firstStay    = 200 * time.Microsecond
	longestStay  = 64 * time.Millisecond

	// A late yield after which there is what was waited for counts for so many: who ran in it was likely the other end, with a long
	// message, and each of the two stands still while the other one copies.
	paidFor = sharedYields / 4
)

// Stay is how a thread that looks and yields keeps to its processor. Two that yield to
// each other the kernel leaves on the one that they share until it balances its load,
// milliseconds later or never: each word that passes between them costs two switches
// meanwhile. So who shares its processor leaves it.
//
// The zero Stay is ready. One goroutine at a time may use it.
type Stay struct {
	shared int // yields in a row that let others run
	since  int64
	limit  time.Duration
	own    bool // a yield has let nobody run since it left, so that helped
}

// Yielded is told after each yield that was not late whether it let somebody else run, for a moment, and says whether the
// thread has left its processor, which takes up to 100 us.
func (s *Stay) Yielded(shared bool) (slept bool) {
	if !shared {
		s.shared, s.own = 0, true
		return false
	}
	return s.sharing(1)
}

// Paid is told of a yield that came back late, and had what was waited for found.
func (s *Stay) Paid() { s.sharing(paidFor) }

// Vain is told of one that had not.
func (s *Stay) Vain() { s.shared = 0 }

func (s *Stay) sharing(yields int) (slept bool) {
	if s.shared += yields; s.shared < sharedYields || alone.Load() || !s.over(unix.Monotonic()) {
		return false
	}
	s.shared = 0
	// Two find out at the same time; if both left they would meet again.
	if rand.IntN(2) == 0 { //nolint:gosec // any coin will do
		return false
	}
	unix.Leave()
	return true
}

// over says whether to leave now, and takes it as done.
func (s *Stay) over(now int64) bool {
	switch stayed := time.Duration(now - s.since); {
	case stayed < s.limit:
		return false
	case s.limit == 0 || s.own && stayed > 4*s.limit: // it helped for a while
		s.limit = firstStay
	default:
		s.limit = min(2*s.limit, longestStay)
	}
	s.since, s.own = now, false
	return true
}
