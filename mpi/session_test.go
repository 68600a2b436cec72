package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// Communicators are made of groups, several at the same time, without one of all ranks.
func TestCommFromGroup(t *testing.T) {
	for _, w := range ways[:3] {
		t.Run(w.name, func(t *testing.T) {
			cs := job(t, w, 5)
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				all, ok := c.Pset(mpi.PsetWorld)
				self, ok2 := c.Pset(mpi.PsetSelf)
				if _, ok3 := c.Pset("mpi://OTHER"); !ok || !ok2 || ok3 || all.Size() != 5 || self.Size() != 1 || all.Rank() != c.Rank() {
					return fmt.Errorf("sets of %d and %d ranks: %w", all.Size(), self.Size(), errWrong)
				}
				var wg sync.WaitGroup
				errs := make([]error, 4)
				for k := range errs {
					wg.Go(func() {
						errs[k] = func() error {
							made, err := mpi.CommFromGroup(ctx, all, fmt.Sprint("library ", k))
							if err != nil {
								return err
							}
							sum := []int{0}
							if err := mpi.Allreduce(ctx, made, []int{c.Rank() + k}, sum, mpi.Sum[int]()); err != nil {
								return err
							}
							return differs("the sum", sum, []int{10 + 5*k})
						}()
					})
				}
				wg.Wait()
				if err := errors.Join(errs...); err != nil {
					return err
				}
				alone, err := mpi.CommFromGroup(ctx, self, "alone")
				if err != nil || alone.Size() != 1 {
					return fmt.Errorf("a communicator of %d ranks: %w", alone.Size(), err)
				}
				// Two ranks and three, with leaders that are not rank 0.
				first, err := all.Incl([]int{0, 1})
				if err != nil {
					return err
				}
				second, err := all.Incl([]int{4, 3, 2})
				if err != nil {
					return err
				}
				local, remote, leaders := first, second, []int{1, 2}
				if c.Rank() > 1 {
					local, remote, leaders = second, first, []int{2, 1}
				}
				inter, err := mpi.IntercommFromGroups(ctx, local, leaders[0], remote, leaders[1], "two")
				if err != nil {
					return err
				}
				return talkAcross(ctx, inter, remote.Size())
			})
			ctx := within(t)
			all := cs[0].Group()
			others, err := all.Excl([]int{0})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mpi.CommFromGroup(ctx, others, "others"); !errors.Is(err, mpi.ErrGroup) {
				t.Errorf("of a group that this rank is not in: %v", err)
			}
			if made, err := mpi.CommFromGroup(ctx, mpi.Group{}, "none"); made != nil || err != nil {
				t.Errorf("of an empty group: %v, %v", made, err)
			}
			for what, f := range map[string]func() (*mpi.Comm, error){
				"a leader beyond the group":        func() (*mpi.Comm, error) { return mpi.IntercommFromGroups(ctx, all, 5, others, 0, "") },
				"a remote leader beyond the group": func() (*mpi.Comm, error) { return mpi.IntercommFromGroups(ctx, all, 0, others, 4, "") },
			} {
				if _, err := f(); !errors.Is(err, mpi.ErrRank) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := mpi.IntercommFromGroups(ctx, all, 0, others, 0, ""); !errors.Is(err, mpi.ErrGroup) {
				t.Errorf("with ranks in both groups: %v", err)
			}
			if _, err := mpi.IntercommFromGroups(ctx, others, 0, all, 0, ""); !errors.Is(err, mpi.ErrGroup) {
				t.Errorf("of a group that this rank is not in: %v", err)
			}
		})
	}
}

// Sessions of a program share its job, which ends with the last of them.
func TestSessions(t *testing.T) {
	ctx := within(t)
	a, err := mpi.NewSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b, err := mpi.NewSession(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Finalize(ctx); err != nil {
		t.Error(err)
	}
	if _, err := a.Group(mpi.PsetWorld); !errors.Is(err, mpi.ErrOther) {
		t.Errorf("the group of a session that has ended: %v", err)
	}
	for _, name := range b.Psets() {
		g, err := b.Group(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := mpi.CommFromGroup(ctx, g, "test")
		if err != nil {
			t.Fatal(err)
		}
		if c.Size() != 1 || c.Name() != "test" {
			t.Errorf("%s has %d ranks, named %q", name, c.Size(), c.Name())
		}
		if err := c.Barrier(ctx); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.Group("mpi://OTHER"); !errors.Is(err, mpi.ErrArg) {
		t.Errorf("another set: %v", err)
	}
	if err := b.Finalize(ctx); err != nil {
		t.Error(err)
	}
	if err := b.Finalize(ctx); !errors.Is(err, mpi.ErrOther) {
		t.Errorf("the end of a session that has ended: %v", err)
	}
	if _, err := mpi.NewSession(ctx); !errors.Is(err, mpi.ErrOther) {
		t.Errorf("a session after the last one: %v", err)
	}
}
