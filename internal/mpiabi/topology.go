package mpiabi

import (
	"context"
	"errors"
	"slices"

	"github.com/vmmc-go/vmmc/mpi"
)

// Chapter "Virtual Topologies for MPI Processes".

// Types of topologies, and arguments that stand for no weights.
const (
	topologyCart      = 211
	topologyGraph     = 212
	topologyDistGraph = 213

	unweighted   = 10
	weightsEmpty = 11
)

// topology says which ranks of a communicator are neighbours. It does not change.
type topology struct {
	kind int
	cart *mpi.Cart // of topologyCart

	index, edges []int // of topologyGraph, as the program gave them
	oneSided     bool  // It has edges that no edge in the other direction belongs to.

	// Of topologyDistGraph.
	sources, dests             []int
	sourceWeights, destWeights []int // nil: none
	weighted                   bool
}

// dup makes a communicator of the same ranks with the same topology, which may be nil.
func (t *topology) dup(ctx context.Context, c *mpi.Comm) (*mpi.Comm, *topology, error) {
	if t == nil || t.cart == nil {
		made, err := c.Dup(ctx)
		return made, t, err
	}
	cart, err := t.cart.Dup(ctx)
	if err != nil {
		return nil, nil, err
	}
	return cart.Comm, &topology{kind: topologyCart, cart: cart}, nil
}

// withTopology is the communicator of argument 0, which has a topology of a kind.
func (e *Env) withTopology(a *arguments, kind int) (*comm, *topology, error) {
	c, err := e.comm(a, 0)
	if err != nil {
		return nil, nil, err
	}
	if c.topology == nil || c.topology.kind != kind {
		return nil, nil, fail(a.name(0), errTopology, "%s has no topology of the kind that the call is for", c.c.Name())
	}
	return c, c.topology, nil
}

func init() {
	register("MPI_Topo_test", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		if c.topology == nil {
			return a.setInt(1, undefined)
		}
		return a.setInt(1, c.topology.kind)
	})
	register("MPI_Dims_create", dimsCreate)

	register("MPI_Cart_create", cartCreate)
	register("MPI_Cart_map", cartMap)
	register("MPI_Cart_sub", cartSub)
	register("MPI_Cartdim_get", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyCart)
		if err != nil {
			return err
		}
		return a.setInt(1, len(t.cart.Dims()))
	})
	register("MPI_Cart_get", cartGet)
	register("MPI_Cart_rank", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyCart)
		if err != nil {
			return err
		}
		coords, err := a.ints(1, len(t.cart.Dims()))
		if err != nil {
			return err
		}
		rank, err := t.cart.RankOf(coords)
		if err != nil {
			return err
		}
		return a.setInt(2, rank)
	})
	register("MPI_Cart_coords", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyCart)
		if err != nil {
			return err
		}
		coords, err := t.cart.Coords(a.Int(1))
		if err != nil {
			return err
		}
		if err := a.hasRoom(2, len(coords)); err != nil {
			return err
		}
		return a.storeInts(3, coords)
	})
	register("MPI_Cart_shift", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyCart)
		if err != nil {
			return err
		}
		source, dest, err := t.cart.Shift(a.Int(1), a.Int(2))
		if err != nil {
			return err
		}
		if err := a.setInt(3, source); err != nil {
			return err
		}
		return a.setInt(4, dest)
	})

	register("MPI_Graph_create", graphCreate)
	register("MPI_Graph_map", func(e *Env, a *arguments) error {
		c, err := e.comm(a, 0)
		if err != nil {
			return err
		}
		if _, err := a.graph(c); err != nil {
			return err
		}
		return a.setInt(4, placeIn(c.c, a.Int(1)))
	})
	register("MPI_Graphdims_get", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyGraph)
		if err != nil {
			return err
		}
		if err := a.setInt(1, len(t.index)); err != nil {
			return err
		}
		return a.setInt(2, len(t.edges))
	})
	register("MPI_Graph_get", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyGraph)
		if err != nil {
			return err
		}
		for i, list := range [][]int{t.index, t.edges} {
			if err := a.hasRoom(1+i, len(list)); err != nil {
				return err
			}
		}
		if err := a.storeInts(3, t.index); err != nil {
			return err
		}
		return a.storeInts(4, t.edges)
	})
	register("MPI_Graph_neighbors_count", func(e *Env, a *arguments) error {
		list, err := e.graphNeighbors(a)
		if err != nil {
			return err
		}
		return a.setInt(2, len(list))
	})
	register("MPI_Graph_neighbors", func(e *Env, a *arguments) error {
		list, err := e.graphNeighbors(a)
		if err != nil {
			return err
		}
		if err := a.hasRoom(2, len(list)); err != nil {
			return err
		}
		return a.storeInts(3, list)
	})

	register("MPI_Dist_graph_create_adjacent", distGraphAdjacent)
	register("MPI_Dist_graph_create", distGraphCreate)
	register("MPI_Dist_graph_neighbors_count", func(e *Env, a *arguments) error {
		_, t, err := e.withTopology(a, topologyDistGraph)
		if err != nil {
			return err
		}
		if err := a.setInt(1, len(t.sources)); err != nil {
			return err
		}
		if err := a.setInt(2, len(t.dests)); err != nil {
			return err
		}
		return a.setFlag(3, t.weighted)
	})
	register("MPI_Dist_graph_neighbors", distGraphNeighbors)
}

