package mpi

import (
	"context"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
	"github.com/vmmc-go/vmmc/internal/shm"
)

// Status says which message a call was over with (MPI_Status).
//
// Experimental: it may change in any release.
type Status struct {
	Source    int
	Tag       int
	Bytes     int
	Cancelled bool // MPI_Test_cancelled
}

// Count is how many values of type T the message has (MPI_Get_count), and Undefined if it has no
// whole number of them.
//
// Experimental: it may change in any release.
func Count[T any](s Status) int {
	v, err := shm.ValuesOf[T]()
	if err != nil {
		return Undefined
	}
	var one [1]T
	size := len(v.Of(&one[0]))
	if s.Bytes%size != 0 {
		return Undefined
	}
	return s.Bytes / size
}

// bytesOf is the memory of values, which have no pointers.
func bytesOf[T any](call string, buf []T) ([]byte, error) {
	v, err := shm.ValuesOf[T]()
	if err != nil {
		return nil, &Error{Call: call, Arg: "buf", Class: ErrType, Err: err}
	}
	return v.Bytes(buf), nil
}

// valuesOf are the values in memory that is aligned for any.
func valuesOf[T any](call string, b []byte) ([]T, error) {
	v, err := shm.ValuesOf[T]()
	if err != nil {
		return nil, &Error{Call: call, Arg: "buf", Class: ErrType, Err: err}
	}
	values, ok := v.Slice(b)
	if !ok {
		return nil, fail(call, "buf", ErrType, "memory of %d bytes holds no whole number of values", len(b))
	}
	return values, nil
}

func send[T any](ctx context.Context, c *Comm, call string, buf []T, dest, tag int, mode engine.Mode) error {
	b, err := bytesOf(call, buf)
	if err != nil {
		return c.raise(err)
	}
	t, ok, err := c.target(call, ctx, dest, tag)
	if !ok {
		return c.raise(err)
	}
	if err := c.j.e.Send(ctx, &t, b, mode); err != nil {
		return c.raise(wrap(call, err))
	}
	return nil
}

// Send sends values, and returns when buf may be used again (MPI_Send). T has no pointers, and the
// same layout at the receiver. When the context ends before, the error is [ErrCanceled]. The
// message is withdrawn then, unless a receive has matched it. Finalize does not wait for it.
//
// Errors: [ErrRank], [ErrTag], [ErrType], [ErrArg], before anything is sent; [ErrProcFailed].
//
// Experimental: it may change in any release.
func Send[T any](ctx context.Context, c *Comm, buf []T, dest, tag int) error {
	return send(ctx, c, "MPI_Send", buf, dest, tag, engine.Standard)
}

// Ssend is Send that returns when a receive has matched the message (MPI_Ssend).
//
// Experimental: it may change in any release.
func Ssend[T any](ctx context.Context, c *Comm, buf []T, dest, tag int) error {
	return send(ctx, c, "MPI_Ssend", buf, dest, tag, engine.Synchronous)
}

// Rsend is Send of a message whose receive is posted (MPI_Rsend). If it is not, the message waits as
// that of Send.
//
// Experimental: it may change in any release.
func Rsend[T any](ctx context.Context, c *Comm, buf []T, dest, tag int) error {
	return send(ctx, c, "MPI_Rsend", buf, dest, tag, engine.Ready)
}

// Bsend sends a copy of buf, and never waits (MPI_Bsend). [ErrBuffer]: what [Comm.BufferAttach] has
// allowed is in use.
//
// Experimental: it may change in any release.
func Bsend[T any](c *Comm, buf []T, dest, tag int) error {
	return send(context.Background(), c, "MPI_Bsend", buf, dest, tag, engine.Buffered)
}

// BsendOverhead is what a message of Bsend takes beside its data (MPI_BSEND_OVERHEAD).
//
// Experimental: it may change in any release.
const BsendOverhead = engine.BufferOverhead

// BufferAttach lets messages of Bsend take n bytes of memory in all (MPI_Buffer_attach).
//
// Experimental: it may change in any release.
func (c *Comm) BufferAttach(n int) error {
	return c.raise(wrap("MPI_Buffer_attach", c.j.e.AttachBuffer(n)))
}

