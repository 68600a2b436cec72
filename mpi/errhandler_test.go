package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/mpi"
	"github.com/vmmc-go/vmmc/vmmctest"
)

func init() { vmmctest.Role("fatal rank", fatalRank) }

// Each call that fails calls the handler once, and then returns the same error.
func TestErrhandler(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	ctx := within(t)
	var met []error
	c, err := world.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.SetErrhandler(mpi.NewErrhandler(func(on *mpi.Comm, err error) {
		if on != c {
			t.Errorf("it is called for %s", on.Name())
		}
		met = append(met, err)
	}))
	sum := mpi.Sum[int]()
	v := []int{1}
	pointers := []*int{nil}
	wait := func(r *mpi.Request, err error) error {
		if err != nil {
			return err
		}
		_, err = r.Wait(ctx)
		return err
	}
	last := func(_ any, err error) error { return err }
	long := func(tag int) {
		if err := mpi.Send(ctx, c, []int{1, 2}, 0, tag); err != nil {
			t.Fatal(err)
		}
	}
	short := func() error {
		long(1)
		m, _, err := c.Mprobe(ctx, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return last(mpi.Mrecv(ctx, m, v))
	}
	for what, call := range map[string]func() error{
		"send":                   func() error { return mpi.Send(ctx, c, v, 1, 0) },
		"send of pointers":       func() error { return mpi.Send(ctx, c, pointers, 0, 0) },
		"Bsend":                  func() error { return mpi.Bsend(c, v, 0, 0) },
		"receive":                func() error { return last(mpi.Recv(ctx, c, v, 0, -7)) },
		"Mrecv of a longer one":  short,
		"Irecv of a longer one":  func() error { long(2); return wait(mpi.Irecv(c, v, 0, 2)) },
		"Isend":                  func() error { return wait(mpi.Isend(c, v, 1, 0)) },
		"Sendrecv, source":       func() error { return last(mpi.Sendrecv(ctx, c, v, 0, 0, v, 1, 0)) },
		"Sendrecv, destination":  func() error { return last(mpi.Sendrecv(ctx, c, v, 1, 0, v, 0, 0)) },
		"probe":                  func() error { return last(c.Probe(ctx, 1, 0)) },
		"RecvInit":               func() error { return last(mpi.RecvInit(c, v, 1, 0)) },
		"items":                  func() error { return mpi.SendItems(ctx, c, v, -1, mpi.Datatype{}, 0, 0) },
		"bcast":                  func() error { return mpi.Bcast(ctx, c, v, 1) },
		"no context":             func() error { return c.Barrier(nil) }, //nolint:staticcheck // the case
		"allgather":              func() error { return mpi.Allgather(ctx, c, v, nil) },
		"Iallreduce":             func() error { return wait(mpi.Iallreduce(c, v, nil, sum)) },
		"ScanInit":               func() error { return last(mpi.ScanInit(c, v, nil, sum)) },
		"alltoall":               func() error { return mpi.Alltoall(ctx, c, v, nil) },
		"split":                  func() error { return last(c.Split(ctx, -1, 0)) },
		"create_group":           func() error { return last(c.CreateGroup(ctx, c.Group(), -1)) },
		"cart":                   func() error { return last(c.Cart(ctx, []int{2}, []bool{true}, false)) },
		"graph":                  func() error { return last(c.Graph(ctx, []int{1}, nil, false)) },
		"intercomm":              func() error { return last(c.Intercomm(ctx, 1, c, 0, 0)) },
		"merge":                  func() error { return last(c.Merge(ctx, false)) },
		"ack_failed":             func() error { return last(c.AckFailed(-1)) },
		"agree without context":  func() error { return last(c.Agree(nil, 0)) }, //nolint:staticcheck // the case
		"shrink without context": func() error { return last(c.Shrink(nil)) },   //nolint:staticcheck // the case
	} {
		met = nil
		err := call()
		if err == nil || len(met) != 1 || !errors.Is(err, met[0]) {
			t.Errorf("%s: %v, and the handler got %v", what, err, met)
		}
	}
	if err := freedTwice(t, c); !errors.Is(err, mpi.ErrComm) {
		t.Errorf("a second Free: %v", err)
	}
	met = nil
	c.CallErrhandler(errWrong)
	if len(met) != 1 || !errors.Is(met[0], errWrong) {
		t.Errorf("CallErrhandler: %v", met)
	}
	met = nil
	gone, stop := context.WithCancel(ctx)
	stop()
	if _, err := mpi.Recv(gone, c, v, 0, 9); !errors.Is(err, mpi.ErrCanceled) || met != nil {
		t.Errorf("a context that has ended: %v, and the handler got %v", err, met)
	}
	if err := errors.Join(c.Barrier(ctx), mpi.Allreduce(ctx, c, v, v, sum)); err != nil || met != nil {
		t.Errorf("calls that do not fail: %v, and the handler got %v", err, met)
	}
	c.SetErrhandler(nil)
	if err := mpi.Send(ctx, c, v, 1, 0); err == nil || met != nil {
		t.Errorf("the handler was taken away: %v, and it got %v", err, met)
	}
}

// Each call of a window or a file that fails calls its handler once, and not that of the communicator that
// it was made of.
func TestErrhandlerOfWindowsAndFiles(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	ctx := within(t)
	var met []error
	var of *mpi.Comm
	add := mpi.NewErrhandler(func(c *mpi.Comm, err error) { of, met = c, append(met, err) })
	world.SetErrhandler(mpi.NewErrhandler(func(_ *mpi.Comm, err error) { t.Errorf("the communicator's handler: %v", err) }))
	w, err1 := mpi.WinAllocate[int64](ctx, world, 4)
	name := t.TempDir() + "/file"
	f, err2 := mpi.FileOpen(ctx, world, name, mpi.ModeCreate|mpi.ModeWriteOnly, nil)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if w.Errhandler() != mpi.ErrorsReturn || f.Errhandler() != mpi.ErrorsReturn {
		t.Error("a new window or file has a handler")
	}
	if err := w.Put(ctx, []int64{1}, 0, 0); err == nil || met != nil {
		t.Errorf("a put without an epoch, without a handler: %v, %v", err, met)
	}
	w.SetErrhandler(add)
	f.SetErrhandler(add)
	if w.Errhandler() != add || f.Errhandler() != add {
		t.Error("the handler is another one")
	}
	one, sum := []int64{1}, mpi.Sum[int64]()
	last := func(_ any, err error) error { return err }
	check := func(name, what string, call func() error) {
		t.Helper()
		met = nil
		if err := call(); err == nil || len(met) != 1 || !errors.Is(err, met[0]) {
			t.Errorf("%s: %v, and the handler got %v", what, err, met)
		} else if of.Name() != name {
			t.Errorf("%s: the handler got %s, want %s", what, of.Name(), name)
		}
	}
	for what, call := range map[string]func() error{
		"put":              func() error { return w.Put(ctx, one, 0, 0) },
		"get":              func() error { return w.Get(ctx, one, 1, 0) },
		"Rput":             func() error { return last(w.Rput(one, 0, 9)) },
		"Rget":             func() error { return last(w.Rget(one, 0, 0)) },
		"accumulate":       func() error { return w.Accumulate(ctx, one, 0, 0, sum) },
		"get_accumulate":   func() error { return w.GetAccumulate(ctx, one, nil, 0, 0, sum) },
		"fetch_and_op":     func() error { return last(w.FetchAndOp(ctx, 1, 0, 0, sum)) },
		"compare_and_swap": func() error { return last(w.CompareAndSwap(ctx, 1, 2, 0, 0)) },
		"Raccumulate":      func() error { return last(w.Raccumulate(one, 0, 0, sum)) },
		"Rget_accumulate":  func() error { return last(w.RgetAccumulate(one, one, 0, 0, sum)) },
		"lock":             func() error { return w.Lock(ctx, 7, 0) },
		"unlock":           func() error { return w.Unlock(ctx, 0) },
		"lock_all":         func() error { return w.LockAll(nil) }, //nolint:staticcheck // the case
		"unlock_all":       func() error { return w.UnlockAll(ctx) },
		"fence":            func() error { return w.Fence(nil) },                //nolint:staticcheck // the case
		"post":             func() error { return w.Post(nil, world.Group()) },  //nolint:staticcheck // the case
		"start":            func() error { return w.Start(nil, world.Group()) }, //nolint:staticcheck // the case
		"complete":         func() error { return w.Complete(ctx) },
		"wait":             func() error { return w.Wait(ctx) },
		"test":             func() error { return last(w.Test()) },
		"flush":            func() error { return w.Flush(ctx, 0) },
		"flush_local":      func() error { return w.FlushLocal(ctx, 0) },
		"flush_all":        func() error { return w.FlushAll(nil) },      //nolint:staticcheck // the case
		"flush_local_all":  func() error { return w.FlushLocalAll(nil) }, //nolint:staticcheck // the case
	} {
		check(w.Name(), what, call)
	}
	if err := w.Free(ctx); err != nil {
		t.Error(err)
	}
	check(w.Name(), "a second free", func() error { return w.Free(ctx) })
	on := world.Name() + " file " + name
	wait := func(q *mpi.Request, err error) error {
		if err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		return err
	}
	for what, call := range map[string]func() error{
		"read_at":             func() error { return last(mpi.ReadAt(ctx, f, 0, one)) },
		"read":                func() error { return last(mpi.Read(ctx, f, one)) },
		"iread":               func() error { return last(mpi.Iread(f, one)) },
		"read_all":            func() error { return last(mpi.ReadAll(ctx, f, one)) },
		"iread_all":           func() error { return wait(mpi.IreadAll(f, one)) },
		"read_shared":         func() error { return last(mpi.ReadShared(ctx, f, one)) },
		"read_ordered":        func() error { return last(mpi.ReadOrdered(ctx, f, one)) },
		"write of pointers":   func() error { return last(mpi.Write(ctx, f, []*int{nil})) },
		"seek":                func() error { return last(f.Seek(-1, 0)) },
		"seek_shared":         func() error { return last(f.SeekShared(ctx, -1, 0)) },
		"get_position_shared": func() error { return last(f.PositionShared(nil)) }, //nolint:staticcheck // the case
		"get_byte_offset":     func() error { return last(f.ByteOffset(-1)) },
		"set_size":            func() error { return f.SetSize(ctx, -1) },
		"preallocate":         func() error { return f.Preallocate(ctx, -1) },
		"sync":                func() error { return f.Sync(nil) },               //nolint:staticcheck // the case
		"set_atomicity":       func() error { return f.SetAtomicity(nil, true) }, //nolint:staticcheck // the case
		"set_view":            func() error { return f.SetView(ctx, -1, mpi.Datatype{}, mpi.Datatype{}) },
	} {
		check(on, what, call)
	}
	met = nil
	f.CallErrhandler(errWrong)
	w.CallErrhandler(errWrong)
	if len(met) != 2 {
		t.Errorf("CallErrhandler: %v", met)
	}
	if err := f.Close(ctx); err != nil {
		t.Error(err)
	}
	check(on, "a second close", func() error { return f.Close(ctx) })
	check(on, "size of a closed one", func() error { return last(f.Size()) })
	world.SetErrhandler(add)
	check(world.Name(), "a window that cannot be", func() error { return last(mpi.WinAllocate[int](ctx, world, -1)) })
}

// A rank's end calls the handler of a window once for each call that needs the rank, whichever part of the
// call finds it.
func TestErrhandlerOfWindowKilled(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			cs, ws, last := windowJob(t, way, 3, "nothing")
			last.Kill()
			each(t, cs, func(ctx context.Context, c *mpi.Comm) error {
				w, n := ws[c.Rank()], 0
				w.SetErrhandler(mpi.NewErrhandler(func(*mpi.Comm, error) { n++ }))
				for c.GetFailed().Size() == 0 {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					time.Sleep(time.Millisecond)
				}
				both, err := c.Group().Excl([]int{c.Rank()})
				if err != nil {
					return err
				}
				for i, call := range []func() error{
					func() error { return w.Fence(ctx) },
					func() error { return w.Lock(ctx, mpi.LockShared, 2) },
					func() error { return w.LockAll(ctx) },
					func() error { return w.Post(ctx, both) },
					func() error { return w.Start(ctx, both) },
					func() error { return w.Free(ctx) },
				} {
					if err := call(); !errors.Is(err, mpi.ErrProcFailed) || n != i+1 {
						return fmt.Errorf("call %d: the handler was called %d times: %w", i, n, err)
					}
				}
				return nil
			})
			endAll(t, cs)
		})
	}
}

