package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() {
	vmmctest.Role("connecting rank", connecting)
}

// connecting is a job of one rank that connects to a port, exchanges a message, and then waits to be
// killed: connected, or disconnected.
func connecting(ctx context.Context, _ *vmmc.Process, args ...string) error {
	c, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	inter, err := c.Connect(ctx, args[0], 0)
	if err != nil {
		return err
	}
	if err := inter.Barrier(ctx); err != nil {
		return err
	}
	if len(args) > 1 {
		if err := inter.Disconnect(ctx); err != nil {
			return err
		}
	}
	fmt.Println("waits")
	select {}
}

// talkAcross exchanges messages with each rank of the other job, and makes one communicator of both.
func talkAcross(ctx context.Context, inter *mpi.Comm, remote int) error {
	if !inter.Inter() || inter.RemoteSize() != remote {
		return fmt.Errorf("%d ranks are remote, want %d: %w", inter.RemoteSize(), remote, errWrong)
	}
	var all []*mpi.Request
	for rank := range remote {
		q, err := mpi.Isend(inter, []int{100 + inter.Rank()}, rank, 5)
		if err != nil {
			return err
		}
		all = append(all, q)
	}
	for rank := range remote {
		buf := []int{0}
		if _, err := mpi.Recv(ctx, inter, buf, rank, 5); err != nil {
			return err
		}
		if buf[0] != 100+rank {
			return fmt.Errorf("rank %d has sent %d: %w", rank, buf[0], errWrong)
		}
	}
	if _, err := mpi.Waitall(ctx, all...); err != nil {
		return err
	}
	both, err := inter.Merge(ctx, false)
	if err != nil {
		return err
	}
	sum := []int{0}
	if err := mpi.Allreduce(ctx, both, []int{1}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	if want := inter.Size() + remote; sum[0] != want || both.Size() != want {
		return fmt.Errorf("both have %d ranks by a sum, and %d by Size, want %d: %w", sum[0], both.Size(), want, errWrong)
	}
	long := make([]byte, 300<<10) // by rendezvous
	for i := range long {
		long[i] = byte(i * 7)
	}
	got := make([]byte, len(long))
	next, prev := (both.Rank()+1)%both.Size(), (both.Rank()+both.Size()-1)%both.Size()
	if _, err := mpi.Sendrecv(ctx, both, long, next, 0, got, prev, 0); err != nil {
		return err
	}
	return differs("the long message", got, long)
}

// eachOf runs f for all ranks of two jobs at the same time.
func eachOf(t *testing.T, a, b []*mpi.Comm, f func(ctx context.Context, c *mpi.Comm, second bool) error) {
	t.Helper()
	of := map[*mpi.Comm]bool{}
	for _, c := range b {
		of[c] = true
	}
	each(t, append(append([]*mpi.Comm(nil), a...), b...), func(ctx context.Context, c *mpi.Comm) error {
		return f(ctx, c, of[c])
	})
}

// meet connects two jobs. The roots are not rank 0.
func meet(ctx context.Context, c *mpi.Comm, second bool, port string) (*mpi.Comm, error) {
	root := c.Size() - 1
	at := ""
	if c.Rank() == root {
		at = port
	}
	if second {
		return c.Connect(ctx, at, root)
	}
	return c.Accept(ctx, at, root)
}

func openPort(t *testing.T, c *mpi.Comm) string {
	t.Helper()
	port, err := c.OpenPort(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Two jobs connect, exchange messages, disconnect, and connect again. Afterwards each has its own
// messages.
func TestConnect(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			a, b := jobOn(t, nodes, w.module, 3), jobOn(t, nodes, w.module, 2)
			port := openPort(t, a[2])
			for range 2 {
				eachOf(t, a, b, func(ctx context.Context, c *mpi.Comm, second bool) error {
					inter, err := meet(ctx, c, second, port)
					if err != nil {
						return err
					}
					remote := 2
					if second {
						remote = 3
					}
					if err := talkAcross(ctx, inter, remote); err != nil {
						return err
					}
					if err := inter.Disconnect(ctx); err != nil {
						return err
					}
					if err := inter.Barrier(ctx); !errors.Is(err, mpi.ErrComm) {
						return fmt.Errorf("a barrier of what is disconnected: %w", err)
					}
					return c.Barrier(ctx)
				})
			}
			if err := a[2].ClosePort(port); err != nil {
				t.Error(err)
			}
			if err := a[2].ClosePort(port); !errors.Is(err, mpi.ErrPort) {
				t.Errorf("close the port again: %v", err)
			}
		})
	}
}

