package mpi

import (
	"context"
	"sync"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// Persistent is a send, a receive or a collective whose arguments stay (persistent request of MPI).
// It is started any number of times, one after another. Buffers are read and written anew by each.
//
// Experimental: it may change in any release.
type Persistent struct {
	call  string
	begin func() (*Request, error)

	mu   sync.Mutex
	last *Request // what Start has returned. Guarded by mu.
}

// Start begins it once more (MPI_Start, chapter Point-to-Point Communication). [ErrRequest]: the
// last one is not over. Persistent collectives of a communicator may be started in different orders
// at different ranks.
//
// Experimental: it may change in any release.
func (p *Persistent) Start() (*Request, error) {
	const call = "MPI_Start"
	if p == nil {
		return nil, fail(call, "request", ErrRequest, "it is nil")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.last; q != nil && q.r != nil && !q.r.Done() {
		return nil, fail(call, "request", ErrRequest, "the %s that was started before is not over: wait for it first", p.call)
	}
	q, err := p.begin()
	if err != nil {
		return nil, err
	}
	p.last = q
	return q, nil
}

// Startall begins all of them (MPI_Startall, chapter Point-to-Point Communication). After an error
// it returns the requests of those that have begun.
//
// Experimental: it may change in any release.
func Startall(ps ...*Persistent) ([]*Request, error) {
	var all []*Request
	for _, p := range ps {
		q, err := p.Start()
		if err != nil {
			return all, err
		}
		all = append(all, q)
	}
	return all, nil
}

// persistent has all runs of the plan use one tag. Messages of a pair of ranks are matched in their
// order, and no rank begins a run before the last one is over for it, so runs do not mix.
func (p plan) persistent() (*Persistent, error) {
	if p.err != nil {
		return nil, p.c.raise(p.err)
	}
	r := p.c.begin(p.call)
	return &Persistent{call: p.call, begin: func() (*Request, error) { return p.startRound(r), nil }}, nil
}

func sendInit[T any](c *Comm, call string, buf []T, dest, tag int, mode engine.Mode) (*Persistent, error) {
	if _, err := bytesOf(call, buf); err != nil {
		return nil, c.raise(err)
	}
	if _, _, err := c.target(call, context.Background(), dest, tag); err != nil {
		return nil, c.raise(err)
	}
	return &Persistent{call: call, begin: func() (*Request, error) { return isend(c, call, buf, dest, tag, mode) }}, nil
}

// SendInit makes an [Isend] that is started any number of times (MPI_Send_init, chapter
// Point-to-Point Communication).
//
// Experimental: it may change in any release.
func SendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return sendInit(c, "MPI_Send_init", buf, dest, tag, engine.Standard)
}

// SsendInit makes an [Issend] that is started any number of times (MPI_Ssend_init, chapter
// Point-to-Point Communication).
//
// Experimental: it may change in any release.
func SsendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return sendInit(c, "MPI_Ssend_init", buf, dest, tag, engine.Synchronous)
}

// RsendInit is SendInit of messages whose receives are posted (MPI_Rsend_init, chapter
// Point-to-Point Communication). Those whose receives are not posted wait as those of SendInit.
//
// Experimental: it may change in any release.
func RsendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return sendInit(c, "MPI_Rsend_init", buf, dest, tag, engine.Ready)
}

// BsendInit makes a [Bsend] that is started any number of times (MPI_Bsend_init, chapter
// Point-to-Point Communication).
//
// Experimental: it may change in any release.
func BsendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	return sendInit(c, "MPI_Bsend_init", buf, dest, tag, engine.Buffered)
}

// RecvInit makes an [Irecv] that is started any number of times (MPI_Recv_init, chapter
// Point-to-Point Communication).
//
// Experimental: it may change in any release.
func RecvInit[T any](c *Comm, buf []T, source, tag int) (*Persistent, error) {
	const call = "MPI_Recv_init"
	if _, err := bytesOf(call, buf); err != nil {
		return nil, c.raise(err)
	}
	if _, _, err := c.source(call, context.Background(), source, tag); err != nil {
		return nil, c.raise(err)
	}
	return &Persistent{call: call, begin: func() (*Request, error) { return irecv(c, call, buf, source, tag) }}, nil
}
