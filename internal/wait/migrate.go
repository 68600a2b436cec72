package wait

import (
	"math/rand/v2"
	"time"

	"github.com/vmmc-go/vmmc/internal/unix"
)

// After sharedYields shared yields in a row a polling thread leaves its CPU, and again after a time
// that grows as long as it does not help.
const (
	sharedYields = 16
	minStay      = 200 * time.Microsecond
	maxStay      = 64 * time.Millisecond

	// A late yield after which the awaited word was there counts for so many: the thread that ran
	// was likely the peer, with a long message, and each of the two stands still while the other
	// one copies.
	lateUsefulYields = sharedYields / 4
)

// CPUMigrator decides when a polling thread leaves its CPU. The kernel leaves two threads that
// yield to each other on the CPU that they share until it balances its load, milliseconds later or
// never. Each word that passes between them costs two context switches meanwhile. So a thread that
// shares its CPU leaves it.
//
// The zero CPUMigrator is ready. One goroutine at a time may use it.
type CPUMigrator struct {
	shared int // Consecutive yields that let others run.
	since  int64
	limit  time.Duration
	// A yield let no other thread run since the thread migrated.
	helped bool
}

// Yielded is called after each yield that was not late, with whether it let another thread run. It
// reports whether the thread has left its CPU, which takes up to 100 us.
func (s *CPUMigrator) Yielded(shared bool) (slept bool) {
	if !shared {
		s.shared, s.helped = 0, true
		return false
	}
	return s.addShared(1)
}

// LateUseful is called after a late yield if the awaited word was there.
func (s *CPUMigrator) LateUseful() { s.addShared(lateUsefulYields) }

// LateUseless is called after a late yield if it was not.
func (s *CPUMigrator) LateUseless() { s.shared = 0 }

func (s *CPUMigrator) addShared(yields int) (slept bool) {
	if s.shared += yields; s.shared < sharedYields || singleProc.Load() || !s.due(unix.Monotonic()) {
		return false
	}
	s.shared = 0
	// Both threads notice at the same time; if both left they would meet again.
	if rand.IntN(2) == 0 { //nolint:gosec // any coin will do
		return false
	}
	unix.Leave()
	return true
}

// due reports whether to leave now, and records it.
func (s *CPUMigrator) due(now int64) bool {
	switch stayed := time.Duration(now - s.since); {
	case stayed < s.limit:
		return false
	case s.limit == 0 || s.helped && stayed > 4*s.limit: // the last migration helped for a while
		s.limit = minStay
	default:
		s.limit = min(2*s.limit, maxStay)
	}
	s.since, s.helped = now, false
	return true
}