// hasRoom is the error of an array of the program that has no room for n integers.
func (a *arguments) hasRoom(i, n int) error {
	if most := a.Int(i); most < n {
		return fail(a.name(i), errArg, "it is %d, want room for %d", most, n)
	}
	return nil
}

func dimsCreate(_ *Env, a *arguments) error {
	n := a.Int(1)
	if n < 0 {
		return fail(a.name(1), errDims, "it is %d, want 0 or more", n)
	}
	dims, err := a.ints(2, n)
	if err != nil {
		return err
	}
	if dims, err = mpi.Dims(a.Int(0), dims); err != nil {
		return err
	}
	return a.storeInts(2, dims)
}

// grid is what three arguments from 1 on say: a number of dimensions, their sizes, and which are rings.
func (a *arguments) grid() (dims []int, periodic []bool, err error) {
	n := a.Int(1)
	if n < 0 {
		return nil, nil, fail(a.name(1), errDims, "it is %d, want 0 or more", n)
	}
	if dims, err = a.ints(2, n); err != nil {
		return nil, nil, err
	}
	periods, err := a.ints(3, n)
	return dims, flags(periods), err
}

func flags(list []int) []bool {
	out := make([]bool, len(list))
	for i, v := range list {
		out[i] = v != 0
	}
	return out
}

func cartCreate(e *Env, a *arguments) error {
	dims, periodic, err := a.grid()
	if err != nil {
		return err
	}
	return e.newCart(a, 5, func(c *comm) (*mpi.Cart, error) { return c.c.Cart(a.ctx, dims, periodic, a.Int(4) != 0) })
}

// newCart makes a communicator with a grid.
func (e *Env) newCart(a *arguments, i int, create func(c *comm) (*mpi.Cart, error)) error {
	return e.newTopology(a, i, func(c *comm) (*mpi.Comm, *topology, error) {
		cart, err := create(c)
		if cart == nil || err != nil {
			return nil, nil, err
		}
		return cart.Comm, &topology{kind: topologyCart, cart: cart}, nil
	})
}

func cartSub(e *Env, a *arguments) error {
	_, t, err := e.withTopology(a, topologyCart)
	if err != nil {
		return err
	}
	keep, err := a.ints(1, len(t.cart.Dims()))
	if err != nil {
		return err
	}
	return e.newCart(a, 2, func(*comm) (*mpi.Cart, error) { return t.cart.Sub(a.ctx, flags(keep)) })
}

// placeIn is where this rank is among the first n, and MPI_UNDEFINED beyond them: ranks keep their order.
func placeIn(c *mpi.Comm, n int) int {
	if c.Rank() >= n {
		return undefined
	}
	return c.Rank()
}

func cartMap(e *Env, a *arguments) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	dims, _, err := a.grid()
	if err != nil {
		return err
	}
	places := 1
	for i, d := range dims {
		if d < 1 || d > c.c.Size()/places {
			return fail(a.name(2), errDims, "dimension %d is %d, and the grid has a place for 1 to %d ranks", i, d, c.c.Size())
		}
		places *= d
	}
	return a.setInt(4, placeIn(c.c, places))
}

func cartGet(e *Env, a *arguments) error {
	_, t, err := e.withTopology(a, topologyCart)
	if err != nil {
		return err
	}
	dims := t.cart.Dims()
	if err := a.hasRoom(1, len(dims)); err != nil {
		return err
	}
	coords, err := t.cart.Coords(t.cart.Rank())
	if err != nil {
		return err
	}
	periods := make([]int, len(dims))
	for i, ring := range t.cart.Periodic() {
		if ring {
			periods[i] = 1
		}
	}
	for i, list := range [][]int{dims, periods, coords} {
		if err := a.storeInts(2+i, list); err != nil {
			return err
		}
	}
	return nil
}

