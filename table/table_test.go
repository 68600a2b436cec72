package table_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// What the owner puts and deletes readers find, on all ways.
func TestPutAndGet(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			o, r := start[record](t, w, 100)
			if !r.Whole() {
				t.Error("small buckets are not got as a whole")
			}
			lacks(t, o, r, 1)
			for k := range 100 {
				put(t, o, k, 0)
				holds(t, o, r, k, 0)
			}
			for n := range 20 {
				put(t, o, 7, n)
				holds(t, o, r, 7, n)
			}
			for k := range 50 {
				remove(t, o, 2*k)
				lacks(t, o, r, 2*k)
			}
			if ok, err := o.Delete(within(t), newKey(0)); ok || err != nil {
				t.Errorf("a key that is not there is deleted: %t, %v", ok, err)
			}
			put(t, o, 7, 0)
			got := maps.Collect(o.All())
			if len(got) != 50 || o.Len() != 50 {
				t.Errorf("%d entries in %d keys, want 50", o.Len(), len(got))
			}
			for k := range 50 {
				holds(t, o, r, 2*k+1, 0)
				if got[newKey(2*k+1)] != newRecord(2*k+1, 0) {
					t.Errorf("key %d has %+v", 2*k+1, got[newKey(2*k+1)])
				}
			}
			if err := o.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// large is a value of which no bucket is got as a whole.
type large struct {
	Fill [4096]uint32
	Pad  uint32
}

// Large values take two gets, of which none gets a whole bucket.
func TestLargeValues(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			o, r := start[large](t, w, 20)
			if r.Whole() {
				t.Error("large buckets are got as a whole")
			}
			ks := oneHome(o, 20) // so that some of them are in overflow buckets
			for _, n := range []uint32{1, 2} {
				for _, k := range ks {
					v := large{Pad: n}
					for i := range v.Fill {
						v.Fill[i] = uint32(k) * n
					}
					if err := o.Put(within(t), newKey(k), v); err != nil {
						t.Fatal(err)
					}
					if got, ok, err := r.Get(within(t), newKey(k)); !ok || err != nil || got != v {
						t.Fatalf("key %d: %t, %v", k, ok, err)
					}
				}
			}
			if _, ok, err := r.Get(within(t), newKey(-1)); ok || err != nil {
				t.Fatalf("a key that is not there: %t, %v", ok, err)
			}
		})
	}
}

