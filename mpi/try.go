package mpi

import (
	"context"
	"time"
)

// TrySend is Send of a message that leaves at once, so that it waits for nothing. If ok is false nothing
// was sent: Send it.
//
// Errors: [ErrRank], [ErrTag], [ErrType], [ErrArg], [ErrProcFailed]; nothing was sent.
//
// Experimental: it may change in any release.
func TrySend[T any](c *Comm, buf []T, dest, tag int) (ok bool, err error) {
	const call = "MPI_Send"
	b, err := bytesOf(call, buf)
	if err != nil {
		return false, c.raise(err)
	}
	t, ok, err := c.target(call, context.Background(), dest, tag)
	if !ok {
		return err == nil, c.raise(err)
	}
	if ok, err = c.j.e.TrySend(&t, b); err != nil {
		return false, c.raise(wrap(call, err))
	}
	return ok, nil
}

// TryRecv is Recv of a short message that is there, or that arrives within about the time given. If ok is
// false none was taken: there is none, or it is one that Recv must ask its sender for. The thread is
// busy meanwhile: keep the time short.
//
// Errors: as [Recv].
//
// Experimental: it may change in any release.
func TryRecv[T any](c *Comm, buf []T, source, tag int, patience time.Duration) (st Status, ok bool, err error) {
	const call = "MPI_Recv"
	b, err := bytesOf(call, buf)
	if err != nil {
		return Status{}, false, c.raise(err)
	}
	s, ok, err := c.source(call, context.Background(), source, tag)
	if !ok {
		return Status{Source: ProcNull, Tag: AnyTag}, err == nil, c.raise(err)
	}
	got, ok, err := c.j.e.TryRecv(&s, b, patience)
	if err != nil {
		return Status{}, false, c.raise(wrap(call, err))
	}
	return Status(got), ok, nil
}
