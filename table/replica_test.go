package table_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// replicate makes a replica on a node under a name, and a reader of it.
func replicate(
	t testing.TB, on *vmmctest.Node, copied string, opts ...table.Option,
) (*table.Replica[key, record], *table.Reader[key, record]) {
	t.Helper()
	copied = on.Name() + "/" + copied
	r, err := table.Replicate[key, record](within(t), on.Open(t), name, copied, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	reader, err := table.Open[key, record](within(t), on.Open(t), copied)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, reader
}

// caughtUp waits until a replica has all changes.
func caughtUp(t *testing.T, r *table.Replica[key, record]) {
	t.Helper()
	eventually(t, "the replica has all changes", func() bool {
		n, err := r.Behind(within(t))
		if err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// same checks that the readers of a replica find what the owner has.
func same(
	t *testing.T, o *table.Table[key, record], r *table.Reader[key, record], ks []int,
) {
	t.Helper()
	for _, k := range ks {
		want, is, err1 := o.Get(within(t), newKey(k))
		v, ok, err2 := r.Get(within(t), newKey(k))
		if err := errors.Join(err1, err2); err != nil || v != want || ok != is {
			t.Fatalf("key %d: %+v, %t, %v, want %+v, %t", k, v, ok, err, want, is)
		}
	}
}

// A replica has the entries that were there before it, and follows all changes after.
func TestReplica(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			const keys = 40
			var opts []table.Option
			if w.unmapped {
				opts = append(opts, table.Unmapped())
			}
			nodes := vmmctest.Nodes(t, w.nodes)
			o := newTable[record](t, nodes[0].Open(t), keys-5, opts...)
			ks := oneHome(o, keys/2)
			for k := 1 << 20; len(ks) < keys; k++ {
				ks = append(ks, k)
			}
			change := func(i int) {
				k := ks[rand.IntN(keys)]
				if rand.IntN(3) == 0 {
					if _, err := o.Delete(within(t), newKey(k)); err != nil {
						t.Fatal(err)
					}
				} else if err := o.Put(within(t), newKey(k), newRecord(k, i)); err != nil &&
					!errors.Is(err, table.ErrFull) {
					t.Fatal(err)
				}
			}
			for i := range 200 {
				change(i)
			}
			rep, r := replicate(t, nodes[len(nodes)-1], "copy")
			same(t, o, r, ks)
			for round := range 20 {
				for i := range 100 {
					change(round*100 + i)
				}
				caughtUp(t, rep)
				same(t, o, r, ks)
			}
			if rep.Err() != nil {
				t.Error(rep.Err())
			}
		})
	}
}

// Readers of a replica find whole values, and of each key never an older one than before, while its
// owner changes the table; the keys that are never deleted are always there.
func TestReadersOfAReplica(t *testing.T) {
	const keys, rounds = 30, 300
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), keys)
	ks := oneHome(o, keys)
	for _, k := range ks {
		put(t, o, k, 0)
	}
	rep, r := replicate(t, node, "copy")
	ctx, stop := context.WithCancel(within(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		last := map[int]uint32{}
		for ctx.Err() == nil && !t.Failed() {
			for i, k := range ks {
				v, ok, err := r.Get(within(t), newKey(k))
				if err != nil || !ok && i%3 != 0 || ok && (v.check(k) != nil || v.N < last[k]) {
					t.Errorf("key %d: %+v, %t, %v, last %d", k, v, ok, err, last[k])
				}
				if ok {
					last[k] = v.N
				}
			}
		}
	})
	for n := range rounds {
		for i, k := range ks {
			if i%3 == 0 {
				remove(t, o, k)
			}
		}
		for _, k := range ks {
			put(t, o, k, n)
		}
	}
	caughtUp(t, rep)
	stop()
	wg.Wait()
	same(t, o, r, ks)
}

// Changes of a full table while it is copied do not leave a replica without room.
func TestReplicaOfAFullTable(t *testing.T) {
	const keys = 60
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), keys)
	var ks []int
	for k := range keys {
		put(t, o, k, 0)
		ks = append(ks, k)
	}
	gets, next := 0, keys
	steps.On(t, func(s string) {
		if s != "home.got" {
			return
		}
		if gets++; gets > 8 {
			return
		}
		for _, k := range ks { // of a home that was got, or that is got later
			if ok, err := o.Delete(within(t), newKey(k)); ok && err == nil {
				break
			}
		}
		put(t, o, next, 1)
		ks = append(ks, next)
		next++
	})
	rep, r := replicate(t, node, "copy")
	caughtUp(t, rep)
	same(t, o, r, ks)
}

