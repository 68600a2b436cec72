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
	minStay      = 200 * time.Microsecond
	maxStay      = 64 * time.Millisecond

	// A late yield after which there is what was waited for counts for so many: who ran in it was likely the other end, with a long
	// message, and each of the two stands still while the other one copies.
	lateUsefulYields = sharedYields / 4
)

// CPUMigrator is how a thread that looks and yields keeps to its processor. Two that yield to
// each other the kernel leaves on the one that they share until it balances its load,
// milliseconds later or never: each word that passes between them costs two switches
// meanwhile. So who shares its processor leaves it.
//
// The zero Stay is ready. One goroutine at a time may use it.
type CPUMigrator struct {
	shared int // yields in a row that let others run
	since  int64
	limit  time.Duration
	helped bool // a yield has let nobody run since it left, so that helped
}

// Yielded is told after each yield that was not late whether it let somebody else run, for a moment, and says whether the
// thread has left its processor, which takes up to 100 us.
func (s *CPUMigrator) Yielded(shared bool) (slept bool) {
	if !shared {
		s.shared, s.helped = 0, true
		return false
	}
	return s.addShared(1)
}

// LateUseful is told of a yield that came back late, and had what was waited for found.
func (s *CPUMigrator) LateUseful() { s.addShared(lateUsefulYields) }

// LateUseless is told of one that had not.
func (s *CPUMigrator) LateUseless() { s.shared = 0 }

func (s *CPUMigrator) addShared(yields int) (slept bool) {
	if s.shared += yields; s.shared < sharedYields || singleProc.Load() || !s.due(unix.Monotonic()) {
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

// due says whether to leave now, and takes it as done.
func (s *CPUMigrator) due(now int64) bool {
	switch stayed := time.Duration(now - s.since); {
	case stayed < s.limit:
		return false
	case s.limit == 0 || s.helped && stayed > 4*s.limit: // it helped for a while
		s.limit = minStay
	default:
		s.limit = min(2*s.limit, maxStay)
	}
	s.since, s.helped = now, false
	return true
}
