package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// atSteps has tests act at the steps of the protocols.
var atSteps testutil.Steps

func init() { vmmctest.Role("stopped rank", stoppedRank) }

// stoppedRank is a rank that comes to a step of a call for the nth time, and stays there.
func stoppedRank(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	c, err := mpi.Init(ctx, mpi.WithGroup(p, g), mpi.WithModule(args[0]))
	if err != nil {
		return err
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	call, step, nth := args[1], args[2], args[3]
	for range args[4:] { // the others have come through the barrier too
		if _, err := mpi.Recv(ctx, c, []int{0}, mpi.AnySource, ready); err != nil {
			return err
		}
	}
	atSteps.PauseAt(step, nth, "")
	switch call {
	case "agree":
		_, err = c.Agree(ctx, given(c))
	case "shrink":
		_, err = c.Shrink(ctx)
	case "revoke":
		err = c.Revoke()
	case "intercomm": // it takes part in making two, and in nothing else
		var inter *mpi.Comm
		if _, inter, err = between(ctx, c, 2); err != nil {
			return err
		}
		if _, err = inter.Dup(ctx); err == nil {
			atSteps.At(step)
		}
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("it has come through %s without step %s", call, step)
}

// ready is the tag of messages to ranks that stop.
const ready = 1000

// given is what a rank gives to Agree: all flags but its own.
func given(c *mpi.Comm) uint64 { return ^(uint64(1) << c.Rank()) }

// stopped says where a child stops.
type stopped struct {
	rank       int
	call, step string
	nth        int
}

func (s stopped) String() string { return fmt.Sprintf("rank %d at %s %d", s.rank, s.step, s.nth) }

// faultJob starts a job of size ranks, some of which are children that stop. It returns the others'
// communicators, after a barrier of all.
func faultJob(t *testing.T, w way, nodes []*vmmctest.Node, size int, stops []stopped) ([]*mpi.Comm, []*vmmctest.Proc) {
	t.Helper()
	children := map[int]child{}
	for _, s := range stops {
		args := []string{w.module, s.call, s.step, strconv.Itoa(s.nth)}
		for range size - len(stops) {
			args = append(args, "other")
		}
		children[s.rank] = child{"stopped rank", args}
	}
	cs, all := jobWith(t, w.module, halved(nodes, size), children)
	procs := make([]*vmmctest.Proc, len(stops))
	for i, s := range stops {
		procs[i] = all[s.rank]
	}
	each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		for _, s := range stops {
			if err := mpi.Send(ctx, c, []int{0}, s.rank, ready); err != nil {
				return err
			}
		}
		return nil
	})
	return cs, procs
}

// kill kills the children, each when it is at its step. It runs beside the others' calls.
func kill(t *testing.T, stops []stopped, procs []*vmmctest.Proc) {
	for i, p := range procs {
		if got := p.Line(); got != stops[i].step {
			t.Errorf("%v: it says %q", stops[i], got)
		}
		p.Kill()
	}
}

// endAll finalizes the ranks that live.
func endAll(t *testing.T, cs []*mpi.Comm) {
	t.Helper()
	each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
		if err := c.Finalize(ctx); !errors.Is(err, mpi.ErrProcFailed) {
			return fmt.Errorf("Finalize: %w", err)
		}
		return nil
	})
}

// agreeStops are the steps of an agreement of five ranks: those of the first leader, of others, and of the
// first and the second leader.
var agreeStops = [][]stopped{
	{{0, "", "agree.begins", 1}},
	{{0, "", "agree.proposed", 1}},
	{{0, "", "agree.proposed", 3}},
	{{0, "", "agree.decided", 1}},
	{{0, "", "agree.decides", 1}},
	{{0, "", "agree.decides", 4}},
	{{4, "", "agree.begins", 1}},
	{{4, "", "agree.told", 1}},
	{{4, "", "agree.adopted", 1}},
	{{4, "", "agree.answered", 1}},
	{{4, "", "agree.passed", 1}},
	{{0, "", "agree.proposed", 2}, {1, "", "agree.decides", 1}},
	{{0, "", "agree.proposed", 1}, {1, "", "agree.proposed", 1}},
	{{0, "", "agree.decided", 1}, {1, "", "agree.proposed", 2}},
	{{0, "", "agree.begins", 1}, {4, "", "agree.answered", 1}},
}

