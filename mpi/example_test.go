package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/mpi"
)

// Each rank sends its number to the next one. Started by "vmmc run -n 4" there are four ranks, and
// without a launcher there is one.
func Example() {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	next, prev := (world.Rank()+1)%world.Size(), (world.Rank()+world.Size()-1)%world.Size()
	mine, got := []int{world.Rank()}, []int{-1}
	if _, err := mpi.Sendrecv(ctx, world, mine, next, 0, got, prev, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Println("rank", world.Rank(), "of", world.Size(), "has", got[0])
	if err := world.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: rank 0 of 1 has 0
}

// A worker receives work of any length from any rank, until it has tag 1.
func ExampleComm_Mprobe() {
	work := func(ctx context.Context, c *mpi.Comm, do func([]float64)) error {
		for {
			m, st, err := c.Mprobe(ctx, mpi.AnySource, mpi.AnyTag)
			if err != nil {
				return err
			}
			buf := make([]float64, mpi.Count[float64](st))
			if _, err := mpi.Mrecv(ctx, m, buf); err != nil {
				return err
			}
			if st.Tag == 1 {
				return nil
			}
			do(buf)
		}
	}
	run(func(ctx context.Context, c *mpi.Comm) error {
		a, err1 := mpi.Isend(c, []float64{1, 2, 3}, 0, 0)
		b, err2 := mpi.Isend(c, []float64{}, 0, 1)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if err := work(ctx, c, func(v []float64) { fmt.Println(v) }); err != nil {
			return err
		}
		_, err := mpi.Waitall(ctx, a, b)
		return err
	})
	// Output: [1 2 3]
}

// Rows of ranks, each with a communicator of its own.
func ExampleComm_Split() {
	rows := func(ctx context.Context, c *mpi.Comm) error {
		row, err := c.Split(ctx, c.Rank()/2, c.Rank())
		if err != nil {
			return err
		}
		mine, sum, up := []int{c.Rank()}, make([]int, 1), make([]int, 1)
		if err := mpi.Allreduce(ctx, row, mine, sum, mpi.Sum[int]()); err != nil {
			return err
		}
		if err := mpi.Scan(ctx, row, mine, up, mpi.Max[int]()); err != nil {
			return err
		}
		fmt.Println(row.Size(), sum, up)
		private, err := row.Dup(ctx) // for a library: no other message is received by it
		if err != nil {
			return err
		}
		return private.Barrier(ctx)
	}
	run(rows)
	// Output: 1 [0] [0]
}

// run runs a program's function.
func run(f func(ctx context.Context, c *mpi.Comm) error) {
	ctx := context.Background()
	world, err := mpi.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(f(ctx, world), world.Finalize(ctx)); err != nil {
		log.Fatal(err)
	}
}

// Rank 0 spreads values, all work on their part, and rank 0 gathers them.
func ExampleScatter() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		var all, results []float64
		if c.Rank() == 0 {
			all, results = make([]float64, 2*c.Size()), make([]float64, 2*c.Size())
			all[1] = 5
		}
		mine := make([]float64, 2)
		if err := mpi.Scatter(ctx, c, all, mine, 0); err != nil {
			return err
		}
		for i := range mine {
			mine[i]++
		}
		if err := mpi.Gather(ctx, c, mine, results, 0); err != nil {
			return err
		}
		fmt.Println(results)
		return nil
	})
	// Output: [1 6]
}

// The other collectives, and the operations.
func ExampleReduce() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		v, each := []uint32{6}, make([]uint32, c.Size())
		if err := mpi.Bcast(ctx, c, v, 0); err != nil {
			return err
		}
		if err := mpi.Allgather(ctx, c, v, each); err != nil {
			return err
		}
		if err := mpi.Alltoall(ctx, c, each, make([]uint32, c.Size())); err != nil {
			return err
		}
		for _, op := range []mpi.Op[uint32]{
			mpi.Sum[uint32](), mpi.Prod[uint32](), mpi.Min[uint32](), mpi.Max[uint32](),
			mpi.BAnd[uint32](), mpi.BOr[uint32](), mpi.BXor[uint32](),
			mpi.LAnd[uint32](), mpi.LOr[uint32](), mpi.LXor[uint32](),
			mpi.OpOf(func(in, inout []uint32) { copy(inout, in) }, false), // that of the first rank
		} {
			if err := mpi.Reduce(ctx, c, v, v, op, 0); err != nil {
				return err
			}
		}
		fmt.Println(v, each, largest([]int8{3, 1}), bits([]uint8{1, 4}))
		return nil
	})
	// Output: [6] [6] 3 5
}

func largest[T mpi.Number](v []T) (m T) {
	for _, x := range v {
		m = max(m, x)
	}
	return m
}

