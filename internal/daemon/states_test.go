package daemon

import (
	"context"
	"testing"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
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

// A membership is in the index of absent processes, and has an open channel, exactly in the states
// expected and returning. It is in the journal until it is ended or dropped.
func TestMemberStates(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop() // no goroutine watches
	id := nodeproto.ProcessID{Node: "a", PID: 7, Incarnation: 1}
	if err := memberTransitions.Walk(memberDropped, func(from, to memberState) memberState {
		n := newNode(ctx, Config{})
		defer n.wg.Wait()
		r := &n.registry.journal
		if err := r.open(n, "@nowhere"); err != nil {
			t.Fatal(err)
		}
		m := &membership{memberRecord: memberRecord{Process: id}, state: from}
		r.live[id] = m
		if from.absent() {
			m.present = make(chan struct{})
			r.absent[id.PID] = m
		}
		present := m.present
		r.setState(m, to)
		if got := r.isAbsent(id.PID); got != to.absent() {
			t.Errorf("from %v to %v: absent is %t", from, to, got)
		}
		if from.absent() && !to.absent() {
			<-present
		}
		if _, live := r.live[id]; live != (to != memberEnded && to != memberDropped) {
			t.Errorf("from %v to %v: in the journal: %t", from, to, live)
		}
		return m.state
	}); err != nil {
		t.Error(err)
	}
}