// BufferDetach waits until all messages of Bsend have left, and returns what was attached
// (MPI_Buffer_detach).
//
// Experimental: it may change in any release.
func (c *Comm) BufferDetach(ctx context.Context) (int, error) {
	n, err := c.j.e.DetachBuffer(ctx)
	return n, c.raise(wrap("MPI_Buffer_detach", err))
}

// Recv receives a message of at most len(buf) values (MPI_Recv). source may be AnySource, and tag
// AnyTag. A longer message is [ErrTruncate]: it is taken, and buf is unchanged. When the context ends
// before, the error is [ErrCanceled], and no message is taken but one that has begun to arrive.
//
// Errors: [ErrRank], [ErrTag], [ErrType], [ErrArg]; [ErrProcFailed] if the source is gone, or any
// rank of the communicator for AnySource.
//
// Experimental: it may change in any release.
func Recv[T any](ctx context.Context, c *Comm, buf []T, source, tag int) (Status, error) {
	const call = "MPI_Recv"
	b, err := bytesOf(call, buf)
	if err != nil {
		return Status{}, c.raise(err)
	}
	s, ok, err := c.source(call, ctx, source, tag)
	if !ok {
		return Status{Source: ProcNull, Tag: AnyTag}, c.raise(err)
	}
	st, err := c.j.e.Recv(ctx, &s, b)
	if err != nil {
		return Status{}, c.raise(wrap(call, err))
	}
	return Status(st), nil
}

// Request is a send, a receive or a collective that need not be over (MPI_Request). One goroutine at a time waits
// for it.
//
// Experimental: it may change in any release.
type Request struct {
	r    *engine.Request // nil: it was over at once
	call string
	c    *Comm
}

func isend[T any](c *Comm, call string, buf []T, dest, tag int, mode engine.Mode) (*Request, error) {
	b, err := bytesOf(call, buf)
	if err != nil {
		return nil, c.raise(err)
	}
	t, ok, err := c.target(call, context.Background(), dest, tag)
	if err != nil {
		return nil, c.raise(err)
	}
	if !ok {
		return &Request{nil, call, c}, nil
	}
	r, err := c.j.e.Isend(&t, b, mode)
	if err != nil {
		return nil, c.raise(wrap(call, err))
	}
	return &Request{r, call, c}, nil
}

// Isend begins to send (MPI_Isend). buf must not change until the request is over.
//
// Experimental: it may change in any release.
func Isend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return isend(c, "MPI_Isend", buf, dest, tag, engine.Standard)
}

// Issend is Isend whose request is over when a receive has matched the message (MPI_Issend).
//
// Experimental: it may change in any release.
func Issend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	return isend(c, "MPI_Issend", buf, dest, tag, engine.Synchronous)
}

// Irecv begins to receive (MPI_Irecv). buf must not be used until the request is over.
//
// Experimental: it may change in any release.
func Irecv[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	return irecv(c, "MPI_Irecv", buf, source, tag)
}

func irecv[T any](c *Comm, call string, buf []T, source, tag int) (*Request, error) {
	b, err := bytesOf(call, buf)
	if err != nil {
		return nil, c.raise(err)
	}
	s, ok, err := c.source(call, context.Background(), source, tag)
	if err != nil {
		return nil, c.raise(err)
	}
	if !ok {
		return &Request{nil, call, c}, nil
	}
	r, err := c.j.e.Irecv(&s, b)
	if err != nil {
		return nil, c.raise(wrap(call, err))
	}
	return &Request{r, call, c}, nil
}

// Sendrecv sends and receives at the same time (MPI_Sendrecv). The buffers do not overlap. Both are
// the caller's again when it returns, also with an error. After an error of the receive, or of the
// context, the message of the send is withdrawn, unless a receive has matched it.
//
// Experimental: it may change in any release.
func Sendrecv[S, R any](
	ctx context.Context, c *Comm, out []S, dest, sendTag int, in []R, source, recvTag int,
) (Status, error) {
	const call = "MPI_Sendrecv"
	if ctx == nil {
		return Status{}, c.raise(fail(call, "ctx", ErrArg, "the context is nil"))
	}
	if _, _, err := c.source(call, ctx, source, recvTag); err != nil {
		return Status{}, c.raise(err)
	}
	if _, err := bytesOf(call, in); err != nil {
		return Status{}, c.raise(err)
	}
	s, err := isend(c, call, out, dest, sendTag, engine.Standard)
	if err != nil {
		return Status{}, c.raise(err)
	}
	defer s.abandon() // out is the caller's after an error too
	st, err := Recv(ctx, c, in, source, recvTag)
	if err != nil {
		return st, c.raise(err)
	}
	if s.r != nil {
		_, err = s.r.Complete(ctx)
	}
	return st, c.raise(wrap(call, err))
}