// Ranks are killed at each step of Agree. All others get the same.
func TestKilledInAgree(t *testing.T) {
	eachStop(t, "agree", func(t *testing.T, cs []*mpi.Comm, stops []stopped, killed func()) {
		flags, errs := make([]uint64, len(cs)), make([]error, len(cs))
		both(t, cs, killed, func(ctx context.Context, i int, c *mpi.Comm) error {
			flags[i], errs[i] = c.Agree(ctx, given(c))
			if errs[i] != nil && !errors.Is(errs[i], mpi.ErrProcFailed) {
				return errs[i]
			}
			return nil
		})
		dead := uint64(0)
		for _, s := range stops {
			dead |= 1 << s.rank
		}
		want := ^uint64(0)
		for _, c := range cs {
			want &= given(c)
		}
		for i, c := range cs {
			if flags[i] != flags[0] || flags[i]|dead != want|dead {
				t.Errorf("rank %d gets the flags %#x, rank %d %#x, want %#x but for %#x",
					c.Rank(), flags[i], cs[0].Rank(), flags[0], want, dead)
			}
			if (errs[i] == nil) != (errs[0] == nil) {
				t.Errorf("rank %d: %v, rank %d: %v", c.Rank(), errs[i], cs[0].Rank(), errs[0])
			}
		}
		goOn(t, cs)
	})
}

// Ranks are killed at each step of Shrink. All others get the same members.
func TestKilledInShrink(t *testing.T) {
	eachStop(t, "shrink", func(t *testing.T, cs []*mpi.Comm, _ []stopped, killed func()) {
		made := make([]*mpi.Comm, len(cs))
		both(t, cs, killed, func(ctx context.Context, i int, c *mpi.Comm) (err error) {
			made[i], err = c.Shrink(ctx)
			return err
		})
		var first []int
		for i, c := range cs {
			members, err := ranksOf(made[i].Group(), c.Group())
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = members
			}
			if !slices.Equal(members, first) {
				t.Fatalf("rank %d gets the members %v, rank %d %v", c.Rank(), members, cs[0].Rank(), first)
			}
			if made[i].Group().Rank() != made[i].Rank() {
				t.Errorf("rank %d is rank %d, and %d of the group", c.Rank(), made[i].Rank(), made[i].Group().Rank())
			}
		}
		goOn(t, made)
	})
}

// eachStop runs a test for each way and each list of steps, at which ranks of five are killed.
func eachStop(t *testing.T, call string, f func(t *testing.T, cs []*mpi.Comm, stops []stopped, killed func())) {
	for at, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			for i, stops := range agreeStops {
				if testutil.LeavesOut(i, at, len(ways)) {
					continue
				}
				stops = slices.Clone(stops)
				for k := range stops {
					stops[k].call = call
				}
				t.Run(fmt.Sprint(stops), func(t *testing.T) {
					cs, procs := faultJob(t, w, nodes, 5, stops)
					f(t, cs, stops, func() { kill(t, stops, procs) })
					endAll(t, cs)
				})
			}
		})
	}
}

// both runs f for all ranks, and something beside it.
func both(t *testing.T, cs []*mpi.Comm, beside func(), f func(ctx context.Context, i int, c *mpi.Comm) error) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(beside)
	at := map[*mpi.Comm]int{}
	for i, c := range cs {
		at[c] = i
	}
	each(t, cs, func(ctx context.Context, c *mpi.Comm) error { return f(ctx, at[c], c) })
	wg.Wait()
}

// goOn has the ranks that live go on with a communicator that has dead members: one of them revokes it,
// while the others wait for ranks that live.
func goOn(t *testing.T, cs []*mpi.Comm) {
	t.Helper()
	each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
		first := cs[0].Rank()
		if c.Rank() == first {
			if err := c.Revoke(); err != nil {
				return err
			}
		} else if _, err := mpi.Recv(ctx, c, []int{0}, first, 77); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("a receive from a rank that lives: %w", err)
		}
		if err := c.Barrier(ctx); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("a barrier of the revoked communicator: %w", err)
		}
		alive, err := c.Shrink(ctx)
		if err != nil {
			return err
		}
		if alive.Size() != len(cs) || cs[alive.Rank()].Rank() != c.Rank() {
			return fmt.Errorf("rank %d is rank %d of %d, of %d that live: %w", c.Rank(), alive.Rank(), alive.Size(), len(cs), errWrong)
		}
		sum := []int{0}
		if err := mpi.Allreduce(ctx, alive, []int{1}, sum, mpi.Sum[int]()); err != nil {
			return err
		}
		if sum[0] != len(cs) {
			return fmt.Errorf("%d ranks: %w", sum[0], errWrong)
		}
		return nil
	})
}