// Jobs that are connected wait for each other in Finalize, and do not when they are disconnected: each
// finalizes alone then, when the test ends.
func TestFinalizeConnected(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a, b := jobOn(t, nodes, "", 1)[0], jobOn(t, nodes, "", 1)[0]
	port := openPort(t, a)
	var mu sync.Mutex
	inters := map[*mpi.Comm]*mpi.Comm{}
	eachOf(t, []*mpi.Comm{a}, []*mpi.Comm{b}, func(ctx context.Context, c *mpi.Comm, second bool) error {
		inter, err := meet(ctx, c, second, port)
		mu.Lock()
		defer mu.Unlock()
		inters[c] = inter
		return err
	})
	short, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	if err := a.Finalize(short); !errors.Is(err, mpi.ErrCanceled) {
		t.Errorf("Finalize alone: %v", err)
	}
	eachOf(t, []*mpi.Comm{a}, []*mpi.Comm{b}, func(ctx context.Context, c *mpi.Comm, _ bool) error {
		return inters[c].Disconnect(ctx)
	})
}

// A rank of the other job is killed: an error of the intercommunicator, and nothing else. When the
// jobs were disconnected it is no error at all.
func TestConnectedRankKilled(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	a := jobOn(t, nodes, "", 2)
	port := openPort(t, a[1])
	for _, name := range []string{nodeproto.GroupEnv, nodeproto.RankEnv, nodeproto.SizeEnv} {
		t.Setenv(name, "") // the child is started alone
	}
	for _, disconnected := range []bool{false, true} {
		args := []string{port}
		if disconnected {
			args = append(args, "disconnects")
		}
		child := vmmctest.Child(t, nodes[1], "connecting rank", args...)
		inters := make([]*mpi.Comm, len(a))
		each(t, a, func(ctx context.Context, c *mpi.Comm) error {
			inter, err := meet(ctx, c, false, port)
			if err != nil {
				return err
			}
			inters[c.Rank()] = inter
			if err := inter.Barrier(ctx); err != nil || !disconnected {
				return err
			}
			return inter.Disconnect(ctx)
		})
		if got := child.Line(); got != "waits" {
			t.Fatal(got)
		}
		child.Kill()
		each(t, a, func(ctx context.Context, c *mpi.Comm) error {
			if !disconnected {
				inter := inters[c.Rank()]
				if _, err := mpi.Recv(ctx, inter, []int{0}, 0, 1); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a receive from it: %w", err)
				}
				if err := inter.Disconnect(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("Disconnect: %w", err)
				}
			}
			return c.Barrier(ctx)
		})
	}
}

// Waitany takes requests of several jobs.
func TestWaitanyAcross(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a, b := jobOn(t, nodes, "", 2), jobOn(t, nodes, "", 1)
	port := openPort(t, a[1])
	eachOf(t, a, b, func(ctx context.Context, c *mpi.Comm, second bool) error {
		inter, err := meet(ctx, c, second, port)
		if err != nil {
			return err
		}
		defer inter.Disconnect(ctx) //nolint:errcheck // the next Finalize would find it
		switch {
		case second:
			for range 20 {
				if err := mpi.Send(ctx, inter, []int{2}, 0, 0); err != nil {
					return err
				}
			}
			return nil
		case c.Rank() == 1:
			for range 20 {
				if err := mpi.Send(ctx, c, []int{1}, 0, 0); err != nil {
					return err
				}
			}
			return nil
		}
		got, bufs := map[int]int{}, [2][]int{{0}, {0}}
		of := [2]*mpi.Comm{c, inter}
		var rs [2]*mpi.Request
		for got[0] < 20 || got[1] < 20 {
			for i := range rs {
				if rs[i] == nil && got[i] < 20 {
					if rs[i], err = mpi.Irecv(of[i], bufs[i], mpi.AnySource, 0); err != nil {
						return err
					}
				}
			}
			i, _, err := mpi.Waitany(ctx, rs[:]...)
			if err != nil {
				return err
			}
			if bufs[i][0] != i+1 {
				return fmt.Errorf("request %d has got %d: %w", i, bufs[i][0], errWrong)
			}
			bufs[i][0], rs[i] = 0, nil
			got[i]++
		}
		return nil
	})
}

