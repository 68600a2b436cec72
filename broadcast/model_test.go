package broadcast_test

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/vmmc-go/vmmc"
	"github.com/vmmc-go/vmmc/broadcast"
	"github.com/vmmc-go/vmmc/vmmctest"
)

// A log with several readers against a model: a slice of entries, of which the ring has the last
// ones, and for each reader where it is and how far it has copied. Each read returns the right entry
// or the right loss.
func TestModel(t *testing.T) {
	node := vmmctest.Nodes(t, 1)[0]
	writer, reader := node.Open(t), node.Open(t)
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 4096, 5000, 1 << 16}).Draw(t, "size")
		start := rapid.SampledFrom([]uint64{0, 1<<32 - 8000, 1<<63 - 8000}).Draw(t, "start")
		log, err := broadcast.NewWriter(t.Context(), writer, "model", size, broadcast.StartAt(start))
		if err != nil {
			t.Fatal(err)
		}
		m := &logModel{log: log, p: reader, tail: start}
		defer func() {
			for _, r := range m.readers {
				r.Close()
			}
			if err := log.Close(ended()); err != nil && !errors.Is(err, vmmc.ErrCanceled) {
				t.Error(err)
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "append many": m.appendMany, "join": m.join, "leave": m.leave,
			"next": m.next, "": m.check,
		})
	})
}

// item is an entry that was appended.
type item struct {
	pos  uint64
	data []byte
}

// modelReader is a reader, the position of its next entry, how far it has copied, and the log's end
// when it looked for that.
type modelReader struct {
	*broadcast.Reader
	pos, copied, tail uint64
}

type logModel struct {
	log     *broadcast.Writer
	p       *vmmc.Process
	entries []item
	tail    uint64
	readers []*modelReader
	n       byte
}

func (m *logModel) append(t *rapid.T) {
	n := rapid.OneOf(
		rapid.IntRange(0, 100), rapid.IntRange(m.log.MaxEntry()-4, m.log.MaxEntry()),
	).Draw(t, "bytes")
	m.n++
	b := bytes.Repeat([]byte{m.n}, n)
	pos, err := m.log.Append(b)
	if pos != m.tail || err != nil {
		t.Fatalf("%d, %v, want %d", pos, err, m.tail)
	}
	m.entries = append(m.entries, item{pos, b})
	m.tail += size(n)
}

func (m *logModel) appendMany(t *rapid.T) {
	for range rapid.IntRange(1, 40).Draw(t, "entries") {
		m.append(t)
	}
}

// at returns the entry of a position.
func (m *logModel) at(t *rapid.T, pos uint64) item {
	for _, e := range m.entries {
		if e.pos == pos {
			return e
		}
	}
	t.Fatalf("no entry begins at %d", pos)
	return item{}
}

func (m *logModel) join(t *rapid.T) {
	if len(m.readers) == 4 {
		return
	}
	r := &modelReader{}
	from := broadcast.Oldest
	r.pos, _ = m.log.Bounds()
	switch {
	case rapid.Bool().Draw(t, "newest"):
		from, r.pos = broadcast.Newest, m.tail
	case len(m.entries) > 0 && rapid.Bool().Draw(t, "at"):
		r.pos = rapid.SampledFrom(m.entries).Draw(t, "entry").pos
		from = broadcast.At(r.pos)
	}
	var err error
	if r.Reader, err = broadcast.NewReader(t.Context(), m.p, "model", from); err != nil {
		t.Fatal(err)
	}
	m.readers = append(m.readers, r)
}

func (m *logModel) draw(t *rapid.T) (int, *modelReader) {
	i := rapid.IntRange(0, len(m.readers)-1).Draw(t, "reader")
	return i, m.readers[i]
}

func (m *logModel) leave(t *rapid.T) {
	if len(m.readers) == 0 {
		return
	}
	i, r := m.draw(t)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	m.readers = append(m.readers[:i], m.readers[i+1:]...)
}

func (m *logModel) next(t *rapid.T) {
	if len(m.readers) == 0 {
		return
	}
	_, r := m.draw(t)
	if r.pos == m.tail {
		return // it would wait
	}
	first, _ := m.log.Bounds()
	copies, lost := r.fill(m.at(t, r.pos), first, m.tail, uint64(r.Chunk()))
	b, pos, err := r.Next(t.Context(), nil)
	switch over := (*broadcast.Overrun)(nil); {
	case lost > 0:
		if !errors.As(err, &over) || over.Lost != lost {
			t.Fatalf("%d bytes at %d, %v, want a loss of %d", len(b), pos, err, lost)
		}
		r.pos += lost
	case err != nil:
		t.Fatalf("%v; the reader is at %d of %d to %d, copies: %v, and has copied up to %d",
			err, r.pos, first, m.tail, copies, r.copied)
	default:
		want := m.at(t, r.pos)
		if pos != r.pos || !bytes.Equal(b, want.data) {
			t.Fatalf("%d bytes at %d, want %d at %d", len(b), pos, len(want.data), r.pos)
		}
		r.pos += size(len(b))
	}
}

// fill is what a reader does to read the next entry: it copies from there on if it does not have all
// of it, and looks for the log's end if it knows of nothing more. It loses what was overwritten, and
// keeps the rest of its copy.
func (r *modelReader) fill(next item, first, tail, chunk uint64) (copies bool, lost uint64) {
	if next.pos+size(len(next.data)) <= r.copied {
		return false, 0
	}
	if r.tail <= r.pos {
		r.tail = tail
	}
	r.copied = min(r.tail, r.pos+chunk)
	return true, max(first, r.pos) - r.pos
}

func (m *logModel) check(t *rapid.T) {
	first, tail := m.log.Bounds()
	ring := uint64(len(m.log.Log()) - broadcast.LogHeader)
	if tail != m.tail || tail-first > ring {
		t.Fatalf("the log is from %d to %d, want to %d, in a ring of %d bytes", first, tail, m.tail, ring)
	}
	if len(m.entries) > 0 && tail-first < ring/2 && first != m.entries[0].pos {
		t.Fatalf("the log is from %d to %d, less than half of its ring of %d bytes", first, tail, ring)
	}
	for _, r := range m.readers {
		if len(m.log.Log())-broadcast.LogHeader > r.Chunk() {
			t.Fatalf("the chunk has %d bytes", r.Chunk())
		}
	}
}
