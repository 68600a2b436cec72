package mpi

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// Special ranks and tags.
//
// Experimental: they may change in any release.
const (
	AnySource = engine.AnySource // MPI_ANY_SOURCE
	AnyTag    = engine.AnyTag    // MPI_ANY_TAG
	ProcNull  = -3               // MPI_PROC_NULL: a message to or from no rank
	Undefined = -32766           // MPI_UNDEFINED: a color of Split that takes part in no communicator
	MaxTag    = 1<<31 - 1        // MPI_TAG_UB
)

// Comm is a communicator: ranks that send each other messages which no other communicator receives.
// Calls of one Comm may be made from any goroutine. Collectives begin in the same order at all ranks:
// blocking ones one at a time, and non-blocking ones also while others are not over.
//
// Experimental: it may change in any release.
type Comm struct {
	j     *job
	id    uint64 // context of messages; the next one is that of collectives
	rank  int
	ranks []int                  // in the job
	peers []int                  // those that messages go to: ranks, or the remote group of an intercommunicator
	all   []int                  // ranks whose end fails collectives
	local *Comm                  // of an intercommunicator: its own group; nil otherwise
	first bool                   // of an intercommunicator: reports whether its own group is the first one
	name  string                 // that it was made with
	named atomic.Pointer[string] // by SetName; nil: name
	freed atomic.Bool

	attributes attributes
	info       hintSet
	handler    atomic.Pointer[Errhandler] // nil: ErrorsReturn

	mu  sync.Mutex
	seq uint32 // collectives that were begun. Guarded by mu.

	agreements agreements
	acked      atomic.Pointer[[]int] // ranks in the job whose end was acknowledged

	layoutOnce sync.Once
	laidOut    *layout // made by layout
}

func newComm(j *job, id uint64, rank int, ranks []int, name string) *Comm {
	return &Comm{j: j, id: id, rank: rank, ranks: ranks, peers: ranks, all: ranks, name: name}
}

// Rank is this rank's number, from 0 on (MPI_Comm_rank).
//
// Experimental: it may change in any release.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks (MPI_Comm_size).
//
// Experimental: it may change in any release.
func (c *Comm) Size() int { return len(c.ranks) }

// Module is the module by which this rank reaches another one: "shm", "tcp", "via" or "self".
//
// Experimental: it may change in any release.
func (c *Comm) Module(rank int) (string, error) {
	if rank < 0 || rank >= len(c.peers) {
		return "", c.badRank("Comm.Module", "rank", rank)
	}
	return c.j.e.Module(c.peers[rank]), nil
}

func (c *Comm) badRank(call, arg string, rank int) error {
	return fail(call, arg, ErrRank, "it is %d, and %s has the ranks 0 to %d", rank, c.Name(), len(c.peers)-1)
}

// target checks where a message goes. ok is false for ProcNull.
func (c *Comm) target(call string, ctx context.Context, dest, tag int) (t engine.Target, ok bool, err error) {
	if err := c.live(call); err != nil {
		return t, false, err
	}
	switch {
	case ctx == nil:
		return t, false, fail(call, "ctx", ErrArg, "the context is nil")
	case tag < 0 || tag > MaxTag:
		return t, false, fail(call, "tag", ErrTag, "it is %d, want 0 to %d", tag, MaxTag)
	case dest == ProcNull:
		return t, false, nil
	case dest < 0 || dest >= len(c.peers):
		return t, false, c.badRank(call, "dest", dest)
	}
	return engine.Target{Context: c.id, Rank: c.peers[dest], Source: c.rank, Tag: tag, Group: c.peers}, true, nil
}

// source checks where a message comes from. ok is false for ProcNull.
func (c *Comm) source(call string, ctx context.Context, source, tag int) (s engine.Source, ok bool, err error) {
	s = engine.Source{Context: c.id, Rank: AnySource, Source: source, Tag: tag, Group: c.peers}
	if err := c.live(call); err != nil {
		return s, false, err
	}
	switch {
	case ctx == nil:
		return s, false, fail(call, "ctx", ErrArg, "the context is nil")
	case tag != AnyTag && (tag < 0 || tag > MaxTag):
		return s, false, fail(call, "tag", ErrTag, "it is %d, want AnyTag, or 0 to %d", tag, MaxTag)
	case source == ProcNull:
		return s, false, nil
	case source == AnySource:
		s.Acked = c.ackedRanks()
		return s, true, nil
	case source < 0 || source >= len(c.peers):
		return s, false, c.badRank(call, "source", source)
	}
	s.Rank = c.peers[source]
	return s, true, nil
}

// dup is Dup without attributes. Errors name the call that needs it.
func (c *Comm) dup(ctx context.Context, call string) (*Comm, error) {
	if c.Inter() {
		return c.splitInter(ctx, call, 0, c.rank, "dup")
	}
	id := []uint64{0}
	if c.rank == 0 {
		id[0] = c.j.e.NewContext()
	}
	if err := bcastPlan(c, call, id, 0).do(ctx); err != nil {
		return nil, err
	}
	return newComm(c.j, id[0], c.rank, c.ranks, c.Name()+" dup"), nil
}

// part is what each rank tells of itself in Split.
type part struct {
	color, key int64
	id         uint64
}

// Split makes a communicator of the ranks that give the same color, in the order of their keys, and
// of their ranks where keys are equal (MPI_Comm_split). It is a collective. A rank whose color is
// Undefined gets nil. An intercommunicator is split into ones of the ranks of both groups that give the
// same color: a rank gets nil if none of the other group gives its own.
//
// Experimental: it may change in any release.
func (c *Comm) Split(ctx context.Context, color, key int) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Comm_split"
	if color < 0 && color != Undefined {
		return nil, fail(call, "color", ErrArg, "it is %d, want Undefined, or 0 and up", color)
	}
	if c.Inter() {
		return c.splitInter(ctx, call, color, key, "split")
	}
	all := make([]part, len(c.ranks))
	mine := []part{{int64(color), int64(key), c.j.e.NewContext()}}
	if err := allgatherPlan(c, call, mine, all).do(ctx); err != nil {
		return nil, err
	}
	if color == Undefined {
		return nil, nil //nolint:nilnil // MPI_COMM_NULL
	}
	var members []int
	for rank, p := range all {
		if p.color == int64(color) {
			members = append(members, rank)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].key, all[b].key) })
	ranks := make([]int, len(members))
	for i, rank := range members {
		ranks[i] = c.ranks[rank]
	}
	// The first rank leads: its context is its own, so no other communicator has it.
	return newComm(c.j, all[members[0]].id, slices.Index(members, c.rank), ranks, c.Name()+" split").like(c), nil
}
