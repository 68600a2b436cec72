package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/group"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() { vmmctest.Role("window rank", windowRank) }

// windows makes a window of n values at each rank, which is freed with the test.
func windows[T any](t *testing.T, world []*mpi.Comm, n int) []*mpi.Win[T] {
	t.Helper()
	ws := make([]*mpi.Win[T], len(world))
	each(t, world, func(ctx context.Context, c *mpi.Comm) (err error) {
		ws[c.Rank()], err = mpi.WinAllocate[T](ctx, c, n)
		return err
	})
	t.Cleanup(func() {
		if !t.Failed() {
			each(t, world, func(ctx context.Context, c *mpi.Comm) error { return ws[c.Rank()].Free(ctx) })
		}
	})
	return ws
}

// access is a call of the model. Places of puts are of one rank each, and places of accumulates have
// one kind of operation each, so that the result does not depend on who is first.
type access struct {
	origin, target, at, n int
	add, request          bool
}

// Epochs of Fence, with any puts, accumulates and gets of all ranks in each, against a model of the
// memory.
func TestWindowModel(t *testing.T) {
	const size, half = 4, 24 // places up to half are put to, and the others accumulated
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, size)
			ws := windows[int64](t, world, 2*half)
			want := make([][]int64, size)
			for i := range want {
				want[i] = make([]int64, 2*half)
			}
			salt := int64(0)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error { return ws[c.Rank()].Fence(ctx) })
			rapid.Check(t, func(rt *rapid.T) {
				salt++
				rank := rapid.IntRange(0, size-1)
				var program []access
				for range rapid.IntRange(1, 12).Draw(rt, "calls") {
					a := access{
						origin: rank.Draw(rt, "origin"), target: rank.Draw(rt, "target"),
						add: rapid.Bool().Draw(rt, "add"), request: rapid.Bool().Draw(rt, "request"),
					}
					const share = half / size // of the places of puts
					if a.add {
						a.at = half + rapid.IntRange(0, half-1).Draw(rt, "at")
						a.n = rapid.IntRange(0, 2*half-a.at).Draw(rt, "values")
					} else {
						first := rapid.IntRange(0, share-1).Draw(rt, "at")
						a.at, a.n = a.origin*share+first, rapid.IntRange(0, share-first).Draw(rt, "values")
					}
					program = append(program, a)
				}
				data := func(i int) []int64 {
					v := values(program[i].origin, program[i].n)
					for j := range v {
						v[j] += salt*1000 + int64(i)
					}
					return v
				}
				for i, a := range program {
					for j, v := range data(i) {
						if a.add {
							want[a.target][a.at+j] += v
						} else {
							want[a.target][a.at+j] = v
						}
					}
				}
				ctx, stop := context.WithTimeout(context.Background(), bound)
				defer stop()
				errs := make([]error, size)
				var wg sync.WaitGroup
				for rank, win := range ws {
					wg.Go(func() {
						errs[rank] = epoch(ctx, win, rank, program, data, want)
						if errs[rank] != nil {
							stop()
						}
					})
				}
				wg.Wait()
				if err := errors.Join(errs...); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// epoch is a rank's part of one epoch.
func epoch(
	ctx context.Context, win *mpi.Win[int64], rank int, program []access, data func(int) []int64, want [][]int64,
) error {
	last := map[int]*mpi.Request{} // of puts to a rank: those to one place have no order
	for i, a := range program {
		if a.origin != rank {
			continue
		}
		if q := last[a.target]; q != nil {
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
		}
		var q *mpi.Request
		var err error
		switch v := data(i); {
		case a.add && a.request:
			q, err = win.Raccumulate(v, a.target, a.at, mpi.Sum[int64]())
		case a.add:
			err = win.Accumulate(ctx, v, a.target, a.at, mpi.Sum[int64]())
		case a.request:
			q, err = win.Rput(v, a.target, a.at)
		default:
			err = win.Put(ctx, v, a.target, a.at)
		}
		if err != nil {
			return fmt.Errorf("%+v: %w", a, err)
		}
		if !a.add {
			last[a.target] = q
		}
	}
	if err := win.Fence(ctx); err != nil {
		return err
	}
	if err := differs(fmt.Sprintf("memory of rank %d", rank), win.Values(), want[rank]); err != nil {
		return err
	}
	for target, v := range want {
		got := make([]int64, len(v))
		q, err := win.Rget(got, target, 0)
		if err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		if err := differs(fmt.Sprintf("rank %d gets from rank %d", rank, target), got, v); err != nil {
			return err
		}
	}
	return win.Fence(ctx)
}

// triple is a value that no atomic of a word changes.
type triple struct{ A, B, C int64 }

// fetches has all ranks add to one value of rank 0, and checks that each has found another one.
func fetches[T comparable](t *testing.T, world []*mpi.Comm, one T, add mpi.Op[T], number func(T) int) {
	t.Helper()
	const times = 40
	ws := windows[T](t, world, 3)
	var mu sync.Mutex
	seen := map[int]int{}
	each(t, world, func(ctx context.Context, c *mpi.Comm) error {
		w := ws[c.Rank()]
		if err := w.LockAll(ctx); err != nil {
			return err
		}
		for range times {
			was, err := w.FetchAndOp(ctx, one, 0, 1, add)
			if err != nil {
				return err
			}
			mu.Lock()
			seen[number(was)]++
			mu.Unlock()
		}
		return w.UnlockAll(ctx)
	})
	for i := range times * len(world) {
		if seen[i] != 1 {
			t.Errorf("%T: %d fetches have found %d, want 1", one, seen[i], i)
		}
	}
	if got := number(ws[0].Values()[1]); got != times*len(world) {
		t.Errorf("%T: the sum is %d, want %d", one, got, times*len(world))
	}
}

// Fetches are atomic, for types that remote atomics change and for others.
func TestFetchAndOp(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 4)
			fetches(t, world, int64(1), mpi.Sum[int64](), func(v int64) int { return int(v) })
			fetches(t, world, int32(1), mpi.Sum[int32](), func(v int32) int { return int(v) })
			fetches(t, world, 1.0, mpi.Sum[float64](), func(v float64) int { return int(v) })
			fetches(t, world, uint8(1), mpi.Sum[uint8](), func(v uint8) int { return int(v) })
			addTriples := mpi.OpOf(func(in, inout []triple) {
				for i, v := range in {
					inout[i] = triple{inout[i].A + v.A, inout[i].B + v.B, inout[i].C + v.C}
				}
			}, true)
			fetches(t, world, triple{1, 2, 3}, addTriples, func(v triple) int {
				if v.B != 2*v.A || v.C != 3*v.A {
					return -1
				}
				return int(v.A)
			})
		})
	}
}

