package mpi

import (
	"context"
	"slices"
)

// Topology is a communicator whose ranks have neighbours: a [Cart] or a [Graph].
//
// Experimental: it may change in any release.
type Topology interface {
	// Neighbors returns the ranks that this rank receives from, and those that it sends to, in
	// neighbourhood collectives.
	Neighbors() (sources, dests []int)

	// topology is the communicator, the neighbours, and the order in which messages of one source
	// belong to sources: indexes of these.
	topology() (c *Comm, sources, dests, order []int)
}

// Graph is a communicator whose ranks send along the edges of a directed graph (distributed graph
// topology, chapter Process Topologies).
//
// Experimental: it may change in any release.
type Graph struct {
	*Comm
	sources, dests []int
}

// Graph makes a communicator of the same ranks on a graph of which each rank gives its own edges:
// the ranks that it receives from, and those that it sends to (MPI_Dist_graph_create_adjacent with
// MPI_UNWEIGHTED). It is a collective. A rank may be there several times, and may be this one.
//
// The ranks keep their order also if reorder is true.
//
// Errors: [ErrRank] if there is no such rank; [ErrTopology], at all ranks, if one rank gives an
// edge another number of times than the rank at its other end.
//
// Experimental: it may change in any release.
func (c *Comm) Graph(ctx context.Context, sources, dests []int, reorder bool) (_ *Graph, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Dist_graph_create_adjacent"
	_ = reorder
	n := len(c.ranks)
	in, out := make([]int64, n), make([]int64, n) // edges from and to each rank
	for _, e := range []struct {
		arg   string
		ranks []int
		count []int64
	}{{"sources", sources, in}, {"destinations", dests, out}} {
		for _, rank := range e.ranks {
			if rank < 0 || rank >= n {
				return nil, c.badRank(call, e.arg, rank)
			}
			e.count[rank]++
		}
	}
	// An edge that only one end knows would have a neighbourhood collective wait for ever.
	told := make([]int64, n)
	if err := alltoallPlan(c, call, out, told).do(ctx); err != nil {
		return nil, err
	}
	wrong := []int64{-1, 0, 0} // a rank, and how many edges from it this rank gives, and that one
	for rank, k := range in {
		if told[rank] != k && wrong[0] < 0 {
			wrong = []int64{int64(rank), k, told[rank]}
		}
	}
	wrongs := make([]int64, 3*n)
	if err := allgatherPlan(c, call, wrong, wrongs).do(ctx); err != nil {
		return nil, err
	}
	for rank := range n {
		if w := wrongs[3*rank:][:3]; w[0] >= 0 {
			return nil, fail(call, "sources", ErrTopology,
				"rank %d gives %d edges from rank %d, which gives %d: give each edge at both ends", rank, w[1], w[0], w[2])
		}
	}
	part, err := c.sub(ctx, call, ranksTo(n), "graph")
	if err != nil {
		return nil, err
	}
	return &Graph{part, slices.Clone(sources), slices.Clone(dests)}, nil
}

// Dup makes a communicator of the same ranks on the same graph (MPI_Comm_dup). It is a collective.
//
// Experimental: it may change in any release.
func (t *Graph) Dup(ctx context.Context) (*Graph, error) {
	c, err := t.Comm.Dup(ctx)
	if err != nil {
		return nil, err
	}
	return &Graph{c, t.sources, t.dests}, nil
}

// Neighbors returns the ranks that this rank receives from, and those that it sends to, in the
// order in which Comm.Graph got them (MPI_Dist_graph_neighbors).
//
// Experimental: it may change in any release.
func (t *Graph) Neighbors() (sources, dests []int) {
	return slices.Clone(t.sources), slices.Clone(t.dests)
}

func (t *Graph) topology() (c *Comm, sources, dests, order []int) {
	return t.Comm, t.sources, t.dests, ranksTo(len(t.sources))
}

// Neighbors returns the ranks beside this one: for each dimension that with the lower coordinate,
// and then that with the higher one. They are the sources and the destinations. A rank beside the
// grid is ProcNull.
//
// Experimental: it may change in any release.
func (t *Cart) Neighbors() (sources, dests []int) {
	for dim := range t.dims {
		lower, higher := t.shift(t.rank, dim, 1)
		sources = append(sources, lower, higher)
	}
	return sources, slices.Clone(sources)
}

