package supervise

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// reap takes what has ended: the session's programs, and what these have left,
// which is this process's since.
func (s *supervisor) reap() {
	for {
		s.forkMu.Lock()
		real, how, ok := unix.ReapAny()
		if ok {
			s.recordEnd(real, how)
		}
		s.forkMu.Unlock()
		if !ok {
			return
		}
	}
}

func (s *supervisor) recordEnd(real int, how unix.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byReal[real]
	if p == nil {
		return
	}
	delete(s.byReal, real)
	p.out.fillStats(&p.Program)
	p.Ended, p.Status, p.Signal, p.End = true, how.Status, how.Signal, time.Now()
	p.Swept = s.isEnding() // also where it only found its input at an end
	if p.executed {
		s.journal.note(&p.Program, s.each)
	}
	s.dropOldest()
	s.wakeWaiters()
}

// wakeWaiters wakes goroutines that wait for a program's end. mu is held.
func (s *supervisor) wakeWaiters() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// dropOldest drops the oldest of the programs that have ended, if there are many. The caller holds
// mu.
func (s *supervisor) dropOldest() {
	if len(s.programs) <= maxEnded+MaxRunning {
		return
	}
	var over []*program
	for _, p := range s.programs {
		if p.Ended {
			over = append(over, p)
		}
	}
	slices.SortFunc(over, func(a, b *program) int { return cmp.Compare(a.End.UnixNano(), b.End.UnixNano()) })
	for _, p := range over[:max(0, len(over)-maxEnded)] {
		delete(s.programs, p.PID)
		_ = os.Remove(indexFile(p.PID))
	}
}

// settle waits until a program that has ended has its output in the file; what
// it has left running may go on printing, so not for ever.
func (o *output) settle(late <-chan time.Time) {
	bound := time.NewTimer(timeout.Settle)
	defer bound.Stop()
	for !o.idle() {
		select {
		case <-late:
			return
		case <-bound.C:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// signal sends a signal to a program with its process group, or to those of a run
// group, or to all.
func (s *supervisor) signal(r SignalRequest) (Signalled, error) {
	if r.Signal <= 0 || r.Signal > 64 {
		return Signalled{}, code.New(code.BadArg, "signal %d: signals are 1 to 64", r.Signal)
	}
	s.forkMu.Lock() // nothing is reaped meanwhile: each pid is still that of the same process
	defer s.forkMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signalLocked(r)
}

// signalLocked signals programs. forkMu and mu are held.
func (s *supervisor) signalLocked(r SignalRequest) (Signalled, error) {
	n, begins := 0, false
	var bad error
	for _, p := range s.programs {
		if r.PID != 0 && p.PID != r.PID || r.Group != 0 && p.Group != r.Group || p.Ended {
			continue
		}
		var err error
		switch {
		case p.Joined:
			err = p.proc.Signal(syscall.Signal(r.Signal))
		case s.byReal[p.Real] == p:
			if err = unix.KillGroup(p.Real, r.Signal); errors.Is(err, syscall.ESRCH) {
				err = unix.Kill(p.Real, r.Signal) // it has gone into another group
			}
		default:
			begins = p.PID == r.PID
			continue
		}
		if err == nil {
			n++
		} else {
			bad = err
		}
	}
	if n == 0 && errors.Is(bad, syscall.EPERM) {
		return Signalled{}, code.New(code.NoRights, "the programs of session %q on node %q have become other users' and cannot be signalled by user %d", s.spec.Session, s.spec.Node, os.Getuid())
	}
	if begins {
		return Signalled{}, code.New(code.NoSuchProcess,
			"process %d of session %q on node %q has not begun yet", r.PID, s.spec.Session, s.spec.Node)
	}
	if r.PID != 0 && n == 0 {
		p, err := s.find(r.PID)
		if err == nil {
			err = code.New(code.NoSuchProcess,
				"process %d of session %q on node %q has ended", p.PID, s.spec.Session, s.spec.Node)
		}
		return Signalled{}, err
	}
	return Signalled{Programs: n}, nil
}

// end kills everything. It can be asked for again: what could not be ended may
// have ended since.
func (s *supervisor) end() (Leftovers, error) {
	s.forkMu.Lock() // starts in progress are complete, and no new one begins
	s.mu.Lock()
	if !s.isEnding() {
		close(s.ending)
	}
	var out []*output
	var joined []*program
	for _, p := range s.programs {
		if p.Joined && !p.Ended {
			joined = append(joined, p)
		}
		if p.out != nil {
			if p.executed { // else it prints nothing
				out = append(out, p.out)
			}
			if p.out.attachment != nil {
				p.out.attachment.release()
			}
		}
	}
	s.mu.Unlock()
	s.forkMu.Unlock()
	for _, p := range joined {
		p.killJoined()
	}
	reaped := make(chan struct{})
	stop := make(chan struct{})
	go func() { // the goroutine that usually reaps may be the caller
		defer close(reaped)
		for {
			s.reap()
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	left := KillAll(os.Getpid(), s.spec.Marker, timeout.Stop)
	close(stop)
	<-reaped
	if len(left) > 0 {
		return Leftovers{Real: left}, nil
	}
	if !s.killRest() {
		return Leftovers{}, code.New(code.Timeout, "processes of session %q on node %q start others faster than they can be killed: delete it again", s.spec.Session, s.spec.Node)
	}
	late, cancel := context.WithTimeout(context.Background(), timeout.Settle)
	defer cancel()
	for _, o := range out {
		select {
		case <-o.done:
		case <-late.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return Leftovers{}, nil
}

// killRest returns true when no descendant is left, also none that is another
// process whenever the kernel's table is read.
func (s *supervisor) killRest() bool {
	for deadline := time.Now().Add(timeout.Stop); time.Now().Before(deadline); {
		s.reap()
		if unix.Childless() {
			return true
		}
		s.forkMu.Lock()
		killChildren()
		s.forkMu.Unlock()
	}
	return false
}