// graph is what three arguments from 1 on say: a number of nodes, where the neighbours of each end,
// and the neighbours.
func (a *arguments) graph(c *comm) (*topology, error) {
	n := a.Int(1)
	if n < 0 || n > c.c.Size() {
		return nil, fail(a.name(1), errArg, "it is %d, want 0 to the %d ranks of %s", n, c.c.Size(), c.c.Name())
	}
	index, err := a.ints(2, n)
	if err != nil || n == 0 {
		return &topology{kind: topologyGraph}, err
	}
	if index[0] < 0 || !slices.IsSorted(index) {
		return nil, fail(a.name(2), errArg, "%v does not increase from 0 on", index)
	}
	edges, err := a.ints(3, index[n-1])
	if err != nil {
		return nil, err
	}
	for i, rank := range edges {
		if rank < 0 || rank >= n {
			return nil, fail(a.name(3), errArg, "edge %d goes to rank %d, want 0 to %d", i, rank, n-1)
		}
	}
	t := &topology{kind: topologyGraph, index: index, edges: edges}
	t.oneSided = !t.symmetric()
	return t, nil
}

func graphCreate(e *Env, a *arguments) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	t, err := a.graph(c)
	if err != nil {
		return err
	}
	return e.newTopology(a, 5, func(c *comm) (*mpi.Comm, *topology, error) {
		color := undefined
		if c.c.Rank() < len(t.index) {
			color = 0
		}
		made, err := c.c.Split(a.ctx, color, c.c.Rank())
		return made, t, err
	})
}

// neighbors are those of a rank of topologyGraph.
func (t *topology) neighbors(rank int) []int {
	from := 0
	if rank > 0 {
		from = t.index[rank-1]
	}
	return t.edges[from:t.index[rank]]
}

// symmetric reports whether any two ranks of topologyGraph have as many edges in both directions. Then
// each message of a neighbourhood collective has a receiver. An edge of a rank with itself is both.
func (t *topology) symmetric() bool {
	edges := map[[2]int]int{}
	for rank := range t.index {
		for _, other := range t.neighbors(rank) {
			switch {
			case rank < other:
				edges[[2]int{rank, other}]++
			case rank > other:
				edges[[2]int{other, rank}]--
			}
		}
	}
	for _, n := range edges {
		if n != 0 {
			return false
		}
	}
	return true
}

// graphNeighbors are those of the rank of argument 1.
func (e *Env) graphNeighbors(a *arguments) ([]int, error) {
	_, t, err := e.withTopology(a, topologyGraph)
	if err != nil {
		return nil, err
	}
	rank := a.Int(1)
	if rank < 0 || rank >= len(t.index) {
		return nil, fail(a.name(1), errRank, "it is %d, want 0 to %d", rank, len(t.index)-1)
	}
	return t.neighbors(rank), nil
}

// weights are n weights, and none if the argument is MPI_UNWEIGHTED.
func (a *arguments) weights(i, n int) (list []int, weighted bool, err error) {
	switch a.Addr(i) {
	case unweighted:
		return nil, false, nil
	case weightsEmpty:
		if n > 0 {
			return nil, false, fail(a.name(i), errArg, "it is MPI_WEIGHTS_EMPTY, and there are %d edges", n)
		}
		return nil, true, nil
	}
	if list, err = a.ints(i, n); err != nil {
		return nil, false, err
	}
	for k, w := range list {
		if w < 0 {
			return nil, false, fail(a.name(i), errArg, "weight %d is %d, want 0 or more", k, w)
		}
	}
	return list, true, nil
}

func distGraphAdjacent(e *Env, a *arguments) error {
	t := &topology{kind: topologyDistGraph}
	for _, side := range []struct {
		at      int
		ranks   *[]int
		weights *[]int
	}{{1, &t.sources, &t.sourceWeights}, {4, &t.dests, &t.destWeights}} {
		n, err := a.count(side.at)
		if err != nil {
			return err
		}
		if *side.ranks, err = a.ints(side.at+1, n); err != nil {
			return err
		}
		if *side.weights, t.weighted, err = a.weights(side.at+2, n); err != nil {
			return err
		}
	}
	if (a.Addr(3) == unweighted) != (a.Addr(6) == unweighted) {
		return fail(a.name(6), errArg, "give MPI_UNWEIGHTED for both weights, or for none")
	}
	return e.newDistGraph(a, 9, func(*comm) (*topology, error) { return t, nil })
}

