package table_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/pair"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// steps has tests act at the steps of the protocol.
var steps testutil.Steps

func TestMain(m *testing.M) {
	pair.Step = steps.At
	vmmctest.Role("owner", own)
	vmmctest.Role("confirmed owner", ownConfirmed)
	vmmctest.Role("confirming", confirmUntilKilled)
	vmmctest.Main(m)
}

var (
	within     = testutil.Context
	eventually = testutil.Eventually
)

// key is a key with a name for its padding.
type key struct {
	A uint64
	B uint32
	_ [4]byte
}

func newKey(n int) key { return key{A: uint64(n), B: uint32(n)} }

// record is a value that can be told from a torn one, and from another key's.
type record struct {
	Key  uint64
	N    uint32
	Fill [8]uint32
	Sum  uint32
}

func newRecord(k, n int) record {
	v := record{Key: uint64(k), N: uint32(n)}
	for i := range v.Fill {
		v.Fill[i] = uint32(n*31 + i + k<<16)
	}
	v.Sum = v.sum()
	return v
}

func (v *record) sum() uint32 {
	s := uint32(v.Key)*0x9E3779B1 + v.N
	for _, w := range v.Fill {
		s = s*0x01000193 ^ w
	}
	return s
}

// check reports an error for a value that was not put for a key.
func (v *record) check(k int) error {
	if v.Key != uint64(k) || v.Sum != v.sum() {
		return fmt.Errorf("key %d has the value %+v", k, v)
	}
	return nil
}

// way is how readers get.
type way struct {
	name     string
	nodes    int
	unmapped bool
}

var ways = []way{{"mapped", 1, false}, {"stream", 1, true}, {"between nodes", 2, false}}

const name = "n1/table"

// start starts nodes, and makes a table on the first one and a reader on the last one.
func start[V any](
	t testing.TB, w way, capacity int, opts ...table.Option,
) (*table.Table[key, V], *table.Reader[key, V]) {
	t.Helper()
	if w.unmapped {
		opts = append(opts, table.Unmapped())
	}
	nodes := vmmctest.Nodes(t, w.nodes)
	o := newTable[V](t, nodes[0].Open(t), capacity, opts...)
	return o, open[V](t, nodes[len(nodes)-1].Open(t))
}

func newTable[V any](
	t testing.TB, p *vmmc.Process, capacity int, opts ...table.Option,
) *table.Table[key, V] {
	t.Helper()
	o, err := table.New[key, V](within(t), p, name, capacity, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func open[V any](t testing.TB, p *vmmc.Process) *table.Reader[key, V] {
	t.Helper()
	r, err := table.Open[key, V](within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// oneHome returns n numbers of keys of the same home.
func oneHome[V any](o *table.Table[key, V], n int) (ks []int) {
	for k := 0; len(ks) < n; k++ {
		if o.Home(newKey(k)) == o.Home(newKey(0)) {
			ks = append(ks, k)
		}
	}
	return ks
}

func put(t testing.TB, o *table.Table[key, record], k, n int) {
	t.Helper()
	if err := o.Put(within(t), newKey(k), newRecord(k, n)); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, o *table.Table[key, record], k int) {
	t.Helper()
	if ok, err := o.Delete(within(t), newKey(k)); !ok || err != nil {
		t.Fatalf("delete key %d: %t, %v", k, ok, err)
	}
}

// holds checks that a key has a value, for the owner and for a reader.
func holds(t testing.TB, o *table.Table[key, record], r *table.Reader[key, record], k, n int) {
	t.Helper()
	ctx := context.Background()
	want := newRecord(k, n)
	if v, ok, err := r.Get(ctx, newKey(k)); !ok || err != nil || v != want {
		t.Fatalf("the reader gets for key %d: %+v, %t, %v, want %d", k, v, ok, err, n)
	}
	if v, ok, err := o.Get(ctx, newKey(k)); !ok || err != nil || v != want {
		t.Fatalf("the owner gets for key %d: %+v, %t, %v, want %d", k, v, ok, err, n)
	}
}

// lacks checks that there is no key, for the owner and for a reader.
func lacks(t testing.TB, o *table.Table[key, record], r *table.Reader[key, record], k int) {
	t.Helper()
	ctx := context.Background()
	if v, ok, err := r.Get(ctx, newKey(k)); ok || err != nil {
		t.Fatalf("the reader gets for key %d: %+v, %v", k, v, err)
	}
	if v, ok, err := o.Get(ctx, newKey(k)); ok || err != nil {
		t.Fatalf("the owner gets for key %d: %+v, %v", k, v, err)
	}
}

// ownKeys are how many keys a child has, and ownRounds how often it puts each.
const ownKeys, ownRounds = 24, 4

// own is a child: step, how often, file. It puts all keys once, prints "ready", and then puts and
// deletes them by turns. Each time it has gone through them it prints the round.
func own(ctx context.Context, p *vmmc.Process, args ...string) error {
	o, err := table.New[key, record](ctx, p, name, ownKeys)
	if err != nil {
		return err
	}
	ks := oneHome(o, ownKeys) // so that there are overflow buckets
	put := func(k, n int) {
		if err == nil {
			err = o.Put(ctx, newKey(k), newRecord(k, n))
		}
	}
	for _, k := range ks {
		put(k, 0)
	}
	fmt.Println("ready")
	for _, k := range ks {
		fmt.Println(k)
	}
	steps.PauseAt(args[0], args[1], args[2])
	for n := 1; n <= ownRounds && err == nil; n++ {
		for _, k := range ks {
			put(k, n)
		}
		for _, k := range ks[:ownKeys/2] {
			if _, err := o.Delete(ctx, newKey(k)); err != nil {
				return err
			}
			put(k, n)
		}
		for _, k := range ks[:ownKeys/2] {
			if _, err := o.Delete(ctx, newKey(k)); err != nil {
				return err
			}
		}
		for _, k := range ks[:ownKeys/2] {
			put(k, n)
		}
		fmt.Println(n)
	}
	if err != nil {
		return err
	}
	<-ctx.Done() // never: the test kills it
	return nil
}
