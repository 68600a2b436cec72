package mpiabi

import (
	"runtime"
	"slices"
	"strings"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Collective Communication": nonblocking and persistent collectives.
//
// One is the blocking collective on a goroutine. Each communicator has another one of the same ranks for
// them, so that they do not disturb its blocking ones. Those of one communicator run one after
// another: all ranks begin them in the same order, so each ends when all ranks have begun it. The arrays of
// a call belong to it until it is over, as the standard says.

func init() {
	for _, name := range []string{
		"barrier", "bcast", "gather", "gatherv", "scatter", "scatterv", "allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw",
		"reduce", "allreduce", "reduce_scatter_block", "reduce_scatter", "scan", "exscan",
	} {
		blocking := "MPI_" + strings.ToUpper(name[:1]) + name[1:]
		register("MPI_I"+name, func(e *Env, a *arguments) error {
			c, do, release, err := e.collective(a, blocking, 1)
			if err != nil {
				return err
			}
			last := len(a.Args) - 1
			if err := a.setHandle(last, requestNull); err != nil {
				release()
				return err
			}
			part, done, err := e.later(c, do)
			if err != nil {
				release()
				return err
			}
			return e.addRequest(a, last, c, done, part)
		})
		register(blocking+"_init", func(e *Env, a *arguments) error {
			c, do, release, err := e.collective(a, blocking, 2)
			if err != nil {
				return err
			}
			last := len(a.Args) - 1
			if err := a.setHandle(last, requestNull); err != nil {
				release()
				return err
			}
			var over func(mpi.Status) error
			return a.setHandle(last, e.handles.add(&request{
				of: c, release: release,
				start: func() ([]part, error) {
					part, done, err := e.later(c, do)
					over = done
					return asParts([]*mpi.Request{part}), err
				},
				done: func(st mpi.Status) error { return over(st) },
			}))
		})
	}
}

// collective is a call of a blocking collective, with the arguments of one that does not block: that has so
// many more behind them. Handles that the program frees meanwhile are kept for it: do frees them, or
// release if it may run more than once.
func (e *Env) collective(a *arguments, blocking string, more int) (c *comm, do func() error, release func(), err error) {
	if strings.HasSuffix(a.p.name, "_c") {
		blocking += "_c"
	}
	b := &arguments{Args: slices.Clone(a.Args[:len(a.Args)-more]), p: prototypes[Number(blocking)], ctx: e.ctx}
	at := b.p.handleParam("MPI_Comm")
	if c, err = e.comm(b, at); err != nil {
		return nil, nil, nil, err
	}
	var kept []Handle
	drop := func() {
		for _, h := range kept {
			e.handles.drop(h)
		}
	}
	defer func() {
		if err != nil {
			drop()
		}
	}()
	keep := func(i int, object any) {
		h := e.handles.add(object)
		kept = append(kept, h)
		b.Args[i] = uint64(h)
	}
	var lists [][]Handle // of datatypes, which the call reads when it runs
	for i, p := range b.p.params {
		switch {
		case p.pointer && p.typ == "MPI_Datatype":
			if b.inPlaceAt(i - 3) { // The buffer is three arguments before.
				continue
			}
			list, err := b.handles(i, c.c.Size())
			if err != nil {
				return nil, nil, nil, err
			}
			for k, h := range list {
				if d, ok := lookup[*datatype](&e.handles, h); ok {
					list[k] = e.handles.add(d)
					kept = append(kept, list[k])
				}
			}
			lists = append(lists, list)
			b.Args[i] = address(&list[0])
		case p.pointer:
			continue
		case p.typ == "MPI_Datatype":
			d, err := e.committed(b, i)
			if err != nil {
				return nil, nil, nil, err
			}
			if _, ok := named[b.Handle(i)]; !ok {
				keep(i, d)
			}
		case p.typ == "MPI_Op" && opNames[b.Handle(i)] == "":
			op, err := e.userOp(b, i)
			if err != nil {
				return nil, nil, nil, err
			}
			keep(i, op)
		case strings.HasSuffix(p.name, "count"):
			if _, err := b.count(i); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	keep(at, &comm{c: c.hidden, h: c.h})
	return c, func() error {
		err := e.run(b)
		runtime.KeepAlive(lists)
		if more == 1 { // It is not started again.
			drop()
		}
		return err
	}, drop, nil
}

// freeHidden ends the use of the communicator for nonblocking collectives, when these are over.
func (c *comm) freeHidden() {
	c.queueMu.Lock()
	last := c.queue
	c.queueMu.Unlock()
	if last == nil {
		_ = c.hidden.Free() // It has no attributes, so nothing fails.
		return
	}
	go func() {
		<-last
		_ = c.hidden.Free()
	}()
}

// later runs a collective behind earlier ones of its communicator. Its request is a message to this rank
// itself, so that calls can wait for it beside others. done is the collective's error.
func (e *Env) later(c *comm, do func() error) (part *mpi.Request, done func(mpi.Status) error, err error) {
	tag := int(e.signal.Add(1) & mpi.MaxTag)
	if part, err = mpi.Irecv[byte](e.signals, nil, 0, tag); err != nil {
		return nil, nil, err
	}
	mine := make(chan struct{})
	c.queueMu.Lock()
	before := c.queue
	c.queue = mine
	c.queueMu.Unlock()
	var failed error
	go func() {
		if before != nil {
			<-before
		}
		failed = do()
		close(mine)
		// It fails only if the job ends.
		_, _ = mpi.Isend[byte](e.signals, nil, 0, tag)
	}()
	return part, func(mpi.Status) error { return failed }, nil
}
