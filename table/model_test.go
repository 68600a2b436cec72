package table_test

import (
	"errors"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc/table"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestModel compares a table and its reader with a map, which has keys of one home and others.
func TestModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	owner, reader := node.Open(t), node.Open(t)
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.SampledFrom([]int{1, 7, 8, 15, 40}).Draw(t, "capacity")
		o, err := table.New[key, record](t.Context(), owner, "model", capacity)
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		r, err := table.Open[key, record](t.Context(), reader, "model")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		m := &model{o: o, r: r, capacity: capacity, want: map[int]int{}}
		m.keys = append(oneHome(o, capacity+2), 1_000_001, 1_000_002, 1_000_003)
		t.Repeat(map[string]func(*rapid.T){
			"put": m.put, "put again": m.put, "delete": m.remove, "get": m.get, "all": m.all, "": m.check,
		})
	})
}

type model struct {
	o        *table.Table[key, record]
	r        *table.Reader[key, record]
	capacity int
	keys     []int
	want     map[int]int
}

func (m *model) key(t *rapid.T) int { return rapid.SampledFrom(m.keys).Draw(t, "key") }

func (m *model) put(t *rapid.T) {
	k, n := m.key(t), rapid.IntRange(0, 1000).Draw(t, "value")
	err := m.o.Put(t.Context(), newKey(k), newRecord(k, n))
	_, is := m.want[k]
	full := !is && len(m.want) == m.capacity
	if errors.Is(err, table.ErrFull) != full || !full && err != nil {
		t.Fatalf("put with %d entries: %v", len(m.want), err)
	}
	if err == nil {
		m.want[k] = n
	}
}

func (m *model) remove(t *rapid.T) {
	k := m.key(t)
	_, is := m.want[k]
	if ok, err := m.o.Delete(t.Context(), newKey(k)); ok != is || err != nil {
		t.Fatalf("delete: %t, %v, want %t", ok, err, is)
	}
	delete(m.want, k)
}

func (m *model) get(t *rapid.T) {
	k := m.key(t)
	n, is := m.want[k]
	v, ok, err := m.r.Get(t.Context(), newKey(k))
	if ok != is || err != nil || ok && v != newRecord(k, n) {
		t.Fatalf("the reader: %+v, %t, %v, want %d, %t", v, ok, err, n, is)
	}
	v, ok, err = m.o.Get(t.Context(), newKey(k))
	if ok != is || err != nil || ok && v != newRecord(k, n) {
		t.Fatalf("the owner: %+v, %t, %v, want %d, %t", v, ok, err, n, is)
	}
}

func (m *model) all(t *rapid.T) {
	got := map[int]int{}
	for k, v := range m.o.All() {
		if _, twice := got[int(k.A)]; twice || v.check(int(k.A)) != nil {
			t.Fatalf("key %d: twice %t, %+v", k.A, twice, v)
		}
		got[int(k.A)] = int(v.N)
	}
	if !maps.Equal(got, m.want) {
		t.Fatalf("%v, want %v", got, m.want)
	}
}

func (m *model) check(t *rapid.T) {
	if err := m.o.Check(); err != nil || m.o.Len() != len(m.want) {
		t.Fatalf("%d entries, want %d: %v", m.o.Len(), len(m.want), err)
	}
}
