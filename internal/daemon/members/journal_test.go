package members

import (
	"context"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// A membership is in the index of absent processes, and has an open channel, exactly in the states
// expected and returning. It is in the journal until it is ended or dropped.
func TestMemberStates(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop() // no goroutine watches
	id := nodeproto.ProcessID{Node: "a", PID: 7, Incarnation: 1}
	if err := memberTransitions.Walk(memberDropped, func(from, to memberState) memberState {
		var all sync.WaitGroup
		defer all.Wait()
		r := &Journal{}
		if err := r.Open(Config{Ended: ctx.Done(), Go: all.Go}, "@nowhere"); err != nil {
			t.Fatal(err)
		}
		m := &membership{Record: Record{Process: id}, state: from}
		r.live[id] = m
		if from.absent() {
			m.present = make(chan struct{})
			r.absent[id.PID] = m
		}
		present := m.present
		r.setState(m, to)
		if got := r.IsAbsent(id.PID); got != to.absent() {
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