// Two communicators of a job accept at one port at a time, and two jobs connect.
func TestAcceptTwiceAtOnce(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a, b, d := jobOn(t, nodes, "", 1)[0], jobOn(t, nodes, "", 1)[0], jobOn(t, nodes, "", 1)[0]
	second, err := a.Dup(within(t))
	if err != nil {
		t.Fatal(err)
	}
	port := openPort(t, a)
	var wg sync.WaitGroup
	got := make([]int, 2)
	for i, c := range []*mpi.Comm{a, second} {
		wg.Go(func() {
			inter, err := c.Accept(within(t), port, 0)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := mpi.Recv(within(t), inter, got[i:i+1], 0, 0); err != nil {
				t.Error(err)
			}
			if err := inter.Disconnect(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
	for i, c := range []*mpi.Comm{b, d} {
		wg.Go(func() {
			inter, err := c.Connect(within(t), port, 0)
			if err != nil {
				t.Error(err)
				return
			}
			if err := mpi.Send(within(t), inter, []int{i + 1}, 0, 0); err != nil {
				t.Error(err)
			}
			if err := inter.Disconnect(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got[0]+got[1] != 3 || got[0]*got[1] != 2 {
		t.Errorf("the two have got %v", got)
	}
}

// Ports that are none, or not any more; and waits that their contexts end.
func TestPortsRefused(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a, b := jobOn(t, nodes, "", 1)[0], jobOn(t, nodes, "", 1)[0]
	port := openPort(t, a)
	closed := openPort(t, a)
	if err := a.ClosePort(closed); err != nil {
		t.Fatal(err)
	}
	forged := port[:len(port)-1] + string("0123456789abcdef"[(strings.IndexByte("0123456789abcdef", port[len(port)-1])+1)%16])
	for _, name := range []string{
		"", "/", "n1", strings.Repeat("x", 1<<20), port + "0", port[:len(port)-1], "/" + port, strings.ToUpper(port),
		"n1/.group.00000000000000000000000000000000.0", "n1/*", port[:len(port)-1] + "*", "n9/" + strings.SplitN(port, "/", 2)[1],
		forged, closed, "n1\x00/" + port,
	} {
		if _, err := b.Connect(within(t), name, 0); !errors.Is(err, mpi.ErrPort) {
			t.Errorf("connect to %.80q: %v", name, err)
		}
		if _, err := a.Accept(within(t), name, 0); !errors.Is(err, mpi.ErrPort) {
			t.Errorf("accept at %.80q: %v", name, err)
		}
	}
	if _, err := b.Accept(within(t), port, 0); !errors.Is(err, mpi.ErrPort) {
		t.Errorf("accept at the port of another rank: %v", err)
	}
	if _, err := b.Connect(within(t), port, 1); !errors.Is(err, mpi.ErrRoot) {
		t.Errorf("connect with a root that is no rank: %v", err)
	}
	short, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	if _, err := b.Connect(short, port, 0); !errors.Is(err, mpi.ErrCanceled) {
		t.Errorf("connect where no rank accepts: %v", err)
	}
	// A later Accept does not take the job that has given up.
	short, stop = context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer stop()
	if _, err := a.Accept(short, port, 0); !errors.Is(err, mpi.ErrCanceled) {
		t.Errorf("accept where no job connects: %v", err)
	}
	over := make(chan error, 1)
	go func() {
		_, err := a.Accept(within(t), port, 0)
		over <- err
	}()
	if err := a.ClosePort(port); err != nil {
		t.Error(err)
	}
	if err := <-over; !errors.Is(err, mpi.ErrPort) {
		t.Errorf("accept at a port that is closed meanwhile: %v", err)
	}
}

// Names of services have any form. They are found until they end, and no longer.
func TestServiceNames(t *testing.T) {
	nodes := vmmctest.Nodes(t, 2)
	a, b := jobOn(t, nodes[:1], "", 1)[0], jobOn(t, nodes[1:], "", 1)[0]
	port := openPort(t, a)
	for _, service := range []string{"ocean", "", "a/b", ".x", "*", "\x00\xff", strings.Repeat("long ", 1<<16)} {
		what := fmt.Sprintf("%.20q", service)
		if _, err := b.LookupName(within(t), service); !errors.Is(err, mpi.ErrName) {
			t.Errorf("%s before it is published: %v", what, err)
		}
		if err := a.PublishName(within(t), service, port); err != nil {
			t.Errorf("publish %s: %v", what, err)
			continue
		}
		if err := b.PublishName(within(t), service, port); !errors.Is(err, mpi.ErrService) {
			t.Errorf("publish %s again: %v", what, err)
		}
		if got, err := b.LookupName(within(t), service); err != nil || got != port {
			t.Errorf("%s is %q: %v", what, got, err)
		}
		if err := b.UnpublishName(service, port); !errors.Is(err, mpi.ErrService) {
			t.Errorf("unpublish %s elsewhere: %v", what, err)
		}
		if err := a.UnpublishName(service, port+"0"); !errors.Is(err, mpi.ErrService) {
			t.Errorf("unpublish %s for another port: %v", what, err)
		}
		if err := a.UnpublishName(service, port); err != nil {
			t.Errorf("unpublish %s: %v", what, err)
		}
		if _, err := b.LookupName(within(t), service); !errors.Is(err, mpi.ErrName) {
			t.Errorf("%s after its end: %v", what, err)
		}
	}
	if err := a.PublishName(within(t), "ocean", "no port"); !errors.Is(err, mpi.ErrPort) {
		t.Errorf("publish what is no port: %v", err)
	}
}
