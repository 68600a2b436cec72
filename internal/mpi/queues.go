package mpi

import (
	"encoding/binary"
	"errors"

	"github.com/vmmc-go/vmmc"
)

// The kinds of entries.
const (
	entryPosted = iota + 1
	entryEager
	entryRTS
)

// An entry is one of a list. Its fields lie off the Go heap.
type entry []byte

func (e entry) next() uint32    { return binary.LittleEndian.Uint32(e) }
func (e entry) context() uint64 { return binary.LittleEndian.Uint64(e[8:]) }
func (e entry) source() int32   { return int32(binary.LittleEndian.Uint32(e[16:])) }
func (e entry) tag() int32      { return int32(binary.LittleEndian.Uint32(e[20:])) }
func (e entry) length() uint64  { return binary.LittleEndian.Uint64(e[24:]) }
func (e entry) kind() uint32    { return binary.LittleEndian.Uint32(e[32:]) }
func (e entry) rank() int       { return int(binary.LittleEndian.Uint32(e[36:])) }
func (e entry) request() uint32 { return binary.LittleEndian.Uint32(e[40:]) }
func (e entry) cell() uint32    { return binary.LittleEndian.Uint32(e[44:]) }

// An envelope is what a receive or a message is matched by, and what follows from it.
type envelope struct {
	context     uint64
	source, tag int32
	length      uint64
	kind        uint32
	rank        int
	request     uint32
	cell        uint32
}

func (e entry) set(v *envelope) {
	le := binary.LittleEndian
	le.PutUint64(e[8:], v.context)
	le.PutUint32(e[16:], uint32(v.source))
	le.PutUint32(e[20:], uint32(v.tag))
	le.PutUint64(e[24:], v.length)
	le.PutUint32(e[32:], v.kind)
	le.PutUint32(e[36:], uint32(v.rank))
	le.PutUint32(e[40:], v.request)
	le.PutUint32(e[44:], v.cell)
	clear(e[48:entrySize])
}

func (e entry) get() envelope {
	return envelope{
		context: e.context(), source: e.source(), tag: e.tag(), length: e.length(),
		kind: e.kind(), rank: e.rank(), request: e.request(), cell: e.cell(),
	}
}

// A list is one of the two of each bucket.
type list int

const (
	posted     list = 0 // offset of its first entry in the bucket
	unexpected list = 8
)

// queues are the match queues of a rank, in the layout that layout.go writes down. A wildcard
// receive stands in the same list as all others of its context, in the order of posting: contexts
// never match each other, so a bucket for each few contexts keeps the order. Guarded by Engine.mu.
type queues struct {
	p      *vmmc.Process
	mems   []*vmmc.Memory
	chunks [][]byte
	arena  *vmmc.Memory
	cells  []byte
	free   uint32 // first free cell
	length [2]int // of all posted, of all unexpected
}

// init allocates the queues, and the cells of a number of ranks. Without a process they lie on the Go
// heap: that is a job of one rank, which nothing else maps.
func (q *queues) init(p *vmmc.Process, ranks int) (err error) {
	q.p = p
	if err := q.grow(); err != nil {
		return err
	}
	copy(q.chunks[0], magic)
	binary.LittleEndian.PutUint32(q.chunks[0][usedAt:], firstEntry)
	n := ranks*window + 1
	if p == nil {
		q.cells = make([]byte, n*cellSize)
		return nil
	}
	if q.arena, err = p.Alloc(n * cellSize); err != nil {
		return errors.Join(err, q.close())
	}
	q.cells = q.arena.Bytes()
	q.free = 0
	return nil
}

func (q *queues) close() (err error) {
	for _, m := range q.mems {
		err = errors.Join(err, m.Close())
	}
	if q.arena != nil {
		err = errors.Join(err, q.arena.Close())
	}
	q.mems, q.chunks, q.arena, q.cells = nil, nil, nil, nil
	return err
}

func (q *queues) grow() error {
	if q.p == nil {
		q.chunks = append(q.chunks, make([]byte, chunkSize))
		return nil
	}
	m, err := q.p.Alloc(chunkSize)
	if err != nil {
		return err
	}
	q.mems, q.chunks = append(q.mems, m), append(q.chunks, m.Bytes())
	return nil
}

func (q *queues) at(i uint32) entry {
	return entry(q.chunks[i/perChunk][i%perChunk*entrySize:][:entrySize])
}

func (q *queues) bucket(context uint64) []byte {
	// The contexts of a communicator differ in the lowest bit, and those of a rank's communicators
	// in the next ones.
	at := bucketsAt + int((context^context>>33)%buckets)*bucketSize
	return q.chunks[0][at : at+bucketSize]
}

