package mpi

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// fileExtent is what each rank tells of its part of a collective: how many bytes it moves, between which
// offsets, and the class of its error.
type fileExtent struct{ lo, hi, bytes, class int64 }

func (e fileExtent) meets(lo, hi int64) bool { return e.bytes > 0 && e.lo < hi && lo < e.hi }

// together does a collective. All ranks fail, and move nothing, if the arguments of one cannot be.
func (f *File) together(ctx context.Context, o *operation) (n int, err error) {
	if o.where == sharedPointer {
		if err := o.inOrder(ctx); err != nil {
			return 0, err
		}
	}
	all, err := o.tell(ctx)
	if err != nil {
		return 0, err
	}
	if o.atomic {
		give, err := o.lockAll(ctx)
		if err != nil {
			return 0, err
		}
		defer func() {
			if e := give(); err == nil {
				err = e
			}
		}()
	}
	if f.gathers(all, o.atomic) {
		n, err = f.exchange(ctx, o, all)
	} else {
		n, err = f.transfer(ctx, &o.access)
	}
	if o.atomic && !errors.Is(err, ErrProcFailed) && !errors.Is(err, ErrCanceled) {
		err = errors.Join(err, barrierPlan(f.c, o.call).run(ctx, o.r)) // before rank 0 gives the lock back
	}
	return n, err
}

// lockAll has rank 0 take the lock of atomic mode for all. All ranks are in the collective by then: a
// rank that has yet to come may need the lock for a call before it.
func (o *operation) lockAll(ctx context.Context) (give func() error, err error) {
	c, l := o.f.c, o.f.lock
	give = func() error { return nil }
	if c.rank == 0 {
		if err = l.take(ctx, o.call, LockExclusive); err == nil {
			give = func() error { return l.give(o.call, LockExclusive) }
		}
	}
	class := []int64{int64(classOf(err))}
	if e := bcastPlan(c, o.call, class, 0).run(ctx, o.r); e != nil {
		return nil, errors.Join(err, e, give())
	}
	if err == nil && class[0] != 0 {
		err = o.f.others(o.call, 0, class[0])
	}
	return give, err
}

// inOrder takes the place of each rank's items from the shared file pointer.
func (o *operation) inOrder(ctx context.Context) error {
	all, err := o.tell(ctx)
	if err != nil {
		return err
	}
	total, before := int64(0), int64(0)
	for rank, e := range all {
		if rank < o.f.c.rank {
			before += e.bytes
		}
		total += e.bytes
	}
	size := int64(o.v.etype.size)
	base := []verdict{{}}
	if o.f.c.rank == 0 {
		var at uint64
		at, err = o.f.control.add(context.WithoutCancel(ctx), 8, pointerAt, uint64(total/size))
		err = wrapMemory(o.call, err)
		base[0] = verdict{int64(at), int64(classOf(err))}
	}
	if err := bcastPlan(o.f.c, o.call, base, 0).run(ctx, o.r); err != nil {
		return err
	}
	switch {
	case err != nil:
		return err
	case base[0].class != 0:
		return o.f.others(o.call, 0, base[0].class)
	}
	o.pos, o.bad = o.v.place(o.call, base[0].value+before/size, len(o.buf))
	return nil
}

// tell gives all ranks the extents of all.
func (o *operation) tell(ctx context.Context) ([]fileExtent, error) {
	mine := fileExtent{bytes: int64(len(o.buf)), class: int64(classOf(o.bad))}
	if o.bad == nil {
		mine.lo, mine.hi = o.bounds()
	}
	all := make([]fileExtent, len(o.f.c.ranks))
	if err := allgatherPlan(o.f.c, o.call, []fileExtent{mine}, all).run(ctx, o.r); err != nil {
		return nil, errors.Join(o.bad, err)
	}
	if o.bad != nil {
		return nil, o.bad
	}
	for rank, e := range all {
		if e.class != 0 {
			return nil, o.f.others(o.call, rank, e.class)
		}
	}
	return all, nil
}

// gathers reports whether a collective gathers data at the aggregators. Ranks whose parts of the file
// lie one behind another move them themselves. In atomic mode that is the only case: otherwise each
// aggregator keeps the order of the ranks.
func (f *File) gathers(all []fileExtent, atomic bool) bool {
	if f.hints.collective == 1 || f.hints.collective == 2 && !atomic {
		return f.hints.collective == 1
	}
	order := slices.DeleteFunc(slices.Clone(all), func(e fileExtent) bool { return e.bytes == 0 })
	slices.SortFunc(order, func(a, b fileExtent) int { return cmp.Compare(a.lo, b.lo) })
	for i := 1; i < len(order); i++ {
		if order[i].lo < order[i-1].hi {
			return true
		}
	}
	return false
}

