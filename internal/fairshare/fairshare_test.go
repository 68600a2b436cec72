package fairshare

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmmc-go/vmmc/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

func TestTurnStates(t *testing.T) {
	if err := turnTransitions.Walk(turnOver, func(from, to turnState) turnState {
		turn := &Turn{share: New(1), state: from}
		turn.setState(to)
		return turn.state
	}); err != nil {
		t.Error(err)
	}
}

// requests begins n requests, which send their numbers to began and run until end is closed.
func requests(s *Share, first, n int, began chan<- int, end <-chan struct{}) (last <-chan struct{}) {
	for i := range n {
		last, _ = s.Begin(func(t *Turn) {
			defer t.End()
			began <- first + i
			<-end
		})
	}
	return last
}

// drain returns what has been sent, when nothing goes on.
func drain(c <-chan int) (got []int) {
	synctest.Wait()
	for len(c) > 0 {
		got = append(got, <-c)
	}
	return got
}

// The requests of a user run a few at a time, in the order in which they came.
func TestFewRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(2)
		began, end := make(chan int, 100), make(chan struct{})
		requests(s, 0, 10, began, end)
		if got := drain(began); len(got) != 2 || got[0]+got[1] != 1 {
			t.Errorf("%v have begun, want 0 and 1", got)
		}
		close(end)
		if got := drain(began); len(got) != 8 {
			t.Errorf("%v have begun when these have ended, want all others", got)
		}
		if len(s.running)+len(s.queue) > 0 {
			t.Errorf("%d run and %d are queued at the end", len(s.running), len(s.queue))
		}
	})
}

// A connection begins no further request while the queue is long, until its last one runs.
func TestLongQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		began, end := make(chan int, 2*maxQueued), make(chan struct{})
		if requests(s, 0, maxQueued+1, began, end) != nil {
			t.Error("a connection waits that has a queue of most")
		}
		begun := requests(s, maxQueued+1, 1, began, end)
		select {
		case <-begun:
			t.Error("a queued request has begun")
		default:
		}
		if begun == nil {
			t.Fatal("a connection goes on whose queue is too long")
		}
		close(end)
		<-begun
		synctest.Wait()
	})
}

// A request that waits lets others run. When its wait is over it queues.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		began, end := make(chan int, 100), make(chan struct{})
		event := make(chan struct{})
		s.Begin(func(turn *Turn) {
			defer turn.End()
			ctx, stop := context.WithCancel(turn.Context(t.Context()))
			defer stop()
			enter := Leave(ctx)
			within := Leave(ctx) // of a wait within the wait
			<-event
			within()
			enter()
			began <- -1
		})
		requests(s, 0, 1, began, end)
		if got := drain(began); len(got) != 1 || got[0] != 0 {
			t.Fatalf("%v have begun beside a request that waits, want 0", got)
		}
		close(event)
		if got := drain(began); len(got) > 0 {
			t.Errorf("%v runs beside a request that has the only slot", got)
		}
		close(end)
		if got := drain(began); len(got) != 1 || got[0] != -1 {
			t.Errorf("%v runs after the other request, want the one that has waited", got)
		}
		Leave(t.Context())() // of no request
		MayWait(t.Context())
	})
}

// A request that the share does not know to wait does not hold up others for ever. Each one that is
// overdue lengthens the limit of the next.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		const n = 300
		began, end := make(chan int, n), make(chan struct{})
		requests(s, 0, n, began, end)
		for i := range n {
			if got := drain(began); len(got) != 1 || got[0] != i {
				t.Fatalf("%v have begun, want %d", got, i)
			}
			limit := min(baseLimit+time.Duration(i)*overdueStep, longestLimit)
			time.Sleep(limit - time.Nanosecond)
			if got := drain(began); len(got) > 0 {
				t.Fatalf("%v have begun before the limit of %v", got, limit)
			}
			time.Sleep(time.Nanosecond)
		}
		close(end)
		synctest.Wait()
		if s.overdue != 0 {
			t.Errorf("%d are overdue at the end", s.overdue)
		}
	})
}

// Requests that ask other nodes are slow, and lengthen no limit. When the answers come, they queue.
func TestMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		const n = 20
		began, worked := make(chan int, n), make(chan int, n)
		answers, end := make(chan struct{}), make(chan struct{})
		for i := range n {
			s.Begin(func(turn *Turn) {
				defer turn.End()
				ctx := turn.Context(t.Context())
				enter := MayWait(ctx)
				MayWait(ctx)() // within the wait
				began <- i
				<-answers
				enter()
				worked <- i
				<-end
			})
		}
		requests(s, n, 1, began, answers) // has the clock take the slot of the last one, too
		for i := range n + 1 {
			if got := drain(began); len(got) != 1 || got[0] != i {
				t.Fatalf("%v have begun, want %d", got, i)
			}
			time.Sleep(baseLimit)
		}
		close(answers)
		for range n {
			if got := drain(worked); len(got) != 1 {
				t.Fatalf("%v work at once after the answers, want one", got)
			}
			end <- struct{}{}
		}
		synctest.Wait()
		if len(s.running)+len(s.queue)+s.overdue > 0 {
			t.Errorf("%d run, %d are queued and %d are overdue at the end", len(s.running), len(s.queue),
				s.overdue)
		}
	})
}