// A replica that was further behind than the log reaches copies all.
func TestReplicaFarBehind(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), 100)
	put(t, o, 1, 0)
	rep, r := replicate(t, node, "copy")
	var once sync.Once
	held, goOn := make(chan struct{}), make(chan struct{})
	steps.On(t, func(s string) {
		if s == "homes.got" {
			once.Do(func() {
				close(held)
				<-goOn
			})
		}
	})
	put(t, o, 1, 1)
	<-held
	var ks []int
	for k := range 50 {
		put(t, o, k+2, 2)
		ks = append(ks, k+2)
	}
	for n := range 5000 {
		put(t, o, 1, n)
	}
	if n, err := rep.Behind(within(t)); err != nil || n != 5051 {
		t.Errorf("%d changes behind, %v", n, err)
	}
	close(goOn)
	caughtUp(t, rep)
	same(t, o, r, append(ks, 1))
}

// A full table of which more changes than the log has are copied in parts: what has no room in the
// replica until other parts are copied is there in the end.
func TestReplicaOfAFullTableFarBehind(t *testing.T) {
	const keys = 4000
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), keys)
	var ks []int
	for k := range keys {
		put(t, o, k, 0)
		ks = append(ks, k)
	}
	rep, r := replicate(t, node, "copy")
	var once sync.Once
	held, goOn := make(chan struct{}), make(chan struct{})
	steps.On(t, func(s string) {
		if s == "homes.got" {
			once.Do(func() {
				close(held)
				<-goOn
			})
		}
	})
	put(t, o, 0, 1)
	<-held
	for k := range 2500 {
		remove(t, o, k)
		put(t, o, keys+k, 1)
		ks = append(ks, keys+k)
	}
	close(goOn)
	caughtUp(t, rep)
	same(t, o, r, ks)
}

// When the owner is killed, at any step, a replica that had caught up is promoted with all that was
// put before, and is a table as any other.
func TestReplicaPromoted(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range ownerSteps {
			if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				child, reader, ks, node := startOwner(t, w, s.step, s.nth, "/nonexistent/file")
				rep, r := replicate(t, node, "copy")
				n := awaitStep(t, child, s.step) + 1
				caughtUp(t, rep)
				var before []record
				var is []bool
				for _, k := range ks {
					v, ok, err := reader.Get(within(t), newKey(k))
					if err != nil {
						t.Fatal(err)
					}
					before, is = append(before, v), append(is, ok)
				}
				if _, err := rep.Promote(); !errors.Is(err, vmmc.ErrInProgress) {
					t.Errorf("promoted while the owner lives: %v", err)
				}
				child.Kill()
				<-rep.Done()
				if !errors.Is(rep.Err(), vmmc.ErrPeerGone) {
					t.Error(rep.Err())
				}
				o, err := rep.Promote()
				if err != nil {
					t.Fatal(err)
				}
				if err := lookUpAll(within(t), t, r, ks, n); err != nil {
					t.Error(err)
				}
				differ := 0
				for i, k := range ks {
					if v, ok, err := r.Get(within(t), newKey(k)); err != nil || v != before[i] || ok != is[i] {
						differ++ // the change that was under way
					}
				}
				if differ > 1 {
					t.Errorf("%d keys differ", differ)
				}
				if err := o.Check(); err != nil {
					t.Error(err)
				}
				for _, k := range ks {
					put(t, o, k, 100)
					holds(t, o, r, k, 100)
				}
				if err := o.PublishAs(within(t), name); err != nil {
					t.Fatal(err)
				}
				<-reader.Done()
				if err := reader.Rejoin(within(t)); err != nil {
					t.Fatal(err)
				}
				holds(t, o, reader, ks[0], 100)
			})
		}
	}
}

// Bad input is refused, and nothing stays behind.
func TestReplicaRefused(t *testing.T) {
	ctx := within(t)
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), 10)
	p := node.Open(t)
	if _, err := table.Replicate[key, uint32](ctx, p, name, "copy"); !errors.Is(err, view.ErrLayout) {
		t.Errorf("other values: %v", err)
	}
	if _, err := table.Replicate[key, record](ctx, p, name, name); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("the source's name: %v", err)
	}
	_, err := table.Replicate[key, record](ctx, p, name, "copy", nil)
	if !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil option: %v", err)
	}
	for _, d := range []time.Duration{0, -1} {
		_, err := table.Replicate[key, record](ctx, p, name, "copy", table.Every(d))
		if !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("looks every %v: %v", d, err)
		}
	}
	var none context.Context
	if _, err := table.Replicate[key, record](none, p, name, "copy"); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	rep, err := table.Replicate[key, record](ctx, p, name, "copy", table.Every(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rep.Behind(none); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	if err := rep.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(rep.Err(), vmmc.ErrClosed) {
		t.Error(rep.Err())
	}
	put(t, o, 1, 1)
}