// domains says which aggregator moves which bytes of the file in which round.
type domains struct {
	lo, hi int64 // of all ranks
	share  int64 // bytes of each aggregator
	window int64 // bytes of a round
	rounds int64
}

// domainAlign keeps aggregators from sharing a page of the file.
const domainAlign = 4 << 10

// sparseRounds bounds how many rounds there are, for one that the data alone would need. Parts of the
// file without data cost rounds otherwise.
const sparseRounds = 8

func domainsOf(all []fileExtent, aggregators int, buffer int64) domains {
	d, total := domains{lo: everywhere}, int64(0)
	for _, e := range all {
		if e.bytes > 0 {
			d.lo, d.hi, total = min(d.lo, e.lo), max(d.hi, e.hi), total+e.bytes
		}
	}
	if total == 0 {
		return domains{}
	}
	d.lo -= d.lo % domainAlign
	n, left := int64(aggregators), d.hi-d.lo
	whole := (left - 1) / n / domainAlign * domainAlign
	d.share = whole + min(domainAlign, left-whole) // the sum may be the largest number
	d.rounds = min((d.share-1)/buffer+1, sparseRounds*((total-1)/(n*buffer)+1))
	d.window = (d.share-1)/d.rounds + 1
	return d
}

// of are the bytes of an aggregator in a round.
func (d *domains) of(aggregator int, round int64) (lo, hi int64) {
	left := d.hi - d.lo // sums of offsets may be beyond the largest one
	first := min(int64(aggregator)*d.share, left)
	part := min(d.share, left-first)
	from := min(round*d.window, part)
	to := from + min(d.window, part-from)
	return d.lo + first + from, d.lo + first + to
}

// exchange moves the data of a collective by way of the aggregators, in rounds. Each rank tells an
// aggregator which bytes of its domain it moves, and sends them with that, or receives them with the
// answer.
func (f *File) exchange(ctx context.Context, o *operation, all []fileExtent) (int, error) {
	d := domainsOf(all, len(f.aggregators), f.hints.buffer)
	n := len(o.buf)
	var first error
	for round := range d.rounds {
		x := exchanges{o: o, f: f, all: all, d: &d, round: round}
		done, err, broken := x.run(ctx)
		n = min(n, done)
		if broken != nil {
			return 0, broken
		}
		if first == nil {
			first = err
		}
	}
	return n, first
}

// asking is what a rank asks of an aggregator in a round.
type asking struct {
	rank   int // the aggregator, or at the aggregator the rank that asks
	header []int64
	list   []int64
	segs   []segment
	data   []byte
	answer []int64
	// At the aggregator: reports whether the rank asks for what it cannot mean. It is told so, and
	// others are served.
	refused bool
}

// The header has the number of segments, their bytes, and the first one's offset. If there are more, a
// list of offsets and lengths follows.
const (
	headerSegments = iota
	headerBytes
	headerOffset
	headerLength
)

// The answer has the offset up to which the segments were moved, and the class of an error.
const (
	answerUpTo = iota
	answerClass
	answerLength
)

// exchanges is a round of exchange.
type exchanges struct {
	o     *operation
	f     *File
	all   []fileExtent
	d     *domains
	round int64
}

// run returns how many bytes of the buffer were moved, and the error of a move. broken is an error of
// the messages.
func (x *exchanges) run(ctx context.Context) (n int, err, broken error) {
	o, me := x.o, x.f.c.rank
	n = len(o.buf)
	sent := messages{r: o.r}
	defer sent.abandon()
	var asks []*asking
	var own *asking
	for i, rank := range x.f.aggregators {
		lo, hi := x.d.of(i, x.round)
		if !x.all[me].meets(lo, hi) {
			continue
		}
		q := &asking{rank: rank, segs: o.between(lo, hi, me)}
		if rank == me {
			own = q
			continue
		}
		if err := q.ask(&sent, o.write); err != nil {
			return n, nil, err
		}
		if len(q.segs) > 0 {
			asks = append(asks, q)
		}
	}
	answered := messages{r: o.r}
	defer answered.abandon()
	if i := slices.Index(x.f.aggregators, me); i >= 0 {
		var upTo int64
		if upTo, err, broken = x.serve(ctx, i, own, &answered); broken != nil {
			return n, err, broken
		}
		if own != nil {
			n = moved(own.segs, upTo, n)
		}
	}
	got := messages{r: o.r}
	defer got.abandon()
	for _, q := range asks {
		q.answer = make([]int64, answerLength)
		b, _ := bytesOf(o.call, q.answer)
		if err := got.recv(b, q.rank); err != nil {
			return n, err, err
		}
	}
	if broken = got.wait(ctx); broken != nil {
		return n, err, broken
	}
	for _, q := range asks {
		upTo := max(0, q.answer[answerUpTo])
		q.answer[answerUpTo] = upTo
		n = moved(q.segs, upTo, n)
		if c := Class(q.answer[answerClass]); c != 0 && err == nil {
			err = fail(o.call, "", c, "rank %d, which moves bytes of this one, has failed at byte %d of the file: its error says why",
				q.rank, upTo)
		}
		if !o.write {
			if broken = q.recv(&got, upTo); broken != nil {
				return n, err, broken
			}
		}
	}
	for _, m := range []*messages{&got, &sent, &answered} {
		if broken = m.wait(ctx); broken != nil {
			return n, err, broken
		}
	}
	for _, q := range asks {
		q.scatter()
	}
	return n, err, nil
}