// A rank that revokes is killed when it has told some of the others, and a rank that was told when it has
// told some: all others know.
func TestRevokerKilled(t *testing.T) {
	for at, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes := vmmctest.Nodes(t, w.nodes)
			for i, stops := range [][]stopped{
				{{3, "revoke", "revoke.told", 1}}, {{3, "revoke", "revoke.told", 2}}, {{3, "revoke", "revoke.told", 3}},
			} {
				if testutil.LeavesOut(i, at, len(ways)) {
					continue
				}
				t.Run(fmt.Sprint(stops), func(t *testing.T) {
					cs, procs := faultJob(t, w, nodes, 4, stops)
					both(t, cs, func() { kill(t, stops, procs) }, func(ctx context.Context, _ int, c *mpi.Comm) error {
						// No rank that is killed has a part in it.
						_, err := mpi.Recv(ctx, c, []int{0}, (c.Rank()+1)%3, 77)
						if !errors.Is(err, mpi.ErrRevoked) {
							return fmt.Errorf("a receive that waits: %w", err)
						}
						if !c.Revoked() {
							return fmt.Errorf("not revoked: %w", errWrong)
						}
						return nil
					})
					endAll(t, cs)
				})
			}
		})
	}
}

// All calls that wait end when another rank revokes their communicator, and later ones fail. Another
// communicator of the same ranks goes on.
func TestRevoke(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			each(t, job(t, w, 3), func(ctx context.Context, world *mpi.Comm) error {
				c, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				other, err := world.Dup(ctx)
				if err != nil {
					return err
				}
				if c.Rank() == 2 {
					// When the others have begun:
					if _, err := mpi.Recv(ctx, other, []int{0}, 0, 0); err != nil {
						return err
					}
					if _, err := mpi.Recv(ctx, other, []int{0}, 1, 0); err != nil {
						return err
					}
					if err := c.Revoke(); err != nil {
						return err
					}
					if err := c.Revoke(); err != nil {
						return fmt.Errorf("a second time: %w", err)
					}
				} else if err := revokedWhileWaiting(ctx, c, other); err != nil {
					return err
				}
				for what, err := range laterCalls(ctx, c) {
					if !errors.Is(err, mpi.ErrRevoked) {
						return fmt.Errorf("a later %s: %w", what, err)
					}
				}
				if other.Revoked() || !c.Revoked() {
					return fmt.Errorf("revoked: %v, %v: %w", c.Revoked(), other.Revoked(), errWrong)
				}
				if err := other.Barrier(ctx); err != nil {
					return err
				}
				again, err := c.Shrink(ctx)
				if err != nil {
					return err
				}
				return isOf(ctx, again, world.Group(), world.Group())
			})
		})
	}
}