// freedTwice is the error of a second Free, which calls the handler.
func freedTwice(t *testing.T, c *mpi.Comm) error {
	d, err := c.Split(within(t), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	d.SetErrhandler(mpi.NewErrhandler(func(*mpi.Comm, error) { called++ }))
	if err := d.Free(); err != nil {
		t.Fatal(err)
	}
	if err = d.Free(); called != 1 {
		t.Errorf("the handler was called %d times, want once", called)
	}
	return err
}

// A communicator has the handler of the one that it was made of, and another one has not.
func TestErrhandlerInherited(t *testing.T) {
	each(t, job(t, ways[0], 2), func(ctx context.Context, world *mpi.Comm) error {
		if world.Errhandler() != mpi.ErrorsReturn {
			return fmt.Errorf("the first handler: %w", errWrong)
		}
		c, err := world.Dup(ctx)
		if err != nil {
			return err
		}
		h := mpi.NewErrhandler(func(*mpi.Comm, error) {})
		c.SetErrhandler(h)
		dup, e1 := c.Dup(ctx)
		split, e2 := c.Split(ctx, 0, 0)
		create, e3 := c.Create(ctx, c.Group())
		cart, e4 := c.Cart(ctx, []int{2}, []bool{true}, false)
		shrunk, e5 := c.Shrink(ctx)
		half, e6 := c.Split(ctx, c.Rank(), 0)
		if err := errors.Join(e1, e2, e3, e4, e5, e6); err != nil {
			return err
		}
		inter, err := half.Intercomm(ctx, 0, c, 1-c.Rank(), 0)
		if err != nil {
			return err
		}
		both, err := inter.Merge(ctx, false)
		if err != nil {
			return err
		}
		for _, one := range []*mpi.Comm{dup, split, create, cart.Comm, shrunk, half, inter, both} {
			if one.Errhandler() != h {
				return fmt.Errorf("%s has another handler: %w", one.Name(), errWrong)
			}
		}
		if world.Errhandler() != mpi.ErrorsReturn {
			return fmt.Errorf("another communicator has it too: %w", errWrong)
		}
		return nil
	})
}

// fatalRank is a job of one rank whose errors are fatal.
func fatalRank(ctx context.Context, _ *vmmc.Process, _ ...string) error {
	c, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	var called atomic.Int32
	c.SetErrhandler(mpi.NewErrhandler(func(*mpi.Comm, error) { called.Add(1) }))
	_ = mpi.Bsend(c, []int{1}, 7, 0) // not fatal yet
	fmt.Println("goes on", called.Load())
	c.SetErrhandler(mpi.ErrorsAreFatal)
	_ = mpi.Bsend(c, []int{1}, 7, 0)
	fmt.Println("goes on")
	select {}
}

// A program whose errors are fatal ends by the first one.
func TestErrorsAreFatal(t *testing.T) {
	p := vmmctest.Child(t, vmmctest.Nodes(t, 1)[0], "fatal rank")
	if got := p.Line(); got != "goes on 1" {
		t.Errorf("it says %q", got)
	}
	if err := p.Wait(); err == nil {
		t.Error("it has ended without an error")
	}
}
