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
}

// lease returns the lease of a group, and makes one that expires after a time. mu is held.
func (s *supervisor) lease(group uint32, expires time.Duration) *lease {
	l := s.leases[group]
	if l == nil {
		l = &lease{expiry: time.AfterFunc(expires, func() { s.expire(group) })}
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
			l.expiry.Reset(expires)
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
// program whose start is under way gets no signal yet.
func (s *supervisor) expire(group uint32) {
	s.mu.Lock()
	l := s.leases[group]
	held := l == nil || l.holders > 0 // a client has come while the timer fired
	s.mu.Unlock()
	if held {
		return
	}
	_, _ = s.signal(SignalRequest{Group: group, Signal: int(syscall.SIGKILL)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.holders > 0 || s.leases[group] != l { // a client has come meanwhile
		return
	}
	for _, p := range s.programs {
		if p.Group == group && !p.Ended {
			l.expiry.Reset(timeout.Orphaned)
			return
		}
	}
	delete(s.leases, group)
}
