package mpi

import (
	"context"
	"slices"
)

// Group is an ordered set of ranks (MPI_Group, chapter Groups, Contexts, Communicators, and
// Caching). It does not change: operations return new ones. The zero Group is empty
// (MPI_GROUP_EMPTY).
//
// Experimental: it may change in any release.
type Group struct {
	j     *job  // nil if empty
	me    int   // this process in the job
	ranks []int // in the job, each once
}

// Group returns the ranks of the communicator (MPI_Comm_group).
//
// Experimental: it may change in any release.
func (c *Comm) Group() Group { return Group{c.j, c.ranks[c.rank], c.ranks} }

// Size is the number of ranks (MPI_Group_size).
//
// Experimental: it may change in any release.
func (g Group) Size() int { return len(g.ranks) }

// Rank is this process's rank in the group, or Undefined if it is not a member (MPI_Group_rank).
//
// Experimental: it may change in any release.
func (g Group) Rank() int { return g.find(g.me) }

// find is the rank of a process of the job, or Undefined.
func (g Group) find(process int) int {
	if i := slices.Index(g.ranks, process); i >= 0 {
		return i
	}
	return Undefined
}

// index is the rank of each process of the group, so that operations take linear time.
func (g Group) index() map[int]int {
	at := make(map[int]int, len(g.ranks))
	for i, process := range g.ranks {
		at[process] = i
	}
	return at
}

// sameJob reports whether both groups name processes of one job. An empty group does.
func (g Group) sameJob(h Group) bool { return g.j == h.j || len(g.ranks) == 0 || len(h.ranks) == 0 }

// with is a group of the same job.
func (g Group) with(ranks []int) Group {
	if len(ranks) == 0 {
		return Group{}
	}
	return Group{g.j, g.me, ranks}
}

// marked reports for each rank of the group whether it is in the list. A rank that is no member, or
// is in the list twice, is an error.
func (g Group) marked(call, arg string, list []int) ([]bool, error) {
	in := make([]bool, len(g.ranks))
	for i, rank := range list {
		switch {
		case rank < 0 || rank >= len(g.ranks):
			return nil, fail(call, arg, ErrRank, "rank %d at index %d is not in the group, which has %d ranks from 0 on",
				rank, i, len(g.ranks))
		case in[rank]:
			return nil, fail(call, arg, ErrRank, "rank %d is there twice, again at index %d: name each rank once", rank, i)
		}
		in[rank] = true
	}
	return in, nil
}

func (g Group) incl(call, arg string, list []int) (Group, error) {
	if _, err := g.marked(call, arg, list); err != nil {
		return Group{}, err
	}
	ranks := make([]int, len(list))
	for i, rank := range list {
		ranks[i] = g.ranks[rank]
	}
	return g.with(ranks), nil
}

func (g Group) excl(call, arg string, list []int) (Group, error) {
	out, err := g.marked(call, arg, list)
	if err != nil {
		return Group{}, err
	}
	var ranks []int
	for rank, process := range g.ranks {
		if !out[rank] {
			ranks = append(ranks, process)
		}
	}
	return g.with(ranks), nil
}

// Incl returns the group of the ranks in the list, in its order (MPI_Group_incl). [ErrRank]: a rank
// is not in the group, or is in the list twice.
//
// Experimental: it may change in any release.
func (g Group) Incl(ranks []int) (Group, error) { return g.incl("MPI_Group_incl", "ranks", ranks) }

// Excl returns the group without the ranks in the list, in the order of the group (MPI_Group_excl).
// Errors are those of Incl.
//
// Experimental: it may change in any release.
func (g Group) Excl(ranks []int) (Group, error) { return g.excl("MPI_Group_excl", "ranks", ranks) }

// Range is the ranks First, First+Stride, and so on, up to Last. Stride is negative if Last is
// below First, and never 0.
//
// Experimental: it may change in any release.
type Range struct{ First, Last, Stride int }

// expand lists the ranks of the ranges. It stops at the first rank that is not in the group: marked
// reports that one.
func (g Group) expand(call string, ranges []Range) ([]int, error) {
	var list []int
	for i, r := range ranges {
		if r.Stride == 0 || (r.Last > r.First && r.Stride < 0) || (r.Last < r.First && r.Stride > 0) {
			return nil, fail(call, "ranges", ErrArg, "range %d goes from %d to %d by %d, and never arrives",
				i, r.First, r.Last, r.Stride)
		}
		for rank := r.First; ; rank += r.Stride {
			list = append(list, rank)
			if rank < 0 || rank >= len(g.ranks) || len(list) > len(g.ranks) {
				return list, nil
			}
			// Distances are unsigned: they are right for every Last and Stride.
			left, step := uint64(r.Last)-uint64(rank), uint64(r.Stride)
			if r.Stride < 0 {
				left, step = -left, -step
			}
			if step > left {
				break
			}
		}
	}
	return list, nil
}

