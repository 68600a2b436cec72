//go:build linux

package mpiabi

import (
	"slices"
	"testing"
)

func init() {
	wrongCalls = append(wrongCalls, func(t *testing.T, r *rank) []wrongCall {
		world, null, page := uint64(commWorld), uint64(commNull), forbidden(t)
		out := place(r.cMemory, int64(0), int64(0))
		one, zero, five, negative := place(r.cMemory, int32(1)), place(r.cMemory, int32(0)), place(r.cMemory, int32(5)), place(r.cMemory, int32(-1))
		r.must("MPI_Cart_create", world, 1, one, zero, 0, out)
		cart := uint64(*at[Handle](out))
		r.must("MPI_Graph_create", world, 1, one, zero, 0, out)
		graph := uint64(*at[Handle](out))
		r.must("MPI_Dist_graph_create_adjacent", world, 1, zero, unweighted, 1, zero, unweighted, 0x130, 0, out)
		dist := uint64(*at[Handle](out))
		return []wrongCall{
			{"MPI_Topo_test", Args{null, out}, errComm},
			{"MPI_Topo_test", Args{world, 0}, errArg},
			{"MPI_Dims_create", Args{1, neg(-1), out}, errDims},
			{"MPI_Dims_create", Args{0, 1, zero}, errArg},
			{"MPI_Dims_create", Args{1, 1, five}, errDims},
			{"MPI_Dims_create", Args{1, 1, 0}, errArg},
			{"MPI_Dims_create", Args{1, 1, page}, errBuffer},
			{"MPI_Cart_create", Args{null, 1, one, zero, 0, out}, errComm},
			{"MPI_Cart_create", Args{world, neg(-1), one, zero, 0, out}, errDims},
			{"MPI_Cart_create", Args{world, 1, five, zero, 0, out}, errDims},
			{"MPI_Cart_create", Args{world, 1, 0, zero, 0, out}, errArg},
			{"MPI_Cart_create", Args{world, 1, one, page, 0, out}, errBuffer},
			{"MPI_Cart_create", Args{world, 1, one, zero, 0, 0}, errArg},
			{"MPI_Cart_map", Args{null, 1, one, zero, out}, errComm},
			{"MPI_Cart_map", Args{world, 1, five, zero, out}, errDims},
			{"MPI_Cart_map", Args{world, 1, one, zero, 0}, errArg},
			{"MPI_Cart_sub", Args{world, one, out}, errTopology},
			{"MPI_Cart_sub", Args{cart, 0, out}, errArg},
			{"MPI_Cart_sub", Args{cart, one, 0}, errArg},
			{"MPI_Cartdim_get", Args{null, out}, errComm},
			{"MPI_Cartdim_get", Args{graph, out}, errTopology},
			{"MPI_Cartdim_get", Args{cart, 0}, errArg},
			{"MPI_Cart_get", Args{world, 1, out, out, out}, errTopology},
			{"MPI_Cart_get", Args{cart, 0, out, out, out}, errArg},
			{"MPI_Cart_get", Args{cart, 1, out, 0, out}, errArg},
			{"MPI_Cart_rank", Args{world, zero, out}, errTopology},
			{"MPI_Cart_rank", Args{cart, five, out}, errArg},
			{"MPI_Cart_rank", Args{cart, 0, out}, errArg},
			{"MPI_Cart_coords", Args{world, 0, 1, out}, errTopology},
			{"MPI_Cart_coords", Args{cart, 1, 1, out}, errRank},
			{"MPI_Cart_coords", Args{cart, 0, 0, out}, errArg},
			{"MPI_Cart_coords", Args{cart, 0, 1, page}, errBuffer},
			{"MPI_Cart_shift", Args{world, 0, 1, out, out}, errTopology},
			{"MPI_Cart_shift", Args{cart, 1, 1, out, out}, errDims},
			{"MPI_Cart_shift", Args{cart, 0, 1, 0, out}, errArg},
			{"MPI_Cart_shift", Args{cart, 0, 1, out, 0}, errArg},
			{"MPI_Graph_create", Args{null, 1, one, zero, 0, out}, errComm},
			{"MPI_Graph_create", Args{world, 2, one, zero, 0, out}, errArg},
			{"MPI_Graph_create", Args{world, 1, negative, zero, 0, out}, errArg},
			{"MPI_Graph_create", Args{world, 1, one, five, 0, out}, errArg},
			{"MPI_Graph_create", Args{world, 1, one, zero, 0, page}, errBuffer},
			{"MPI_Graph_map", Args{null, 1, one, zero, out}, errComm},
			{"MPI_Graph_map", Args{world, 1, one, five, out}, errArg},
			{"MPI_Graph_map", Args{world, 1, one, zero, 0}, errArg},
			{"MPI_Graphdims_get", Args{cart, out, out}, errTopology},
			{"MPI_Graphdims_get", Args{graph, 0, out}, errArg},
			{"MPI_Graph_get", Args{world, 1, 1, out, out}, errTopology},
			{"MPI_Graph_get", Args{graph, 0, 1, out, out}, errArg},
			{"MPI_Graph_get", Args{graph, 1, 0, out, out}, errArg},
			{"MPI_Graph_get", Args{graph, 1, 1, out, 0}, errArg},
			{"MPI_Graph_neighbors_count", Args{world, 0, out}, errTopology},
			{"MPI_Graph_neighbors_count", Args{graph, 1, out}, errRank},
			{"MPI_Graph_neighbors", Args{graph, neg(-1), 1, out}, errRank},
			{"MPI_Graph_neighbors", Args{graph, 0, 0, out}, errArg},
			{"MPI_Dist_graph_create_adjacent", Args{null, 0, 0, unweighted, 0, 0, unweighted, 0x130, 0, out}, errComm},
			{"MPI_Dist_graph_create_adjacent", Args{world, neg(-1), 0, unweighted, 0, 0, unweighted, 0x130, 0, out}, errCount},
			{"MPI_Dist_graph_create_adjacent", Args{world, 1, five, unweighted, 1, zero, unweighted, 0x130, 0, out}, errRank},
			{"MPI_Dist_graph_create_adjacent", Args{world, 1, zero, unweighted, 0, 0, unweighted, 0x130, 0, out}, errTopology},
			{"MPI_Dist_graph_create_adjacent", Args{world, 1, zero, negative, 1, zero, one, 0x130, 0, out}, errArg},
			{"MPI_Dist_graph_create_adjacent", Args{world, 1, zero, weightsEmpty, 1, zero, one, 0x130, 0, out}, errArg},
			{"MPI_Dist_graph_create_adjacent", Args{world, 1, zero, one, 1, zero, unweighted, 0x130, 0, out}, errArg},
			{"MPI_Dist_graph_create", Args{null, 0, 0, 0, 0, unweighted, 0x130, 0, out}, errComm},
			{"MPI_Dist_graph_create", Args{world, neg(-1), 0, 0, 0, unweighted, 0x130, 0, out}, errCount},
			{"MPI_Dist_graph_create", Args{world, 1, zero, negative, zero, unweighted, 0x130, 0, out}, errArg},
			{"MPI_Dist_graph_create", Args{world, 1, five, one, zero, unweighted, 0x130, 0, out}, errRank},
			{"MPI_Dist_graph_create", Args{world, 1, zero, one, five, unweighted, 0x130, 0, out}, errRank},
			{"MPI_Dist_graph_create", Args{world, 1, zero, one, zero, negative, 0x130, 0, out}, errArg},
			{"MPI_Dist_graph_create", Args{world, 1, zero, one, zero, unweighted, 0x130, 0, 0}, errArg},
			{"MPI_Dist_graph_neighbors_count", Args{world, out, out, out}, errTopology},
			{"MPI_Dist_graph_neighbors_count", Args{dist, 0, out, out}, errArg},
			{"MPI_Dist_graph_neighbors", Args{cart, 1, out, unweighted, 1, out, unweighted}, errTopology},
			{"MPI_Dist_graph_neighbors", Args{dist, neg(-1), out, unweighted, 1, out, unweighted}, errCount},
			{"MPI_Dist_graph_neighbors", Args{dist, 1, 0, unweighted, 1, out, unweighted}, errArg},
		}
	})
}

