package daemon

import (
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/supervise"
)

// reservedKey is a name that the session keeps for one of its programs.
func (s *session) reservedKey(name string) names.Key {
	return names.Key{Scope: names.Scope{User: s.User, Session: s.Name}, Name: name}
}

// reserve keeps a name for a program of the session.
func (s *session) reserve(name string, pid uint32) error {
	return s.n.names.Reserve(s.reservedKey(name), nodeproto.ProcessID{Node: s.n.cfg.Name, PID: pid})
}

// reserveAgain keeps the name of a program that a daemon before this one has started.
func (s *session) reserveAgain(p supervise.Program) {
	if p.Reserve == "" {
		return
	}
	err := nodeproto.CheckName(p.Reserve)
	if err == nil {
		err = s.reserve(p.Reserve, p.PID)
	}
	if err != nil {
		s.n.logs.Server.Warn("a name cannot be kept for a program of a session", "session", s.Name, "pid",
			p.PID, "err", err)
	}
}

// restoreEnded restores the reservation of a program that has ended, perhaps while no daemon ran.
func (s *session) restoreEnded(p supervise.Program) {
	if s.started(p) && nodeproto.CheckName(p.Reserve) == nil {
		s.n.names.RestoreEnded(s.reservedKey(p.Reserve),
			nodeproto.ProcessID{Node: s.n.cfg.Name, PID: p.PID})
	}
}

// endReservation ends what is kept for a logical pid, because its process p has ended; p is nil if
// a program has ended that may not have joined. Of a process that may rejoin it waits for the end.
func (n *Node) endReservation(pid uint32, p *process) {
	if !n.names.IsReserved(pid) {
		return
	}
	reg := &n.registry
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if present := reg.journal.Presence(pid); present != nil {
		_, waits := reg.awaitedEnds[pid]
		if p != nil || !waits {
			reg.awaitedEnds[pid] = p
		}
		if !waits {
			n.wg.Go(func() { n.awaitEnd(pid, present) })
		}
		return
	}
	q := reg.processes[pid]
	if n.isStopping() || q != nil && q != p { // the next daemon keeps it; the process ends later
		return
	}
	n.names.EndReserved(pid)
}

// awaitEnd waits until the process of a logical pid is present or has ended, and ends what is kept
// for it if it has.
func (n *Node) awaitEnd(pid uint32, present <-chan struct{}) {
	select {
	case <-present:
	case <-n.ctx.Done():
		return
	}
	n.registry.mu.Lock()
	p := n.registry.awaitedEnds[pid]
	delete(n.registry.awaitedEnds, pid)
	n.registry.mu.Unlock()
	n.endReservation(pid, p)
}