// A request that is answered within the limit keeps its slot. Afterwards it can be overdue.
func TestMayWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		began, end := make(chan int, 1), make(chan struct{})
		s.Begin(func(turn *Turn) {
			defer turn.End()
			ctx := turn.Context(t.Context())
			MayWait(ctx)()
			<-end // works for long
			enter := MayWait(ctx)
			s.mu.Lock()
			if s.overdue != 0 {
				t.Error("a request that asks another node is overdue")
			}
			s.mu.Unlock()
			enter()
		})
		requests(s, 0, 1, began, end)
		if got := drain(began); len(got) > 0 {
			t.Errorf("%v runs beside a request that has kept its slot", got)
		}
		time.Sleep(baseLimit)
		if got := drain(began); len(got) != 1 || s.overdue != 1 {
			t.Errorf("%v run and %d are overdue after a question was answered, want one each", got, s.overdue)
		}
		close(end)
		synctest.Wait()
	})
}

// A request whose context ends in the queue passes the others, in the user's slots.
func TestEnterOfAnEndedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		const n = 10
		began, end := make(chan int, n+2), make(chan struct{})
		event := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		for _, c := range []context.Context{t.Context(), ctx} {
			s.Begin(func(turn *Turn) {
				defer turn.End()
				enter := Leave(turn.Context(c))
				<-event
				enter()
				if c == ctx {
					began <- -1
				}
			})
		}
		requests(s, 0, n, began, end)
		if got := drain(began); len(got) != 1 {
			t.Fatalf("%v have begun, want one", got)
		}
		close(event)
		synctest.Wait()
		stop()
		if got := drain(began); len(got) > 0 {
			t.Errorf("%v runs beside a request that has the only slot", got)
		}
		end <- struct{}{}
		if got := drain(began); len(got) == 0 || got[0] != -1 {
			t.Errorf("%v have begun when there is a slot, want the one whose context has ended first", got)
		}
		close(end)
		synctest.Wait()
		if len(s.running)+len(s.queue) > 0 {
			t.Errorf("%d run and %d are queued at the end", len(s.running), len(s.queue))
		}
	})
}

// A request that has not begun can be withdrawn, and another one cannot.
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		began, end := make(chan int, 2), make(chan struct{})
		var withdraws []func() bool
		for i := range 3 {
			_, withdraw := s.Begin(func(turn *Turn) {
				defer turn.End()
				began <- i
				<-end
			})
			withdraws = append(withdraws, withdraw)
		}
		if got := drain(began); len(got) != 1 || got[0] != 0 {
			t.Fatalf("%v have begun, want 0", got)
		}
		if withdraws[0]() || !withdraws[1]() || withdraws[1]() {
			t.Error("want to withdraw the request that has not begun, once")
		}
		close(end)
		if got := drain(began); len(got) != 1 || got[0] != 2 {
			t.Errorf("%v have begun, want 2", got)
		}
		if withdraws[2]() || len(s.running)+len(s.queue) > 0 {
			t.Errorf("%d run and %d are queued at the end", len(s.running), len(s.queue))
		}
	})
}

// A request that ends while a goroutine of it queues has neither a place in the queue nor a slot,
// and the goroutine goes on.
func TestEndInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		began, end := make(chan int, 1), make(chan struct{})
		queues, ends, entered := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s.Begin(func(turn *Turn) {
			defer turn.End()
			enter := Leave(turn.Context(t.Context()))
			go func() {
				<-queues
				enter()
				close(entered)
			}()
			<-ends
		})
		requests(s, 0, 1, began, end)
		drain(began)
		close(queues)
		synctest.Wait()
		if len(s.queue) != 1 {
			t.Fatalf("%d are queued beside a request that has the only slot, want 1", len(s.queue))
		}
		close(ends)
		synctest.Wait()
		select {
		case <-entered:
		default:
			t.Error("a goroutine queues for a request that has ended")
		}
		if len(s.queue) != 0 {
			t.Errorf("%d are queued, which have ended", len(s.queue))
		}
		close(end)
		<-entered
		if synctest.Wait(); len(s.running) != 0 {
			t.Errorf("%d run at the end", len(s.running))
		}
	})
}

// The connections of a user have one share, another user's have another one.
func TestUsers(t *testing.T) {
	var u Users
	a, leaveA := u.Join(1)
	b, leaveB := u.Join(1)
	c, leaveC := u.Join(2)
	if a != b || a == c {
		t.Error("not one share for each user")
	}
	leaveA()
	leaveA()
	if d, leave := u.Join(1); d != b {
		t.Error("another share while a connection is there")
	} else {
		leave()
	}
	leaveB()
	leaveC()
	if len(u.shares) > 0 {
		t.Errorf("%d shares are left", len(u.shares))
	}
}
