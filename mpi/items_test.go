package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// shape is a datatype of values, and how many items of it lie in a buffer from a value on.
type shape struct {
	d     mpi.Datatype
	n     int
	start int
	bytes int // of all items
}

// shaped draws items of so many values in all: without gaps, with gaps, or in another order. They lie within
// room values.
func shaped(rt *rapid.T, values int) shape {
	one, err := mpi.TypeOf[int64]()
	if err != nil {
		rt.Fatal(err)
	}
	s := shape{start: rapid.IntRange(0, 2).Draw(rt, "start"), bytes: 8 * values}
	switch rapid.IntRange(0, 4).Draw(rt, "datatype") {
	case 0: // values
		s.d, s.n = one, values
	case 1: // one item
		s.d, err = one.Contiguous(values)
		s.n = 1
	case 2: // every other value
		s.d, err = one.Resized(0, 16)
		s.n = values
	case 3: // one item with gaps
		s.d, err = one.Vector(values, 1, 3)
		s.n = 1
	case 4: // backwards
		lengths, displs := slices.Repeat([]int{1}, values), make([]int, values)
		for i := range displs {
			displs[i] = values - 1 - i
		}
		s.d, err = one.Indexed(lengths, displs)
		s.n = 1
	}
	if err != nil {
		rt.Fatal(err)
	}
	return s
}

// room is how long the buffers of items of so many values are.
func room(values int) int { return 3*values + 3 }

func (s shape) of(buf []int64) mpi.Items { return mpi.ItemsOf(buf[s.start:], s.n, s.d) }

// pack and unpack are what a plain copy of the items gives.
func (s shape) pack(buf []int64) []byte {
	b, err := mpi.Pack(nil, buf[s.start:], s.n, s.d)
	if err != nil {
		panic(err)
	}
	return b
}

func (s shape) unpack(b []byte, buf []int64) []int64 {
	if _, err := mpi.Unpack(b, buf[s.start:], s.n, s.d); err != nil {
		panic(err)
	}
	return buf
}

// exchange is a collective of items at all ranks, and what comes of it. Of ranks from and to, which differ
// between groups, sends[from][to] becomes recvs[to][from].
type exchange struct {
	kind, form, root int
	sends, recvs     [][]shape
}

const itemKinds = 5

// itemCall is one rank's part of an exchange. out and in are its buffers for each rank.
func itemCall(c *mpi.Comm, x exchange, me, root int, isRoot bool, others []int, out, in [][]int64) call {
	var send, recv []mpi.Items
	for i, rank := range others {
		send = append(send, x.sends[me][rank].of(out[i]))
		recv = append(recv, x.recvs[me][rank].of(in[i]))
	}
	first := func(all []mpi.Items) mpi.Items { // of the root, where a rank sends or receives for it alone
		if i := slices.Index(others, x.root); i >= 0 {
			return all[i]
		}
		return mpi.Items{}
	}
	atRoot := func(all []mpi.Items) []mpi.Items {
		if isRoot {
			return all
		}
		return nil
	}
	switch x.kind {
	case 0:
		v := first(recv)
		if isRoot {
			v = send[0]
		}
		return call{
			blocking:    func(ctx context.Context) error { return mpi.BcastItems(ctx, c, v, root) },
			nonBlocking: func() (*mpi.Request, error) { return mpi.IbcastItems(c, v, root) },
			persistent:  func() (*mpi.Persistent, error) { return mpi.BcastItemsInit(c, v, root) },
		}
	case 1:
		own, all := first(send), atRoot(recv)
		return call{
			blocking:    func(ctx context.Context) error { return mpi.GatherItems(ctx, c, own, all, root) },
			nonBlocking: func() (*mpi.Request, error) { return mpi.IgatherItems(c, own, all, root) },
			persistent:  func() (*mpi.Persistent, error) { return mpi.GatherItemsInit(c, own, all, root) },
		}
	case 2:
		own, all := first(recv), atRoot(send)
		return call{
			blocking:    func(ctx context.Context) error { return mpi.ScatterItems(ctx, c, all, own, root) },
			nonBlocking: func() (*mpi.Request, error) { return mpi.IscatterItems(c, all, own, root) },
			persistent:  func() (*mpi.Persistent, error) { return mpi.ScatterItemsInit(c, all, own, root) },
		}
	case 3:
		return call{
			blocking:    func(ctx context.Context) error { return mpi.AllgatherItems(ctx, c, send[0], recv) },
			nonBlocking: func() (*mpi.Request, error) { return mpi.IallgatherItems(c, send[0], recv) },
			persistent:  func() (*mpi.Persistent, error) { return mpi.AllgatherItemsInit(c, send[0], recv) },
		}
	}
	return call{
		blocking:    func(ctx context.Context) error { return mpi.AlltoallItems(ctx, c, send, recv) },
		nonBlocking: func() (*mpi.Request, error) { return mpi.IalltoallItems(c, send, recv) },
		persistent:  func() (*mpi.Persistent, error) { return mpi.AlltoallItemsInit(c, send, recv) },
	}
}