// swaps counts up at rank 0 by compare-and-swap.
func swaps[T comparable](t *testing.T, world []*mpi.Comm, next func(T) T, number func(T) int) {
	t.Helper()
	const times = 15
	ws := windows[T](t, world, 1)
	each(t, world, func(ctx context.Context, c *mpi.Comm) error {
		w := ws[c.Rank()]
		if err := w.Lock(ctx, mpi.LockShared, 0); err != nil {
			return err
		}
		var zero T
		now, err := w.FetchAndOp(ctx, zero, 0, 0, mpi.NoOp[T]())
		for done := 0; done < times && err == nil; {
			was := now
			if now, err = w.CompareAndSwap(ctx, was, next(was), 0, 0); now == was {
				now = next(was)
				done++
			}
		}
		return errors.Join(err, w.Unlock(ctx, 0))
	})
	if got := number(ws[0].Values()[0]); got != times*len(world) {
		t.Errorf("it is %d, want %d", got, times*len(world))
	}
}

func TestCompareAndSwap(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 3)
			swaps(t, world, func(v uint32) uint32 { return v + 1 }, func(v uint32) int { return int(v) })
			swaps(t, world, func(v triple) triple { return triple{v.A + 1, v.A, 0} }, func(v triple) int { return int(v.A) })
		})
	}
}

