package mpiabi

import (
	"context"
	"runtime"
	"sync"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "External Interfaces": generalized requests. The program says when one is over, and its functions
// tell the status, free what belongs to it, and cancel it. They may make calls, so no lock is held meanwhile.

// generalized is the part of a generalized request.
type generalized struct {
	e                   *Env
	query, free, cancel uint64
	extra               uint64

	over chan struct{} // closed by MPI_Grequest_complete
	mu   sync.Mutex
	// Guarded by mu.
	ended    bool // over is closed
	orphaned bool // MPI_Request_free was called before.
}

func init() {
	register("MPI_Grequest_start", func(e *Env, a *arguments) error {
		for i := range 3 {
			if a.Addr(i) == 0 {
				return fail(a.name(i), errArg, "it is NULL, want a function")
			}
		}
		if err := a.setHandle(4, requestNull); err != nil {
			return err
		}
		g := &generalized{e: e, query: a.Addr(0), free: a.Addr(1), cancel: a.Addr(2), extra: a.Addr(3), over: make(chan struct{})}
		return a.setHandle(4, e.handles.add(&request{active: true, parts: []part{g}, general: g}))
	})
	register("MPI_Grequest_complete", func(e *Env, a *arguments) error {
		q, ok := lookup[*request](&e.handles, a.Handle(0))
		if !ok || q.general == nil {
			return fail(a.name(0), errRequest, "%#x is no generalized request", a.Args[0])
		}
		g := q.general
		g.mu.Lock()
		ended, orphaned := g.ended, g.orphaned
		g.ended = true
		g.mu.Unlock()
		if ended {
			return fail(a.name(0), errRequest, "it is complete already")
		}
		if orphaned {
			remove[*request](&e.handles, a.Handle(0))
			return g.release()
		}
		close(g.over)
		return nil
	})
}

func (g *generalized) Wait(ctx context.Context) (mpi.Status, error) {
	select {
	case <-g.over:
		return emptyStatus, nil
	case <-ctx.Done():
		return emptyStatus, ctx.Err()
	}
}

func (g *generalized) Test() (st mpi.Status, ok bool, err error) {
	select {
	case <-g.over:
		return emptyStatus, true, nil
	default:
		return emptyStatus, false, nil
	}
}

// Cancel does nothing: see cancelled.
func (g *generalized) Cancel() bool { return false }

// status asks the program for the status.
func (g *generalized) status() (mpi.Status, error) {
	s := make([]int32, statusSize/4)
	s[statusSource], s[statusTag] = mpi.AnySource, mpi.AnyTag
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&s[0])
	code, err := g.e.callback(g.query, g.extra, address(&s[0]))
	st := mpi.Status{
		Source: int(s[statusSource]), Tag: int(s[statusTag]), Cancelled: s[statusCancelled] != 0,
		Bytes: int(int64(uint64(uint32(s[statusBytesLow])) | uint64(uint32(s[statusBytesHigh]))<<32)),
	}
	if err == nil && code != errSuccess {
		err = fail("", code, "the query function of a generalized request has returned code %d", code)
	}
	return st, err
}

// release has the program free what belongs to the request.
func (g *generalized) release() error {
	code, err := g.e.callback(g.free, g.extra)
	if err == nil && code != errSuccess {
		err = fail("", code, "the free function of a generalized request has returned code %d", code)
	}
	return err
}

// cancelled has the program cancel the request.
func (g *generalized) cancelled() error {
	_, complete, _ := g.Test()
	flag := uint64(0)
	if complete {
		flag = 1
	}
	code, err := g.e.callback(g.cancel, g.extra, flag)
	if err == nil && code != errSuccess {
		err = fail("", code, "the cancel function of a generalized request has returned code %d", code)
	}
	return err
}

// orphan is MPI_Request_free. It reports whether the request is over: otherwise MPI_Grequest_complete frees it.
func (g *generalized) orphan() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orphaned = true
	return g.ended
}