// A table has room for as many entries as it should, whatever the keys are, and for no more. What
// is there can be replaced then.
func TestCapacity(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	for _, same := range []bool{false, true} {
		for _, n := range []int{1, 2, 7, 8, 50, 1000} {
			o := newTable[record](t, p, n)
			r := open[record](t, p)
			var ks []int
			if same {
				ks = oneHome(o, n+1)
			} else {
				for k := range n + 1 {
					ks = append(ks, k)
				}
			}
			for _, k := range ks[:n] {
				put(t, o, k, 0)
			}
			err := o.Put(within(t), newKey(ks[n]), newRecord(ks[n], 0))
			if !errors.Is(err, table.ErrFull) || !errors.Is(err, vmmc.ErrNoMem) {
				t.Fatalf("beyond %d entries: %v", n, err)
			}
			lacks(t, o, r, ks[n])
			for _, k := range ks[:n] {
				holds(t, o, r, k, 0)
				put(t, o, k, 1)
				holds(t, o, r, k, 1)
			}
			remove(t, o, ks[n/2])
			put(t, o, ks[n], 1)
			holds(t, o, r, ks[n], 1)
			if err := o.Check(); err != nil || o.Len() != n {
				t.Fatalf("%d entries of %d: %v", o.Len(), n, err)
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, n := range []int{-1, 0, math.MaxInt32 + 1, math.MaxInt32} { // the last is too long
		_, err := table.New[key, large](within(t), p, name, n)
		if !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("a capacity of %d: %v", n, err)
		}
	}
}

// history is what has happened to a key: in its odd states it is there, with the state as its
// value. A value that is replaced skips an even state. The last one that was not skipped is deleted.
type history struct{ begun, over, deleted atomic.Int64 }

// A reader finds for a key a value that it had at some time during the call, whole, and does not
// find it only if it was not there at some time during the call, while the owner puts, deletes and
// moves entries.
func TestReadersBesideTheOwner(t *testing.T) {
	const keys, changes = 40, 10_000
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			o, r := start[record](t, w, keys)
			ks := oneHome(o, keys)[:keys-2]
			for k := 0; len(ks) < keys; k++ {
				if o.Home(newKey(k)) != o.Home(newKey(ks[0])) {
					ks = append(ks, k)
				}
			}
			var all [keys]history
			var done atomic.Bool
			var wg sync.WaitGroup
			ctx := within(t)
			for i := range 2 {
				wg.Go(func() {
					for n := i; !done.Load() && !t.Failed(); n += 7 {
						h := &all[n%keys]
						from := h.over.Load()
						v, ok, err := r.Get(ctx, newKey(ks[n%keys]))
						to, deleted := h.begun.Load(), h.deleted.Load()
						switch {
						case err != nil:
							t.Error(err)
						case ok && (v.check(ks[n%keys]) != nil || int64(v.N) < from || int64(v.N) > to || v.N%2 == 0):
							t.Errorf("key %d: %+v, want state %d to %d", ks[n%keys], v, from, to)
						case !ok && from%2 == 1 && deleted < from:
							t.Errorf("key %d is not there, want state %d to %d", ks[n%keys], from, to)
						}
					}
				})
			}
			seed := uint64(1)
			for range changes {
				seed = seed*6364136223846793005 + 1442695040888963407
				i := int(seed >> 33 % keys)
				h, k := &all[i], ks[i]
				n := h.over.Load() + 1
				var err error
				switch {
				case n%2 == 1:
					h.begun.Store(n)
					err = o.Put(ctx, newKey(k), newRecord(k, int(n)))
				case seed>>60 < 8:
					h.deleted.Store(n)
					h.begun.Store(n)
					_, err = o.Delete(ctx, newKey(k))
				default: // replaced
					n++
					h.begun.Store(n)
					err = o.Put(ctx, newKey(k), newRecord(k, int(n)))
				}
				h.over.Store(n)
				if err != nil || t.Failed() {
					t.Error(err)
					break
				}
			}
			done.Store(true)
			wg.Wait()
			if err := o.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Wherever the owner is in a change, a look-up finds what was there before the change or after it,
// without waiting: the owner does nothing in the meantime.
func TestGetAtEachStep(t *testing.T) {
	for _, w := range ways[:2] {
		t.Run(w.name, func(t *testing.T) {
			const keys = 16 // in three buckets
			o, r := start[record](t, w, keys)
			ks := oneHome(o, keys)
			now := map[int]int{}
			changing, from, to := -1, -1, -1 // -1: not there
			met := map[string]int{}
			var in atomic.Bool
			steps.On(t, func(s string) {
				if s == "bucket.got" || !in.Load() {
					return
				}
				in.Store(false)
				defer in.Store(true)
				met[s]++
				for _, k := range ks {
					v, ok, err := r.Get(context.Background(), newKey(k))
					n := -1
					if ok {
						n = int(v.N)
					}
					want, is := now[k]
					if !is {
						want = -1
					}
					if err != nil || n != want && (k != changing || n != from && n != to) ||
						ok && v.check(k) != nil {
						t.Fatalf("at %s of key %d (%d to %d), key %d is %+v, %t, %v, want %d",
							s, changing, from, to, k, v, ok, err, want)
					}
				}
			})
			change := func(k, n int) {
				changing, from, to = k, -1, n
				if was, ok := now[k]; ok {
					from = was
				}
				in.Store(true)
				defer in.Store(false)
				if n < 0 {
					remove(t, o, k)
					delete(now, k)
				} else {
					put(t, o, k, n)
					now[k] = n
				}
			}
			for _, k := range ks {
				change(k, 0)
			}
			for i, k := range ks {
				change(k, 1)
				if i%3 == 0 {
					change(k, -1)
				}
			}
			for _, k := range slices.Backward(ks) {
				if _, ok := now[k]; ok {
					change(k, -1)
				}
			}
			want := []string{
				"bucket.dropped", "bucket.linked", "bucket.taken", "change.noted", "committed",
				"entry.copied",
				"head.written", "slot.begun", "slot.written",
			}
			if got := slices.Sorted(maps.Keys(met)); !slices.Equal(got, want) {
				t.Errorf("steps: %v", got)
			}
		})
	}
}

// What the owner does while a reader is between two gets of a look-up does not hide an entry that
// is there all the time, and does not make a torn one.
func TestChangesDuringALookUp(t *testing.T) {
	w := ways[0]
	const n = 21 // in three buckets
	remain := func(last int) func(o *table.Table[key, record], ks []int) {
		return func(o *table.Table[key, record], ks []int) {
			for i, k := range ks {
				if i != last {
					remove(t, o, k)
				}
			}
		}
	}
	for _, c := range []struct {
		name   string
		n      int // keys, seven in a bucket
		last   int // the key that is looked up
		after  int // gets
		during func(o *table.Table[key, record], ks []int)
	}{
		{
			"moved to the first bucket, as the last one of its own", 15, 14, 1,
			func(o *table.Table[key, record], ks []int) { remove(t, o, ks[0]) },
		},
		{"moved to the first bucket", n, n - 1, 1, func(o *table.Table[key, record], ks []int) {
			remove(t, o, ks[0])
		}},
		{"moved to the middle bucket", n, n - 1, 2, func(o *table.Table[key, record], ks []int) {
			remove(t, o, ks[8])
		}},
		{"the last bucket is dropped", n, n - 7, 1, remain(n - 7)},
		{"dropped before the last get", n, n - 7, 2, remain(n - 7)},
		{"dropped, and there again", n, n - 1, 2, func(o *table.Table[key, record], ks []int) {
			for _, k := range ks[:14] {
				remove(t, o, k)
			}
			for _, k := range ks[:14] {
				put(t, o, k, 3)
			}
		}},
		{"another home's", n, n - 1, 2, func(o *table.Table[key, record], ks []int) {
			for _, k := range ks[:14] {
				remove(t, o, k)
			}
			other := 0
			for o.Home(newKey(other)) == o.Home(newKey(ks[0])) {
				other++
			}
			for k, left := other, 14; left > 0; k++ {
				if o.Home(newKey(k)) == o.Home(newKey(other)) {
					put(t, o, k, 5)
					left--
				}
			}
		}},
		{"replaced seven times", n, 3, 1, func(o *table.Table[key, record], ks []int) {
			for i := range 7 {
				put(t, o, ks[3], 10+i)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, r := start[record](t, w, n)
			ks := oneHome(o, c.n)
			for _, k := range ks {
				put(t, o, k, 1)
			}
			gets := 0
			steps.On(t, func(s string) {
				if s == "bucket.got" {
					if gets++; gets == c.after {
						c.during(o, ks)
					}
				}
			})
			k := ks[c.last]
			v, ok, err := r.Get(within(t), newKey(k))
			if !ok || err != nil || v.check(k) != nil || v.N != 1 && v.N < 10 {
				t.Errorf("%+v, %t, %v", v, ok, err)
			}
			if gets < c.after {
				t.Errorf("%d gets", gets)
			}
		})
	}
}

// How many gets a look-up takes while nothing is changed: one, and in three quarters full tables
// few more.
func TestGetsOfALookUp(t *testing.T) {
	const n = 5000
	o, r := start[record](t, ways[0], n)
	for k := range n {
		put(t, o, k, 0)
	}
	gets := 0
	steps.On(t, func(s string) {
		if s == "bucket.got" {
			gets++
		}
	})
	most := 0
	for k := range 2 * n { // half of them are not there
		before := gets
		if _, _, err := r.Get(context.Background(), newKey(k)); err != nil {
			t.Fatal(err)
		}
		most = max(most, gets-before)
	}
	if mean := float64(gets) / (2 * n); mean > 1.15 || most > 4 {
		t.Errorf("%.3f gets, at most %d", mean, most)
	}
}

// The owner's calls may be made concurrently.
func TestConcurrentCalls(t *testing.T) {
	const each = 50
	o, _ := start[record](t, ways[0], 4*each)
	ctx := within(t)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 100 {
				k := i*each + n%each
				if err := o.Put(ctx, newKey(k), newRecord(k, n)); err != nil {
					t.Error(err)
				}
				if v, ok, err := o.Get(ctx, newKey(k)); !ok || err != nil || v != newRecord(k, n) {
					t.Errorf("key %d: %+v, %t, %v", k, v, ok, err)
				}
			}
			for range o.All() {
				if _, err := o.Delete(ctx, newKey(i*each)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := o.Len(); n != 4*each-4 {
		t.Errorf("%d entries", n)
	}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
}

// Bytes of a key's unnamed fields do not make it another one.
func TestUnnamedFieldsOfKeys(t *testing.T) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	o, r := newTable[record](t, p, 10), open[record](t, p)
	ks, err := view.Export[key](p, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	b := ks.Export().Bytes()
	for i := range b {
		if i%16 >= 12 {
			b[i] = byte(i) // three keys that are the same but for these bytes
		}
	}
	for i := range 3 {
		if err := o.Put(within(t), ks.Slice()[i], newRecord(0, i)); err != nil {
			t.Fatal(err)
		}
		holds(t, o, r, 0, i)
		if v, ok, err := r.Get(within(t), ks.Slice()[2-i]); !ok || err != nil || v.N != uint32(i) {
			t.Errorf("%+v, %t, %v", v, ok, err)
		}
	}
	if o.Len() != 1 {
		t.Errorf("%d entries", o.Len())
	}
}

// Bad input is refused, with what is wrong.
func TestRefused(t *testing.T) {
	type padded struct {
		A uint32
		B uint64
	}
	type inner struct{ F [2]struct{ X, Y float64 } }
	type other struct {
		Key  uint64
		N    uint32
		Fill [8]int32
		Sum  uint32
	}
	type otherKey struct{ A, B uint64 }
	ctx := within(t)
	node := vmmctest.Nodes(t, 1)[0]
	p := node.Open(t)
	newTable[record](t, p, 10)
	refused := func(what, field string, err error) {
		t.Helper()
		e := (*view.TypeError)(nil)
		if !errors.As(err, &e) || e.Field != field || !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := table.New[string, uint32](ctx, p, "other", 1)
	refused("strings as keys", "", err)
	_, err = table.New[uint32, []byte](ctx, p, "other", 1)
	refused("slices as values", "", err)
	_, err = table.New[padded, uint32](ctx, p, "other", 1)
	refused("padding", "B", err)
	_, err = table.New[float64, uint32](ctx, p, "other", 1)
	refused("floats as keys", "", err)
	_, err = table.New[inner, uint32](ctx, p, "other", 1)
	refused("floats in keys", "F[].X", err)
	_, err = table.Open[inner, uint32](ctx, p, name)
	refused("floats in keys", "F[].X", err)

	q := node.Open(t)
	differs := func(what, field, in string, err error) {
		t.Helper()
		e := (*view.LayoutError)(nil)
		if !errors.As(err, &e) || e.Field != field || !strings.Contains(err.Error(), in) ||
			!errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = table.Open[key, other](ctx, q, name)
	differs("other values", "Fill", "its values", err)
	_, err = table.Open[otherKey, record](ctx, q, name)
	differs("other keys", "B", "its keys", err)
	_, err = table.Open[uint64, record](ctx, q, name)
	differs("other keys", "", "its keys", err)

	if _, err = table.New[key, record](ctx, q, name, 1); !errors.Is(err, vmmc.ErrNameTaken) {
		t.Errorf("a second owner: %v", err)
	}
	if _, err = table.New[key, record](ctx, q, "a/b/c", 1); !errors.Is(err, vmmc.ErrBadName) {
		t.Errorf("a bad name: %v", err)
	}
	if _, err = table.New[key, record](ctx, q, "other", 1, nil); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil option: %v", err)
	}
	for i, n := range []int{4, 40, 4096} {
		name := "values" + strconv.Itoa(i)
		_, err := view.Export[uint32](p, uint32(i)+1, n/4, vmmc.WithName(name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.Open[key, record](ctx, q, name)
		if !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("no table, %d bytes: %v", n, err)
		}
	}
	var none context.Context
	if _, err = table.New[key, record](none, q, "other", 1); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	if _, err = table.Open[key, record](none, q, name); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a nil context: %v", err)
	}
	soon, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := table.Open[key, record](soon, q, "none"); !errors.Is(err, vmmc.ErrCanceled) {
		t.Errorf("an open that was given up: %v", err)
	}
}

// No call takes a nil context, and none of a table or reader that is closed does anything.
func TestNilContextAndClosed(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			o, r := start[record](t, w, 10)
			calls := func(ctx context.Context) map[string]error {
				errs := map[string]error{}
				errs["Put"] = o.Put(ctx, newKey(1), newRecord(1, 1))
				_, errs["Delete"] = o.Delete(ctx, newKey(1))
				_, _, errs["Get"] = o.Get(ctx, newKey(1))
				_, _, errs["Reader.Get"] = r.Get(ctx, newKey(1))
				errs["Rejoin"] = r.Rejoin(ctx)
				return errs
			}
			var none context.Context
			for name, err := range calls(none) {
				if !errors.Is(err, vmmc.ErrBadArg) {
					t.Errorf("%s without a context: %v", name, err)
				}
			}
			for name, err := range calls(within(t)) {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := o.Close(); err != nil {
				t.Fatal(err)
			}
			<-r.Done()
			if _, _, err := r.Get(within(t), newKey(1)); !errors.Is(err, vmmc.ErrRevoked) {
				t.Errorf("a reader of a closed table: %v", err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			for name, err := range calls(within(t)) {
				if !errors.Is(err, vmmc.ErrClosed) {
					t.Errorf("%s after Close: %v", name, err)
				}
			}
			for range o.All() {
				t.Error("a closed table has entries")
			}
		})
	}
}

// Close of a reader ends a Rejoin that waits for a table.
func TestCloseBesideRejoin(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	o := newTable[record](t, node.Open(t), 10)
	r := open[record](t, node.Open(t))
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	rejoins := make(chan struct{})
	steps.On(t, func(s string) {
		if s == "reader.rejoins" {
			close(rejoins)
		}
	})
	done := make(chan error, 1)
	go func() { done <- r.Rejoin(context.Background()) }() // nothing else ends it
	<-rejoins
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// A reader can change nothing.
func TestReadersCannotWrite(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			_, r := start[record](t, w, 10)
			if err := r.Import().Send(within(t), make([]byte, 8), 64); !errors.Is(err, vmmc.ErrNoRights) {
				t.Error(err)
			}
		})
	}
}

// Processes that may not open a table are refused.
func TestPermit(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	p, q := node.Open(t), node.Open(t)
	newTable[record](t, p, 10, table.Permit(vmmc.Permission{Processes: []vmmc.ProcessID{q.ID()}}))
	if _, err := table.Open[key, record](within(t), p, name); !errors.Is(err, vmmc.ErrNoRights) {
		t.Error(err)
	}
	open[record](t, q)
}

// A look-up beside an owner that changes its bucket all the time ends with its context.
func TestGetGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	gets := 0
	big, rb := largeTable(t)
	if err := big.Put(ctx, newKey(1), large{}); err != nil {
		t.Fatal(err)
	}
	steps.On(t, func(s string) {
		if s == "bucket.got" {
			for range 20 {
				if err := big.Put(within(t), newKey(1), large{}); err != nil {
					t.Error(err)
				}
			}
			if gets++; gets == 100 {
				cancel()
			}
		}
	})
	_, _, err := rb.Get(ctx, newKey(1))
	if !errors.Is(err, vmmc.ErrCanceled) || gets < 100 {
		t.Errorf("after %d gets: %v", gets, err)
	}
}

func largeTable(t *testing.T) (*table.Table[key, large], *table.Reader[key, large]) {
	p := vmmctest.Nodes(t, 1)[0].Open(t)
	return newTable[large](t, p, 10), open[large](t, p)
}

// With one node, neither replacing a value nor a look-up allocates.
func TestAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	for _, w := range ways[:2] {
		t.Run(w.name, func(t *testing.T) {
			o, r := start[record](t, w, 100)
			for k := range 100 {
				put(t, o, k, 0)
			}
			ctx := within(t)
			n := 0
			for what, f := range map[string]func() error{
				"Put": func() error { n++; return o.Put(ctx, newKey(n%100), newRecord(n%100, n)) },
				"Get": func() error { _, _, err := o.Get(ctx, newKey(7)); return err },
				"Reader.Get": func() error {
					n++
					_, _, err := r.Get(ctx, newKey(n%200))
					return err
				},
				"Delete and Put": func() error {
					n++
					_, err := o.Delete(ctx, newKey(n%100))
					return errors.Join(err, o.Put(ctx, newKey(n%100), newRecord(n%100, n)))
				},
			} {
				if n := testing.AllocsPerRun(500, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s: %v allocations", what, n)
				}
			}
		})
	}
}