// results calls with the addresses of n integers behind other arguments, and returns these.
func (r *rank) results(n int, name string, args ...uint64) []int32 {
	r.t.Helper()
	out := place(r.cMemory, make([]int32, n)...)
	for i := range n {
		args = append(args, out+uint64(4*i))
	}
	r.must(name, args...)
	return slice[int32](out, n)
}

// list calls with the address of an array behind other arguments, and returns its n integers.
func (r *rank) list(n int, name string, args ...uint64) []int32 {
	r.t.Helper()
	out := place(r.cMemory, make([]int32, n)...)
	r.must(name, append(args, out)...)
	return slice[int32](out, n)
}

// made calls with the address of a handle behind other arguments, and returns the handle.
func (r *rank) made(name string, args ...uint64) uint64 {
	r.t.Helper()
	out := place(r.cMemory, Handle(7))
	r.must(name, append(args, out)...)
	return uint64(*at[Handle](out))
}

// same fails the test unless a result is what is wanted.
func (r *rank) same(what string, got []int32, want ...int32) {
	r.t.Helper()
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestCart(t *testing.T) {
	rs := job(t, 4)
	each(rs, func(i int, r *rank) {
		world := uint64(commWorld)
		me := int32(i)
		dims := place(r.cMemory, int32(0), 0)
		r.must("MPI_Dims_create", 4, 2, dims)
		r.same("MPI_Dims_create", slice[int32](dims, 2), 2, 2)
		periods := place(r.cMemory, int32(1), 0)
		r.same("MPI_Topo_test of all ranks", r.results(1, "MPI_Topo_test", world), undefined)
		r.same("MPI_Cart_map", r.results(1, "MPI_Cart_map", world, 2, dims, periods), me)
		cart := r.made("MPI_Cart_create", world, 2, dims, periods, 0)
		dup := r.made("MPI_Comm_dup", cart)
		for _, c := range []uint64{cart, dup} {
			r.same("MPI_Topo_test", r.results(1, "MPI_Topo_test", c), topologyCart)
			r.same("MPI_Cartdim_get", r.results(1, "MPI_Cartdim_get", c), 2)
			got := place(r.cMemory, make([]int32, 6)...)
			r.must("MPI_Cart_get", c, 2, got, got+8, got+16)
			r.same("MPI_Cart_get", slice[int32](got, 6), 2, 2, 1, 0, me/2, me%2)
			r.same("MPI_Cart_coords", r.list(2, "MPI_Cart_coords", c, 2, 2), 1, 0)
			r.same("MPI_Cart_rank", r.results(1, "MPI_Cart_rank", c, place(r.cMemory, int32(3), 1)), 3)
			other := (me + 2) % 4
			r.same("MPI_Cart_shift along the ring", r.results(2, "MPI_Cart_shift", c, 0, 1), other, other)
			want := []int32{procNull, me + 1}
			if i%2 == 1 {
				want = []int32{me - 1, procNull}
			}
			r.same("MPI_Cart_shift along the line", r.results(2, "MPI_Cart_shift", c, 1, 1), want...)
		}
		column := r.made("MPI_Cart_sub", cart, place(r.cMemory, int32(1), 0))
		r.same("MPI_Cart_sub", r.list(1, "MPI_Cart_coords", column, uint64(i/2), 1), me/2)
		r.same("the rank of the column", r.results(1, "MPI_Comm_rank", column), me/2)
		// Three ranks of a line: the last one has no place.
		line := r.made("MPI_Cart_create", world, 1, place(r.cMemory, int32(3)), periods, 1)
		if (line == uint64(commNull)) != (i == 3) {
			t.Errorf("rank %d: the line's communicator is %#x", i, line)
		}
		want := me
		if i == 3 {
			want = undefined
		}
		r.same("MPI_Cart_map of 3", r.results(1, "MPI_Cart_map", world, 1, place(r.cMemory, int32(3)), periods), want)
	})
}

func TestGraph(t *testing.T) {
	rs := job(t, 4)
	each(rs, func(i int, r *rank) {
		world := uint64(commWorld)
		// A path of three ranks: 0 - 1 - 2.
		index, edges := place(r.cMemory, int32(1), 3, 4), place(r.cMemory, int32(1), 0, 2, 1)
		want := int32(i)
		if i == 3 {
			want = undefined
		}
		r.same("MPI_Graph_map", r.results(1, "MPI_Graph_map", world, 3, index, edges), want)
		graph := r.made("MPI_Graph_create", world, 3, index, edges, 0)
		if i == 3 {
			if graph != uint64(commNull) {
				t.Errorf("rank 3 gets communicator %#x, want MPI_COMM_NULL", graph)
			}
			return
		}
		for _, g := range []uint64{graph, r.made("MPI_Comm_dup", graph)} {
			r.same("MPI_Topo_test", r.results(1, "MPI_Topo_test", g), topologyGraph)
			r.same("MPI_Graphdims_get", r.results(2, "MPI_Graphdims_get", g), 3, 4)
			r.same("MPI_Graph_neighbors_count", r.results(1, "MPI_Graph_neighbors_count", g, 1), 2)
			r.same("MPI_Graph_neighbors", r.list(2, "MPI_Graph_neighbors", g, 1, 2), 0, 2)
			r.same("MPI_Graph_neighbors of rank 0", r.list(1, "MPI_Graph_neighbors", g, 0, 1), 1)
			got := place(r.cMemory, make([]int32, 7)...)
			r.must("MPI_Graph_get", g, 3, 4, got, got+12)
			r.same("MPI_Graph_get", slice[int32](got, 7), 1, 3, 4, 1, 0, 2, 1)
		}
	})
}

// The standard lets a graph have edges in one direction alone, and restricts neighbourhood collectives to
// graphs that have as many in both. They fail at all ranks, and wait for no message.
func TestGraphOneSided(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(_ int, r *rank) {
		world, mem, out := uint64(commWorld), place(r.cMemory, make([]int32, 8)...), place(r.cMemory, make([]int32, 8)...)
		for _, c := range []struct {
			index, edges []int32
			want         int32
		}{
			{[]int32{1, 2, 3}, []int32{1, 2, 0}, errTopology},      // a ring in one direction
			{[]int32{2, 3, 3}, []int32{1, 1, 0}, errTopology},      // two edges there, and one back
			{[]int32{2, 4, 5}, []int32{1, 1, 0, 0, 2}, errSuccess}, // two both ways, and a loop
		} {
			graph := r.made("MPI_Graph_create", world, 3, place(r.cMemory, c.index...), place(r.cMemory, c.edges...), 0)
			for _, g := range []uint64{graph, r.made("MPI_Comm_dup", graph)} {
				if code := r.call("MPI_Neighbor_alltoall", mem, 1, 0x209, out, 1, 0x209, g); code != c.want {
					t.Errorf("index %v, edges %v: code %d, want %d", c.index, c.edges, code, c.want)
				}
			}
		}
	})
}

