package daemon

import "testing"

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
		s := newNode(t.Context(), Config{}).sessions.newSession(record{})
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