// revokedWhileWaiting is rank 0 or 1, whose calls wait when rank 2 revokes.
func revokedWhileWaiting(ctx context.Context, c, other *mpi.Comm) error {
	peer := 1 - c.Rank()
	long := make([]byte, 1<<20)
	var rs []*mpi.Request
	begin := func(r *mpi.Request, err error) error {
		rs = append(rs, r)
		return err
	}
	if err := errors.Join(
		begin(mpi.Irecv(c, []int{0}, peer, 5)),
		begin(mpi.Irecv(c, []int{0}, mpi.AnySource, mpi.AnyTag)), // no message is sent to it before: see tags
		begin(c.Ibarrier()),
	); err != nil {
		return err
	}
	if err := errors.Join(
		begin(mpi.Isend(c, long, 2, 6)),
		begin(mpi.Issend(c, []int{1}, 2, 7)),
	); err != nil {
		return err
	}
	if err := mpi.Send(ctx, c, []int{1}, 2, 8); err != nil { // nothing receives it
		return err
	}
	probed := make(chan error)
	go func() {
		_, err := c.Probe(ctx, 2, 9)
		probed <- err
	}()
	if err := mpi.Send(ctx, other, []int{0}, 2, 0); err != nil {
		return err
	}
	for i, r := range rs {
		if _, err := r.Wait(ctx); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	if err := <-probed; !errors.Is(err, mpi.ErrRevoked) {
		return fmt.Errorf("a probe that waits: %w", err)
	}
	return nil
}

// laterCalls are the errors of calls of a communicator that is revoked.
func laterCalls(ctx context.Context, c *mpi.Comm) map[string]error {
	errs := map[string]error{}
	errs["send"] = mpi.Send(ctx, c, []int{1}, 0, 0)
	_, errs["receive"] = mpi.Recv(ctx, c, []int{1}, 0, 0)
	_, errs["receive from any"] = mpi.Recv(ctx, c, []int{1}, mpi.AnySource, mpi.AnyTag)
	_, errs["Isend"] = mpi.Isend(c, []int{1}, 0, 0)
	_, errs["Irecv"] = mpi.Irecv(c, []int{1}, 0, 0)
	_, errs["probe"] = c.Probe(ctx, 0, 0)
	_, _, errs["Iprobe"] = c.Iprobe(0, 0)
	errs["barrier"] = c.Barrier(ctx)
	_, errs["dup"] = c.Dup(ctx)
	_, errs["split"] = c.Split(ctx, 0, 0)
	_, errs["create_group"] = c.CreateGroup(ctx, c.Group(), 0)
	return errs
}

// Agree without failures: the flags of all, several times, by a job of one rank too, and beside a
// collective.
func TestAgree(t *testing.T) {
	for _, w := range ways {
		for _, size := range []int{1, 2, 5} {
			t.Run(fmt.Sprint(w.name, " ", size), func(t *testing.T) {
				each(t, job(t, w, size), func(ctx context.Context, c *mpi.Comm) error {
					q, err := c.Ibarrier()
					if err != nil {
						return err
					}
					for round := range 50 {
						flags := given(c) &^ (1 << 40 << (round % 7))
						got, err := c.Agree(ctx, flags)
						if err != nil {
							return err
						}
						if want := ^uint64(0) << size &^ (1 << 40 << (round % 7)); got != want {
							return fmt.Errorf("%#x, want %#x: %w", got, want, errWrong)
						}
					}
					_, err = q.Wait(ctx)
					return err
				})
			})
		}
	}
}

// A failure that all have acknowledged is no error of Agree any more, nor of receives from any rank.
func TestAcknowledge(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			stops := []stopped{{3, "agree", "agree.begins", 1}}
			cs, procs := faultJob(t, w, vmmctest.Nodes(t, w.nodes), 4, stops)
			kill(t, stops, procs)
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				if _, err := mpi.Recv(ctx, c, []int{0}, 3, 0); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a receive from it: %w", err)
				}
				if _, err := mpi.Recv(ctx, c, []int{0}, mpi.AnySource, 0); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a receive from any, before: %w", err)
				}
				failed, err := c.GetFailed().Translate([]int{0}, c.Group())
				if err != nil || len(failed) != 1 || failed[0] != 3 {
					return fmt.Errorf("failed ranks %v: %w", failed, errors.Join(err, errWrong))
				}
				if n, err := c.AckFailed(0); n != 0 || err != nil {
					return fmt.Errorf("%d acknowledged, want none: %w", n, errors.Join(err, errWrong))
				}
				if c.Rank() != 1 { // all have to
					if n, err := c.AckFailed(10); n != 1 || err != nil {
						return fmt.Errorf("%d acknowledged, want 1: %w", n, errors.Join(err, errWrong))
					}
				}
				if flags, err := c.Agree(ctx, given(c)); !errors.Is(err, mpi.ErrProcFailed) || flags != ^uint64(7) {
					return fmt.Errorf("Agree, one has not acknowledged: %#x, %w", flags, err)
				}
				if _, err := c.AckFailed(1); err != nil {
					return err
				}
				if flags, err := c.Agree(ctx, given(c)); err != nil || flags != ^uint64(7) {
					return fmt.Errorf("Agree, all have acknowledged: %#x, %w", flags, err)
				}
				in := []int{0}
				if c.Rank() == 0 {
					for range 2 {
						if _, err := mpi.Recv(ctx, c, in, mpi.AnySource, 1); err != nil {
							return fmt.Errorf("a receive from any, after: %w", err)
						}
					}
				} else if err := mpi.Send(ctx, c, in, 0, 1); err != nil {
					return err
				}
				if _, err := c.AckFailed(-1); !errors.Is(err, mpi.ErrArg) {
					return fmt.Errorf("-1 ranks: %w", err)
				}
				return nil
			})
			endAll(t, cs)
		})
	}
}

// A rank that finalizes after a failure waits for those that go on: it is not gone for them.
func TestFinalizeTogether(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			stops := []stopped{{3, "agree", "agree.begins", 1}}
			cs, procs := faultJob(t, w, vmmctest.Nodes(t, w.nodes), 4, stops)
			kill(t, stops, procs)
			made := make([]*mpi.Comm, 3)
			each(t, cs, func(ctx context.Context, c *mpi.Comm) (err error) {
				made[c.Rank()], err = c.Shrink(ctx)
				return err
			})
			ended := make(chan error)
			go func() { ended <- cs[0].Finalize(within(t)) }()
			each(t, made[1:], func(ctx context.Context, c *mpi.Comm) error {
				for range 200 {
					if _, err := mpi.Sendrecv(ctx, c, []int{1}, 3-c.Rank(), 0, []int{0}, 3-c.Rank(), 0); err != nil {
						return err
					}
				}
				if g := c.GetFailed(); g.Size() != 0 {
					return fmt.Errorf("%d ranks are gone, want none: %w", g.Size(), errWrong)
				}
				return nil
			})
			select {
			case err := <-ended:
				t.Errorf("it has not waited: %v", err)
			default:
			}
			gone, stop := context.WithCancel(within(t))
			stop()
			if err := cs[1].Finalize(gone); !errors.Is(err, mpi.ErrCanceled) {
				t.Errorf("a context that has ended: %v", err)
			}
			endAll(t, cs[1:])
			if err := <-ended; !errors.Is(err, mpi.ErrProcFailed) {
				t.Error(err)
			}
		})
	}
}
