package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/vmmc-go/vmmc/mpi"
)

// A program that no launcher has started is one rank, without a node.
func TestInitAlone(t *testing.T) {
	t.Setenv("VMMC_SOCKET", t.TempDir()+"/none")
	ctx := within(t)
	c, err := mpi.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c.Rank() != 0 || c.Size() != 1 {
		t.Errorf("rank %d of %d", c.Rank(), c.Size())
	}
	r, err := mpi.Isend(c, []int{1, 2, 3}, 0, 4)
	if err != nil {
		t.Fatal(err)
	}
	in := make([]int, 3)
	if st, err := mpi.Recv(ctx, c, in, mpi.AnySource, mpi.AnyTag); err != nil || in[2] != 3 || st.Tag != 4 || mpi.Count[int](st) != 3 {
		t.Errorf("%v, %+v, %v", in, st, err)
	}
	if _, err := r.Wait(ctx); err != nil {
		t.Error(err)
	}
	if err := collectives(ctx, c, 10); err != nil {
		t.Error(err)
	}
	if err := c.Finalize(ctx); err != nil {
		t.Error(err)
	}
	if err := mpi.Send(ctx, c, in, 0, 0); !errors.Is(err, mpi.ErrOther) {
		t.Errorf("after Finalize: %v", err)
	}
	if err := c.Finalize(ctx); !errors.Is(err, mpi.ErrOther) {
		t.Errorf("a second Finalize: %v", err)
	}
}

// Several ranks that another launcher has started are no jobs of one rank each.
func TestInitOtherLauncher(t *testing.T) {
	t.Setenv("PMI_SIZE", "4")
	if _, err := mpi.Init(within(t)); !errors.Is(err, mpi.ErrOther) || !strings.Contains(err.Error(), "vmmc mpirun -n 4") {
		t.Errorf("%v", err)
	}
}

// The module can be forced by the environment and by the option, and is used.
func TestModules(t *testing.T) {
	t.Setenv(mpi.ModuleEnv, "mail")
	if _, err := mpi.Init(within(t)); !errors.Is(err, mpi.ErrArg) || !strings.Contains(err.Error(), `"mail"`) {
		t.Errorf("an unknown module: %v", err)
	}
	for _, w := range []way{ways[0], ways[1], ways[3], {"none", "", 1}} {
		want := w.module
		if want == "" {
			want = "shm"
		}
		cs := job(t, w, 2)
		for rank, m := range []string{"self", want} {
			if got, err := cs[0].Module(rank); got != m || err != nil {
				t.Errorf("module %q: %q with rank %d, %v", w.module, got, rank, err)
			}
		}
	}
	for w, far := range map[way]string{ways[2]: "tcp", ways[4]: "via"} {
		cs := job(t, w, 3)
		for rank, want := range []string{"self", "shm", far} {
			if got, err := cs[0].Module(rank); got != want || err != nil {
				t.Errorf("%q with rank %d, want %q: %v", got, rank, want, err)
			}
		}
	}
}

