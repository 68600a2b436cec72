package names

import (
	"slices"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/state"
)

// maxEndedOfUser bounds the ended reservations of a user. The oldest are forgotten.
const maxEndedOfUser = 8_192

// reservation keeps a name for one process. Guarded by Table.mu.
type reservation struct {
	key   Key
	id    nodeproto.ProcessID // without incarnation: the process need not have joined
	state reservationState
}

// reservationState is how far a reservation has come.
//
//	        its process ended
//	kept ----------------------> ended
//	  ^                            |
//	  `----------------------------'
//	     its supervisor was not reached for a while, and the process lives
//
// No other process can have the name in either state. A wait for an ended one fails.
type reservationState uint8

const (
	reservationKept reservationState = iota
	reservationEnded
)

func (s reservationState) String() string { return [...]string{"kept", "ended"}[s] }

var reservationTransitions = state.Table[reservationState]{
	reservationKept:  {reservationEnded},
	reservationEnded: {reservationKept},
}

// setState is the only writer of a reservation's state. Table.mu is held.
func (r *reservation) setState(to reservationState) {
	reservationTransitions.Check(r.state, to)
	r.state = to
}

// reservedFrom returns the error of a claim by a process for which a name is not reserved. Table.mu
// is held.
func (n *name) reservedFrom(pid uint32) error {
	if n == nil || n.reserved == nil || n.reserved.id.PID == pid {
		return nil
	}
	return &TakenError{n.reserved.key, n.reserved.id}
}

// Reserve keeps a name for the process that has a logical pid, or is to have it. A pid has one such
// name. It is an error if another process has the name, or if it was ever kept for one.
func (t *Table) Reserve(k Key, id nodeproto.ProcessID) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.find(k); n != nil {
		if err := n.reservedFrom(id.PID); err != nil {
			return err
		}
		for _, e := range n.entries {
			if e.Owner.ID.PID != id.PID {
				return &TakenError{k, e.Owner.ID}
			}
		}
	}
	if r := t.reserved[id.PID]; r != nil {
		if r.key == k {
			return nil
		}
		t.endReservation(r)
	}
	n, u := t.make(k)
	if n.reserved == nil {
		n.reserved = &reservation{key: k, id: id}
	} else {
		u.ended = slices.DeleteFunc(u.ended, func(r *reservation) bool { return r == n.reserved })
		n.reserved.setState(reservationKept)
	}
	if t.reserved == nil {
		t.reserved = map[uint32]*reservation{}
	}
	t.reserved[id.PID] = n.reserved
	return nil
}

// IsReserved reports whether a name is kept for a logical pid whose process has not ended.
func (t *Table) IsReserved(pid uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reserved[pid] != nil
}

// EndReserved says that the process of a logical pid has ended. Waits for the name that was kept
// for it fail.
func (t *Table) EndReserved(pid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.reserved[pid]; r != nil {
		t.endReservation(r)
	}
}

// endReservation ends a reservation that is kept. mu is held.
func (t *Table) endReservation(r *reservation) {
	delete(t.reserved, r.id.PID)
	r.setState(reservationEnded)
	t.find(r.key).found.wake()
	t.remember(t.users[r.key.User], r)
}

// remember adds an ended reservation, and forgets the oldest beyond the bound. mu is held.
func (t *Table) remember(u *user, r *reservation) {
	u.ended = append(u.ended, r)
	if len(u.ended) > maxEndedOfUser {
		oldest := u.ended[0]
		u.ended = u.ended[1:]
		t.find(oldest.key).reserved = nil
		t.trim(oldest.key)
	}
}

// RestoreEnded notes that a process has ended that a name was kept for, before this table was
// there. It changes nothing if the name is there, or is or was kept for a process since.
func (t *Table) RestoreEnded(k Key, id nodeproto.ProcessID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.find(k); n != nil && (n.reserved != nil || len(n.entries) > 0) {
		return
	}
	n, u := t.make(k)
	n.reserved = &reservation{key: k, id: id, state: reservationEnded}
	n.found.wake()
	t.remember(u, n.reserved)
}

// ReservationEnded returns an error if the process has ended that a name was kept for.
func (t *Table) ReservationEnded(k Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.find(k); n != nil {
		return n.reserved.ended()
	}
	return nil
}

// ended returns an error if the process has ended. Table.mu is held.
func (r *reservation) ended() error {
	if r == nil || r.state != reservationEnded {
		return nil
	}
	return code.New(code.NoSuchProcess, "process %d on node %q, for which the %v was kept, has ended",
		r.id.PID, r.id.Node, r.key)
}

// DropReservations forgets what was reserved in a scope, all of whose processes have ended. Waits
// for it fail.
func (t *Table) DropReservations(s Scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s)
}

// drop is DropReservations. mu is held.
func (t *Table) drop(s Scope) {
	u := t.users[s.User]
	if u == nil {
		return
	}
	u.ended = slices.DeleteFunc(u.ended, func(r *reservation) bool { return r.key.Scope == s })
	in := u.scopes[s.Session]
	if in == nil {
		return
	}
	for at, n := range in.names {
		if r := n.reserved; r != nil {
			if r.state == reservationKept {
				delete(t.reserved, r.id.PID)
				r.setState(reservationEnded)
				n.found.wake()
			}
			n.reserved = nil
			t.trim(Key{s, at.name, at.cluster})
		}
	}
}