// newDistGraph makes a communicator whose ranks send along edges that each rank knows of itself.
func (e *Env) newDistGraph(a *arguments, i int, find func(c *comm) (*topology, error)) error {
	return e.newTopology(a, i, func(c *comm) (*mpi.Comm, *topology, error) {
		t, err := find(c)
		if err != nil {
			return nil, nil, err
		}
		// It checks that both ends of each edge know it.
		g, err := c.c.Graph(a.ctx, t.sources, t.dests, false)
		if err != nil {
			return nil, nil, err
		}
		return g.Comm, t, nil
	})
}

// edge is one of a graph. weight is -1 if the rank that gives it gives no weights.
type edge struct{ from, to, weight int64 }

// distGraphCreate makes a graph of which each rank gives any edges. All ranks tell all others theirs.
func distGraphCreate(e *Env, a *arguments) error {
	c, err := e.comm(a, 0)
	if err != nil {
		return err
	}
	n, err := a.count(1)
	if err != nil {
		return err
	}
	sources, err := a.ints(2, n)
	if err != nil {
		return err
	}
	degrees, err := a.ints(3, n)
	if err != nil {
		return err
	}
	total := 0
	for i, d := range degrees {
		if d < 0 {
			return fail(a.name(3), errArg, "degree %d is %d, want 0 or more", i, d)
		}
		total += d
	}
	dests, err := a.ints(4, total)
	if err != nil {
		return err
	}
	weights, weighted, err := a.weights(5, total)
	if err != nil {
		return err
	}
	var mine []edge
	for i, d := range degrees {
		for range d {
			k := len(mine)
			one := edge{int64(sources[i]), int64(dests[k]), -1}
			if weighted {
				one.weight = int64(weights[k])
			}
			for at, rank := range map[int]int64{2: one.from, 4: one.to} {
				if rank < 0 || rank >= int64(c.c.Size()) {
					return fail(a.name(at), errRank, "rank %d is not one of the %d of %s", rank, c.c.Size(), c.c.Name())
				}
			}
			mine = append(mine, one)
		}
	}
	return e.newDistGraph(a, 8, func(c *comm) (*topology, error) { return gatherEdges(a.ctx, c.c, mine, weighted) })
}

// gatherEdges finds this rank's edges among those that all ranks give.
func gatherEdges(ctx context.Context, c *mpi.Comm, mine []edge, weighted bool) (*topology, error) {
	said := [2]int64{int64(len(mine)), 0}
	if weighted {
		said[1] = 1
	}
	all := make([][2]int64, c.Size())
	if err := mpi.Allgather(ctx, c, [][2]int64{said}, all); err != nil {
		return nil, err
	}
	counts, total := make([]int, c.Size()), 0
	for rank, s := range all {
		counts[rank] = int(s[0])
		total += counts[rank]
		// All ranks see the same, so all fail.
		if s[1] != all[0][1] {
			return nil, fail("weights", errArg, "rank 0 and rank %d do not agree on MPI_UNWEIGHTED", rank)
		}
	}
	edges := make([]edge, total)
	if err := mpi.Allgatherv(ctx, c, mine, edges, mpi.Parts{Counts: counts}); err != nil {
		return nil, err
	}
	t := &topology{kind: topologyDistGraph, weighted: weighted}
	for _, one := range edges {
		if one.from == int64(c.Rank()) {
			t.dests = append(t.dests, int(one.to))
			t.destWeights = append(t.destWeights, int(one.weight))
		}
		if one.to == int64(c.Rank()) {
			t.sources = append(t.sources, int(one.from))
			t.sourceWeights = append(t.sourceWeights, int(one.weight))
		}
	}
	return t, nil
}

// distGraphNeighbors stores as many neighbours as the program has room for.
func distGraphNeighbors(e *Env, a *arguments) error {
	_, t, err := e.withTopology(a, topologyDistGraph)
	if err != nil {
		return err
	}
	var errs []error
	for _, side := range []struct {
		at             int
		ranks, weights []int
	}{{1, t.sources, t.sourceWeights}, {4, t.dests, t.destWeights}} {
		most, err := a.count(side.at)
		if err != nil {
			return err
		}
		n := min(most, len(side.ranks))
		errs = append(errs, a.storeInts(side.at+1, side.ranks[:n]))
		if addr := a.Addr(side.at + 2); t.weighted && addr != unweighted && addr != weightsEmpty {
			errs = append(errs, a.storeInts(side.at+2, side.weights[:n]))
		}
	}
	return errors.Join(errs...)
}
