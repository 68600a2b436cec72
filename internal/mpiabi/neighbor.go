package mpiabi

import (
	"errors"
	"strings"

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
		register(strings.Replace(name, "MPI_N", "MPI_In", 1), func(e *Env, a *arguments) error {
			return e.beginNeighbors(a, c.send, c.recv)
		})
		register(name+"_init", func(e *Env, a *arguments) error { return e.initNeighbors(a, c.send, c.recv) })
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

// neighborhood is a neighbourhood collective whose arguments have been read. All its messages are under way at
// once. They are of the communicator that nonblocking collectives have, so no message of the program is
// taken for one of them.
type neighborhood struct {
	c                     *comm
	sources, dests, order []int
	out, in               []items
	tag                   int
}

// neighborTag is the tag of neighbourhood collectives that are no persistent ones: all ranks begin those of a
// communicator in the same order. Persistent ones start in any order, so each has a tag of its own.
const neighborTag = 0

// neighborhood reads the arguments. Argument at is the communicator.
func (e *Env) neighborhood(a *arguments, at int, send, recv neighborSide) (*neighborhood, error) {
	c, err := e.comm(a, at)
	if err != nil {
		return nil, err
	}
	if c.topology == nil {
		return nil, fail(a.name(at), errTopology, "%s has no topology", c.c.Name())
	}
	if c.topology.oneSided {
		return nil, fail(a.name(at), errTopology,
			"%s is a graph that has edges in one direction alone: neighbourhood collectives need as many in both, or MPI_Dist_graph_create",
			c.c.Name())
	}
	n := &neighborhood{c: c, tag: neighborTag}
	n.sources, n.dests, n.order = c.topology.peers(c.c.Rank())
	if n.out, err = e.blocks(a, send, len(n.dests)); err != nil {
		return nil, err
	}
	n.in, err = e.blocks(a, recv, len(n.sources))
	return n, err
}

// begin begins all messages. done stores what has come when all are over.
func (n *neighborhood) begin() (all []*mpi.Request, done func() error, err error) {
	packed := make([][]byte, len(n.dests))
	for k := range n.out {
		if packed[k], err = n.out[k].packed(); err != nil {
			return nil, nil, err
		}
	}
	defer func() {
		for _, r := range all {
			if err != nil {
				r.Cancel()
			}
		}
	}()
	received := make([]*mpi.Request, len(n.sources))
	stores := make([]func(mpi.Status) error, len(n.sources))
	for _, k := range n.order {
		var buf []byte
		buf, stores[k] = n.in[k].receiver()
		if received[k], err = mpi.Irecv(n.c.hidden, buf, n.sources[k], n.tag); err != nil {
			return all, nil, err
		}
		all = append(all, received[k])
	}
	for k, to := range n.dests {
		r, err := mpi.Isend(n.c.hidden, packed[k], to, n.tag)
		if err != nil {
			return all, nil, err
		}
		all = append(all, r)
	}
	return all, func() error {
		var errs []error
		for k, store := range stores {
			if store == nil || n.sources[k] == mpi.ProcNull {
				continue
			}
			st, _, _ := received[k].Test() // It is over.
			errs = append(errs, store(st))
		}
		return errors.Join(errs...)
	}, nil
}

// neighborExchange is a blocking neighbourhood collective.
func (e *Env) neighborExchange(a *arguments, send, recv neighborSide) error {
	n, err := e.neighborhood(a, len(a.Args)-1, send, recv)
	if err != nil {
		return err
	}
	all, done, err := n.begin()
	if err != nil {
		return err
	}
	_, err = mpi.Waitall(a.ctx, all...)
	if a.ctx.Err() != nil { // The program has no request that it could wait for again.
		for _, r := range all {
			r.Cancel()
		}
	}
	if err != nil {
		return err
	}
	return done()
}

// beginNeighbors is a nonblocking neighbourhood collective.
func (e *Env) beginNeighbors(a *arguments, send, recv neighborSide) error {
	last := len(a.Args) - 1
	n, err := e.neighborhood(a, last-1, send, recv)
	if err != nil {
		return err
	}
	if err := a.setHandle(last, requestNull); err != nil {
		return err
	}
	all, done, err := n.begin()
	if err != nil {
		return err
	}
	return e.addRequest(a, last, n.c, func(mpi.Status) error { return done() }, all...)
}

// initNeighbors is a persistent neighbourhood collective. All ranks make those of a communicator in the same
// order, so they agree on the tag.
func (e *Env) initNeighbors(a *arguments, send, recv neighborSide) error {
	last := len(a.Args) - 1
	n, err := e.neighborhood(a, last-2, send, recv)
	if err != nil {
		return err
	}
	if err := e.optionalInfo(a, last-1); err != nil {
		return err
	}
	if err := a.setHandle(last, requestNull); err != nil {
		return err
	}
	n.tag = int(n.c.persistent.Add(1) & mpi.MaxTag)
	var over func() error
	return a.setHandle(last, e.handles.add(&request{
		of: n.c,
		start: func() (parts []part, err error) {
			all, done, err := n.begin()
			over = done
			return asParts(all), err
		},
		done: func(mpi.Status) error { return over() },
	}))
}