// ask begins to send what a rank asks for.
func (q *asking) ask(m *messages, write bool) error {
	q.header = make([]int64, headerLength)
	q.header[headerSegments] = int64(len(q.segs))
	total := 0
	for _, s := range q.segs {
		total += len(s.b)
	}
	q.header[headerBytes] = int64(total)
	if len(q.segs) > 0 {
		q.header[headerOffset] = q.segs[0].off
	}
	b, _ := bytesOf(m.r.call, q.header)
	if err := m.send(b, q.rank); err != nil || len(q.segs) == 0 {
		return err
	}
	if len(q.segs) > 1 {
		q.list = make([]int64, 0, 2*len(q.segs))
		for _, s := range q.segs {
			q.list = append(q.list, s.off, int64(len(s.b)))
		}
		b, _ := bytesOf(m.r.call, q.list)
		if err := m.send(b, q.rank); err != nil {
			return err
		}
	}
	if !write {
		return nil
	}
	q.data = q.segs[0].b
	if len(q.segs) > 1 {
		q.data = make([]byte, 0, total)
		for _, s := range q.segs {
			q.data = append(q.data, s.b...)
		}
	}
	return m.send(q.data, q.rank)
}

// read is the memory that an aggregator sends of what it has read. One segment is sent as far as it was
// read, and several with their whole lengths.
func (q *asking) read(b []byte, upTo int64) []byte {
	if len(q.segs) == 1 {
		return b[:min(max(upTo-q.segs[0].off, 0), int64(len(b)))]
	}
	return b
}

// recv begins to receive what the aggregator has read.
func (q *asking) recv(m *messages, upTo int64) error {
	if len(q.segs) > 1 {
		q.data = make([]byte, q.header[headerBytes])
		return m.recv(q.data, q.rank)
	}
	return m.recv(q.read(q.segs[0].b, upTo), q.rank)
}

// parse makes the segments of what a rank asks for, which lie between two offsets.
func (q *asking) parse(lo, hi int64) {
	b := q.data
	for i := 0; i+1 < len(q.list); i += 2 {
		off, n := q.list[i], q.list[i+1]
		if n < 0 || n > int64(len(b)) || off < lo || off > hi-n {
			q.segs, q.refused = nil, true
			return
		}
		q.segs = append(q.segs, segment{off, b[:n], 0, q.rank})
		b = b[n:]
	}
}

// scatter stores data of several segments, as far as they were read.
func (q *asking) scatter() {
	b := q.data
	if len(q.segs) == 1 || b == nil {
		return
	}
	for _, s := range q.segs {
		copy(s.b, b[:min(max(q.answer[answerUpTo]-s.off, 0), int64(len(s.b)))])
		b = b[len(s.b):]
	}
}