// Each argument that cannot be is an error of its class, which names the call and the argument. No
// message is sent by it.
func TestArguments(t *testing.T) {
	world := job(t, ways[0], 2)
	c := world[0]
	ctx := within(t)
	b := []int32{1, 2}
	var none context.Context
	_, sendrecv := mpi.Sendrecv(ctx, c, b, 1, 0, b, 5, 0)
	_, recvRank := mpi.Recv(ctx, c, b, 2, 0)
	_, recvTag := mpi.Recv(ctx, c, b, 1, -3)
	_, recvType := mpi.Recv(ctx, c, []string{""}, 1, 0)
	_, isend := mpi.Isend(c, b, -7, 0)
	_, irecv := mpi.Irecv(c, b, 9, 0)
	_, probe := c.Probe(ctx, 2, 0)
	_, split := c.Split(ctx, -1, 0)
	_, nilRequest := (*mpi.Request)(nil).Wait(ctx)
	_, module := c.Module(2)
	for _, x := range []struct {
		call, arg string
		class     mpi.Class
		err       error
	}{
		{"MPI_Send", "dest", mpi.ErrRank, mpi.Send(ctx, c, b, 2, 0)},
		{"MPI_Send", "dest", mpi.ErrRank, mpi.Send(ctx, c, b, mpi.AnySource, 0)},
		{"MPI_Send", "tag", mpi.ErrTag, mpi.Send(ctx, c, b, 1, mpi.AnyTag)},
		{"MPI_Send", "buf", mpi.ErrType, mpi.Send(ctx, c, []*int{nil}, 1, 0)},
		{"MPI_Send", "ctx", mpi.ErrArg, mpi.Send(none, c, b, 1, 0)},
		{"MPI_Ssend", "dest", mpi.ErrRank, mpi.Ssend(ctx, c, b, 2, 0)},
		{"MPI_Bsend", "buf", mpi.ErrBuffer, mpi.Bsend(c, b, 1, 0)},
		{"MPI_Buffer_attach", "size", mpi.ErrArg, c.BufferAttach(0)},
		{"MPI_Sendrecv", "source", mpi.ErrRank, sendrecv},
		{"MPI_Recv", "source", mpi.ErrRank, recvRank},
		{"MPI_Recv", "tag", mpi.ErrTag, recvTag},
		{"MPI_Recv", "buf", mpi.ErrType, recvType},
		{"MPI_Isend", "dest", mpi.ErrRank, isend},
		{"MPI_Irecv", "source", mpi.ErrRank, irecv},
		{"MPI_Probe", "source", mpi.ErrRank, probe},
		{"MPI_Comm_split", "color", mpi.ErrArg, split},
		{"MPI_Wait", "request", mpi.ErrRequest, nilRequest},
		{"Comm.Module", "rank", mpi.ErrRank, module},
		{"MPI_Bcast", "root", mpi.ErrRoot, mpi.Bcast(ctx, c, b, 2)},
		{"MPI_Reduce", "op", mpi.ErrOp, mpi.Reduce(ctx, c, b, b, mpi.Op[int32]{}, 0)},
		{"MPI_Allreduce", "recv", mpi.ErrCount, mpi.Allreduce(ctx, c, b, b[:1], mpi.Sum[int32]())},
		{"MPI_Gather", "recv", mpi.ErrCount, mpi.Gather(ctx, c, b, b, 0)},
		{"MPI_Scatter", "send", mpi.ErrCount, mpi.Scatter(ctx, c, b, b, 0)},
		{"MPI_Allgather", "recv", mpi.ErrCount, mpi.Allgather(ctx, c, b, b)},
		{"MPI_Alltoall", "send", mpi.ErrCount, mpi.Alltoall(ctx, c, b[:1], b[:1])},
		{"MPI_Barrier", "ctx", mpi.ErrArg, c.Barrier(none)},
	} {
		var e *mpi.Error
		if !errors.As(x.err, &e) || e.Call != x.call || e.Arg != x.arg || !errors.Is(x.err, x.class) {
			t.Errorf("%s, %s: %v, want %v", x.call, x.arg, x.err, x.class)
			continue
		}
		if s := x.err.Error(); !strings.Contains(s, x.call) || !strings.Contains(s, x.arg) || !strings.Contains(s, x.class.Error()) {
			t.Errorf("the text names not all of %s, %s, %v: %s", x.call, x.arg, x.class, s)
		}
	}
	each(t, world, func(ctx context.Context, c *mpi.Comm) error { // no collective has begun, and no message was sent
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if _, ok, err := c.Iprobe(mpi.AnySource, mpi.AnyTag); ok || err != nil {
			return fmt.Errorf("there is a message: %w", errors.Join(errWrong, err))
		}
		return nil
	})
}

// Communicators keep their messages apart, also those of collectives.
func TestCommunicators(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			each(t, job(t, w, 5), func(ctx context.Context, c *mpi.Comm) error {
				d, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				odd, err := d.Split(ctx, c.Rank()%2, -c.Rank()) // in the opposite order
				if err != nil {
					return err
				}
				next, prev := (c.Rank()+1)%5, (c.Rank()+4)%5
				for i, x := range []*mpi.Comm{c, d} {
					if err := mpi.Send(ctx, x, []int{c.Rank()*10 + i}, next, 0); err != nil {
						return err
					}
				}
				sum := []int{0}
				if err := mpi.Allreduce(ctx, odd, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
					return err
				}
				if want := []int{6, 4}[c.Rank()%2]; sum[0] != want || odd.Size() != 3-c.Rank()%2 {
					return fmt.Errorf("the sum of %d ranks is %d, want %d: %w", odd.Size(), sum[0], want, errWrong)
				}
				if want := (odd.Size()*2 - 2 + c.Rank()%2 - c.Rank()) / 2; odd.Rank() != want {
					return fmt.Errorf("rank %d, want %d by the keys: %w", odd.Rank(), want, errWrong)
				}
				for i, x := range []*mpi.Comm{d, c} { // the other way round
					v := []int{0}
					if st, err := mpi.Recv(ctx, x, v, mpi.AnySource, mpi.AnyTag); err != nil || v[0] != prev*10+1-i || st.Source != prev {
						return fmt.Errorf("%d from %+v: %w", v[0], st, errors.Join(errWrong, err))
					}
				}
				return nil
			})
		})
	}
}