// What a rank sends downwards comes from above. In a ring of one or two ranks both neighbours are
// the same rank, whose message downwards is the first one: so the receive from above is the first.
func (t *Cart) topology() (c *Comm, sources, dests, order []int) {
	sources, dests = t.Neighbors()
	for dim := range t.dims {
		order = append(order, 2*dim+1, 2*dim)
	}
	return t.Comm, sources, dests, order
}

// NeighborAllgather sends values to each neighbour, and receives those of each, by the order of
// Neighbors (MPI_Neighbor_allgather, chapter Process Topologies). It is a collective. recv has room
// for as many of each source as send has. What belongs to ProcNull is unchanged.
//
// The buffers do not overlap. [ErrCount]: recv has another length, or a neighbour sends another
// number of values.
//
// Experimental: it may change in any release.
func NeighborAllgather[T any](ctx context.Context, t Topology, send, recv []T) error {
	return neighborAllgatherPlan(t, "MPI_Neighbor_allgather", send, recv).do(ctx)
}

func neighborAllgatherPlan[T any](t Topology, call string, send, recv []T) plan {
	if t == nil {
		return plan{err: fail(call, "comm", ErrTopology, "it is nil")}
	}
	c, sources, dests, order := t.topology()
	k := len(send)
	if len(recv) != len(sources)*k {
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values, want %d for each of %d sources",
			len(recv), k, len(sources))}
	}
	out, err := bytesOf(call, send)
	if err != nil {
		return plan{c: c, err: err}
	}
	in, _ := bytesOf(call, recv)
	return c.neighborPlan(call, sources, dests, order, in, func(int) []byte { return out })
}

// NeighborAlltoall sends each neighbour its part of the values, and receives a part of each, by the
// order of Neighbors (MPI_Neighbor_alltoall, chapter Process Topologies). It is a collective. All
// parts have the same length. What belongs to ProcNull is unchanged. On a grid, what is sent to the
// lower neighbour is that one's part from its higher neighbour, also where both are the same rank.
//
// The buffers do not overlap. [ErrCount]: the lengths of send and recv are not multiples of the
// numbers of neighbours by one length, or a neighbour sends another number of values.
//
// Experimental: it may change in any release.
func NeighborAlltoall[T any](ctx context.Context, t Topology, send, recv []T) error {
	return neighborAlltoallPlan(t, "MPI_Neighbor_alltoall", send, recv).do(ctx)
}

func neighborAlltoallPlan[T any](t Topology, call string, send, recv []T) plan {
	if t == nil {
		return plan{err: fail(call, "comm", ErrTopology, "it is nil")}
	}
	c, sources, dests, order := t.topology()
	switch {
	case len(dests) == 0 && len(send) != 0, len(dests) > 0 && len(send)%len(dests) != 0:
		return plan{c: c, err: fail(call, "send", ErrCount, "it has %d values for %d destinations", len(send), len(dests))}
	case len(sources) == 0 && len(recv) != 0, len(sources) > 0 && len(recv)%len(sources) != 0:
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values for %d sources", len(recv), len(sources))}
	case len(dests) > 0 && len(sources) > 0 && len(send)/len(dests) != len(recv)/len(sources):
		return plan{c: c, err: fail(call, "recv", ErrCount, "it has %d values of each source, and send %d for each destination",
			len(recv)/len(sources), len(send)/len(dests))}
	}
	out, err := bytesOf(call, send)
	if err != nil {
		return plan{c: c, err: err}
	}
	in, _ := bytesOf(call, recv)
	size := 0
	if len(dests) > 0 {
		size = len(out) / len(dests)
	}
	return c.neighborPlan(call, sources, dests, order, in, func(i int) []byte { return out[i*size:][:size] })
}

// neighborPlan has all sends and receives under way at once, so there is no deadlock. Messages of
// one pair of ranks are matched in the order of their calls.
func (c *Comm) neighborPlan(
	call string, sources, dests, order []int, in []byte, out func(i int) []byte,
) plan {
	return plan{c: c, call: call, run: func(ctx context.Context, r *round) error {
		m := messages{r: r}
		defer m.abandon()
		for i, to := range dests {
			if to == ProcNull {
				continue
			}
			if err := m.send(out(i), to); err != nil {
				return err
			}
		}
		for _, i := range order {
			if sources[i] == ProcNull {
				continue
			}
			size := len(in) / len(sources)
			if err := m.recv(in[i*size:][:size], sources[i]); err != nil {
				return err
			}
		}
		return m.wait(ctx)
	}}
}
