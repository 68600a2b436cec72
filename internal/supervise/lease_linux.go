package supervise

import (
	"context"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// lease bounds the life of a run group by that of the clients that attend to it. When it expires the
// supervisor kills the group's programs: a client that was killed can end nothing itself.
type lease struct {
	holders int         // attending calls
	expiry  *time.Timer // runs while there is no holder
	expires time.Time   // when it is to fire: a timer that was reset may have fired just before
}

// letRun lets the lease expire after a time. The supervisor's mu is held.
func (l *lease) letRun(after time.Duration) {
	l.expires = time.Now().Add(after)
	l.expiry.Reset(after)
}

// lease returns the lease of a group, and makes one that expires after a time. mu is held.
func (s *supervisor) lease(group uint32, expires time.Duration) *lease {
	l := s.leases[group]
	if l == nil {
		l = &lease{expires: time.Now().Add(expires)} // not later than the timer
		l.expiry = time.AfterFunc(expires, func() { s.expire(group) })
		s.leases[group] = l
	}
	return l
}

// attendGroup holds the lease of a group until the call ends. The group may have no program here yet:
// its programs may spawn some. A client attends again within timeout.Orphaned. If the daemon has ended
// the clients may all be there, and attend again through the next one: they get more time then.
func (s *supervisor) attendGroup(ctx context.Context, from *nodeproto.Conn, group uint32) (nodeproto.Empty, error) {
	s.mu.Lock()
	l := s.lease(group, timeout.Control)
	l.holders++
	l.expiry.Stop()
	s.mu.Unlock()
	defer func() {
		expires := timeout.Orphaned
		if from.Err() != nil {
			expires = timeout.Restarted
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.holders--; l.holders == 0 {
			l.letRun(expires)
		}
	}()
	select {
	case <-ctx.Done():
		return nodeproto.Empty{}, context.Cause(ctx)
	case <-s.ending:
		return nodeproto.Empty{}, s.deleted()
	}
}

// expire kills the programs of a group that no client holds. It runs again until all have ended: a
// program whose start is under way gets no signal yet. A client that attends again either finds its
// programs killed or stops the expiry: it cannot come between the look at the lease and the signal.
func (s *supervisor) expire(group uint32) {
	s.forkMu.Lock() // as in signal
	defer s.forkMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.leases[group]
	if l == nil || l.holders > 0 || time.Now().Before(l.expires) {
		return
	}
	_, _ = s.signalLocked(SignalRequest{Group: group, Signal: int(syscall.SIGKILL)})
	for _, p := range s.programs {
		if p.Group == group && !p.Ended {
			l.letRun(timeout.Orphaned)
			return
		}
	}
	delete(s.leases, group)
}
