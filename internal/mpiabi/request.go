package mpiabi

import (
	"context"
	"errors"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Point-to-Point Communication": requests, and the calls that end them.

func init() {
	register("MPI_Wait", wait)
	register("MPI_Test", test)
	register("MPI_Waitall", waitall)
	register("MPI_Testall", func(e *Env, a *arguments) error { return e.testall(a, true) })
	register("MPI_Waitany", waitany)
	register("MPI_Testany", func(e *Env, a *arguments) error { return e.testany(a, true) })
	register("MPI_Waitsome", func(e *Env, a *arguments) error { return e.some(a, true, true) })
	register("MPI_Testsome", func(e *Env, a *arguments) error { return e.some(a, false, true) })
	register("MPI_Request_get_status", requestStatus)
	register("MPI_Request_get_status_all", func(e *Env, a *arguments) error { return e.testall(a, false) })
	register("MPI_Request_get_status_any", func(e *Env, a *arguments) error { return e.testany(a, false) })
	register("MPI_Request_get_status_some", func(e *Env, a *arguments) error { return e.some(a, false, false) })
	register("MPI_Request_free", requestFree)
	register("MPI_Cancel", cancel)
	register("MPI_Start", func(e *Env, a *arguments) error { return e.startAll(a, 0, 1) })
	register("MPI_Startall", func(e *Env, a *arguments) error {
		n, err := a.count(0)
		if err != nil {
			return err
		}
		return e.startAll(a, 1, n)
	})
}

// request is a call that need not be over.
type request struct {
	of handled // has the error handler, or nil: that of MPI_COMM_SELF
	// start begins a persistent request. It is nil for others.
	start func() ([]part, error)
	// done gets the status of what the last part has received, and stores the message. It may be nil.
	done func(st mpi.Status) error
	// general is a request that the program completes, or nil.
	general *generalized
	// partitioned is a partitioned send or receive, or nil.
	partitioned *partitioned
	// release frees what a persistent request keeps, when the program has freed it and it is inactive. It
	// may be nil.
	release func()

	mu     sync.Mutex
	active bool   // A persistent request is inactive until MPI_Start. Guarded by mu.
	parts  []part // The request is over when all are. The last one's status is the request's. Guarded by mu.
	over   bool   // st and err are set. Guarded by mu.
	st     mpi.Status
	err    error
}

// part is an *[mpi.Request], or a call that a goroutine executes.
type part interface {
	Wait(ctx context.Context) (mpi.Status, error)
	Test() (st mpi.Status, ok bool, err error)
	Cancel() bool
}

// background is a call that a goroutine executes. It cannot be cancelled.
type background struct {
	over chan struct{} // closed when st and err are set
	st   mpi.Status
	err  error
}

// inBackground executes f on a goroutine.
func inBackground(f func() (mpi.Status, error)) *background {
	b := &background{over: make(chan struct{})}
	go func() {
		defer close(b.over)
		b.st, b.err = f()
	}()
	return b
}

func (b *background) Wait(ctx context.Context) (mpi.Status, error) {
	select {
	case <-b.over:
		return b.st, b.err
	case <-ctx.Done():
		return mpi.Status{}, ctx.Err()
	}
}

func (b *background) Test() (st mpi.Status, ok bool, err error) {
	select {
	case <-b.over:
		return b.st, true, b.err
	default:
		return mpi.Status{}, false, nil
	}
}

func (*background) Cancel() bool { return false }

// waitPart waits until one of the parts is over. nil ones are skipped. Its error is that of the context.
func waitPart(ctx context.Context, parts []part) error {
	rs := make([]*mpi.Request, len(parts))
	var others []part
	for k, p := range parts {
		switch p := p.(type) {
		case nil:
		case *mpi.Request:
			rs[k] = p
		default:
			others = append(others, p)
		}
	}
	if len(others) == 0 {
		_, _, _ = mpi.Waitany(ctx, rs...) // Errors of a request are found by its poll.
		return ctx.Err()
	}
	first, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	if len(others) < len(parts) {
		wg.Go(func() {
			defer stop()
			if k, _, _ := mpi.Waitany(first, rs...); k == mpi.Undefined {
				<-first.Done() // There are no such requests, or the context has ended.
			}
		})
	}
	for _, p := range others {
		wg.Go(func() {
			defer stop()
			_, _ = p.Wait(first)
		})
	}
	wg.Wait()
	return ctx.Err()
}

// emptyStatus is the status of MPI_REQUEST_NULL, and of an inactive request.
var emptyStatus = mpi.Status{Source: mpi.AnySource, Tag: mpi.AnyTag}

// addRequest stores the handle of a request that has begun. done may be nil.
func (e *Env) addRequest(a *arguments, i int, of handled, done func(st mpi.Status) error, parts ...*mpi.Request) error {
	h := e.handles.add(&request{of: of, done: done, active: true, parts: asParts(parts)})
	return a.setHandle(i, h)
}

func asParts(rs []*mpi.Request) []part {
	parts := make([]part, len(rs))
	for k, r := range rs {
		parts[k] = r
	}
	return parts
}

// next is a part that is not over, and nil if there is none.
func (q *request) next() part {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.active || q.over {
		return nil
	}
	for _, p := range q.parts {
		if _, ok, _ := p.Test(); !ok {
			return p
		}
	}
	return nil
}

// poll reports whether the request is over, or inactive. From then on result has its status.
func (q *request) poll() bool {
	if q.next() != nil {
		return false
	}
	if g := q.general; g != nil {
		return q.pollGeneral(g)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over {
		return true
	}
	q.over, q.st, q.err = true, emptyStatus, nil
	if !q.active {
		return true
	}
	for _, p := range q.parts {
		st, _, err := p.Test()
		if q.st = st; q.err == nil {
			q.err = err
		}
	}
	if q.err == nil && q.done != nil {
		q.err = q.done(q.st)
	}
	return true
}

// pollGeneral is poll of a generalized request that is over.
func (q *request) pollGeneral(g *generalized) bool {
	q.mu.Lock()
	over := q.over
	q.mu.Unlock()
	if over {
		return true
	}
	st, err := g.status()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over, q.st, q.err = true, st, err
	return true
}

// wait waits until the request is over, or inactive. Its error is that of the context.
func (q *request) wait(ctx context.Context) error {
	for {
		p := q.next()
		if p == nil {
			q.poll()
			return nil
		}
		if _, err := p.Wait(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
}

// result is the status of a request that is over. Its error goes to the request's error handler.
func (q *request) result() (mpi.Status, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil && q.of != nil {
		return q.st, &raisedOn{q.err, q.of}
	}
	return q.st, q.err
}

// complete ends a request that is over: a persistent one is inactive, and another one's handle
// is free. It returns the handle that the program has then.
func (e *Env) complete(h Handle, q *request) Handle {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.active, q.over, q.parts = false, false, nil
	if q.start != nil {
		return h
	}
	remove[*request](&e.handles, h)
	return requestNull
}

// request is the request of a handle. It is nil for MPI_REQUEST_NULL.
func (e *Env) request(a *arguments, i int, h Handle) (*request, error) {
	if h == requestNull {
		return nil, nil //nolint:nilnil // MPI_REQUEST_NULL is legal, and names nothing.
	}
	if q, ok := lookup[*request](&e.handles, h); ok {
		return q, nil
	}
	return nil, fail(a.name(i), errRequest, "%#x is no request, or one that is over", uint64(h))
}

// requestAt is the request whose handle an argument points to.
func (e *Env) requestAt(a *arguments, i int) (Handle, *request, error) {
	h, err := a.handleAt(i)
	if err != nil {
		return 0, nil, err
	}
	q, err := e.request(a, i, h)
	return h, q, err
}

// requests are the requests of an array of handles.
type requests struct {
	e       *Env
	a       *arguments
	i       int // the argument
	handles []Handle
	all     []*request // nil: MPI_REQUEST_NULL
}

// requests are n requests whose handles are in an array.
func (e *Env) requests(a *arguments, i, n int) (*requests, error) {
	if n == 0 {
		return &requests{e: e, a: a, i: i}, nil
	}
	addr := a.Addr(i)
	if addr == 0 {
		return nil, fail(a.name(i), errRequest, "it is NULL, want an array of %d requests", n)
	}
	if err := a.reachable(i, n, 8); err != nil {
		return nil, err
	}
	rs := &requests{e: e, a: a, i: i, handles: make([]Handle, n), all: make([]*request, n)}
	if err := a.access(i, func() { copy(rs.handles, slice[Handle](addr, n)) }); err != nil {
		return nil, err
	}
	for k, h := range rs.handles {
		var err error
		if rs.all[k], err = e.request(a, i, h); err != nil {
			return nil, err
		}
	}
	return rs, nil
}

// counted are the requests of an array whose length argument 0 is.
func (e *Env) counted(a *arguments) (*requests, error) {
	n, err := a.count(0)
	if err != nil {
		return nil, err
	}
	return e.requests(a, 1, n)
}

// complete ends request k, and stores what its handle is then. Its status and error are returned.
func (rs *requests) complete(k int) (mpi.Status, error) {
	q := rs.all[k]
	if q == nil {
		return emptyStatus, nil
	}
	st, err := q.result()
	h := rs.e.complete(rs.handles[k], q)
	if q.general != nil {
		if freed := q.general.release(); err == nil {
			err = freed
		}
	}
	stored := rs.a.access(rs.i, func() { slice[Handle](rs.a.Addr(rs.i), len(rs.handles))[k] = h })
	if err == nil {
		err = stored
	}
	return st, err
}

// live reports whether request k is active.
func (rs *requests) live(k int) bool {
	q := rs.all[k]
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.active
}

// setStatuses stores statuses, unless the address is MPI_STATUSES_IGNORE. If a request has failed
// all errors are stored too, and the call's error is MPI_ERR_IN_STATUS.
func (a *arguments) setStatuses(i int, sts []mpi.Status, errs []error) error {
	var failed error
	for _, err := range errs {
		if err != nil {
			failed = err
			break
		}
	}
	if addr := a.Addr(i); addr != 0 {
		for k, st := range sts {
			if err := a.setStatusAt(i, addr+uint64(k)*statusSize, st); err != nil {
				return err
			}
			if failed == nil {
				continue
			}
			code := classOf(errs[k])
			if err := a.access(i, func() { slice[int32](addr, statusSize/4*len(sts))[k*statusSize/4+statusError] = code }); err != nil {
				return err
			}
		}
	}
	if failed != nil {
		return fail("", errInStatus, "%w: the statuses say which requests have failed", failed)
	}
	return nil
}

// requestFree forgets a request, which goes on.
func requestFree(e *Env, a *arguments) error {
	h, q, err := e.requestAt(a, 0)
	if err != nil {
		return err
	}
	if q == nil {
		return fail(a.name(0), errRequest, "it is MPI_REQUEST_NULL")
	}
	if g := q.general; g != nil {
		if g.orphan() {
			remove[*request](&e.handles, h)
			err = g.release()
		}
		return errors.Join(err, a.setHandle(0, requestNull))
	}
	remove[*request](&e.handles, h)
	if q.done != nil || q.release != nil {
		go func() {
			_ = q.wait(e.ctx) // It stores the message. No call tells of an error any more.
			if q.release != nil {
				q.release()
			}
		}()
	}
	return a.setHandle(0, requestNull)
}

func cancel(e *Env, a *arguments) error {
	_, q, err := e.requestAt(a, 0)
	if err != nil {
		return err
	}
	if q == nil {
		return fail(a.name(0), errRequest, "it is MPI_REQUEST_NULL")
	}
	if q.general != nil {
		return q.general.cancelled()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.active {
		return fail(a.name(0), errRequest, "it is inactive: start it before")
	}
	for _, p := range q.parts {
		p.Cancel()
	}
	return nil
}

// startAll starts n persistent requests whose handles argument i points to.
func (e *Env) startAll(a *arguments, i, n int) error {
	rs, err := e.requests(a, i, n)
	if err != nil {
		return err
	}
	for k, q := range rs.all {
		if q == nil || q.start == nil {
			return fail(a.name(i), errRequest, "%#x is no persistent request", uint64(rs.handles[k]))
		}
		if err := q.begin(); err != nil {
			return &raisedOn{err, q.of}
		}
	}
	return nil
}

// begin starts a persistent request.
func (q *request) begin() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.active {
		return fail("request", errRequest, "it is started already: wait for it first")
	}
	parts, err := q.start()
	if err != nil {
		return err
	}
	q.active, q.over, q.parts = true, false, parts
	return nil
}
