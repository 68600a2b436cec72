package mpiabi

import (
	"context"
	"slices"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Partitioned Point-to-Point Communication".
//
// A send and a receive are matched when they are made: the sender tells by a message how many partitions it has,
// and from which tag on their messages are. Each partition is one message, which leaves when it is ready. The
// receiver may have other partitions: one has arrived when all messages have that have a part of it.

// firstPartition is the first tag of messages of partitions. Smaller ones are of neighbourhood collectives.
const firstPartition = 1 << 30

// maxPartitions bounds the partitions of a send or a receive.
const maxPartitions = 1 << 20

// partitionHeader is what a sender tells when the request is made.
type partitionHeader struct{ partitions, bytes, tag int64 } // bytes is the size of each partition

// partitioned is a partitioned send or receive.
type partitioned struct {
	e           *Env
	c           *comm
	it          items
	partitions  int
	each        int // bytes of a partition
	other, tag  int
	packed      []byte // all partitions, if the items have gaps
	firstTag    int    // of a send
	header      *mpi.Request
	headerBytes []partitionHeader // of a receive

	mu sync.Mutex
	// Guarded by mu.
	active   bool
	messages []*mpi.Request // by the partitions of the sender; nil: it has not begun
	size     int            // bytes of a message; 0: the sender has told nothing
	ready    int
	allReady chan struct{} // of a send: closed when all partitions are ready
}

func init() {
	register("MPI_Psend_init", func(e *Env, a *arguments) error { return e.partitionedInit(a, true) })
	register("MPI_Precv_init", func(e *Env, a *arguments) error { return e.partitionedInit(a, false) })
	register("MPI_Pready", func(e *Env, a *arguments) error { return e.partitionsReady(a, 1, 0, []int{a.Int(0)}) })
	register("MPI_Pready_range", func(e *Env, a *arguments) error {
		low, high := a.Int(0), a.Int(1)
		if low < 0 || low > high || high >= maxPartitions {
			return fail(a.name(1), errArg, "the range is %d to %d, want 0 or more, and the first one not behind the last", low, high)
		}
		list := make([]int, high-low+1)
		for i := range list {
			list[i] = low + i
		}
		return e.partitionsReady(a, 2, 1, list)
	})
	register("MPI_Pready_list", func(e *Env, a *arguments) error {
		n, err := a.count(0)
		if err != nil {
			return err
		}
		if n > maxPartitions {
			return fail(a.name(0), errCount, "it is %d, want at most %d", n, maxPartitions)
		}
		list, err := a.ints(1, n)
		if err != nil {
			return err
		}
		return e.partitionsReady(a, 2, 1, list)
	})
	register("MPI_Parrived", partitionArrived)
}

// partitionedInit makes a send or a receive.
func (e *Env) partitionedInit(a *arguments, sends bool) error {
	c, err := e.comm(a, 6)
	if err != nil {
		return err
	}
	n := a.Int(1)
	if n < 1 || n > maxPartitions {
		return fail(a.name(1), errArg, "it is %d, want 1 to %d", n, maxPartitions)
	}
	count, err := a.count(2)
	if err != nil {
		return err
	}
	d, err := e.committed(a, 3)
	if err != nil {
		return err
	}
	if d.extent < 0 {
		return fail(a.name(3), errType, "%s has a negative extent, with which partitions have no order", d.describe())
	}
	all, ok := times(n, count)
	if !ok {
		return fail(a.name(2), errCount, "%d items in each of %d partitions are more than a program has memory for", count, n)
	}
	p := &partitioned{e: e, c: c, partitions: n, each: count * d.size, other: a.Int(4), tag: a.Int(5)}
	if p.it, err = a.itemsAt(0, 2, a.Addr(0), all, d); err != nil {
		return err
	}
	if p.it.d.gaps && all > 0 {
		p.packed = make([]byte, n*p.each)
	}
	if err := e.optionalInfo(a, 7); err != nil {
		return err
	}
	if err := a.setHandle(8, requestNull); err != nil {
		return err
	}
	matching := c.hidden.Shadow() // of the messages that match sends and receives, in the order of these calls
	q := &request{of: c, partitioned: p}
	if sends {
		// A failed send has taken tags, which do no harm.
		p.firstTag = firstPartition + int(c.partitions.Add(uint32(n))-uint32(n))%(firstPartition-maxPartitions)
		h := []partitionHeader{{int64(n), int64(p.each), int64(p.firstTag)}}
		if _, err := mpi.Isend(matching, h, p.other, p.tag); err != nil {
			return err
		}
		q.start = p.startSend
	} else {
		if p.other == mpi.AnySource {
			return fail(a.name(4), errRank, "it is MPI_ANY_SOURCE: a partitioned receive has one source")
		}
		if p.tag == mpi.AnyTag {
			return fail(a.name(5), errTag, "it is MPI_ANY_TAG: a partitioned receive has one tag")
		}
		p.headerBytes = make([]partitionHeader, 1)
		if p.header, err = mpi.Irecv(matching, p.headerBytes, p.other, p.tag); err != nil {
			return err
		}
		q.start = p.startReceive
		q.done = func(mpi.Status) error {
			if p.packed == nil || p.other == mpi.ProcNull {
				return nil
			}
			return p.it.unpack(p.packed)
		}
	}
	return a.setHandle(8, e.handles.add(q))
}

func (p *partitioned) startSend() ([]part, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.ready, p.allReady = true, 0, make(chan struct{})
	p.messages = make([]*mpi.Request, p.partitions)
	return []part{&partitionedSend{p, p.messages, p.allReady}}, nil
}

// partitionedSend is a round of a send.
type partitionedSend struct {
	p        *partitioned
	messages []*mpi.Request // Guarded by p.mu until allReady is closed.
	allReady chan struct{}
}

func (s *partitionedSend) Wait(ctx context.Context) (mpi.Status, error) {
	select {
	case <-s.allReady:
	case <-ctx.Done():
		return emptyStatus, ctx.Err()
	}
	_, err := mpi.Waitall(ctx, s.messages...)
	return emptyStatus, err
}

func (s *partitionedSend) Test() (st mpi.Status, ok bool, err error) {
	select {
	case <-s.allReady:
	default:
		return emptyStatus, false, nil
	}
	for _, m := range s.messages {
		_, over, failed := m.Test()
		if !over {
			return emptyStatus, false, nil
		}
		if err == nil {
			err = failed
		}
	}
	return emptyStatus, true, err
}

func (*partitionedSend) Cancel() bool { return false }

// partitionsReady sends partitions. Argument i is the request, and argument list names the partitions.
func (e *Env) partitionsReady(a *arguments, i, list int, partitions []int) error {
	q, err := e.request(a, i, a.Handle(i))
	if err != nil {
		return err
	}
	if q == nil || q.partitioned == nil || q.partitioned.header != nil {
		return fail(a.name(i), errRequest, "it is no partitioned send")
	}
	p := q.partitioned
	for _, k := range partitions {
		if err := p.sendPartition(a, i, list, k); err != nil {
			return &raisedOn{err, p.c}
		}
	}
	return nil
}

func (p *partitioned) sendPartition(a *arguments, request, list, k int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case k < 0 || k >= p.partitions:
		return fail(a.name(list), errArg, "partition %d is not there: the send has 0 to %d", k, p.partitions-1)
	case !p.active || p.ready == p.partitions:
		return fail(a.name(request), errRequest, "the send is not started, or all its partitions are ready")
	case p.messages[k] != nil:
		return fail(a.name(list), errArg, "partition %d is ready already", k)
	}
	var b []byte
	switch {
	case p.packed != nil:
		n := p.it.n / p.partitions
		from := k * n * p.it.d.extent
		one := items{p.it.d, n, p.it.bytes[min(from, len(p.it.bytes)):]}
		packed, err := one.packed()
		if err != nil {
			return err
		}
		b = packed
	case p.each > 0:
		b = p.it.bytes[k*p.each:][:p.each]
	}
	r, err := mpi.Isend(p.c.hidden, b, p.other, p.firstTag+k)
	if err != nil {
		return err
	}
	p.messages[k] = r
	if p.ready++; p.ready == p.partitions {
		close(p.allReady)
	}
	return nil
}

