package members

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/timeout"
	"github.com/vmmc-go/vmmc/internal/unix"
)

// Intervals between checks whether an expected process has ended.
const (
	minProbeInterval = 20 * time.Millisecond
	maxProbeInterval = time.Second
)

// watch polls until an absent process is present or has ended.
func (j *Journal) watch(m *membership, present <-chan struct{}) {
	t := time.NewTimer(minProbeInterval)
	defer t.Stop()
	for pause := minProbeInterval; ; {
		select {
		case <-present:
			return
		case <-j.cfg.Ended:
			return
		case <-t.C:
		}
		select {
		case <-j.cfg.Ended: // both were, and what follows is for a daemon that goes on
			return
		default:
		}
		if m.dead() {
			j.departed.add(m.Process)
			j.change(m.Process, memberEnded, memberJoined, memberExpected, memberReturning)
			j.cfg.Log.Info("a process has ended before it rejoined", "pid", m.Process.PID, "realpid",
				m.Real)
			return
		}
		pause = min(2*pause, maxProbeInterval)
		t.Reset(pause)
	}
}

// dead reports whether the kernel says that the process has ended.
func (e *Record) dead() bool {
	born, err := unix.Born(e.Real)
	return errors.Is(err, fs.ErrNotExist) || err == nil && born != 0 && e.Born != 0 && born != e.Born
}

// AnyAbsent reports whether a process is absent, whose links are not known yet.
func (j *Journal) AnyAbsent() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.absent) > 0
}

// IsAbsent reports whether pid belongs to a process that may rejoin.
func (j *Journal) IsAbsent(pid uint32) bool { return j.Presence(pid) != nil }

// Presence returns a channel that is closed when an absent process is present or has ended. It is
// nil for another one.
func (j *Journal) Presence(pid uint32) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m := j.absent[pid]; m != nil {
		return m.present
	}
	return nil
}

// AwaitReturn waits until an absent process is present or has ended.
func (j *Journal) AwaitReturn(ctx context.Context, pid uint32) error {
	present := j.Presence(pid)
	if present == nil {
		return nil
	}
	late := time.NewTimer(timeout.Control)
	defer late.Stop()
	return j.await(ctx, pid, present, late.C)
}

// await waits for one of them.
func (j *Journal) await(
	ctx context.Context, pid uint32, present <-chan struct{}, late <-chan time.Time,
) error {
	defer fairshare.Leave(ctx)()
	select {
	case <-present:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d has not come back to node %q, whose daemon was restarted: %w", pid,
			j.cfg.Node, context.Cause(ctx))
	case <-late:
		return code.New(code.Timeout, "process %d has not come back to node %q, whose daemon was "+
			"restarted, within %v: it may be stopped", pid, j.cfg.Node, timeout.Control)
	}
}

// AwaitReturnOf waits until each process of a user and session that is absent now and may have
// names is present or has ended.
func (j *Journal) AwaitReturnOf(ctx context.Context, uid uint32, session string) error {
	return j.awaitAll(ctx, j.absentOf(uid, session))
}

func (j *Journal) awaitAll(ctx context.Context, of map[uint32]<-chan struct{}) error {
	var late <-chan time.Time
	for pid, present := range of {
		if late == nil {
			t := time.NewTimer(timeout.Control)
			defer t.Stop()
			late = t.C
		}
		if err := j.await(ctx, pid, present, late); err != nil {
			return err
		}
	}
	return nil
}

// AwaitReturnOfAll waits until each process that is absent now and may have names is present or has
// ended.
func (j *Journal) AwaitReturnOfAll(ctx context.Context) error {
	j.mu.Lock()
	of := map[uint32]<-chan struct{}{}
	for pid, m := range j.absent {
		if !m.Nameless {
			of[pid] = m.present
		}
	}
	j.mu.Unlock()
	return j.awaitAll(ctx, of)
}

// AbsentUsers returns the users with processes that are absent now and may have names. changes is
// how often a process has become absent.
func (j *Journal) AbsentUsers() (uids []uint32, changes uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.absent {
		if !m.Nameless && !slices.Contains(uids, m.UID) {
			uids = append(uids, m.UID)
		}
	}
	slices.Sort(uids)
	return uids, j.absences
}

// absentOf returns the channels of the absent processes of a user and session that may have names,
// see Presence.
func (j *Journal) absentOf(uid uint32, session string) map[uint32]<-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := map[uint32]<-chan struct{}{}
	for pid, m := range j.absent {
		if m.UID == uid && m.Session == session && !m.Nameless {
			of[pid] = m.present
		}
	}
	return of
}