func bits[T mpi.Integer](v []T) (all T) {
	for _, x := range v {
		all |= x
	}
	return all
}

// Ways to send, and to wait for requests.
func ExampleRequest() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		in := make([]int64, 1)
		var r *mpi.Request
		r, err := mpi.Irecv(c, in, mpi.AnySource, mpi.MaxTag)
		if err != nil {
			return err
		}
		if err := mpi.Send(ctx, c, []int64{4}, 0, mpi.MaxTag); err != nil {
			return err
		}
		st, err := r.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Println(in[0], st.Source, st.Bytes)

		cancelled, err := mpi.Irecv(c, in, 0, 9)
		if err != nil {
			return err
		}
		fmt.Println(cancelled.Cancel())
		st, over, err := cancelled.Test()
		fmt.Println(st.Cancelled, over, err)

		s, err := mpi.Issend(c, in, 0, 1)
		if err != nil {
			return err
		}
		st, err = c.Probe(ctx, 0, 1)
		if err != nil {
			return err
		}
		_, there, err := c.Iprobe(st.Source, st.Tag)
		fmt.Println(there, err)
		if _, err := mpi.Recv(ctx, c, in, 0, 1); err != nil {
			return err
		}
		i, _, err := mpi.Waitany(ctx, nil, s)
		fmt.Println(i, err)
		some, err := mpi.Waitsome(ctx, nil, s)
		fmt.Println(some, err)
		return err
	})
	// Output:
	// 4 0 8
	// true
	// true true <nil>
	// true <nil>
	// 1 <nil>
	// [1] <nil>
}

// Buffered sends never wait. Messages to ProcNull go nowhere.
func ExampleBsend() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		if err := c.BufferAttach(2 * (8 + mpi.BsendOverhead)); err != nil {
			return err
		}
		for _, dest := range []int{0, mpi.ProcNull} {
			if err := mpi.Bsend(c, []float64{1}, dest, 0); err != nil {
				return err
			}
		}
		in := make([]float64, 1)
		if _, err := mpi.Recv(ctx, c, in, 0, 0); err != nil {
			return err
		}
		n, err := c.BufferDetach(ctx)
		fmt.Println(in, n, err)
		return errors.Join(err, mpi.Ssend(ctx, c, in, mpi.ProcNull, 0), mpi.Rsend(ctx, c, in, mpi.ProcNull, 0))
	})
	// Output: [1] 144 <nil>
}

// Errors are told by their class.
func ExampleError() {
	run(func(ctx context.Context, c *mpi.Comm) error {
		err := mpi.Send(ctx, c, []int{1}, 7, 0)
		var e *mpi.Error
		switch {
		case errors.Is(err, mpi.ErrProcFailed):
			fmt.Println("the other rank is gone")
		case errors.Is(err, mpi.ErrRank) && errors.As(err, &e):
			fmt.Println(e)
			fmt.Println(e.Call, e.Arg, e.Class, e.Err)
		}
		for _, c := range []mpi.Class{
			mpi.ErrBuffer, mpi.ErrCount, mpi.ErrType, mpi.ErrTag, mpi.ErrComm, mpi.ErrRequest, mpi.ErrRoot,
			mpi.ErrOp, mpi.ErrArg, mpi.ErrTruncate, mpi.ErrOther, mpi.ErrPending, mpi.ErrCanceled,
		} {
			if errors.Is(err, c) {
				return fmt.Errorf("it is %w", c)
			}
		}
		return nil
	})
	// Output:
	// MPI_Send, argument dest: it is 7, and MPI_COMM_WORLD has the ranks 0 to 0 (MPI_ERR_RANK)
	// MPI_Send dest MPI_ERR_RANK it is 7, and MPI_COMM_WORLD has the ranks 0 to 0
}

// A program that uses remote memory beside MPI joins its group by itself. A program that is for one
// module says so.
func ExampleInit() {
	start := func(ctx context.Context) (*mpi.Comm, error) {
		p, err := vmmc.Open(ctx)
		if err != nil {
			return nil, err
		}
		g, err := group.Join(ctx, p)
		if err != nil {
			return nil, err
		}
		var opts []mpi.Option
		opts = append(opts, mpi.WithGroup(p, g), mpi.WithModule("tcp"), // instead of the variable
			mpi.WithFailed(func(rank int, err error) { log.Print(rank, err) }))
		world, err := mpi.Init(ctx, opts...)
		if err != nil {
			return nil, err
		}
		module, err := world.Module(world.Rank())
		fmt.Println(world.Name(), module, mpi.Undefined)
		return world, err
	}
	_ = start // it needs a node
	fmt.Println(mpi.ModuleEnv)
	// Output: VMMC_MPI_MODULE
}