// abandon gives up a request: its buffer is not used any more.
func (r *Request) abandon() {
	if r.r != nil {
		r.r.Abandon()
	}
}

// Wait waits until the request is over (MPI_Wait). When the context ends before, the error is
// [ErrPending], and the request goes on.
//
// Experimental: it may change in any release.
func (r *Request) Wait(ctx context.Context) (Status, error) {
	switch {
	case r == nil:
		return Status{}, fail("MPI_Wait", "request", ErrRequest, "it is nil")
	case ctx == nil:
		return Status{}, fail("MPI_Wait", "ctx", ErrArg, "the context is nil")
	case r.r == nil:
		return Status{Source: ProcNull, Tag: AnyTag}, nil
	}
	st, err := r.r.Wait(ctx)
	return Status(st), r.c.raise(wrap(r.call, err))
}

// Test reports whether the request is over (MPI_Test).
//
// Experimental: it may change in any release.
func (r *Request) Test() (st Status, ok bool, err error) {
	switch {
	case r == nil:
		return Status{}, false, fail("MPI_Test", "request", ErrRequest, "it is nil")
	case r.r == nil:
		return Status{Source: ProcNull, Tag: AnyTag}, true, nil
	case !r.r.Done():
		return Status{}, false, nil
	}
	s, err := r.r.Result()
	return Status(s), true, r.c.raise(wrap(r.call, err))
}

// Cancel cancels a receive that no message has matched, or a send that no receive has matched
// (MPI_Cancel). It reports whether the request is cancelled already, and so over. If another rank may
// have matched the message of a send, that rank is asked, and Status.Cancelled says what it has
// answered. Wait does not depend on what that rank's program does.
//
// Experimental: it may change in any release.
func (r *Request) Cancel() bool { return r != nil && r.r != nil && r.r.Cancel() }

// Waitall waits until all requests are over (MPI_Waitall). It returns their statuses, and the error
// of the first one that has failed. Nil ones are skipped.
//
// Experimental: it may change in any release.
func Waitall(ctx context.Context, rs ...*Request) ([]Status, error) {
	all := make([]Status, len(rs))
	var first error
	for i, r := range rs {
		if r == nil {
			continue
		}
		st, err := r.Wait(ctx)
		if all[i] = st; err != nil && first == nil {
			first = err
		}
	}
	return all, first
}

// Waitany waits until a request is over, and returns its index (MPI_Waitany): Undefined if all are
// nil. Set it to nil then: otherwise it is returned again.
//
// Experimental: it may change in any release.
func Waitany(ctx context.Context, rs ...*Request) (int, Status, error) {
	const call = "MPI_Waitany"
	if ctx == nil {
		return Undefined, Status{}, fail(call, "ctx", ErrArg, "the context is nil")
	}
	inner := make([]*engine.Request, len(rs))
	for i, r := range rs {
		switch {
		case r == nil:
		case r.r == nil:
			return i, Status{Source: ProcNull, Tag: AnyTag}, nil
		default:
			inner[i] = r.r
		}
	}
	i, err := waitAnyOf(ctx, rs, inner)
	switch {
	case err != nil:
		return Undefined, Status{}, wrap(call, err)
	case i < 0:
		return Undefined, Status{}, nil
	}
	st, err := inner[i].Result()
	return i, Status(st), rs[i].c.raise(wrap(rs[i].call, err))
}

