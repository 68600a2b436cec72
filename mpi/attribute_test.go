package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/mpi"
)

// one is a job of one rank.
func one(t testing.TB) *mpi.Comm {
	t.Helper()
	c, err := mpi.Init(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ended(t testing.TB, c *mpi.Comm) {
	t.Helper()
	if err := c.Finalize(within(t)); err != nil {
		t.Error(err)
	}
}

// Attributes are what a map of each communicator and Keyval would be, and each value that was set is
// removed once, also by copies and the end of their communicators.
func TestAttributesModel(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	rapid.Check(t, func(rt *rapid.T) {
		type value struct{ n int }
		alive := map[*value]bool{} // those that must be removed
		next := 0
		made := func() *value {
			next++
			v := &value{next}
			alive[v] = true
			return v
		}
		gone := func(_ *mpi.Comm, v *value) error {
			if !alive[v] {
				return fmt.Errorf("value %d is removed twice: %w", v.n, errWrong)
			}
			delete(alive, v)
			return nil
		}
		keys := []*mpi.Keyval[*value]{
			mpi.NewKeyval(nil, gone),
			mpi.NewKeyval(func(_ *mpi.Comm, _ *value) (*value, bool, error) { return made(), true, nil }, gone),
			mpi.NewKeyval(func(_ *mpi.Comm, _ *value) (*value, bool, error) { return nil, false, nil }, gone),
		}
		comms := []*mpi.Comm{}
		model := map[*mpi.Comm]map[int]*value{}
		add := func(from *mpi.Comm) {
			c, err := from.Dup(context.Background())
			if err != nil {
				rt.Fatal(err)
			}
			comms, model[c] = append(comms, c), map[int]*value{}
			if _, ok := model[from][1]; ok {
				v, ok := keys[1].Get(c)
				if !ok {
					rt.Fatal("it was not copied")
				}
				model[c][1] = v
			}
		}
		add(world)
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			c := rapid.SampledFrom(comms).Draw(rt, "communicator")
			k := rapid.IntRange(0, len(keys)-1).Draw(rt, "key")
			switch rapid.IntRange(0, 4).Draw(rt, "call") {
			case 0, 1:
				v := made()
				if err := keys[k].Set(c, v); err != nil {
					rt.Fatal(err)
				}
				model[c][k] = v
			case 2:
				if err := keys[k].Delete(c); err != nil {
					rt.Fatal(err)
				}
				delete(model[c], k)
			case 3:
				add(c)
			case 4:
				if len(comms) > 1 {
					if err := c.Free(); err != nil {
						rt.Fatal(err)
					}
					comms = slices.DeleteFunc(comms, func(o *mpi.Comm) bool { return o == c })
					delete(model, c)
				}
			}
			total := 0
			for _, c := range comms {
				total += len(model[c])
				for k, key := range keys {
					got, ok := key.Get(c)
					want, wantOK := model[c][k]
					if ok != wantOK || got != want {
						rt.Fatalf("key %d: %v %v, want %v %v", k, got, ok, want, wantOK)
					}
				}
			}
			if len(alive) != total {
				rt.Fatalf("%d values are alive, want %d", len(alive), total)
			}
		}
		for _, c := range comms {
			if err := c.Free(); err != nil {
				rt.Fatal(err)
			}
		}
		if len(alive) != 0 {
			rt.Fatalf("%d values were not removed", len(alive))
		}
	})
}

// Which ways of making a communicator copy attributes.
func TestAttributesCopied(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	ctx := within(t)
	c, err := world.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	k := mpi.NewKeyval(mpi.Shared[string], nil)
	if err := k.Set(c, "value"); err != nil {
		t.Fatal(err)
	}
	k.Free()
	if err := k.Set(c, "other"); !errors.Is(err, mpi.ErrKeyval) {
		t.Errorf("Set of a freed Keyval: %v", err)
	}
	cart, err := world.Cart(ctx, []int{1}, []bool{true}, false)
	if err != nil {
		t.Fatal(err)
	}
	onGrid := mpi.NewKeyval(mpi.Shared[string], nil)
	if err := onGrid.Set(cart.Comm, "grid"); err != nil {
		t.Fatal(err)
	}
	grid, err := cart.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := onGrid.Get(grid.Comm); !ok || v != "grid" {
		t.Errorf("the dup of a grid has %q, %v", v, ok)
	}
	dup, err := c.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	split, err := c.Split(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	shrunk, err := c.Shrink(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for what, one := range map[string]struct {
		c    *mpi.Comm
		want bool
	}{"dup": {dup, true}, "split": {split, false}, "shrink": {shrunk, false}, "world": {world, false}} {
		if v, ok := k.Get(one.c); ok != one.want || ok && v != "value" {
			t.Errorf("%s: %q, %v", what, v, ok)
		}
	}
}

// A function that fails keeps the attribute, and the call fails.
func TestAttributeFunctionsFail(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	ctx := within(t)
	c, err := world.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	bad := true
	answer := func() error {
		if bad {
			return errWrong
		}
		return nil
	}
	removed := 0
	other := mpi.NewKeyval(mpi.Shared[int], func(*mpi.Comm, int) error { removed++; return nil })
	k := mpi.NewKeyval(
		func(_ *mpi.Comm, v int) (int, bool, error) { return v, true, answer() },
		func(*mpi.Comm, int) error { return answer() })
	for _, err := range []error{other.Set(c, 0), k.Set(c, 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	fails := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, mpi.ErrOther) || !errors.Is(err, errWrong) {
			t.Errorf("%s: %v", what, err)
		}
		if v, ok := k.Get(c); !ok || v != 1 {
			t.Errorf("%s: the attribute is %d, %v", what, v, ok)
		}
	}
	fails("Set", k.Set(c, 2))
	fails("Delete", k.Delete(c))
	_, err = c.Dup(ctx)
	fails("Dup", err)
	if removed != 1 {
		t.Errorf("%d attributes of the new communicator were removed, want 1", removed)
	}
	fails("Free", c.Free())
	if removed != 2 {
		t.Errorf("%d attributes were removed, want the other one too", removed)
	}
	bad = false
}

// The attributes of MPI_COMM_SELF end first, and then those of all ranks, each the last one first.
func TestAttributesEnd(t *testing.T) {
	world := one(t)
	var order []string
	k := make([]*mpi.Keyval[string], 3)
	for i := range k {
		k[i] = mpi.NewKeyval(nil, func(_ *mpi.Comm, v string) error {
			order = append(order, v)
			return nil
		})
	}
	self := world.Self()
	if self.Size() != 1 || self.Rank() != 0 || self.Name() != "MPI_COMM_SELF" || self.Self() != self {
		t.Errorf("%s has %d ranks, and this one is %d", self.Name(), self.Size(), self.Rank())
	}
	for _, err := range []error{
		k[0].Set(world, "world 0"), k[1].Set(self, "self 1"), k[1].Set(world, "world 1"), k[2].Set(self, "self 2"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ended(t, world)
	if want := []string{"self 2", "self 1", "world 1", "world 0"}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
}

// Goroutines set, get and delete at the same time.
func TestAttributesAtOnce(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	shared := mpi.NewKeyval[int](nil, nil)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			own := mpi.NewKeyval[int](nil, nil)
			for i := range 500 {
				if err := errors.Join(own.Set(world, i), shared.Set(world, n)); err != nil {
					t.Error(err)
				}
				if v, ok := own.Get(world); !ok || v != i {
					t.Errorf("%d, %v, want %d", v, ok, i)
				}
				if v, ok := shared.Get(world); ok && (v < 0 || v > 3) {
					t.Errorf("nobody has set %d", v)
				}
				if err := errors.Join(own.Delete(world), shared.Delete(world)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A communicator that is freed cannot be used, and others can.
func TestFree(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	ctx := within(t)
	c, err := world.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Dup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Free(); err != nil {
		t.Fatal(err)
	}
	k := mpi.NewKeyval[int](nil, nil)
	errs := map[string]error{
		"send": mpi.Bsend(c, []int{1}, 0, 0), "barrier": c.Barrier(ctx), "free": c.Free(), "Set": k.Set(c, 1),
		"Set of nil": k.Set(nil, 1), "world": world.Free(), "self": world.Self().Free(),
	}
	_, errs["receive"] = mpi.Recv(ctx, c, []int{1}, 0, 0)
	_, errs["dup"] = c.Dup(ctx)
	_, errs["agree"] = c.Agree(ctx, 0)
	_, errs["create_group"] = c.CreateGroup(ctx, c.Group(), 0)
	q, err := c.Ibarrier()
	if err == nil {
		_, err = q.Wait(ctx)
	}
	errs["Ibarrier"] = err
	for what, err := range errs {
		if !errors.Is(err, mpi.ErrComm) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := other.Barrier(ctx); err != nil {
		t.Error(err)
	}
	var none *mpi.Keyval[int]
	if err := none.Delete(other); !errors.Is(err, mpi.ErrKeyval) {
		t.Errorf("a nil Keyval: %v", err)
	}
	if _, ok := none.Get(other); ok {
		t.Error("a nil Keyval has an attribute")
	}
	none.Free()
}

// A name is in the errors, and in the names of later communicators.
func TestNames(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	c, err := world.Dup(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "MPI_COMM_WORLD dup" {
		t.Errorf("it is %q", c.Name())
	}
	c.SetName("workers")
	d, err := c.Dup(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if c.Name() != "workers" || d.Name() != "workers dup" || world.Name() != "MPI_COMM_WORLD" {
		t.Errorf("%q, %q, %q", c.Name(), d.Name(), world.Name())
	}
	const want = "MPI_Bsend, argument dest: it is 7, and workers has the ranks 0 to 0 (MPI_ERR_RANK)"
	if err := mpi.Bsend(c, []int{1}, 7, 0); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// The function of an attribute is called once, whichever goroutines delete it.
func TestAttributeIsRemovedOnce(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	var calls atomic.Int32
	k := mpi.NewKeyval(nil, func(*mpi.Comm, int) error { calls.Add(1); return nil })
	const n = 2000
	for i := range n {
		if err := k.Set(world, i); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := k.Delete(world); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if c := calls.Load(); c != n {
		t.Errorf("%d calls for %d attributes", c, n)
	}
}

// A value of an interface type may be nil.
func TestAttributeOfNil(t *testing.T) {
	world := one(t)
	defer ended(t, world)
	k := mpi.NewKeyval[error](mpi.Shared, func(_ *mpi.Comm, err error) error { return err })
	if err := k.Set(world, nil); err != nil {
		t.Fatal(err)
	}
	d, err := world.Dup(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := k.Get(d); v != nil || !ok {
		t.Errorf("%v, %v", v, ok)
	}
	if err := errors.Join(d.Free(), k.Delete(world)); err != nil {
		t.Error(err)
	}
}