// startReceive begins to receive when the sender has told how.
func (p *partitioned) startReceive() ([]part, error) {
	p.mu.Lock()
	p.active, p.messages = true, nil
	p.mu.Unlock()
	return []part{inBackground(func() (mpi.Status, error) {
		if p.other == mpi.ProcNull {
			return mpi.Status{Source: mpi.ProcNull, Tag: mpi.AnyTag}, nil
		}
		if _, err := p.header.Wait(p.e.ctx); err != nil {
			return emptyStatus, err
		}
		messages, err := p.receive()
		if err != nil {
			return emptyStatus, err
		}
		_, err = mpi.Waitall(p.e.ctx, messages...)
		return mpi.Status{Source: p.other, Tag: p.tag, Bytes: p.partitions * p.each}, err
	})}, nil
}

// receive begins the receives of all messages of a round.
func (p *partitioned) receive() ([]*mpi.Request, error) {
	h := p.headerBytes[0]
	if total := p.partitions * p.each; h.partitions < 1 || h.partitions > maxPartitions || h.bytes < 0 || h.bytes > int64(total) || h.partitions*h.bytes != int64(total) {
		return nil, fail("count", errTruncate, "the sender has %d partitions of %d bytes, and the receiver %d of %d", h.partitions, h.bytes, p.partitions, p.each)
	}
	into := p.it.bytes
	if p.packed != nil {
		into = p.packed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size = int(h.bytes)
	p.messages = make([]*mpi.Request, h.partitions)
	for k := range p.messages {
		var b []byte
		if p.size > 0 {
			b = into[k*p.size:][:p.size]
		}
		r, err := mpi.Irecv(p.c.hidden, b, p.other, int(h.tag)+k)
		if err != nil {
			return nil, err
		}
		p.messages[k] = r
	}
	return slices.Clone(p.messages), nil
}

// partitionArrived tells whether a partition of a receive is there. Those of one that is over, or that was never
// started, are.
func partitionArrived(e *Env, a *arguments) error {
	q, err := e.request(a, 0, a.Handle(0))
	if err != nil {
		return err
	}
	if q == nil || q.partitioned == nil || q.partitioned.header == nil {
		return fail(a.name(0), errRequest, "it is no partitioned receive")
	}
	p, k := q.partitioned, a.Int(1)
	if k < 0 || k >= p.partitions {
		return fail(a.name(1), errArg, "partition %d is not there: the receive has 0 to %d", k, p.partitions-1)
	}
	if q.poll() {
		return a.setFlag(2, true)
	}
	arrived, err := p.arrived(k)
	if err != nil {
		return &raisedOn{err, p.c}
	}
	if arrived && p.packed != nil {
		if err := p.unpack(k); err != nil {
			return &raisedOn{err, p.c}
		}
	}
	return a.setFlag(2, arrived)
}

// arrived reports whether all messages are there that have a part of a partition.
func (p *partitioned) arrived(k int) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.messages == nil {
		return false, nil
	}
	if p.size == 0 {
		return true, nil
	}
	for _, m := range p.messages[k*p.each/p.size : (k*p.each+p.each+p.size-1)/p.size] {
		if _, over, err := m.Test(); !over || err != nil {
			return false, err
		}
	}
	return true, nil
}

// unpack stores a partition whose items have gaps.
func (p *partitioned) unpack(k int) error {
	n := p.it.n / p.partitions
	one := items{p.it.d, n, p.it.bytes[min(k*n*p.it.d.extent, len(p.it.bytes)):]}
	return one.unpack(p.packed[k*p.each:][:p.each])
}