// waitAnyOf is the engines' WaitAny, of requests of any number of engines: connected jobs have one for
// each connection.
func waitAnyOf(ctx context.Context, rs []*Request, inner []*engine.Request) (int, error) {
	var one *job
	several := false
	for i, r := range inner {
		if r != nil {
			several = several || one != nil && one != rs[i].c.j
			one = rs[i].c.j
		}
	}
	if !several {
		return engine.WaitAny(ctx, inner)
	}
	of := map[*job][]*engine.Request{}
	for i, r := range inner {
		if r == nil {
			continue
		}
		j := rs[i].c.j
		if of[j] == nil {
			of[j] = make([]*engine.Request, len(inner))
		}
		of[j][i] = r
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type end struct {
		i   int
		err error
	}
	ends := make(chan end, len(of))
	for _, part := range of {
		go func() {
			i, err := engine.WaitAny(ctx, part)
			ends <- end{i, err}
		}()
	}
	first := <-ends
	stop()
	for range len(of) - 1 {
		if e := <-ends; first.err != nil && e.err == nil {
			first = e
		}
	}
	return first.i, first.err
}

// Waitsome waits until a request is over, and returns the indexes of all that are (MPI_Waitsome).
// Set these to nil then. Their statuses and errors are those of Wait.
//
// Experimental: it may change in any release.
func Waitsome(ctx context.Context, rs ...*Request) ([]int, error) {
	first, _, err := Waitany(ctx, rs...)
	if first == Undefined {
		return nil, err
	}
	var over []int
	for i, r := range rs {
		if r != nil && (i == first || r.r == nil || r.r.Done()) {
			over = append(over, i)
		}
	}
	return over, nil
}

// Probe waits until there is a message that Recv would take, and tells about it (MPI_Probe). Another
// goroutine may take it before: see Mprobe.
//
// Experimental: it may change in any release.
func (c *Comm) Probe(ctx context.Context, source, tag int) (Status, error) {
	const call = "MPI_Probe"
	s, ok, err := c.source(call, ctx, source, tag)
	if !ok {
		return Status{Source: ProcNull, Tag: AnyTag}, c.raise(err)
	}
	st, _, err := c.j.e.Probe(ctx, &s, false)
	return Status(st), c.raise(wrap(call, err))
}

// Iprobe is Probe that does not wait: ok is false if there is no message (MPI_Iprobe).
//
// Experimental: it may change in any release.
func (c *Comm) Iprobe(source, tag int) (st Status, ok bool, err error) {
	const call = "MPI_Iprobe"
	s, ok, err := c.source(call, context.Background(), source, tag)
	if !ok {
		return Status{Source: ProcNull, Tag: AnyTag}, err == nil, c.raise(err)
	}
	e, _, ok, err := c.j.e.Iprobe(&s, false)
	return Status(e), ok, c.raise(wrap(call, err))
}

// Message is one that Mprobe has taken (MPI_Message). No other receive gets it.
//
// Experimental: it may change in any release.
type Message struct {
	m *engine.Message
	c *Comm
}

// Mprobe waits for a message that Recv would take, and takes it (MPI_Mprobe).
//
// Experimental: it may change in any release.
func (c *Comm) Mprobe(ctx context.Context, source, tag int) (*Message, Status, error) {
	const call = "MPI_Mprobe"
	s, ok, err := c.source(call, ctx, source, tag)
	if !ok {
		return &Message{c: c}, Status{Source: ProcNull, Tag: AnyTag}, c.raise(err)
	}
	st, m, err := c.j.e.Probe(ctx, &s, true)
	return &Message{m, c}, Status(st), c.raise(wrap(call, err))
}

// Mrecv receives a message that Mprobe has taken (MPI_Mrecv).
//
// Experimental: it may change in any release.
func Mrecv[T any](ctx context.Context, m *Message, buf []T) (Status, error) {
	const call = "MPI_Mrecv"
	b, err := bytesOf(call, buf)
	switch {
	case err != nil:
		return Status{}, m.raise(err)
	case m == nil:
		return Status{}, fail(call, "message", ErrRequest, "it is nil")
	case ctx == nil:
		return Status{}, m.raise(fail(call, "ctx", ErrArg, "the context is nil"))
	case m.m == nil:
		return Status{Source: ProcNull, Tag: AnyTag}, nil
	}
	st, err := m.m.Recv(ctx, b)
	return Status(st), m.raise(wrap(call, err))
}

func (m *Message) raise(err error) error {
	if m == nil {
		return err
	}
	return m.c.raise(err)
}
