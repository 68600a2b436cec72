package ask

import (
	"context"
	"time"

	"github.com/vmmc-go/vmmc/internal/timeout"
)

// Newcomers finds the processes of a session on one node as they begin.
type Newcomers struct {
	node    *Node
	session string
	after   uint32               // pids up to here are known
	given   map[uint32]time.Time // greater ones that Next has given, and since when they are known
}

// newcomerTime is more than a program takes from its pid to being listed, or to failing.
const newcomerTime = 2 * timeout.Control

// Newcomers begins with no process known.
func (n *Node) Newcomers(session string) *Newcomers { return &Newcomers{node: n, session: session} }

// Next gives the processes that it has not given yet. A program whose file is slow to open is
// listed after one with a greater pid. So pids below one that is known are asked for again, for
// newcomerTime.
func (s *Newcomers) Next(ctx context.Context) (list []Process, err error) {
	rows, err := s.node.Since(ctx, s.session, s.after)
	if err != nil {
		return nil, err
	}
	now, first := time.Now(), s.given == nil
	if first {
		s.given = map[uint32]time.Time{}
	}
	for _, p := range rows {
		if _, known := s.given[p.PID]; known {
			continue
		}
		if list, s.given[p.PID] = append(list, p), now; first && p.Begun.Before(now) {
			s.given[p.PID] = p.Begun // a session may have thousands that ended long ago
		}
	}
	for pid, since := range s.given {
		if now.Sub(since) >= newcomerTime {
			s.after = max(s.after, pid)
		}
	}
	for pid := range s.given {
		if pid <= s.after {
			delete(s.given, pid)
		}
	}
	return list, nil
}
