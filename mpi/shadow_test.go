package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// A shadow and its communicator receive each their own messages, and so do their collectives. No rank waits
// for another one to make it.
func TestShadow(t *testing.T) {
	cs := job(t, ways[0], 3)
	each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 0 { // the others make theirs when this message has come
			if _, err := mpi.Recv(ctx, c.Shadow(), []int{0}, 1, 4); err != nil {
				return err
			}
		}
		s := c.Shadow()
		if c.Rank() == 1 {
			if err := mpi.Send(ctx, s, []int{1}, 0, 4); err != nil {
				return err
			}
		}
		next, prev := (c.Rank()+1)%3, (c.Rank()+2)%3
		comms := []*mpi.Comm{s, c, s.Shadow()}
		for k, of := range comms {
			if _, err := mpi.Isend(of, []int{10*k + c.Rank()}, next, 7); err != nil {
				return err
			}
		}
		for k, of := range slices.Backward(comms) {
			got := []int{0}
			if _, err := mpi.Recv(ctx, of, got, prev, 7); err != nil {
				return err
			}
			if want := 10*k + prev; got[0] != want {
				return fmt.Errorf("%s has received %d, want %d: %w", of.Name(), got[0], want, errWrong)
			}
		}
		sum, all := []int{0}, []int{0}
		q, err := mpi.Iallreduce(s, []int{1}, all, mpi.Sum[int]())
		if err != nil {
			return err
		}
		if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		return differs("sums", []int{sum[0], all[0]}, []int{3, 3})
	})
}

// Messages of an intercommunicator's shadow are its own, and the shadow is revoked with its communicator.
func TestShadowInter(t *testing.T) {
	nodes := vmmctest.Nodes(t, 1)
	a, b := jobOn(t, nodes, "", 2), jobOn(t, nodes, "", 1)
	port := openPort(t, a[1])
	eachOf(t, a, b, func(ctx context.Context, c *mpi.Comm, second bool) error {
		root, at := 1, port
		if second {
			root = 0
		}
		meet := c.Accept
		if second {
			meet = c.Connect
		}
		inter, err := meet(ctx, at, root)
		if err != nil {
			return err
		}
		s := inter.Shadow()
		if !s.Inter() || s.RemoteSize() != inter.RemoteSize() {
			return fmt.Errorf("a shadow with %d remote ranks: %w", s.RemoteSize(), errWrong)
		}
		if err := talkAcross(ctx, s, s.RemoteSize()); err != nil {
			return err
		}
		if err := talkAcross(ctx, inter, s.RemoteSize()); err != nil {
			return err
		}
		if second { // revokes when the others are done with all but the barrier
			for rank := range inter.RemoteSize() {
				if _, err := mpi.Recv(ctx, inter, []int{0}, rank, 8); err != nil {
					return err
				}
			}
			if err := inter.Revoke(); err != nil {
				return err
			}
		} else if err := mpi.Send(ctx, inter, []int{1}, 0, 8); err != nil {
			return err
		}
		if err := s.Barrier(ctx); !errors.Is(err, mpi.ErrRevoked) {
			return fmt.Errorf("a barrier of the shadow of what is revoked: %w", err)
		}
		return inter.Disconnect(ctx)
	})
}
