package queue_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// TestModel compares a queue on one node with slices: what each call returns is known, as what is
// sent is there at once.
func TestModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	consumer, producers := node.Open(t), []*vmmc.Process{node.Open(t), node.Open(t), node.Open(t)}
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SampledFrom([]int{1, 2, 4, 8, 32}).Draw(t, "slots")
		starts := []uint64{0, 1<<32 - 5, uint64(slots)<<31 - 3, 1<<64 - 6}
		opts := []queue.Option{
			queue.Slots(slots), queue.StartAt(rapid.SampledFrom(starts).Draw(t, "start")),
		}
		c, err := queue.Listen[item](t.Context(), consumer, "model", opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m := &model{t: t, c: c, slots: slots, got: tally{}, lanes: make([]*lane, len(producers))}
		for i, p := range producers {
			q, err := queue.Dial[item](t.Context(), p, "model")
			if err != nil {
				t.Fatal(err)
			}
			m.lanes[i] = &lane{q: q}
			defer m.leave(q)
		}
		t.Repeat(map[string]func(*rapid.T){
			"try to put": m.tryPut, "put all": m.putAll, "get": m.get, "get some": m.getSome, "": m.check,
		})
	})
}

// lane is what the model knows of a producer.
type lane struct {
	q                *queue.Producer[item]
	put, taken, told int
}

type model struct {
	t     *rapid.T
	c     *queue.Consumer[item]
	slots int
	got   tally
	lanes []*lane
	first int // where the next get begins
}

func (m *model) draw(t *rapid.T) (uint32, *lane) {
	i := rapid.IntRange(0, len(m.lanes)-1).Draw(t, "producer")
	return uint32(i), m.lanes[i]
}

func (m *model) room(l *lane) int { return m.slots - (l.put - l.told) }

func (m *model) tryPut(t *rapid.T) {
	i, l := m.draw(t)
	ok, err := l.q.TryPut(newItem(i, uint32(l.put)))
	if want := m.room(l) > 0; ok != want || err != nil {
		t.Fatalf("%t, %v, want %t", ok, err, want)
	}
	if ok {
		l.put++
	}
}

func (m *model) putAll(t *rapid.T) {
	i, l := m.draw(t)
	n := rapid.IntRange(0, m.room(l)).Draw(t, "values")
	if k, err := l.q.PutAll(t.Context(), items(int(i), l.put, n)); k != n || err != nil {
		t.Fatalf("%d of %d values, %v", k, n, err)
	}
	l.put += n
}

func (m *model) get(t *rapid.T) {
	v, ok, err := m.c.TryGet()
	if want := m.there() > 0; ok != want || err != nil {
		t.Fatalf("%t, %v, want %t", ok, err, want)
	}
	if ok {
		m.take(t, v)
	}
}

func (m *model) getSome(t *rapid.T) {
	if m.there() == 0 {
		return // it would wait
	}
	dst := make([]item, rapid.IntRange(0, 3*m.slots).Draw(t, "room"))
	n, err := m.c.GetSome(t.Context(), dst)
	if want := min(len(dst), m.there()); n != want || err != nil {
		t.Fatalf("%d, %v, want %d", n, err, want)
	}
	m.take(t, dst[:n]...)
}

// there is how many values can be taken.
func (m *model) there() (n int) {
	for _, l := range m.lanes {
		n += l.put - l.taken
	}
	return n
}

// order is which producers' values the next gets take: each time all of one producer, as far as
// there is room, beginning behind the one that gave last.
func (m *model) order(n int) (from []uint32) {
	for k, first := 0, m.first; len(from) < n; k++ {
		i := (first + k) % len(m.lanes)
		for range min(m.lanes[i].put-m.lanes[i].taken, n-len(from)) {
			from, m.first = append(from, uint32(i)), i+1
		}
	}
	return from
}

// take notes what was taken: producers are told after each quarter of the slots, and when all is.
func (m *model) take(t *rapid.T, vs ...item) {
	for i, from := range m.order(len(vs)) {
		if vs[i].From != from {
			t.Fatalf("a value of producer %d, want producer %d", vs[i].From, from)
		}
	}
	for _, v := range vs {
		if v.N != m.got[v.From] || v.Sum != sum(v) {
			t.Fatalf("value %d of producer %d, want %d", v.N, v.From, m.got[v.From])
		}
		m.got[v.From]++
		l := m.lanes[v.From]
		l.taken++
		if l.taken-l.told >= max(m.slots/4, 1) || l.taken == l.put {
			l.told = l.taken
		}
	}
}

func (m *model) check(t *rapid.T) {
	for i, l := range m.lanes {
		if k := l.q.Pending(); k != l.put-l.told {
			t.Fatalf("producer %d: %d values are pending, want %d", i, k, l.put-l.told)
		}
	}
}

// leave ends a producer, whose values are taken first.
func (m *model) leave(q *queue.Producer[item]) {
	for m.there() > 0 {
		v, ok, err := m.c.TryGet()
		if !ok || err != nil {
			m.t.Errorf("%d values are left: %t, %v", m.there(), ok, err)
			return
		}
		m.take(m.t, v)
	}
	if err := q.Close(m.t.Context()); err != nil {
		m.t.Error(err)
	}
}