// A rank that has the lock alone is alone: a plain get and put of all ranks lose nothing.
func TestLockExclusive(t *testing.T) {
	const times = 25
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 4)
			ws := windows[int64](t, world, 1)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				w, v := ws[c.Rank()], make([]int64, 1)
				for range times {
					if err := w.Lock(ctx, mpi.LockExclusive, 0); err != nil {
						return err
					}
					if err := w.Get(ctx, v, 0, 0); err != nil {
						return err
					}
					v[0]++
					if err := w.Put(ctx, v, 0, 0); err != nil {
						return err
					}
					if err := w.Unlock(ctx, 0); err != nil {
						return err
					}
				}
				return nil
			})
			if got := ws[0].Values()[0]; got != times*4 {
				t.Errorf("it is %d, want %d", got, times*4)
			}
		})
	}
}

// Ranks pass values round a ring by epochs of Post and Start.
func TestPostStart(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 3)
			ws := windows[int64](t, world, 2000)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				w, n, me := ws[c.Rank()], c.Size(), c.Rank()
				next, err1 := c.Group().Incl([]int{(me + 1) % n})
				prev, err2 := c.Group().Incl([]int{(me + n - 1) % n})
				if err := errors.Join(err1, err2); err != nil {
					return err
				}
				for again := range 20 {
					if err := w.Post(ctx, prev); err != nil {
						return err
					}
					if err := w.Start(ctx, next); err != nil {
						return err
					}
					if err := w.Put(ctx, values(me+again, 2000), (me+1)%n, 0); err != nil {
						return err
					}
					if err := w.Put(ctx, []int64{1}, (me+2)%n, 0); !errors.Is(err, mpi.ErrRMASync) {
						return fmt.Errorf("a put beyond the epoch: %w", err)
					}
					if err := w.Complete(ctx); err != nil {
						return err
					}
					if again%2 == 0 {
						for over := false; !over; {
							var err error
							if over, err = w.Test(); err != nil {
								return err
							}
							if ctx.Err() != nil {
								return ctx.Err()
							}
						}
					} else if err := w.Wait(ctx); err != nil {
						return err
					}
					if err := differs("memory", w.Values(), values((me+n-1)%n+again, 2000)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// Accumulates of one rank take place in the order of their calls, also those with requests.
func TestAccumulateOrder(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 2)
			ws := windows[int64](t, world, 8)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				w := ws[c.Rank()]
				if c.Rank() == 1 {
					return nil
				}
				if err := w.LockAll(ctx); err != nil {
					return err
				}
				for i := range int64(50) {
					v, was := slices.Repeat([]int64{i + 1}, 8), make([]int64, 8)
					q, err := w.RgetAccumulate(v, was, 1, 0, mpi.Replace[int64]())
					if err != nil {
						return err
					}
					if i%5 > 0 { // the others are waited for by what follows
						continue
					}
					if _, err := q.Wait(ctx); err != nil {
						return err
					}
					if err := differs("what was there", was, slices.Repeat([]int64{i}, 8)); err != nil {
						return err
					}
				}
				if err := w.Flush(ctx, 1); err != nil {
					return err
				}
				got := make([]int64, 8)
				if err := w.GetAccumulate(ctx, got, got, 1, 0, mpi.NoOp[int64]()); err != nil {
					return err
				}
				if err := differs("the last", got, slices.Repeat([]int64{50}, 8)); err != nil {
					return err
				}
				return w.UnlockAll(ctx)
			})
		})
	}
}

// A window of the program's memory, of another length at each rank, and of values shorter than a word.
func TestWinCreate(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 3)
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				mem := make([]uint32, 2*c.Rank()) // rank 0 has none
				win, err := mpi.WinCreate(ctx, c, mem)
				if err != nil {
					return err
				}
				bytes, err := mpi.WinAllocate[uint8](ctx, c, 5)
				if err != nil {
					return err
				}
				if err := errors.Join(win.Fence(ctx), bytes.Fence(ctx)); err != nil {
					return err
				}
				me := uint32(c.Rank())
				if err := win.Put(ctx, []uint32{me + 7}, 2, c.Rank()); err != nil {
					return err
				}
				if err := win.Put(ctx, []uint32{1}, 0, 0); !errors.Is(err, mpi.ErrRMARange) {
					return fmt.Errorf("a put to a rank without memory: %w", err)
				}
				if err := bytes.Put(ctx, []uint8{uint8(me) + 1}, 1, c.Rank()+1); err != nil {
					return err
				}
				if err := errors.Join(win.Fence(ctx), bytes.Fence(ctx)); err != nil {
					return err
				}
				if c.Rank() == 2 {
					err = differs("memory", mem, []uint32{7, 8, 9, 0})
				}
				if c.Rank() == 1 {
					err = differs("bytes", bytes.Values(), []uint8{0, 1, 2, 3, 0})
				}
				return errors.Join(err, win.Free(ctx), bytes.Free(ctx))
			})
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				mem := make([]uint8, 4)
				if c.Rank() == 1 {
					mem = mem[:3]
				}
				want := mpi.ErrOther
				if c.Rank() == 1 {
					want = mpi.ErrArg
				}
				if _, err := mpi.WinCreate(ctx, c, mem); !errors.Is(err, want) {
					return fmt.Errorf("memory of no whole word at rank 1: %w", err)
				}
				return nil
			})
		})
	}
}

