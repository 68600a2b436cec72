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
	if s.started(p) && s.n.names.ReservationEnded(s.reservedKey(p.Reserve)) == nil {
		s.reserveAgain(p)
		s.n.endReservation(p.PID, nil)
	}
}

// endReservation ends what is kept for a logical pid, because its process p has ended; p is nil if a
// program has ended that may not have joined. Of a process that may rejoin it waits for the end.
func (n *Node) endReservation(pid uint32, p *process) {
	if !n.names.IsReserved(pid) {
		return
	}
	if present := n.registry.journal.Presence(pid); present != nil {
		n.wg.Go(func() {
			select {
			case <-present:
				n.endReservation(pid, p)
			case <-n.ctx.Done():
			}
		})
		return
	}
	n.registry.mu.Lock()
	defer n.registry.mu.Unlock()
	q := n.registry.processes[pid]
	if n.isStopping() || q != nil && q != p { // the next daemon keeps it; the process ends later
		return
	}
	n.names.EndReserved(pid)
}
