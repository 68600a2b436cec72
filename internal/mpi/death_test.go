package mpi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("victim", victim)
	vmmctest.Role("streamer", streamer)
}

// streamer is rank 2 of a job. It sends long messages to rank 0 until it is killed.
func streamer(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	e, err := Start(ctx, p, g, Options{Module: args[0]})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := e.Send(ctx, e.to(0, 1), fill(streamed, i), Standard); err != nil {
			return err
		}
	}
}

const streamed = 1 << 20

// victim is rank 2 of a job. It begins to send what nothing receives, and waits.
func victim(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	e, err := Start(ctx, p, g, Options{Module: args[0]})
	if err != nil {
		return err
	}
	if _, err := e.Isend(e.to(0, 1), fill(1000, 1), Standard); err != nil {
		return err
	}
	if _, err := e.Isend(e.to(0, 2), fill(1<<20, 2), Standard); err != nil {
		return err
	}
	if err := e.Send(ctx, e.to(0, 3), nil, Standard); err != nil {
		return err
	}
	_, err = e.Recv(ctx, e.from(1, 99), nil)
	return err
}

// withChild starts three ranks, the last one in a process of its own that plays a role. The others are
// released with the test: that one does not come to Finalize.
func withChild(t *testing.T, w way, role string) (es []*Engine, child *vmmctest.Proc) {
	t.Helper()
	nodes := vmmctest.Nodes(t, w.nodes)
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	text, last := "1:"+hex.EncodeToString(id)+":n1*3", nodes[0]
	if w.nodes == 2 {
		text, last = "1:"+hex.EncodeToString(id)+":n1*2,n2*1", nodes[1]
	}
	var ps [2]*vmmc.Process
	var gs [2]*group.Group
	t.Setenv(nodeproto.GroupEnv, text)
	t.Setenv(nodeproto.SizeEnv, "3")
	for rank := range ps {
		t.Setenv(nodeproto.RankEnv, strconv.Itoa(rank))
		var err error
		ps[rank] = nodes[0].Open(t)
		if gs[rank], err = group.Join(within(t), ps[rank]); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(nodeproto.RankEnv, "2")
	child = vmmctest.Child(t, last, role, w.module)
	es = make([]*Engine, 2)
	var wg sync.WaitGroup
	for rank, g := range gs {
		wg.Go(func() {
			var err error
			if es[rank], err = Start(within(t), ps[rank], g, Options{Module: w.module}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for rank, e := range es {
			if err := e.release(); err != nil {
				t.Error(err)
			}
			_ = gs[rank].Leave(within(t))
		}
	})
	return es, child
}

// A rank that is killed is an error at all that talk with it. What it had sent whole is there, and
// the others go on.
func TestKilled(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es, child := withChild(t, w, "victim")
		a, b := es[0], es[1]
		ctx := within(t)
		if _, err := a.Recv(ctx, a.from(2, 3), nil); err != nil {
			t.Fatal(err)
		}
		posted, err := a.Irecv(a.from(2, 50), make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		wild, err := b.Irecv(b.from(AnySource, 50), make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		sent, err := a.Isend(a.to(2, 51), fill(1<<20, 1), Standard)
		if err != nil {
			t.Fatal(err)
		}
		probed := make(chan error)
		go func() {
			_, _, err := a.Probe(ctx, a.from(2, 60), false)
			probed <- err
		}()
		child.Kill()
		for what, r := range map[string]*Request{"receive": posted, "wildcard receive": wild, "send": sent} {
			if _, err := r.Wait(ctx); !isClass(err, ErrProcFailed) {
				t.Errorf("a %s that waits: %v", what, err)
			}
		}
		if err := <-probed; !isClass(err, ErrProcFailed) {
			t.Errorf("a probe that waits: %v", err)
		}
		if st, err := a.Recv(ctx, a.from(2, 1), make([]byte, 1000)); err != nil || st.Bytes != 1000 {
			t.Errorf("a message that has arrived: %+v, %v", st, err)
		}
		if _, err := a.Recv(ctx, a.from(2, 2), make([]byte, 1<<20)); !isClass(err, ErrProcFailed) {
			t.Errorf("a message of which the data has not arrived: %v", err)
		}
		if err := a.Send(ctx, a.to(2, 0), nil, Standard); !isClass(err, ErrProcFailed) {
			t.Errorf("a later send: %v", err)
		}
		if _, err := b.Recv(ctx, b.from(AnySource, 0), nil); !isClass(err, ErrProcFailed) {
			t.Errorf("a later wildcard receive: %v", err)
		}
		each(t, es, func(ctx context.Context, e *Engine) error {
			other := 1 - e.rank
			r, err := e.Isend(e.to(other, 9), fill(100_000, e.rank), Standard)
			if err != nil {
				return err
			}
			if _, err := e.Recv(ctx, e.from(other, 9), make([]byte, 100_000)); err != nil {
				return fmt.Errorf("the others do not go on: %w", err)
			}
			_, err = r.Wait(ctx)
			return err
		})
	})
}

// A rank that is killed while its data comes in: the messages before arrive whole, the receive fails, and
// the others go on.
func TestKilledWhileItSends(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		for _, messages := range []int{0, 1, 7} {
			es, child := withChild(t, w, "streamer")
			ctx := within(t)
			a := es[0]
			in := make([]byte, streamed)
			n := 0
			for {
				r, err := a.Irecv(a.from(2, 1), in)
				if err == nil && n == messages {
					until(ctx, t, func() bool { a.step(); a.mu.Lock(); defer a.mu.Unlock(); return r.off > 0 || r.state == over })
					child.Kill()
				}
				if err == nil {
					_, err = r.Wait(ctx)
				}
				if isClass(err, ErrProcFailed) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				checkFill(t, in, n)
				n++
			}
			if n < messages {
				t.Errorf("%d messages have arrived, want %d at least", n, messages)
			}
			lives(t, a, es[1])
		}
	})
}

// oftenPolled is a port of which each look counts as that of a waiter. So the progress goroutine sees
// that waiters poll, however the test's goroutines are scheduled.
type oftenPolled struct {
	Port
	e *Engine
}

func (p oftenPolled) News() bool {
	p.e.polls.Add(1)
	return p.Port.News()
}

// Waiters that only poll, without a pause or with one, learn that a rank has gone.
func TestPollersLearnOfDeath(t *testing.T) {
	overWays(t, func(t *testing.T, w way) {
		es := job(t, w, 3)
		a, b, c := es[0], es[1], es[2]
		ctx := within(t)
		a.mu.Lock()
		a.peers[2].port = oftenPolled{a.peers[2].port, a}
		a.mu.Unlock()
		stop := make(chan struct{})
		var chatter, pollers sync.WaitGroup
		for k := range 3 {
			r, err := a.Irecv(a.from(1, k), make([]byte, 8))
			if err != nil {
				t.Fatal(err)
			}
			pollers.Go(func() {
				for !r.Done() {
					if ctx.Err() != nil {
						t.Error("it is never over")
						return
					}
					if k == 0 {
						time.Sleep(100 * time.Microsecond)
					}
				}
				if !isClass(r.err, ErrProcFailed) {
					t.Errorf("it is over with %v", r.err)
				}
			})
		}
		chatter.Go(func() { // another rank has the engine always be busy
			for last := 0; last == 0; {
				select {
				case <-stop:
					last = 1
				default:
				}
				if err := c.Send(ctx, c.to(0, 9), make([]byte, last), Standard); err != nil {
					t.Error(err)
					return
				}
			}
		})
		chatter.Go(func() {
			for last := 0; last == 0; {
				r, err := a.Irecv(a.from(2, 9), make([]byte, 1))
				for err == nil && !r.Done() {
					err = ctx.Err() // it polls, because a waiter that parks would hide the fault
				}
				if err == nil {
					err = r.err
				}
				if err != nil {
					t.Error(err)
					return
				}
				last = r.status.Bytes
			}
		})
		time.Sleep(20 * time.Millisecond) // the waiters have polled for a while
		if err := b.release(); err != nil {
			t.Error(err)
		}
		pollers.Wait()
		close(stop)
		chatter.Wait()
		// The rank that is gone does not come to Finalize.
		for _, e := range []*Engine{a, c} {
			if err := e.release(); err != nil {
				t.Error(err)
			}
		}
		clear(es)
	})
}
