package mpiabi

import (
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Virtual Topologies for MPI Processes": neighbourhood collectives.

func init() {
	for name, c := range map[string]struct{ send, recv neighborSide }{
		"MPI_Neighbor_allgather":  {neighborSide{kind: sameItems, buf: 0, count: 1, typ: 2}, neighborSide{kind: equalBlocks, buf: 3, count: 4, typ: 5}},
		"MPI_Neighbor_allgatherv": {neighborSide{kind: sameItems, buf: 0, count: 1, typ: 2}, neighborSide{kind: anyBlocks, buf: 3, count: 4, displ: 5, typ: 6}},
		"MPI_Neighbor_alltoall":   {neighborSide{kind: equalBlocks, buf: 0, count: 1, typ: 2}, neighborSide{kind: equalBlocks, buf: 3, count: 4, typ: 5}},
		"MPI_Neighbor_alltoallv": {
			neighborSide{kind: anyBlocks, buf: 0, count: 1, displ: 2, typ: 3}, neighborSide{kind: anyBlocks, buf: 4, count: 5, displ: 6, typ: 7},
		},
		"MPI_Neighbor_alltoallw": {
			neighborSide{kind: anyTypes, buf: 0, count: 1, displ: 2, typ: 3}, neighborSide{kind: anyTypes, buf: 4, count: 5, displ: 6, typ: 7},
		},
	} {
		register(name, func(e *Env, a *arguments) error { return e.neighborExchange(a, c.send, c.recv) })
	}
}

// neighborSide says which arguments tell what is sent to the neighbours, or received of them.
type neighborSide struct {
	kind                   int
	buf, count, displ, typ int
}

const (
	sameItems   = iota // the same for all neighbours
	equalBlocks        // blocks of one length, one after another
	anyBlocks          // blocks of any lengths, at displacements in items
	anyTypes           // blocks of any datatypes, at displacements in bytes
)

// blocks are the items for n neighbours.
func (e *Env) blocks(a *arguments, s neighborSide, n int) ([]items, error) {
	counts, displs, types := make([]int, n), make([]int, n), make([]*datatype, n)
	var err error
	if s.kind == anyTypes {
		handles, err := a.handles(s.typ, n)
		if err != nil {
			return nil, err
		}
		for k, h := range handles {
			if types[k], err = e.datatypeOf(a.name(s.typ), h); err != nil {
				return nil, err
			}
		}
	} else {
		d, err := e.committed(a, s.typ)
		if err != nil {
			return nil, err
		}
		for k := range types {
			types[k] = d
		}
	}
	if s.kind == anyBlocks || s.kind == anyTypes {
		if counts, err = a.ints(s.count, n); err != nil {
			return nil, err
		}
		if displs, err = a.ints(s.displ, n); err != nil {
			return nil, err
		}
	} else {
		count, err := a.count(s.count)
		if err != nil {
			return nil, err
		}
		for k := range counts {
			counts[k] = count
			if s.kind == equalBlocks {
				displs[k] = k * count
			}
		}
	}
	out := make([]items, n)
	for k, d := range types {
		if counts[k] < 0 {
			return nil, fail(a.name(s.count), errCount, "count %d is %d, want 0 or more", k, counts[k])
		}
		at := displs[k]
		if s.kind != anyTypes {
			at *= d.extent
		}
		addr := a.Addr(s.buf)
		if addr > bufferAutomatic {
			addr += uint64(at)
		}
		if out[k], err = a.itemsAt(s.buf, s.count, addr, counts[k], d); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// peers are the ranks that this rank receives from, and those that it sends to. order says in which order
// messages of one source belong to sources.
func (t *topology) peers(rank int) (sources, dests, order []int) {
	switch t.kind {
	case topologyCart:
		// What a rank sends downwards comes from above, also where both neighbours are the same rank.
		sources, dests = t.cart.Neighbors()
		for dim := range len(sources) / 2 {
			order = append(order, 2*dim+1, 2*dim)
		}
		return sources, dests, order
	case topologyGraph:
		sources = t.neighbors(rank)
		dests = sources
	default:
		sources, dests = t.sources, t.dests
	}
	for k := range sources {
		order = append(order, k)
	}
	return sources, dests, order
}

// neighborExchange has all messages under way at once. They are of the communicator that nonblocking
// collectives have, so no message of the program is taken for one of them.
func (e *Env) neighborExchange(a *arguments, send, recv neighborSide) error {
	c, err := e.comm(a, len(a.Args)-1)
	if err != nil {
		return err
	}
	if c.topology == nil {
		return fail(a.name(len(a.Args)-1), errTopology, "%s has no topology", c.c.Name())
	}
	sources, dests, order := c.topology.peers(c.c.Rank())
	out, err := e.blocks(a, send, len(dests))
	if err != nil {
		return err
	}
	in, err := e.blocks(a, recv, len(sources))
	if err != nil {
		return err
	}
	packed := make([][]byte, len(dests))
	for k := range out {
		if packed[k], err = out[k].packed(); err != nil {
			return err
		}
	}
	const tag = 0
	received := make([]*mpi.Request, len(sources))
	stores := make([]func(mpi.Status) error, len(sources))
	var sent []*mpi.Request
	for _, k := range order {
		var buf []byte
		buf, stores[k] = in[k].receiver()
		if received[k], err = mpi.Irecv(c.hidden, buf, sources[k], tag); err != nil {
			return err
		}
	}
	for k, to := range dests {
		r, err := mpi.Isend(c.hidden, packed[k], to, tag)
		if err != nil {
			return err
		}
		sent = append(sent, r)
	}
	sts, failed := mpi.Waitall(e.ctx, slices.Concat(received, sent)...)
	if failed != nil {
		return failed
	}
	var errs []error
	for k, store := range stores {
		if store != nil && sources[k] != mpi.ProcNull {
			errs = append(errs, store(sts[k]))
		}
	}
	return errors.Join(errs...)
}