// RangeIncl is Incl of the ranks of the ranges (MPI_Group_range_incl). [ErrArg]: a range's stride
// is 0, or leads away from Last.
//
// Experimental: it may change in any release.
func (g Group) RangeIncl(ranges []Range) (Group, error) {
	const call = "MPI_Group_range_incl"
	list, err := g.expand(call, ranges)
	if err != nil {
		return Group{}, err
	}
	return g.incl(call, "ranges", list)
}

// RangeExcl is Excl of the ranks of the ranges (MPI_Group_range_excl). Errors are those of
// RangeIncl.
//
// Experimental: it may change in any release.
func (g Group) RangeExcl(ranges []Range) (Group, error) {
	const call = "MPI_Group_range_excl"
	list, err := g.expand(call, ranges)
	if err != nil {
		return Group{}, err
	}
	return g.excl(call, "ranges", list)
}

// Union returns the ranks of g, and then those of h that are not in g, in the order of h
// (MPI_Group_union). [ErrGroup]: the groups come from two calls of Init.
//
// Experimental: it may change in any release.
func (g Group) Union(h Group) (Group, error) {
	switch {
	case !g.sameJob(h):
		return Group{}, fail("MPI_Group_union", "group2", ErrGroup,
			"it comes from another Init than group1: give groups of one job")
	case len(g.ranks) == 0:
		return h, nil
	}
	in, ranks := g.index(), slices.Clone(g.ranks)
	for _, process := range h.ranks {
		if _, ok := in[process]; !ok {
			ranks = append(ranks, process)
		}
	}
	return g.with(ranks), nil
}

// keep is the ranks of g that are members of h, or that are not.
func (g Group) keep(h Group, members bool) Group {
	var in map[int]int
	if g.sameJob(h) {
		in = h.index()
	}
	var ranks []int
	for _, process := range g.ranks {
		if _, ok := in[process]; ok == members {
			ranks = append(ranks, process)
		}
	}
	return g.with(ranks)
}

// Intersection returns the ranks of g that are also in h, in the order of g
// (MPI_Group_intersection).
//
// Experimental: it may change in any release.
func (g Group) Intersection(h Group) Group { return g.keep(h, true) }

// Difference returns the ranks of g that are not in h, in the order of g (MPI_Group_difference).
//
// Experimental: it may change in any release.
func (g Group) Difference(h Group) Group { return g.keep(h, false) }

// Translate returns for each rank of g the same process's rank in h, or Undefined if it is not in h
// (MPI_Group_translate_ranks). ProcNull stays ProcNull. [ErrRank]: a rank is not in g.
//
// Experimental: it may change in any release.
func (g Group) Translate(ranks []int, h Group) ([]int, error) {
	var in map[int]int
	if g.sameJob(h) {
		in = h.index()
	}
	to := make([]int, len(ranks))
	for i, rank := range ranks {
		if rank == ProcNull {
			to[i] = ProcNull
			continue
		}
		if rank < 0 || rank >= len(g.ranks) {
			return nil, fail("MPI_Group_translate_ranks", "ranks1", ErrRank,
				"rank %d at index %d is not in the group, which has %d ranks from 0 on", rank, i, len(g.ranks))
		}
		to[i] = Undefined
		if at, ok := in[g.ranks[rank]]; ok {
			to[i] = at
		}
	}
	return to, nil
}

// Comparison is the result of comparing groups.
//
// Experimental: it may change in any release.
type Comparison int

// The comparisons.
//
// Experimental: they may change in any release.
const (
	Ident   Comparison = iota // MPI_IDENT: the same members in the same order
	Similar                   // MPI_SIMILAR: the same members in another order
	Unequal                   // MPI_UNEQUAL
)

// String is the name in MPI.
//
// Experimental: it may change in any release.
func (c Comparison) String() string {
	switch c {
	case Ident:
		return "MPI_IDENT"
	case Similar:
		return "MPI_SIMILAR"
	}
	return "MPI_UNEQUAL"
}