// Calls that cannot be are refused, and change nothing. One rank has a window without a node.
func TestWindowArguments(t *testing.T) {
	ctx := within(t)
	c, err := mpi.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := mpi.WinAllocate[int64](ctx, c, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Name(); got != c.Name()+" window" {
		t.Errorf("the name is %q", got)
	}
	if w.SetName("halo"); w.Name() != "halo" || c.Name() == "halo" {
		t.Errorf("the window is %q, and the communicator %q", w.Name(), c.Name())
	}
	if got := w.Group().Size(); got != 1 {
		t.Errorf("the group has %d ranks", got)
	}
	one := []int64{1}
	add := mpi.Sum[int64]()
	for _, x := range []struct {
		what string
		err  error
		want mpi.Class
	}{
		{"a put without an epoch", w.Put(ctx, one, 0, 0), mpi.ErrRMASync},
		{"unlock without lock", w.Unlock(ctx, 0), mpi.ErrRMASync},
		{"unlock all without lock", w.UnlockAll(ctx), mpi.ErrRMASync},
		{"complete without start", w.Complete(ctx), mpi.ErrRMASync},
		{"wait without post", w.Wait(ctx), mpi.ErrRMASync},
		{"no lock type", w.Lock(ctx, 0, 0), mpi.ErrLockType},
		{"lock of no rank", w.Lock(ctx, mpi.LockShared, 1), mpi.ErrRank},
		{"flush local without an epoch", w.FlushLocal(ctx, 0), mpi.ErrRMASync},
		{"lock", w.Lock(ctx, mpi.LockShared, 0), 0},
		{"lock twice", w.Lock(ctx, mpi.LockShared, 0), mpi.ErrRMASync},
		{"a put", w.Put(ctx, one, 0, 3), 0},
		{"a put to nobody", w.Put(ctx, one, mpi.ProcNull, 99), 0},
		{"a put to no rank", w.Put(ctx, one, 1, 0), mpi.ErrRank},
		{"a put beyond", w.Put(ctx, one, 0, 4), mpi.ErrRMARange},
		{"a get before", w.Get(ctx, one, 0, -1), mpi.ErrRMARange},
		{"a long get", w.Get(ctx, make([]int64, 5), 0, 0), mpi.ErrRMARange},
		{"no operation", w.Accumulate(ctx, one, 0, 0, mpi.Op[int64]{}), mpi.ErrOp},
		{"another length", w.GetAccumulate(ctx, one, nil, 0, 0, add), mpi.ErrCount},
		{"no context", w.Put(nil, one, 0, 0), mpi.ErrArg}, //nolint:staticcheck // that is the test
		{"unlock", w.Unlock(ctx, 0), 0},
		{"free", w.Free(ctx), 0},
		{"free twice", w.Free(ctx), mpi.ErrWin},
		{"a put to a freed one", w.Put(ctx, one, 0, 0), mpi.ErrWin},
		{"flush local of a freed one", w.FlushLocalAll(ctx), mpi.ErrWin},
	} {
		if x.want == 0 && x.err != nil || x.want != 0 && !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", x.what, x.err, x.want)
		}
	}
	if _, err := mpi.WinAllocate[*int](ctx, c, 4); !errors.Is(err, mpi.ErrType) {
		t.Errorf("pointers: %v", err)
	}
	if _, err := mpi.WinAllocate[int](ctx, c, -1); !errors.Is(err, mpi.ErrArg) {
		t.Errorf("a negative length: %v", err)
	}
	if err := c.Finalize(ctx); err != nil {
		t.Error(err)
	}
}