// add appends an entry to a list, and returns its index.
func (q *queues) add(l list, v *envelope) (uint32, error) {
	head := q.chunks[0]
	le := binary.LittleEndian
	i := le.Uint32(head[freeAt:])
	if i != 0 {
		le.PutUint32(head[freeAt:], q.at(i).next())
	} else {
		i = le.Uint32(head[usedAt:])
		if int(i/perChunk) == len(q.chunks) {
			if err := q.grow(); err != nil {
				return 0, err
			}
		}
		le.PutUint32(head[usedAt:], i+1)
	}
	e := q.at(i)
	e.set(v)
	b := q.bucket(v.context)[l:]
	last := le.Uint32(b[4:])
	le.PutUint32(e, 0)
	le.PutUint32(e[4:], last)
	if last != 0 {
		le.PutUint32(q.at(last), i)
	} else {
		le.PutUint32(b, i)
	}
	le.PutUint32(b[4:], i)
	q.length[l/unexpected]++
	return i, nil
}

// remove takes an entry out of its list.
func (q *queues) remove(l list, i uint32) {
	le := binary.LittleEndian
	e := q.at(i)
	b := q.bucket(e.context())[l:]
	next, prev := e.next(), le.Uint32(e[4:])
	if prev != 0 {
		le.PutUint32(q.at(prev), next)
	} else {
		le.PutUint32(b, next)
	}
	if next != 0 {
		le.PutUint32(q.at(next)[4:], prev)
	} else {
		le.PutUint32(b[4:], prev)
	}
	le.PutUint32(e, le.Uint32(q.chunks[0][freeAt:]))
	le.PutUint32(q.chunks[0][freeAt:], i)
	q.length[l/unexpected]--
}

// findPosted returns the first posted receive that takes a message, or 0.
func (q *queues) findPosted(context uint64, source, tag int32) uint32 {
	for i := binary.LittleEndian.Uint32(q.bucket(context)[posted:]); i != 0; {
		e := q.at(i)
		if e.context() == context && fits(e.source(), e.tag(), source, tag) {
			return i
		}
		i = e.next()
	}
	return 0
}

// findUnexpected returns the first message that a receive takes, or 0.
func (q *queues) findUnexpected(context uint64, source, tag int32) uint32 {
	for i := binary.LittleEndian.Uint32(q.bucket(context)[unexpected:]); i != 0; {
		e := q.at(i)
		if e.context() == context && fits(source, tag, e.source(), e.tag()) {
			return i
		}
		i = e.next()
	}
	return 0
}

// findAsked returns the message without data that a rank has sent by a request of its own, or 0.
func (q *queues) findAsked(context uint64, rank int, request uint32) uint32 {
	for i := binary.LittleEndian.Uint32(q.bucket(context)[unexpected:]); i != 0; {
		e := q.at(i)
		if e.request() == request && e.kind() == entryRTS && e.rank() == rank && e.context() == context {
			return i
		}
		i = e.next()
	}
	return 0
}

// fits reports whether a receive with the wanted source and tag takes a message.
func fits(wantSource, wantTag, source, tag int32) bool {
	return (wantSource == AnySource || wantSource == source) && (wantTag == AnyTag || wantTag == tag)
}

// each calls f for all entries of a list. f may remove the entry.
func (q *queues) each(l list, f func(i uint32, e entry)) {
	for b := range buckets {
		at := bucketsAt + b*bucketSize + int(l)
		for i := binary.LittleEndian.Uint32(q.chunks[0][at:]); i != 0; {
			e := q.at(i)
			next := e.next()
			f(i, e)
			i = next
		}
	}
}

// store copies a payload into cells, and returns the first.
func (q *queues) store(data []byte) uint32 {
	var first, last uint32
	for {
		i := q.free
		if i != 0 {
			q.free = binary.LittleEndian.Uint32(q.cells[int(i)*cellSize:])
		} else { // one that was never used: its number is kept in the unused first cell
			i = binary.LittleEndian.Uint32(q.cells) + 1
			binary.LittleEndian.PutUint32(q.cells, i)
		}
		c := q.cells[int(i)*cellSize:][:cellSize]
		binary.LittleEndian.PutUint32(c, 0)
		if last == 0 {
			first = i
		} else {
			binary.LittleEndian.PutUint32(q.cells[int(last)*cellSize:], i)
		}
		last = i
		data = data[copy(c[4:], data):]
		if len(data) == 0 {
			return first
		}
	}
}

// load copies a payload out of cells, which are free then.
func (q *queues) load(dst []byte, first uint32) {
	for i := first; i != 0; {
		c := q.cells[int(i)*cellSize:][:cellSize]
		next := binary.LittleEndian.Uint32(c)
		dst = dst[copy(dst, c[4:]):]
		binary.LittleEndian.PutUint32(c, q.free)
		q.free = i
		i = next
	}
}
