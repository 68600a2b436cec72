package queue_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/internal/invariant"
	"github.com/vmmc-go/vmmc/internal/testutil"
	"github.com/vmmc-go/vmmc/queue"
	"github.com/vmmc-go/vmmc/view"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// longest is the length of the longest record in most tests. Four of them have 16 slots.
const longest = 200

// newRecord is record n of a producer: its words are the numbers of slots, of this lap or others, so
// that bytes of an earlier record which the consumer takes for a number would be noticed.
func newRecord(from, n, most int) []byte {
	b := make([]byte, 8+(n*37+from*11)%(most-7))
	for at := 0; at+4 <= len(b); at += 4 {
		binary.LittleEndian.PutUint32(b[at:], uint32(n/4+at/4%5)|1)
	}
	for at := len(b) &^ 3; at < len(b); at++ {
		b[at] = byte(n)
	}
	binary.LittleEndian.PutUint32(b, uint32(from))
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	return b
}

func newRecords(from, first, n, most int) (rs [][]byte) {
	for i := range n {
		rs = append(rs, newRecord(from, first+i, most))
	}
	return rs
}

// recordTally checks that each producer's records are a prefix, and whole.
type recordTally map[int]int

func (s recordTally) check(most int, records ...[]byte) error {
	for _, r := range records {
		if len(r) < 8 {
			return fmt.Errorf("a record of %d bytes", len(r))
		}
		from := int(binary.LittleEndian.Uint32(r))
		if want := newRecord(from, s[from], most); !bytes.Equal(r, want) {
			return fmt.Errorf("producer %d: record %x, want %x", from, r, want)
		}
		s[from]++
	}
	return nil
}

func (s recordTally) add(t testing.TB, records ...[]byte) {
	t.Helper()
	if err := s.check(longest, records...); err != nil {
		t.Fatal(err)
	}
}

// produceRecords is a child as produce is.
func produceRecords(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[3], args[4], args[5])
	q, err := queue.DialBytes(ctx, p, args[0])
	if err != nil {
		return err
	}
	from, err1 := strconv.Atoi(args[1])
	n, err2 := strconv.Atoi(args[2])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if args[3] == "put.queued" {
		queue.CoalesceWithin(bound)
		for i := range n {
			if err := q.Put(ctx, newRecord(from, i, longest)); err != nil {
				return err
			}
		}
		return q.Close(ctx)
	}
	for first, run := 0, 1; first < n; first, run = first+run, run%7+1 {
		if _, err := q.PutAll(ctx, newRecords(from, first, min(run, n-first), longest)); err != nil {
			return err
		}
	}
	return q.Close(ctx)
}

