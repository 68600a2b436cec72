package members

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
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

// The next daemon awaits a process that has a name, and one that the journal of an older daemon may
// not say that of. It does not await one without a name.
func TestNamelessAreNotAwaited(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop() // no goroutine watches
	socket := filepath.Join(t.TempDir(), "s")
	var all sync.WaitGroup
	defer all.Wait()
	open := func() *Journal {
		j := &Journal{}
		if err := j.Open(Config{
			Node: "a", OwnPID: func(uint32) bool { return true }, Ended: ctx.Done(), Go: all.Go,
			Log: slog.New(slog.DiscardHandler),
		}, socket); err != nil {
			t.Fatal(err)
		}
		return j
	}
	id := func(pid uint32) nodeproto.ProcessID { return nodeproto.ProcessID{Node: "a", PID: pid} }
	j := open()
	for pid := range uint32(3) {
		j.Join(Record{Process: id(pid + 1), UID: 7, Real: os.Getpid(), Session: "s"})
	}
	for range 2 {
		if err := j.NoteName(id(2)); err != nil {
			t.Fatal(err)
		}
	}
	j.mu.Lock()
	older := j.live[id(3)].Record
	older.Nameless = false
	j.append(older) // as an older daemon writes it
	j.mu.Unlock()
	for range 2 { // the second one reads what the first has rewritten
		if !j.Close(false) {
			t.Fatal("no process is left")
		}
		j = open()
		of := j.absentOf(7, "s")
		if len(of) != 2 || of[2] == nil || of[3] == nil {
			t.Errorf("%d processes are awaited: %v", len(of), of)
		}
	}
	j.Close(false)
}