// Compare compares two groups (MPI_Group_compare).
//
// Experimental: it may change in any release.
func (g Group) Compare(h Group) Comparison {
	switch {
	case len(g.ranks) != len(h.ranks) || !g.sameJob(h):
		return Unequal
	case slices.Equal(g.ranks, h.ranks):
		return Ident
	case g.Difference(h).Size() == 0:
		return Similar
	}
	return Unequal
}

// members checks that the group is part of the communicator, and lists its ranks in it.
func (c *Comm) members(call string, g Group) ([]int, error) {
	if err := c.intra(call); err != nil {
		return nil, err
	}
	list, err := g.Translate(ranksTo(len(g.ranks)), c.Group())
	if err != nil {
		return nil, err
	}
	if i := slices.Index(list, Undefined); i >= 0 {
		return nil, fail(call, "group", ErrGroup, "its rank %d is not in %s: give a part of that communicator's group",
			i, c.Name())
	}
	return list, nil
}

// ranksTo lists 0 to n-1.
func ranksTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// sub makes a communicator of some ranks. It is a collective of all ranks of c. Each gives the
// members of its own part, which are the same list at all of them, and is in no other part. A rank
// that is not in its list gets nil.
func (c *Comm) sub(ctx context.Context, call string, members []int, name string) (*Comm, error) {
	if err := c.intra(call); err != nil {
		return nil, err
	}
	ids := make([]uint64, len(c.ranks))
	if err := allgatherPlan(c, call, []uint64{c.j.e.NewContext()}, ids).do(ctx); err != nil {
		return nil, err
	}
	rank := slices.Index(members, c.rank)
	if rank < 0 {
		return nil, nil //nolint:nilnil // MPI_COMM_NULL
	}
	return c.part(ids[members[0]], rank, members, name), nil
}

// part is a communicator of some ranks of c.
func (c *Comm) part(id uint64, rank int, members []int, name string) *Comm {
	ranks := make([]int, len(members))
	for i, m := range members {
		ranks[i] = c.ranks[m]
	}
	return newComm(c.j, id, rank, ranks, c.Name()+" "+name).like(c)
}

// Create makes a communicator of a group's ranks, in the order of the group (MPI_Comm_create,
// chapter Groups, Contexts, Communicators, and Caching). It is a collective of all ranks of c.
// Ranks may give different groups if these have no rank in common: each rank gives the group that
// it is a member of. A rank that is not in its group gets nil. [ErrGroup]: the group is not part of
// c.
//
// Experimental: it may change in any release.
func (c *Comm) Create(ctx context.Context, g Group) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_create"
	members, err := c.members(call, g)
	if err != nil {
		return nil, err
	}
	return c.sub(ctx, call, members, "create")
}

// MaxGroupTag is the largest tag of CreateGroup.
//
// Experimental: it may change in any release.
const MaxGroupTag = MaxTag - 2

// CreateGroup is Create that only the members of the group call (MPI_Comm_create_group, chapter
// Groups, Contexts, Communicators, and Caching). All give the same group and tag. Calls at the same
// time, from several goroutines, have tags of their own. They disturb no other collectives of c. A
// rank of c that is gone, and not in the group, does not matter. A rank that is not in the group
// gets nil at once.
//
// Errors: [ErrGroup] if the group is not part of c; [ErrTag]; [ErrProcFailed] if a member is gone.
//
// Experimental: it may change in any release.
func (c *Comm) CreateGroup(ctx context.Context, g Group, tag int) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_create_group"
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case tag < 0 || tag > MaxGroupTag:
		return nil, fail(call, "tag", ErrTag, "it is %d, want 0 to %d", tag, MaxGroupTag)
	}
	members, err := c.members(call, g)
	if err != nil {
		return nil, err
	}
	rank := slices.Index(members, c.rank)
	if rank < 0 {
		return nil, nil //nolint:nilnil // MPI_COMM_NULL
	}
	id := []uint64{0}
	if rank == 0 {
		id[0] = c.j.e.NewContext()
	}
	b, err := bytesOf(call, id)
	if err != nil {
		return nil, err
	}
	// The round is among the group's ranks alone, in c's context of collectives. Its tags are
	// negative, and below AnyTag: those of other collectives are not.
	r := &round{newComm(c.j, c.id, rank, g.ranks, c.Name()), call, AnyTag - 1 - tag}
	t := r.c.rotated(0)
	if err := t.down(ctx, r, func(branch) []byte { return b }); err != nil {
		return nil, err
	}
	return c.part(id[0], rank, members, "create"), nil
}
