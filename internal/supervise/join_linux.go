package supervise

import (
	"context"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// addJoined lists a process that has joined the session by itself. A supervisor that has
// taken the place of another one is told again of those that are still there.
func (s *supervisor) addJoined(ctx context.Context, n Program) (nodeproto.Empty, error) {
	proc, err := os.FindProcess(n.Real) // a handle: the number may be another's later
	if err != nil {
		return nodeproto.Empty{}, code.New(code.NoSuchProcess, "process %d has ended", n.Real)
	}
	p := &program{Program: n, proc: proc}
	p.Joined, p.Begun = true, time.Now()
	p.Command = strings.ToValidUTF8(p.Command, "�")
	s.mu.Lock()
	old := s.programs[n.PID]
	again := old != nil && old.Joined && old.Real == n.Real
	known := again && !old.Ended
	if again && !known { // from the journal
		p.Begun = old.Begun
		delete(s.programs, n.PID)
	}
	s.mu.Unlock()
	if !known {
		err = s.admit(p, false)
	}
	if known || err != nil {
		_ = proc.Release()
		return nodeproto.Empty{}, err
	}
	s.mu.Lock()
	s.journal.note(&p.Program, s.each)
	t := p.snapshot()
	s.mu.Unlock()
	if !again && s.fileSlots.logs.Acquire(ctx) == nil {
		_ = s.appendControlFile(t)
		s.fileSlots.logs.Release()
	}
	return nodeproto.Empty{}, nil
}

// removeJoined says that a process which had joined has left.
func (s *supervisor) removeJoined(r ListRequest) (nodeproto.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.programs[r.After]; p != nil && p.Joined && !p.Ended {
		p.Ended, p.Lost, p.End = true, true, time.Now()
		_ = p.proc.Release()
		s.journal.note(&p.Program, s.each)
		s.dropOldest()
		s.wakeWaiters()
	}
	return nodeproto.Empty{}, nil
}

// killJoined ends a process that has joined, with all that it has started, which
// nothing but that marks as the session's.
func (p *program) killJoined() {
	// its number cannot become another's while it is stopped
	if p.proc.Signal(syscall.SIGSTOP) == nil {
		KillAll(p.Real, "", timeout.Stop)
		_ = p.proc.Kill()
	}
}