// run runs an exchange at one rank, which sends the values of src and receives from others.
func (x exchange) run(ctx context.Context, c *mpi.Comm, me int, mine, others []int) error {
	root, isRoot := x.root, x.root == me
	if c.Inter() {
		root = slices.Index(others, x.root)
		switch {
		case isRoot:
			root = mpi.Root
		case root < 0:
			root = mpi.ProcNull
		}
	}
	out, in, want := make([][]int64, len(others)), make([][]int64, len(others)), make([][]int64, len(others))
	for i, rank := range others {
		out[i], in[i] = x.source(me, rank), empty(room(x.most()))
		want[i] = slices.Clone(in[i])
		if x.receives(me, rank, slices.Contains(mine, x.root) && c.Inter()) {
			b := x.sends[rank][me].pack(x.source(rank, me))
			if x.kind == 0 || x.kind == 3 { // the sender gives all ranks the same
				b = x.sends[rank][mine[0]].pack(x.source(rank, mine[0]))
			}
			x.recvs[me][rank].unpack(b, want[i])
		}
	}
	f := itemCall(c, x, me, root, isRoot, others, out, in)
	wait := func(q *mpi.Request, err error) error {
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return err
	}
	var err error
	switch x.form {
	case blocking:
		err = f.blocking(ctx)
	case nonBlocking:
		err = wait(f.nonBlocking())
	case persistent:
		var p *mpi.Persistent
		if p, err = f.persistent(); err == nil {
			err = errors.Join(wait(p.Start()), wait(p.Start()))
		}
	}
	if err != nil {
		return err
	}
	for i := range in {
		if err := differs(fmt.Sprintf("kind %d, form %d, root %d, from rank %d", x.kind, x.form, x.root, others[i]), in[i], want[i]); err != nil {
			return err
		}
	}
	return nil
}

// receives reports whether a rank receives from another one.
func (x exchange) receives(me, rank int, absent bool) bool {
	switch x.kind {
	case 0:
		return rank == x.root && me != x.root && !absent
	case 1:
		return me == x.root
	case 2:
		return rank == x.root && !absent
	}
	return true
}

func (x exchange) most() int {
	most := 0
	for _, row := range x.sends {
		for _, s := range row {
			most = max(most, s.bytes/8)
		}
	}
	return most
}

func (x exchange) source(from, to int) []int64 { return values(10*from+to, room(x.most())) }

// drawExchange draws an exchange. Where ranks give all others the same, all have as many values.
func drawExchange(rt *rapid.T, n int) exchange {
	x := exchange{
		kind: rapid.IntRange(0, itemKinds-1).Draw(rt, "kind"), form: rapid.IntRange(0, forms-1).Draw(rt, "form"),
		root: rapid.IntRange(0, n-1).Draw(rt, "root"),
	}
	length := rapid.SampledFrom([]int{0, 1, 4, 700, 3000})
	x.sends, x.recvs = make([][]shape, n), make([][]shape, n)
	for i := range n {
		x.sends[i], x.recvs[i] = make([]shape, n), make([]shape, n)
	}
	for from := range n {
		k := length.Draw(rt, "values")
		for to := range n {
			if x.kind == 1 || x.kind == 2 || x.kind == 4 {
				k = length.Draw(rt, "values")
			}
			x.sends[from][to], x.recvs[to][from] = shaped(rt, k), shaped(rt, k)
		}
	}
	return x
}