// serve is the part of an aggregator in a round: it receives what all ranks ask for, moves the data, and
// answers.
func (x *exchanges) serve(
	ctx context.Context, aggregator int, own *asking, answered *messages,
) (upTo int64, err, broken error) {
	o := x.o
	lo, hi := x.d.of(aggregator, x.round)
	in := messages{r: o.r}
	defer in.abandon()
	var clients []*asking
	for rank, e := range x.all {
		if rank == x.f.c.rank || !e.meets(lo, hi) {
			continue
		}
		q := &asking{rank: rank, header: make([]int64, headerLength)}
		b, _ := bytesOf(o.call, q.header)
		if err := in.recv(b, rank); err != nil {
			return 0, nil, err
		}
		clients = append(clients, q)
	}
	if err := in.wait(ctx); err != nil {
		return 0, nil, err
	}
	clients = slices.DeleteFunc(clients, func(q *asking) bool { return q.header[headerSegments] == 0 })
	for _, q := range clients {
		if n, bytes := q.header[headerSegments], q.header[headerBytes]; n < 0 || n > bytes || bytes > x.all[q.rank].bytes {
			q.refused = true
			continue
		}
		q.data = make([]byte, q.header[headerBytes])
		if n := q.header[headerSegments]; n > 1 {
			q.list = make([]int64, 2*n)
			b, _ := bytesOf(o.call, q.list)
			if err := in.recv(b, q.rank); err != nil {
				return 0, nil, err
			}
		} else {
			q.list = []int64{q.header[headerOffset], q.header[headerBytes]}
		}
		if o.write {
			if err := in.recv(q.data, q.rank); err != nil {
				return 0, nil, err
			}
		}
	}
	if err := in.wait(ctx); err != nil {
		return 0, nil, err
	}
	var segs []segment
	if own != nil {
		segs = append(segs, own.segs...)
	}
	for _, q := range clients {
		q.parse(lo, hi)
		segs = append(segs, q.segs...)
	}
	if o.write && len(segs) > 0 {
		x.f.written()
	}
	upTo, err = x.f.move(o.write, segs)
	err = wrapSystem(o.call, err)
	for _, q := range clients {
		q.answer = []int64{upTo, int64(classOf(err))}
		if q.refused {
			q.answer = []int64{0, int64(ErrOther)}
		}
		b, _ := bytesOf(o.call, q.answer)
		if err := answered.send(b, q.rank); err != nil {
			return upTo, err, err
		}
		if !o.write {
			if err := answered.send(q.read(q.data, upTo), q.rank); err != nil {
				return upTo, err, err
			}
		}
	}
	return upTo, err, nil
}

// ReadAtAll is ReadAt as a collective of all ranks (MPI_File_read_at_all, chapter I/O). Where the ranks'
// parts of the file interleave, aggregators read for all of them.
//
// Errors as ReadAt; if the arguments of one rank cannot be, all ranks fail. [ErrProcFailed]: a rank is
// gone. Then what is in buf has no meaning.
//
// Experimental: it may change in any release.
func ReadAtAll[T any](ctx context.Context, f *File, off int64, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_read_at_all", false, true, explicitOffset, off, buf)
}

// WriteAtAll is WriteAt as a collective of all ranks (MPI_File_write_at_all, chapter I/O). Where the
// ranks' parts of the file interleave, aggregators write for all of them. Where parts overlap the bytes
// of the last rank count, unless the hint collective_buffering is "false".
//
// Errors as WriteAt. If the arguments of one rank cannot be, all ranks fail, and nothing is written. If
// an aggregator cannot write, it fails, and so do all ranks whose bytes it could not write. A Status
// says how many bytes of buf are in the file before the first that is not. [ErrProcFailed]: a rank is
// gone. Then each byte that the call writes is the old or the new one, and others are as they were.
//
// Experimental: it may change in any release.
func WriteAtAll[T any](ctx context.Context, f *File, off int64, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_write_at_all", true, true, explicitOffset, off, buf)
}

// ReadAll is ReadAtAll from the individual file pointers on (MPI_File_read_all, chapter I/O). The
// pointers move as that of Read.
//
// Experimental: it may change in any release.
func ReadAll[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_read_all", false, true, ownPointer, 0, buf)
}

// WriteAll is WriteAtAll from the individual file pointers on (MPI_File_write_all, chapter I/O). The
// pointers move as that of Read.
//
// Experimental: it may change in any release.
func WriteAll[T any](ctx context.Context, f *File, buf []T) (Status, error) {
	return doFile(ctx, f, "MPI_File_write_all", true, true, ownPointer, 0, buf)
}

// IreadAtAll begins [ReadAtAll], and does not wait for it (MPI_File_iread_at_all, chapter I/O). buf
// belongs to it until it is over.
//
// Experimental: it may change in any release.
func IreadAtAll[T any](f *File, off int64, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iread_at_all", false, true, explicitOffset, off, buf)
}

// IwriteAtAll begins [WriteAtAll], and does not wait for it (MPI_File_iwrite_at_all, chapter I/O). buf
// belongs to it until it is over.
//
// Experimental: it may change in any release.
func IwriteAtAll[T any](f *File, off int64, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iwrite_at_all", true, true, explicitOffset, off, buf)
}

// IreadAll begins [ReadAll], and does not wait for it (MPI_File_iread_all, chapter I/O). buf belongs to
// it until it is over.
//
// Experimental: it may change in any release.
func IreadAll[T any](f *File, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iread_all", false, true, ownPointer, 0, buf)
}

// IwriteAll begins [WriteAll], and does not wait for it (MPI_File_iwrite_all, chapter I/O). buf belongs
// to it until it is over.
//
// Experimental: it may change in any release.
func IwriteAll[T any](f *File, buf []T) (*Request, error) {
	return startFile(f, "MPI_File_iwrite_all", true, true, ownPointer, 0, buf)
}
