package daemon

import (
	"testing"

	"github.com/vmmc-go/vmmc/internal/daemon/statedir"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
)

func TestNodeStates(t *testing.T) {
	if err := nodeTransitions.Walk(nodeStopping, func(from, to nodeState) nodeState {
		n := &Node{state: from}
		n.setState(to)
		return n.state
	}); err != nil {
		t.Error(err)
	}
}

func TestSessionStates(t *testing.T) {
	if err := sessionTransitions.Walk(sessionDeleted, func(from, to sessionState) sessionState {
		s := newNode(t.Context(), Config{}).sessions.newSession(statedir.Record{})
		s.state = from
		s.setState(to)
		select {
		case <-s.deletedCh:
			if to != sessionDeleted {
				t.Errorf("deletedCh is closed in state %v", to)
			}
		default:
			if to == sessionDeleted {
				t.Error("deletedCh is open in state deleted")
			}
		}
		return s.state
	}); err != nil {
		t.Error(err)
	}
}

func TestAdministratorsMayNotUseSessionsOfOthers(t *testing.T) {
	n := newNode(t.Context(), Config{Name: "n1", Admins: []string{"ops"}})
	if !n.accounts.Administrates(users.Caller{User: "ops"}) {
		t.Fatal("ops is no administrator")
	}
	s := &session{n: n, Record: statedir.Record{Name: "s", User: "guest"}}
	if s.authorize(users.Caller{User: "ops"}) == nil {
		t.Error("an administrator may use another user's session")
	}
}