// Collectives of items with any datatypes, in all forms, within a communicator and between groups, against
// plain copies.
func TestItemsModel(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size, first = 4, 1
			world := job(t, w, size)
			inters := make([]*mpi.Comm, size)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				color, remote := 0, first
				if c.Rank() >= first {
					color, remote = 1, 0
				}
				half, err := c.Split(ctx, color, 0)
				if err == nil {
					inters[c.Rank()], err = half.Intercomm(ctx, 0, c, remote, 5)
				}
				return err
			})
			all := []int{0, 1, 2, 3}
			rapid.Check(t, func(rt *rapid.T) {
				x := drawExchange(rt, size)
				between := rapid.Bool().Draw(rt, "between groups")
				ctx, stop := context.WithTimeout(context.Background(), bound)
				defer stop()
				errs := make(chan error, size)
				for me := range size {
					go func() {
						c, mine, others := world[me], all, all
						if between {
							c, mine, others = inters[me], all[:first], all[first:]
							if me >= first {
								mine, others = others, mine
							}
						}
						err := x.run(ctx, c, me, mine, others)
						if err != nil {
							stop()
						}
						errs <- err
					}()
				}
				var failed []error
				for range size {
					failed = append(failed, <-errs)
				}
				if err := errors.Join(failed...); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// Items that cannot be are refused before anything is sent. Items in the same memory are exchanged in place.
func TestItemsArguments(t *testing.T) {
	each(t, job(t, ways[0], 3), func(ctx context.Context, c *mpi.Comm) error {
		one, err := mpi.TypeOf[int64]()
		if err != nil {
			return err
		}
		buf := values(c.Rank(), 6)
		good, long := mpi.ItemsOf(buf, 2, one), mpi.ItemsOf(buf, 7, one)
		three := []mpi.Items{mpi.ItemsOf(buf, 2, one), mpi.ItemsOf(buf[2:], 2, one), mpi.ItemsOf(buf[4:], 2, one)}
		for _, x := range []struct {
			what string
			err  error
			want mpi.Class
		}{
			{"bcast beyond the buffer", mpi.BcastItems(ctx, c, long, 0), mpi.ErrBuffer},
			{"a negative count", mpi.BcastItems(ctx, c, mpi.ItemsOf(buf, -1, one), 0), mpi.ErrCount},
			{"pointers", mpi.BcastItems(ctx, c, mpi.ItemsOf([]*int{nil}, 1, one), 0), mpi.ErrType},
			{"no such root", mpi.BcastItems(ctx, c, good, 3), mpi.ErrRoot},
			{"gather, no such root", mpi.GatherItems(ctx, c, good, three, -1), mpi.ErrRoot},
			{"gather from beyond", mpi.GatherItems(ctx, c, long, three, c.Rank()), mpi.ErrBuffer},
			{"gather of two ranks", mpi.GatherItems(ctx, c, good, three[:2], c.Rank()), mpi.ErrCount},
			{"gather of another size", mpi.GatherItems(ctx, c, mpi.ItemsOf(buf, 1, one), three, c.Rank()), mpi.ErrCount},
			{"scatter of two ranks", mpi.ScatterItems(ctx, c, three[:2], good, c.Rank()), mpi.ErrCount},
			{"scatter to beyond", mpi.ScatterItems(ctx, c, three, long, c.Rank()), mpi.ErrBuffer},
			{"allgather of another size", mpi.AllgatherItems(ctx, c, mpi.ItemsOf(buf, 3, one), three), mpi.ErrCount},
			{"alltoall of no ranks", mpi.AlltoallItems(ctx, c, nil, three), mpi.ErrCount},
			{"alltoall to beyond", mpi.AlltoallItems(ctx, c, three, []mpi.Items{good, good, long}), mpi.ErrBuffer},
		} {
			var e *mpi.Error
			if !errors.Is(x.err, x.want) || !errors.As(x.err, &e) || e.Call == "" {
				return fmt.Errorf("%s: %w", x.what, x.err)
			}
		}
		if err := differs("what nothing has changed", buf, values(c.Rank(), 6)); err != nil {
			return err
		}
		if err := mpi.AlltoallItems(ctx, c, three, three); err != nil {
			return err
		}
		var want []int64
		for rank := range 3 {
			want = append(want, values(rank, 6)[2*c.Rank():][:2]...)
		}
		return differs("in place", buf, want)
	})
}