// Many goroutines of each rank make all kinds of calls at the same time.
func TestThreads(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			each(t, job(t, w, 3), func(ctx context.Context, c *mpi.Comm) error {
				const threads, rounds = 6, 40
				errs := make(chan error, threads)
				for thread := range threads {
					go func() {
						next, prev := (c.Rank()+1)%3, (c.Rank()+2)%3
						for i := range rounds {
							v := []int{c.Rank(), thread, i}
							in := make([]int, 3)
							n := 1 + i%2*5000
							long := make([]int, n)
							if _, err := mpi.Sendrecv(ctx, c, v, next, thread, in, prev, thread); err != nil || in[0] != prev || in[1] != thread || in[2] != i {
								errs <- fmt.Errorf("thread %d: %v: %w", thread, in, errors.Join(errWrong, err))
								return
							}
							r, err := mpi.Irecv(c, long, prev, 100+thread)
							if err == nil {
								err = mpi.Ssend(ctx, c, make([]int, n), next, 100+thread)
							}
							if err == nil {
								_, _, err = mpi.Waitany(ctx, nil, r)
							}
							if err != nil {
								errs <- err
								return
							}
						}
						errs <- nil
					}()
				}
				var all error
				for range threads {
					all = errors.Join(all, <-errs)
				}
				return all
			})
		})
	}
}

// Requests: test, wait for any, some and all, cancel, and probes that take.
func TestRequests(t *testing.T) {
	each(t, job(t, ways[0], 2), func(ctx context.Context, c *mpi.Comm) error {
		if c.Rank() == 1 {
			for tag := range 4 {
				if err := mpi.Send(ctx, c, []int{tag}, 0, tag); err != nil {
					return err
				}
			}
			v := []int{0}
			_, err := mpi.Recv(ctx, c, v, 0, 0)
			return err
		}
		m, st, err := c.Mprobe(ctx, 1, 2)
		if err != nil || st.Tag != 2 {
			return fmt.Errorf("mprobe: %+v: %w", st, errors.Join(errWrong, err))
		}
		var rs []*mpi.Request
		var in [4][1]int
		for _, tag := range []int{3, mpi.AnyTag, 1, 9} {
			r, err := mpi.Irecv(c, in[len(rs)][:], mpi.AnySource, tag)
			if err != nil {
				return err
			}
			rs = append(rs, r)
		}
		if _, err := mpi.Waitall(ctx, rs[:3]...); err != nil {
			return err
		}
		if in[0][0] != 3 || in[1][0] != 0 || in[2][0] != 1 {
			return fmt.Errorf("%v: %w", in, errWrong)
		}
		some, err := mpi.Waitsome(ctx, rs...)
		if err != nil || len(some) != 3 {
			return fmt.Errorf("waitsome: %v: %w", some, errors.Join(errWrong, err))
		}
		if _, ok, err := rs[3].Test(); ok || err != nil {
			return fmt.Errorf("test: %w", errors.Join(errWrong, err))
		}
		if !rs[3].Cancel() || rs[3].Cancel() || rs[0].Cancel() {
			return fmt.Errorf("cancel: %w", errWrong)
		}
		if st, ok, err := rs[3].Test(); !ok || !st.Cancelled || err != nil {
			return fmt.Errorf("cancelled: %+v: %w", st, errors.Join(errWrong, err))
		}
		v := []int{0}
		if _, err := mpi.Mrecv(ctx, m, v); err != nil || v[0] != 2 {
			return fmt.Errorf("mrecv: %v: %w", v, errors.Join(errWrong, err))
		}
		if _, err := mpi.Mrecv(ctx, m, v); !errors.Is(err, mpi.ErrRequest) {
			return fmt.Errorf("a second mrecv: %w", err)
		}
		if err := mpi.Send(ctx, c, v, mpi.ProcNull, 0); err != nil {
			return err
		}
		if st, err := mpi.Recv(ctx, c, v, mpi.ProcNull, 0); err != nil || st.Source != mpi.ProcNull {
			return fmt.Errorf("from no rank: %+v: %w", st, err)
		}
		return mpi.Send(ctx, c, v, 1, 0)
	})
}

// A short message allocates nothing.
func TestAllocations(t *testing.T) {
	if race {
		t.Skip("the race detector allocates")
	}
	cs := job(t, ways[0], 2)
	ctx := context.Background()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		v := make([]int64, 8)
		for {
			if st, err := mpi.Recv(ctx, cs[1], v, 0, mpi.AnyTag); err != nil || st.Bytes == 0 {
				return
			}
			if mpi.Send(ctx, cs[1], v, 0, 0) != nil {
				return
			}
		}
	}()
	v := make([]int64, 8)
	once := func() {
		if err := mpi.Send(ctx, cs[0], v, 1, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := mpi.Recv(ctx, cs[0], v, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	once()
	if n := testing.AllocsPerRun(2000, once); n > 0 {
		t.Errorf("%v allocations for a message there and back", n)
	}
	if err := mpi.Send(ctx, cs[0], v[:0], 1, 0); err != nil {
		t.Fatal(err)
	}
	<-ended
}