// consumeRecords is a child: name, step, how often, file. It takes records, checks and drops them.
func consumeRecords(ctx context.Context, p *vmmc.Process, args ...string) error {
	steps.PauseAt(args[1], args[2], args[3])
	c, err := queue.ListenBytes(ctx, p, args[0], longest, queue.Slots(8))
	if err != nil {
		return err
	}
	got := recordTally{}
	for r, err := range c.All(ctx) {
		if err == nil {
			err = got.check(longest, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w way) startBytes(
	t testing.TB, most int, opts ...queue.Option,
) (nodes []*vmmctest.Node, c *queue.ByteConsumer) {
	t.Helper()
	if w.unmapped {
		opts = append(opts, queue.Unmapped())
	}
	nodes = vmmctest.Nodes(t, w.nodes)
	c, err := queue.ListenBytes(within(t), nodes[0].Open(t), name, most, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return nodes, c
}

func dialBytes(t testing.TB, p *vmmc.Process) *queue.ByteProducer {
	t.Helper()
	q, err := queue.DialBytes(within(t), p, name)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func putRecords(t testing.TB, q *queue.ByteProducer, records ...[]byte) {
	t.Helper()
	if n, err := q.PutAll(within(t), records); err != nil || n != len(records) {
		t.Fatalf("%d of %d records: %v", n, len(records), err)
	}
}

func getRecord(t testing.TB, c *queue.ByteConsumer) []byte {
	t.Helper()
	r, err := c.Get(within(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Records of all lengths arrive, whole and in order, over many rounds of the ring, behind padding,
// and where its counters begin anew.
func TestRecords(t *testing.T) {
	const n = 600
	for _, w := range ways {
		for about, of := range map[string]struct {
			most int
			opts []queue.Option
		}{
			"one slot each":   {56, []queue.Option{queue.Slots(1)}},
			"the least ring":  {longest, []queue.Option{queue.Slots(1)}},
			"64 slots":        {longest, []queue.Option{queue.Slots(64)}},
			"long ones":       {5000, nil},
			"the lap wraps":   {longest, []queue.Option{queue.Slots(16), queue.StartAt(16 * (1<<31 - 40))}},
			"the count wraps": {longest, []queue.Option{queue.Slots(16), queue.StartAt(1<<32 - 305)}},
			"all wraps":       {longest, []queue.Option{queue.Slots(16), queue.StartAt(1<<64 - 501)}},
		} {
			t.Run(w.name+"/"+about, func(t *testing.T) {
				nodes, c := w.startBytes(t, of.most, of.opts...)
				q := dialBytes(t, nodes[len(nodes)-1].Open(t))
				if q.MaxLen() != of.most {
					t.Errorf("records of up to %d bytes", q.MaxLen())
				}
				done, ctx := make(chan error, 1), within(t)
				go func() {
					done <- func() error {
						for first, run := 0, 1; first < n; first, run = first+run, run%13+1 {
							rs := newRecords(1, first, min(run, n-first), of.most)
							if run == 1 {
								for ok := false; !ok; {
									var err error
									if ok, err = q.TryPut(rs[0]); err != nil {
										return err
									}
								}
							} else if _, err := q.PutAll(ctx, rs); err != nil {
								return err
							}
						}
						return q.Close(ctx)
					}()
				}()
				got, dst := recordTally{}, make([][]byte, 5)
				for i := 0; got[1] < n; i++ {
					k, err := 1, error(nil)
					if i%3 == 0 {
						dst[0], err = c.Get(ctx, dst[0])
					} else {
						k, err = c.GetSome(ctx, dst)
					}
					if err == nil {
						err = got.check(of.most, dst[:k]...)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if _, ok, err := c.TryGet(nil); ok || err != nil {
					t.Errorf("a record more, %v", err)
				}
				if k := q.Pending(); k != 0 {
					t.Errorf("%d slots are pending", k)
				}
			})
		}
	}
}

func TestRecordsManyToOne(t *testing.T) {
	const n, producers = 200, 8
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.startBytes(t, longest, queue.Slots(16), queue.Producers(producers))
			var wg sync.WaitGroup
			ctx := within(t)
			for i := range producers {
				q := dialBytes(t, nodes[len(nodes)-1].Open(t))
				wg.Go(func() {
					for k := range n {
						if err := q.Put(ctx, newRecord(i, k, longest)); err != nil {
							t.Error(err)
							return
						}
					}
					if err := q.Close(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			got := recordTally{}
			for r, err := range c.All(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				got.add(t, r)
			}
			for i := range producers {
				if got[i] != n {
					t.Errorf("%d records of producer %d", got[i], i)
				}
			}
			wg.Wait()
		})
	}
}

// Short records of a burst are coalesced, and stay in their order with long ones.
func TestRecordsCoalesced(t *testing.T) {
	const n = 1000
	t.Cleanup(queue.CoalesceWithin(bound))
	nodes, c := ways[2].startBytes(t, longest)
	q := dialBytes(t, nodes[1].Open(t))
	done, ctx := make(chan error, 1), within(t)
	go func() {
		for i := range n {
			if err := q.Put(ctx, newRecord(1, i, longest)); err != nil {
				done <- err
				return
			}
		}
		done <- q.Close(ctx)
	}()
	for got := (recordTally{}); got[1] < n; {
		got.add(t, getRecord(t, c))
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A record that lies in its buffer where that is large enough, and one that has no bytes.
func TestRecordMemory(t *testing.T) {
	nodes, c := ways[0].startBytes(t, longest)
	q := dialBytes(t, nodes[0].Open(t))
	record := newRecord(1, 0, longest)
	putRecords(t, q, record, record, nil)
	buf := make([]byte, 1, longest)
	r, err := c.Get(within(t), buf)
	if err != nil || !bytes.Equal(r, record) || &r[0] != &buf[0] {
		t.Errorf("%x, %v", r, err)
	}
	small := make([]byte, 1)
	r, ok, err := c.TryGet(small)
	if err != nil || !ok || !bytes.Equal(r, record) || small[0] != 0 {
		t.Errorf("%x, %t, %v", r, ok, err)
	}
	if r := getRecord(t, c); r == nil || len(r) != 0 {
		t.Errorf("%x, want an empty record", r)
	}
	if n, err := c.GetSome(within(t), nil); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestRecordModel compares a queue of records on one node with slices.
func TestRecordModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	consumer, producers := node.Open(t), []*vmmc.Process{node.Open(t), node.Open(t)}
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{8, 56, 57, longest, 3000}).Draw(t, "longest")
		slots := rapid.SampledFrom([]int{1, 16, 256}).Draw(t, "slots")
		least := 4 * ((4 + most + 59) / 60)
		for ring := 1; slots < least; ring *= 2 {
			slots = ring
		}
		starts := []uint64{0, 1<<32 - 5, uint64(slots)<<31 - 3, 1<<64 - 6}
		start := rapid.SampledFrom(starts).Draw(t, "start")
		c, err := queue.ListenBytes(t.Context(), consumer, "model", most,
			queue.Slots(slots), queue.StartAt(start))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m := &recordModel{t: t, c: c, slots: slots, most: most}
		for _, p := range producers {
			q, err := queue.DialBytes(t.Context(), p, "model")
			if err != nil {
				t.Fatal(err)
			}
			m.lanes = append(m.lanes, &recordLane{q: q, put: start, taken: start, told: start})
		}
		t.Repeat(map[string]func(*rapid.T){
			"try to put": m.tryPut, "put all": m.putAll, "get": m.get, "get some": m.getSome, "": m.check,
		})
		for m.there() > 0 {
			m.get(t)
		}
		for _, l := range m.lanes {
			if err := l.q.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// recordLane is what the model knows of a producer. The numbers are those of slots.
type recordLane struct {
	q                *queue.ByteProducer
	records          [][]byte // that were put and not taken
	ends             []uint64 // the slots behind them
	put, taken, told uint64
}

type recordModel struct {
	t           *rapid.T
	c           *queue.ByteConsumer
	slots, most int
	lanes       []*recordLane
	first       int // where the next get begins
}

func (m *recordModel) draw(t *rapid.T) (*recordLane, []byte) {
	i := rapid.IntRange(0, len(m.lanes)-1).Draw(t, "producer")
	return m.lanes[i], rapid.SliceOfN(rapid.Byte(), 0, m.most).Draw(t, "record")
}

// end is the slot behind a record that is put next.
func (m *recordModel) end(l *recordLane, record []byte) uint64 {
	first, n := l.put, uint64((4+len(record)+59)/60)
	if left := uint64(m.slots) - first%uint64(m.slots); left < n {
		first += left // the padding
	}
	return first + n
}

func (m *recordModel) note(l *recordLane, record []byte) {
	l.put = m.end(l, record)
	l.records, l.ends = append(l.records, record), append(l.ends, l.put)
}

func (m *recordModel) tryPut(t *rapid.T) {
	l, record := m.draw(t)
	ok, err := l.q.TryPut(record)
	if want := m.end(l, record)-l.told <= uint64(m.slots); ok != want || err != nil {
		t.Fatalf("%t, %v, want %t", ok, err, want)
	}
	if ok {
		m.note(l, record)
	}
}

func (m *recordModel) putAll(t *rapid.T) {
	var records [][]byte
	l, record := m.draw(t)
	for m.end(l, record)-l.told <= uint64(m.slots) && len(records) < 5 {
		m.note(l, record)
		records = append(records, record)
		record = rapid.SliceOfN(rapid.Byte(), 0, m.most).Draw(t, "record")
	}
	if k, err := l.q.PutAll(t.Context(), records); k != len(records) || err != nil {
		t.Fatalf("%d of %d records, %v", k, len(records), err)
	}
}

func (m *recordModel) there() (n int) {
	for _, l := range m.lanes {
		n += len(l.records)
	}
	return n
}

// take checks records that were taken: each time all of one producer, beginning behind the one that
// gave last.
func (m *recordModel) take(t *rapid.T, records ...[]byte) {
	for k, first := 0, m.first; len(records) > 0; k++ {
		i := (first + k) % len(m.lanes)
		l := m.lanes[i]
		for len(l.records) > 0 && len(records) > 0 {
			if !bytes.Equal(records[0], l.records[0]) {
				t.Fatalf("record %x of producer %d, want %x", records[0], i, l.records[0])
			}
			m.tookTo(l, l.ends[0])
			records, l.records, l.ends = records[1:], l.records[1:], l.ends[1:]
			if m.first = i + 1; len(l.records) == 0 {
				l.told = l.taken
			}
		}
	}
}

// tookTo takes slots up to a record's end, by one those of the padding before it.
func (m *recordModel) tookTo(l *recordLane, end uint64) {
	quarter := uint64(max(m.slots/4, 1))
	for ringEnd := l.taken - l.taken%uint64(m.slots) + uint64(m.slots); end-l.taken > end-ringEnd &&
		ringEnd != end && l.taken != ringEnd; {
		if l.taken++; l.taken-l.told >= quarter {
			l.told = l.taken
		}
	}
	if l.taken = end; l.taken-l.told >= quarter {
		l.told = l.taken
	}
}

func (m *recordModel) get(t *rapid.T) {
	r, ok, err := m.c.TryGet(nil)
	if want := m.there() > 0; ok != want || err != nil {
		t.Fatalf("%t, %v, want %t", ok, err, want)
	}
	if ok {
		m.take(t, r)
	}
}

func (m *recordModel) getSome(t *rapid.T) {
	if m.there() == 0 {
		return // it would wait
	}
	dst := make([][]byte, rapid.IntRange(0, 20).Draw(t, "room"))
	n, err := m.c.GetSome(t.Context(), dst)
	if want := min(len(dst), m.there()); n != want || err != nil {
		t.Fatalf("%d, %v, want %d", n, err, want)
	}
	m.take(t, dst[:n]...)
}

func (m *recordModel) check(t *rapid.T) {
	for i, l := range m.lanes {
		if k := l.q.Pending(); uint64(k) != l.put-l.told {
			t.Fatalf("producer %d: %d slots are pending, want %d", i, k, l.put-l.told)
		}
	}
}

// recordSteps are where a producer of records is killed and stopped.
var recordSteps = []struct {
	step   string
	nth, n int
}{
	{"dial.joined", 1, 12},
	{"put.room", 2, 12},
	{"put.encoded", 2, 12},
	{"put.arrived", 2, 12},
	{"put.padded", 1, 12},
	{"put.sent", 2, 12},
	{"put.wait", 1, 40},
	{"put.queued", 1, 12},
	{"close.wait", 1, 3},
}

// takeRecords takes records until stop is called.
func takeRecords(t *testing.T, c *queue.ByteConsumer, got recordTally) (stop func()) {
	ctx, cancel := context.WithCancel(within(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		for r, err := range c.All(ctx) {
			if err == nil {
				err = got.check(longest, r)
			}
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// A producer of records that is killed at any step leaves a prefix of them, each whole, and others
// go on.
func TestRecordProducerKilled(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range recordSteps {
			if s.step == "put.queued" && w.nodes == 1 || testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue // in memory no value is queued
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes, c := w.startBytes(t, longest, queue.Slots(16))
				last := nodes[len(nodes)-1]
				q := dialBytes(t, last.Open(t))
				args := []string{name, "7", itoa(s.n), s.step, itoa(s.nth), "/nonexistent/file"}
				got, stop := recordTally{}, func() {}
				if s.step == "put.padded" { // it comes there when records were taken
					stop = takeRecords(t, c, got)
				}
				killed := vmmctest.Child(t, last, "record producer", args...)
				line := killed.Line()
				if stop(); line != s.step {
					t.Fatal(line)
				}
				killed.Kill()
				eventually(t, "its lane is dropped", func() bool {
					r, ok, err := c.TryGet(nil)
					if err != nil {
						t.Fatal(err)
					}
					if ok {
						got.add(t, r)
					}
					return c.Lanes() == 1 && c.Requests() == 0
				})
				for i := range 40 {
					putRecords(t, q, newRecord(1, i, longest))
					got.add(t, getRecord(t, c))
				}
				if got[1] != 40 || got[7] > s.n {
					t.Errorf("%d records of the dead producer, %d of the other one", got[7], got[1])
				}
				if s.step == "close.wait" && w.nodes == 1 && got[7] != s.n {
					t.Errorf("%d records of the dead producer, which had put %d", got[7], s.n)
				}
				if err := q.Close(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A producer of records that is stopped at any step goes on where it was.
func TestRecordProducerStopped(t *testing.T) {
	for _, w := range deathWays {
		for i, s := range recordSteps {
			if s.step == "put.queued" && w.nodes == 1 || testutil.LeavesOut(i, w.nodes, len(deathWays)) {
				continue // in memory no value is queued
			}
			t.Run(w.name+"/"+s.step, func(t *testing.T) {
				nodes, c := w.startBytes(t, longest, queue.Slots(16))
				last := nodes[len(nodes)-1]
				q := dialBytes(t, last.Open(t))
				file := filepath.Join(t.TempDir(), "continue")
				args := []string{name, "7", itoa(s.n), s.step, itoa(s.nth), file}
				got, stop := recordTally{}, func() {}
				if s.step == "put.padded" { // it comes there when records were taken
					stop = takeRecords(t, c, got)
				}
				child := vmmctest.Child(t, last, "record producer", args...)
				line := child.Line()
				if stop(); line != s.step {
					t.Fatal(line)
				}
				child.Stop()
				for k := range 20 {
					putRecords(t, q, newRecord(1, k, longest))
					for got[1] <= k {
						got.add(t, getRecord(t, c))
					}
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				child.Continue()
				for got[7] < s.n {
					got.add(t, getRecord(t, c))
				}
				if err := child.Wait(); err != nil {
					t.Error(err)
				}
				if err := q.Close(within(t)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A consumer of records that is killed at any step ends its producers' waits, and one that is stopped
// goes on where it was.
func TestRecordConsumerKilledOrStopped(t *testing.T) {
	for _, w := range deathWays {
		for i, step := range []string{"get.sleeps", "get.seen", "get.copied", "get.counted"} {
			for _, kill := range []bool{true, false} {
				if testutil.LeavesOut(i, w.nodes, len(deathWays)) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/killed=%t", w.name, step, kill), func(t *testing.T) {
					nodes := vmmctest.Nodes(t, w.nodes)
					file := filepath.Join(t.TempDir(), "continue")
					child := vmmctest.Child(t, nodes[0], "record consumer", name, step, "2", file)
					q := dialBytes(t, nodes[len(nodes)-1].Open(t))
					const n = 60 // more than there is room for
					done, ctx := make(chan error, 1), within(t)
					go func() {
						var err error
						for i := 0; err == nil && (kill || i < n); i += 3 {
							_, err = q.PutAll(ctx, newRecords(1, i, 3, longest))
						}
						done <- errors.Join(err, q.Close(ctx))
					}()
					if got := child.Line(); got != step {
						t.Fatal(got)
					}
					if kill {
						child.Kill()
						if err := <-done; !errors.Is(err, vmmc.ErrPeerGone) {
							t.Errorf("%v", err)
						}
						return
					}
					child.Stop()
					if err := os.WriteFile(file, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					child.Continue()
					if err := <-done; err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// A record whose transfer is given up in the middle is repeated by the next call.
func TestLargeRecordGivenUp(t *testing.T) {
	const large = 1 << 20
	for _, w := range ways[1:] {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.startBytes(t, large)
			q := dialBytes(t, nodes[len(nodes)-1].Open(t))
			ctx, cancel := context.WithCancel(within(t))
			steps.On(t, func(s string) {
				if s == "put.encoded" {
					cancel()
				}
			})
			want := [][]byte{}
			for n := range 7 { // some behind padding
				record := bytes.Repeat([]byte{byte(n + 1)}, large-n*1000)
				err := q.Put(ctx, record)
				if err == nil || errors.Is(err, vmmc.ErrOutcomeUnknown) {
					want = append(want, record)
				}
				if err != nil && (n > 0 || !errors.Is(err, vmmc.ErrCanceled)) {
					t.Fatal(err)
				}
				if ctx = within(t); n == 2 {
					for len(want) > 0 {
						if r := getRecord(t, c); !bytes.Equal(r, want[0]) {
							t.Fatalf("%d bytes of %d, want %d of %d", len(r), r[0], len(want[0]), want[0][0])
						}
						want = want[1:]
					}
				}
				if len(want) == 3 {
					if r := getRecord(t, c); !bytes.Equal(r, want[0]) {
						t.Fatalf("%d bytes of %d, want %d of %d", len(r), r[0], len(want[0]), want[0][0])
					}
					want = want[1:]
				}
			}
			for _, record := range want {
				if r := getRecord(t, c); !bytes.Equal(r, record) {
					t.Fatalf("%d bytes of %d, want %d of %d", len(r), r[0], len(record), record[0])
				}
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A TryPut of a short record behind a long one in doubt sends the long one, though that is no single
// frame.
func TestTryPutBehindALargeRecord(t *testing.T) {
	const large = 32 << 20 // neither sockets nor the wire between nodes take it at once
	for _, w := range ways[1:] {
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.startBytes(t, large)
			q := dialBytes(t, nodes[len(nodes)-1].Open(t))
			ctx, cancel := context.WithCancel(within(t))
			steps.On(t, func(s string) {
				if s == "put.encoded" {
					nodes[0].Delay(bound) // so the wire takes no more than it has room for
					cancel()
				}
			})
			want := [][]byte{bytes.Repeat([]byte{1}, large), {2}}
			if err := q.Put(ctx, want[0]); !errors.Is(err, vmmc.ErrOutcomeUnknown) {
				t.Fatalf("the put: %v", err)
			}
			steps.Off()
			nodes[0].Heal()
			if ok, err := q.TryPut(want[1]); !ok || err != nil {
				t.Fatalf("%t, %v", ok, err)
			}
			for _, record := range want {
				if r := getRecord(t, c); !bytes.Equal(r, record) {
					t.Fatalf("%d bytes of %d, want %d of %d", len(r), r[0], len(record), record[0])
				}
			}
			if err := q.Close(within(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A producer that sends records of a false length is a lost one, and others go on. What it can write
// to was not read beyond its bounds.
func TestFalseRecords(t *testing.T) {
	for about, f := range map[string]struct {
		length uint32
		skip   int // slots that are taken before
	}{
		"too long":            {longest + 1, 0},
		"2 GiB":               {1 << 31, 0},
		"beyond the ring end": {longest, 13},
	} {
		t.Run(about, func(t *testing.T) {
			nodes, c := ways[0].startBytes(t, longest, queue.Slots(16), queue.Producers(2))
			q, liar := dialBytes(t, nodes[0].Open(t)), dialBytes(t, nodes[0].Open(t))
			for range f.skip {
				putRecords(t, liar, []byte{1})
				getRecord(t, c)
			}
			// A header of 64 bytes, and 16 slots of 64 downwards.
			slot := make([]byte, 64)
			binary.NativeEndian.PutUint32(slot, f.length)
			binary.NativeEndian.PutUint32(slot[60:], 1)
			if err := liar.Lane().Send(within(t), slot, 64+(15-f.skip)*64); err != nil {
				t.Fatal(err)
			}
			putRecords(t, q, newRecord(1, 0, longest))
			got, lost := recordTally{}, (*queue.LostError)(nil)
			for lost == nil || got[1] == 0 {
				r, err := c.Get(within(t), nil)
				if err == nil {
					got.add(t, r)
				} else if !errors.As(err, &lost) {
					t.Fatal(err)
				}
			}
			if !errors.Is(lost, vmmc.ErrProtocol) || lost.Producer != liar.Process().ID() {
				t.Errorf("%v", lost)
			}
			if lost.Values != uint64(f.skip) {
				t.Errorf("%d of its records were taken", lost.Values)
			}
			eventually(t, "its puts fail", func() bool {
				_, err := liar.TryPut([]byte{1})
				return errors.Is(err, vmmc.ErrRevoked)
			})
			if !c.Replace(lost) {
				t.Error("it is not replaced")
			}
			putRecords(t, q, newRecord(1, 1, longest))
			got.add(t, getRecord(t, c))
		})
	}
	for n, slots := range map[uint32]uint64{longest: 15, 1 << 30: 1 << 23, 1<<32 - 2: 16} {
		if k, err := queue.ReadRecordHeader(slots, n); err == nil {
			t.Errorf("%d slots for records of %d bytes", slots, k)
		}
	}
}

// A producer of padding without end does not hold a get.
func TestPaddingWithoutEnd(t *testing.T) {
	nodes, c := ways[0].startBytes(t, longest, queue.Slots(16), queue.Producers(1))
	liar := dialBytes(t, nodes[0].Open(t))
	ring := make([]byte, 16*64)
	for at := 0; at < len(ring); at += 64 {
		binary.NativeEndian.PutUint32(ring[at:], 1<<32-1)
		binary.NativeEndian.PutUint32(ring[at+60:], 1)
	}
	if err := liar.Lane().Send(within(t), ring, 64); err != nil {
		t.Fatal(err)
	}
	_, err := c.Get(within(t), nil)
	if lost := (*queue.LostError)(nil); !errors.As(err, &lost) || !errors.Is(err, vmmc.ErrProtocol) {
		t.Error(err)
	}
}

// A queue that does not end drops a producer of false records, and logs it once.
func TestFalseRecordsAreLogged(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	nodes, c := ways[0].startBytes(t, longest, queue.Slots(16))
	q, liar := dialBytes(t, nodes[0].Open(t)), dialBytes(t, nodes[0].Open(t))
	slot := make([]byte, 64)
	binary.NativeEndian.PutUint32(slot, longest+1)
	binary.NativeEndian.PutUint32(slot[60:], 1)
	if err := liar.Lane().Send(within(t), slot, 64+15*64); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its lane is dropped", func() bool {
		if _, ok, err := c.TryGet(nil); ok || err != nil {
			t.Fatal(ok, err)
		}
		return c.Lanes() == 1
	})
	putRecords(t, q, newRecord(1, 0, longest))
	getRecord(t, c)
	mu.Lock()
	defer mu.Unlock()
	text := log.String()
	producer := strconv.Quote(liar.Process().ID().String())
	if strings.Count(text, "breaks the protocol") != 1 || !strings.Contains(text, "producer="+producer) {
		t.Errorf("it has logged %q", text)
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func TestRecordsRefused(t *testing.T) {
	ctx := within(t)
	nodes, c := ways[0].startBytes(t, longest)
	p := nodes[0].Open(t)
	q := dialBytes(t, p)
	for k := range 3 {
		long := make([]byte, longest+1)
		err := q.Put(ctx, long)
		switch k {
		case 1:
			_, err = q.PutAll(ctx, [][]byte{{1}, long})
		case 2:
			_, err = q.TryPut(long)
		}
		if !errors.Is(err, vmmc.ErrBadArg) || q.Pending() != 0 {
			t.Errorf("a record that is too long: %v, %d slots are pending", err, q.Pending())
		}
	}
	if _, err := queue.Dial[item](ctx, p, name); !errors.Is(err, view.ErrLayout) {
		t.Errorf("a producer of values: %v", err)
	}
	if _, err := queue.Listen[item](ctx, p, "items"); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.DialBytes(ctx, p, "items"); !errors.Is(err, view.ErrLayout) {
		t.Errorf("a queue of values: %v", err)
	}
	type slot struct {
		RecordLength uint32
		RecordBytes  [14]uint32
	}
	if _, err := queue.Dial[slot](ctx, p, name); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a producer of values that look as records do: %v", err)
	}
	if _, err := queue.Listen[slot](ctx, p, "slots"); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.DialBytes(ctx, p, "slots"); !errors.Is(err, vmmc.ErrBadArg) {
		t.Errorf("a queue of values that look as records do: %v", err)
	}
	for _, most := range []int{-1, -2, 1 << 30} {
		if _, err := queue.ListenBytes(ctx, p, "none", most); !errors.Is(err, vmmc.ErrBadArg) {
			t.Errorf("records of %d bytes: %v", most, err)
		}
	}
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if _, err := c.Get(soon, nil); !errors.Is(err, vmmc.ErrTimeout) {
		t.Errorf("a get: %v", err)
	}
	if err := q.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := q.Put(ctx, nil); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a put after the close: %v", err)
	}
	if _, err := q.TryPut(nil); !errors.Is(err, vmmc.ErrClosed) {
		t.Errorf("a try after the close: %v", err)
	}
}

func TestRecordAllocations(t *testing.T) {
	if raceEnabled || invariant.Enabled {
		t.Skip("the race detector and the library's own checks allocate")
	}
	for _, w := range ways[:2] { // the wire between nodes allocates
		t.Run(w.name, func(t *testing.T) {
			nodes, c := w.startBytes(t, longest)
			q := dialBytes(t, nodes[len(nodes)-1].Open(t))
			rs, dst, ctx := newRecords(1, 0, 16, longest), make([][]byte, 16), within(t)
			for i := range dst {
				dst[i] = make([]byte, longest)
			}
			for about, f := range map[string]func() error{
				"Put and Get": func() error {
					err := q.Put(ctx, rs[3])
					_, err2 := c.Get(ctx, dst[0])
					return errors.Join(err, err2)
				},
				"TryPut and TryGet": func() error {
					_, err := q.TryPut(rs[3])
					for ok := false; !ok && err == nil; {
						_, ok, err = c.TryGet(dst[0])
					}
					return err
				},
				"PutAll and GetSome": func() error {
					_, err := q.PutAll(ctx, rs)
					for n := 0; n < len(rs) && err == nil; {
						var k int
						k, err = c.GetSome(ctx, dst)
						n += k
					}
					return err
				},
			} {
				if w.unmapped && about == "TryPut and TryGet" {
					continue // what arrives while nothing waits for it allocates
				}
				if n := testing.AllocsPerRun(200, func() {
					if err := f(); err != nil {
						t.Fatal(err)
					}
				}); n != 0 {
					t.Errorf("%s: %v allocations", about, n)
				}
			}
		})
	}
}
