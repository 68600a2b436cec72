package daemon

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// besideAnother runs a request of a user, and then another one of that user in the only slot. The
// first one waits in wait, until has is called. besideAnother checks that the other one runs
// meanwhile, and that the first one goes on only when the other one has ended.
//
// The other one begins after a time; 0: at once.
func besideAnother(
	t *testing.T, after time.Duration, wait func(ctx context.Context), end func(stop func()),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		share := fairshare.New(1)
		runs, goesOn, other := make(chan struct{}), make(chan struct{}), make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		share.Begin(func(turn *fairshare.Turn) {
			defer turn.End()
			wait(turn.Context(ctx))
			close(goesOn)
		})
		share.Begin(func(turn *fairshare.Turn) {
			defer turn.End()
			close(runs)
			<-other
		})
		synctest.Wait()
		if after > 0 {
			time.Sleep(after)
			synctest.Wait()
		}
		select {
		case <-runs:
		default:
			t.Error("a request that waits keeps its slot")
		}
		end(stop)
		synctest.Wait()
		select {
		case <-goesOn:
			t.Error("a request that has waited goes on without a slot")
		default:
		}
		close(other)
		synctest.Wait()
		select {
		case <-goesOn:
		default:
			t.Error("a request that has waited does not go on")
		}
	})
}

// A request that asks another node queues when the answer has come.
func TestUseOfTheNetworkInAShare(t *testing.T) {
	var nw network
	nw.beginEpoch()
	var answer chan struct{}
	besideAnother(t, time.Millisecond, func(ctx context.Context) {
		answer = make(chan struct{})
		_, _, leave, err := nw.use(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		<-answer
		leave()
	}, func(func()) { close(answer) })
}

// A request for the nodes of a session leaves its slot while these are asked.
func TestSessionNodesInAShare(t *testing.T) {
	var asked nodesQuery
	besideAnother(t, 0, func(ctx context.Context) {
		asked.done = make(chan struct{})
		s := &session{query: &asked}
		if _, err := s.nodes(ctx); err != nil {
			t.Error(err)
		}
	}, func(func()) { close(asked.done) })
}

// A request that gives up its wait for another one of the user queues.
func TestPerUserInAShare(t *testing.T) {
	besideAnother(t, 0, func(ctx context.Context) {
		var listing perUser
		leave, err := listing.enter(ctx, "user")
		if err != nil {
			t.Error(err)
			return
		}
		defer leave()
		if _, err := listing.enter(ctx, "user"); err == nil {
			t.Error("two requests of one user run")
		}
	}, func(stop func()) { stop() })
}

// A request that awaits the end of a claim, to import the export that claims the name, leaves its
// slot.
func TestAwaitExactInAShare(t *testing.T) {
	var (
		table names.Table
		e     *names.Entry
	)
	k := names.Key{Scope: names.Scope{User: "user"}, Name: "q", Cluster: true}
	o := &names.Owner{ID: nodeproto.ProcessID{Node: "n", PID: 1}, Alive: func() bool { return true }}
	besideAnother(t, 0, func(ctx context.Context) {
		var err error
		if e, _, err = table.Claim(ctx, k, o, nodeproto.PublishRequest{Name: "q", Serial: 1}); err != nil {
			t.Error(err)
			return
		}
		if got, err := table.AwaitExact(ctx, k, o.ID, 1); err != nil || got != e {
			t.Errorf("the entry is %v: %v", got, err)
		}
	}, func(func()) {
		if err := table.Settle(t.Context(), e, nil); err != nil {
			t.Error(err)
		}
	})
}