// An error of what a collective does inside names the call that the program has made.
func TestInnerErrorsNameTheCall(t *testing.T) {
	each(t, job(t, ways[0], 2), func(ctx context.Context, c *mpi.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil || c.Rank() == 0 { // it sends nothing, and so rank 1 waits
			return err
		}
		ended, stop := context.WithCancel(ctx)
		stop()
		_, window := mpi.WinAllocate[int64](ended, d, 1)
		_, file := mpi.FileOpen(ended, d, "never", mpi.ModeReadOnly, nil)
		_, dup := d.Dup(ended)
		for call, err := range map[string]error{"MPI_Win_allocate": window, "MPI_File_open": file, "MPI_Comm_dup": dup} {
			var e *mpi.Error
			if !errors.As(err, &e) || e.Call != call {
				return fmt.Errorf("%s: %w", call, err)
			}
		}
		return nil
	})
}

// An accumulate whose context ends while it waits for an earlier one is over, and later ones still come
// after the earlier one.
func TestAccumulateGivenUp(t *testing.T) {
	ctx := within(t)
	c, err := mpi.Init(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w, err := mpi.WinAllocate[int64](ctx, c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := mpi.OpOf(func(in, inout []int64) {
		close(begun)
		<-goOn
		inout[0] = in[0]
	}, false)
	first, err := w.Raccumulate([]int64{5}, 0, 0, slow)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	ended, stop := context.WithCancel(ctx)
	stop()
	for what, err := range map[string]error{
		"accumulate":      w.Accumulate(ended, []int64{100}, 0, 0, mpi.Sum[int64]()),
		"flush":           w.Flush(ended, 0),
		"flush local":     w.FlushLocal(ended, 0),
		"flush local all": w.FlushLocalAll(ended),
	} {
		if !errors.Is(err, mpi.ErrCanceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.CompareAndSwap(ended, 0, 100, 0, 0); !errors.Is(err, mpi.ErrCanceled) {
		t.Errorf("compare and swap: %v", err)
	}
	later, err := w.Raccumulate([]int64{2}, 0, 0, mpi.Prod[int64]())
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, err := later.Wait(short); !errors.Is(err, mpi.ErrPending) {
		t.Errorf("a later accumulate has not waited: %v", err)
	}
	close(goOn)
	if _, err := mpi.Waitall(ctx, first, later); err != nil {
		t.Error(err)
	}
	if got := w.Values()[0]; got != 10 {
		t.Errorf("the value is %d", got)
	}
	if err := errors.Join(w.FlushLocal(ctx, 0), w.FlushLocalAll(ctx), w.Free(ctx), c.Finalize(ctx)); err != nil {
		t.Error(err)
	}
}

// Hints are kept and returned, with the defaults of the others. Without an order an accumulate does not wait
// for one that was begun before, and without locks there are none.
func TestInfo(t *testing.T) {
	ctx := within(t)
	c := one(t)
	defer ended(t, c)
	w, err := mpi.WinAllocate[int64](ctx, c, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := mpi.Info{
		"no_locks": "false", "accumulate_ordering": "rar,raw,war,waw", "accumulate_ops": "same_op_no_op",
		"same_size": "false", "same_disp_unit": "false",
	}
	if got := w.Info(); !maps.Equal(got, want) {
		t.Errorf("the defaults are %v", got)
	}
	for _, bad := range []mpi.Info{
		{"no_locks": "yes"}, {"accumulate_ordering": "rar,none"}, {"same_size": "true", "accumulate_ordering": ""},
	} {
		if err := w.SetInfo(bad); !errors.Is(err, mpi.ErrInfoValue) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if got := w.Info(); !maps.Equal(got, want) {
		t.Errorf("a value that cannot be has changed %v", got)
	}
	if err := w.SetInfo(mpi.Info{"accumulate_ordering": "none", "no_locks": "true", "unknown": "x"}); err != nil {
		t.Fatal(err)
	}
	want["accumulate_ordering"], want["no_locks"] = "none", "true"
	if got := w.Info(); !maps.Equal(got, want) {
		t.Errorf("it has %v", got)
	}
	if err := w.Lock(ctx, mpi.LockShared, 0); !errors.Is(err, mpi.ErrRMASync) {
		t.Errorf("a lock of a window without locks: %v", err)
	}
	if err := w.LockAll(ctx); !errors.Is(err, mpi.ErrRMASync) {
		t.Errorf("locks of a window without locks: %v", err)
	}
	if err := w.Fence(ctx); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := mpi.OpOf(func(in, inout []int64) {
		once.Do(func() { close(begun) })
		<-goOn
		inout[0] += in[0]
	}, false)
	first, err := w.Raccumulate([]int64{5}, 0, 0, slow)
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := w.Accumulate(ctx, []int64{2}, 0, 0, mpi.Sum[int64]()); err != nil {
		t.Error(err)
	}
	if _, err := w.CompareAndSwap(ctx, 0, 3, 0, 1); err != nil {
		t.Error(err)
	}
	if got := w.Values(); got[0] != 2 || got[1] != 3 {
		t.Errorf("before the first is over: %v", got)
	}
	close(goOn)
	if _, err := first.Wait(ctx); err != nil || w.Values()[0] != 7 {
		t.Errorf("both are %d: %v", w.Values()[0], err)
	}
	if err := w.SetInfo(mpi.Info{"no_locks": "false"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Lock(ctx, mpi.LockShared, 0), w.Unlock(ctx, 0), w.Free(ctx)); err != nil {
		t.Error(err)
	}
	if err := w.SetInfo(nil); !errors.Is(err, mpi.ErrWin) {
		t.Errorf("hints of a freed window: %v", err)
	}

	if err := c.SetInfo(mpi.Info{"mpi_assert_no_any_tag": "true", "other": "1"}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetInfo(mpi.Info{"mpi_assert_exact_length": "1"}); !errors.Is(err, mpi.ErrInfoValue) {
		t.Errorf("a value that cannot be: %v", err)
	}
	got := c.Info()
	if len(got) != 4 || got["mpi_assert_no_any_tag"] != "true" || got["mpi_assert_exact_length"] != "false" {
		t.Errorf("the communicator has %v", got)
	}
	d, err := c.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if d.Info()["mpi_assert_no_any_tag"] != "false" {
		t.Errorf("a dup has %v", d.Info())
	}
}

// windowRank is the last rank of a job with a window. It takes a lock of rank 0's memory, tells so, and
// sleeps; or it begins to take one.
func windowRank(ctx context.Context, p *vmmc.Process, args ...string) error {
	g, err := group.Join(ctx, p)
	if err != nil {
		return err
	}
	c, err := mpi.Init(ctx, mpi.WithGroup(p, g), mpi.WithModule(args[0]))
	if err != nil {
		return err
	}
	w, err := mpi.WinAllocate[int64](ctx, c, 100)
	if err != nil {
		return err
	}
	switch args[1] {
	case "exclusive":
		err = w.Lock(ctx, mpi.LockExclusive, 0)
	case "shared":
		err = w.Lock(ctx, mpi.LockShared, 0)
	case "waits":
		if _, err = mpi.Recv(ctx, c, []int{0}, 0, ready); err != nil {
			return err
		}
		if err = w.Lock(ctx, mpi.LockExclusive, 0); err == nil {
			err = errWrong
		}
	case "shares and waits":
		if err = w.Lock(ctx, mpi.LockShared, 0); err != nil {
			return err
		}
		if err = w.Unlock(ctx, 0); err != nil {
			return err
		}
		if _, err = mpi.Recv(ctx, c, []int{0}, 0, ready); err != nil {
			return err
		}
		if err = w.Lock(ctx, mpi.LockShared, 0); err == nil {
			err = errWrong
		}
	}
	if err != nil {
		return err
	}
	fmt.Println("locked")
	select {}
}

// windowJob makes a job with a window, whose last rank is a child.
func windowJob(t *testing.T, w way, size int, does string) ([]*mpi.Comm, []*mpi.Win[int64], *vmmctest.Proc) {
	t.Helper()
	on := halved(vmmctest.Nodes(t, w.nodes), size)
	cs, procs := jobWith(t, w.module, on, map[int]child{size - 1: {"window rank", []string{w.module, does}}})
	ws := make([]*mpi.Win[int64], len(cs))
	each(t, cs, func(ctx context.Context, c *mpi.Comm) (err error) {
		ws[c.Rank()], err = mpi.WinAllocate[int64](ctx, c, 100)
		return err
	})
	if does == "exclusive" || does == "shared" {
		if got := procs[size-1].Line(); got != "locked" {
			t.Fatal(got)
		}
	}
	return cs, ws, procs[size-1]
}

// A rank is killed that holds a lock which others wait for, and whose memory they use.
func TestKilledWithLock(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const size = 3
			cs, ws, child := windowJob(t, w, size, "exclusive")
			calls := make(chan error, 3)
			go func() { calls <- ws[0].Lock(within(t), mpi.LockExclusive, 0) }()
			go func() { calls <- ws[1].Lock(within(t), mpi.LockShared, 0) }()
			go func() { calls <- ws[1].Fence(within(t)) }()
			child.Kill()
			for range cap(calls) {
				if err := <-calls; !errors.Is(err, mpi.ErrProcFailed) {
					t.Errorf("a call that waits for the killed rank: %v", err)
				}
			}
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				w := ws[c.Rank()]
				if err := w.Lock(ctx, mpi.LockShared, 2); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a lock of the killed rank: %w", err)
				}
				if err := w.LockAll(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("a lock of all: %w", err)
				}
				if err := w.Lock(ctx, mpi.LockShared, 1); err != nil {
					return fmt.Errorf("a lock of a living rank: %w", err)
				}
				if err := w.Put(ctx, []int64{5}, 1, c.Rank()); err != nil {
					return fmt.Errorf("a put to a living rank: %w", err)
				}
				if err := w.Unlock(ctx, 1); err != nil {
					return fmt.Errorf("unlock of a living rank: %w", err)
				}
				return nil
			})
			// The killed rank is no matter for a wait for a living one, which has the lock alone.
			if err := ws[0].Lock(within(t), mpi.LockExclusive, 1); err != nil {
				t.Fatal(err)
			}
			for _, kind := range []mpi.LockType{mpi.LockShared, mpi.LockExclusive} {
				short, stop := context.WithTimeout(within(t), 20*time.Millisecond)
				err := ws[1].Lock(short, kind, 1)
				stop()
				if !errors.Is(err, mpi.ErrCanceled) {
					t.Errorf("a wait of type %d for a living rank: %v", kind, err)
				}
			}
			if err := ws[0].Unlock(within(t), 1); err != nil {
				t.Error(err)
			}
			if err := errors.Join(ws[1].Lock(within(t), mpi.LockExclusive, 1), ws[1].Unlock(within(t), 1)); err != nil {
				t.Errorf("a lock after waits that were given up: %v", err)
			}
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				if err := ws[c.Rank()].Free(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("free: %w", err)
				}
				if err := c.Finalize(ctx); !errors.Is(err, mpi.ErrProcFailed) {
					return fmt.Errorf("finalize: %w", err)
				}
				return nil
			})
		})
	}
}

// A Start that was given up has not lost the Posts that it has seen.
func TestStartAgain(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			world := job(t, w, 3)
			ws := windows[int64](t, world, 1)
			posted := make(chan struct{})
			each(t, world, func(ctx context.Context, c *mpi.Comm) error {
				w := ws[c.Rank()]
				origin, err1 := c.Group().Incl([]int{0})
				both, err2 := c.Group().Incl([]int{1, 2})
				one, err3 := c.Group().Incl([]int{1})
				if err := errors.Join(err1, err2, err3); err != nil {
					return err
				}
				switch c.Rank() {
				case 1:
					if err := w.Post(ctx, origin); err != nil {
						return err
					}
					close(posted)
					return w.Wait(ctx)
				case 2:
					return nil
				}
				<-posted
				for short, tries := time.Millisecond, 0; tries < 3; short, tries = 10*short, tries+1 {
					given, stop := context.WithTimeout(ctx, short)
					err := w.Start(given, both)
					stop()
					if !errors.Is(err, mpi.ErrCanceled) {
						return fmt.Errorf("a rank has not posted: %w", err)
					}
				}
				if err := w.Start(ctx, one); err != nil {
					return err
				}
				return w.Complete(ctx)
			})
		})
	}
}