func TestDistGraph(t *testing.T) {
	rs := job(t, 3)
	each(rs, func(i int, r *rank) {
		world, me := uint64(commWorld), int32(i)
		before, after := (me+2)%3, (me+1)%3
		// A ring, of which each rank gives its own edges, and one of which rank 2 gives all.
		source, dest := place(r.cMemory, before), place(r.cMemory, after)
		weights := place(r.cMemory, 10+before, 10+me)
		own := r.made("MPI_Dist_graph_create_adjacent", world, 1, source, weights, 1, dest, weights+4, 0x130, 0)
		plain := r.made("MPI_Dist_graph_create_adjacent", world, 1, source, unweighted, 1, dest, unweighted, 0x130, 0)
		n := uint64(0)
		if i == 2 {
			n = 3
		}
		all := r.made("MPI_Dist_graph_create", world, n, place(r.cMemory, int32(0), 1, 2), place(r.cMemory, int32(1), 1, 1),
			place(r.cMemory, int32(1), 2, 0), place(r.cMemory, int32(10), 11, 12), 0x130, 0)
		for _, c := range []struct {
			comm     uint64
			weighted int32
		}{{own, 1}, {plain, 0}, {all, 1}, {r.made("MPI_Comm_dup", all), 1}} {
			r.same("MPI_Topo_test", r.results(1, "MPI_Topo_test", c.comm), topologyDistGraph)
			r.same("MPI_Dist_graph_neighbors_count", r.results(3, "MPI_Dist_graph_neighbors_count", c.comm), 1, 1, c.weighted)
			got := place(r.cMemory, int32(-7), -7, -7, -7)
			r.must("MPI_Dist_graph_neighbors", c.comm, 1, got, got+4, 5, got+8, got+12)
			want := []int32{before, -7, after, -7}
			if c.weighted == 1 {
				want = []int32{before, 10 + before, after, 10 + me}
			}
			r.same("MPI_Dist_graph_neighbors", slice[int32](got, 4), want...)
		}
		got := place(r.cMemory, int32(-7), -7)
		r.must("MPI_Dist_graph_neighbors", own, 0, got, unweighted, 1, got+4, unweighted)
		r.same("MPI_Dist_graph_neighbors with room for one", slice[int32](got, 2), -7, after)
		// Ranks that do not agree all fail.
		w := uint64(unweighted)
		if i == 1 {
			w = weightsEmpty
		}
		out := place(r.cMemory, Handle(7))
		if code := r.call("MPI_Dist_graph_create", world, 0, 0, 0, 0, w, 0x130, 0, out); code != errArg || *at[Handle](out) != commNull {
			t.Errorf("ranks that do not agree on weights: code %d, communicator %#x", code, *at[Handle](out))
		}
	})
}
