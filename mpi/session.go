package mpi

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// The sets of processes that every session knows.
//
// Experimental: they may change in any release.
const (
	PsetWorld = "mpi://WORLD" // all ranks of the job
	PsetSelf  = "mpi://SELF"  // this rank
)

// Session is one user of MPI in this program, as a library is one (MPI_Session, chapter Process
// Initialization, Creation, and Management). Sessions make communicators of sets of processes, and need no
// communicator of all ranks. Those of a program share the job.
//
// Experimental: it may change in any release.
type Session struct {
	of *sharedJob

	mu   sync.Mutex
	over bool // Guarded by mu.
}

// sharedJob is the job of the sessions of a program, or of a group that it has joined.
type sharedJob struct {
	mu    sync.Mutex
	world *Comm // Guarded by mu. nil: no session has begun it.
	open  int   // sessions. Guarded by mu.
	ended bool  // Guarded by mu.
}

// sharedJobs are by the group of [WithGroup], which is nil for the program's own.
var sharedJobs sync.Map

// NewSession begins a session (MPI_Session_init). The first one of a program begins its job as [Init] does,
// with the same options and errors: it waits until all ranks of the job have begun one, or have called Init.
// A program has sessions or calls Init. After the end of the last session there is no other one: [ErrOther].
//
// Experimental: it may change in any release.
func NewSession(ctx context.Context, opts ...Option) (*Session, error) {
	const call = "MPI_Session_init"
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	found, _ := sharedJobs.LoadOrStore(o.g, &sharedJob{})
	s := found.(*sharedJob) //nolint:forcetypeassert // No other type is stored.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, fail(call, "", ErrOther, "the job has ended with its last session: end that one later")
	}
	if s.world == nil {
		world, err := Init(ctx, opts...)
		if err != nil {
			return nil, err
		}
		s.world = world
	}
	s.open++
	return &Session{of: s}, nil
}

// Psets are the names of the sets of processes (MPI_Session_get_num_psets, MPI_Session_get_nth_pset).
//
// Experimental: it may change in any release.
func (s *Session) Psets() []string { return []string{PsetWorld, PsetSelf} }

// Group is a set of processes (MPI_Group_from_session_pset). [ErrArg]: there is none of this name.
//
// Experimental: it may change in any release.
func (s *Session) Group(pset string) (Group, error) {
	const call = "MPI_Group_from_session_pset"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return Group{}, fail(call, "session", ErrOther, "the session has ended")
	}
	g, ok := s.of.world.Pset(pset)
	if !ok {
		return Group{}, fail(call, "pset_name", ErrArg, "%.64q is no set of processes: there are %q", pset, s.Psets())
	}
	return g, nil
}

// Pset is a set of processes of the communicator's job. ok reports whether there is one of this name.
//
// Experimental: it may change in any release.
func (c *Comm) Pset(name string) (g Group, ok bool) {
	switch j := c.j.home(); name {
	case PsetWorld:
		return j.world.Group(), true
	case PsetSelf:
		return j.self.Group(), true
	}
	return Group{}, false
}

// Finalize ends the session (MPI_Session_finalize). The last one of a program ends the job, as
// [Comm.Finalize] does. After an error of the context call it again.
//
// Experimental: it may change in any release.
func (s *Session) Finalize(ctx context.Context) error {
	const call = "MPI_Session_finalize"
	if ctx == nil {
		return fail(call, "ctx", ErrArg, "the context is nil")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return fail(call, "session", ErrOther, "the session has ended")
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.open == 1 {
		if err := s.of.world.Finalize(ctx); err != nil {
			return err
		}
		s.of.ended = true
	}
	s.of.open--
	s.over = true
	return nil
}

// fromGroups is the communicator whose messages agree on communicators that are made of groups alone.
func (g Group) fromGroups() *Comm {
	return newComm(g.j, engine.ShadowContext(g.j.world.id), g.j.e.Rank(), ranksTo(g.j.e.Size()), "the job")
}

// tagOf is a tag for a text.
func tagOf(text string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return int(h.Sum32() % MaxGroupTag)
}

// CommFromGroup makes a communicator of a group's ranks, in the order of the group (MPI_Comm_create_from_group).
// It is a collective of these alone. All give the same group and tag. Calls at the same time, from several
// goroutines, have tags of their own. An empty group gives nil. [ErrGroup]: this rank is not in the
// group; [ErrProcFailed]: a member is gone.
//
// Experimental: it may change in any release.
func CommFromGroup(ctx context.Context, g Group, tag string) (*Comm, error) {
	const call = "MPI_Comm_create_from_group"
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case g.Size() == 0:
		return nil, nil //nolint:nilnil // MPI_COMM_NULL
	case g.Rank() == Undefined:
		return nil, fail(call, "group", ErrGroup, "this rank is no member of it: only members make the communicator")
	}
	id := []uint64{0}
	if g.Rank() == 0 {
		id[0] = g.j.e.NewContext()
	}
	b, err := bytesOf(call, id)
	if err != nil {
		return nil, err
	}
	// The tags are those of CreateGroup.
	r := &round{newComm(g.j, g.fromGroups().id, g.Rank(), g.ranks, "the job"), call, AnyTag - 1 - tagOf(tag)}
	t := r.c.rotated(0)
	if err := t.down(ctx, r, func(branch) []byte { return b }); err != nil {
		return nil, err
	}
	return newComm(g.j, id[0], g.Rank(), g.ranks, tag), nil
}

// IntercommFromGroups makes an intercommunicator of two groups that have no rank in common
// (MPI_Intercomm_create_from_groups). It is a collective of both. All ranks give their own group as local, the
// ranks of both leaders, and the same tag. [ErrGroup]: this rank is not in its group, or a rank is in both;
// [ErrRank]: a leader is no rank of its group.
//
// Experimental: it may change in any release.
func IntercommFromGroups(ctx context.Context, local Group, leader int, remote Group, remoteLeader int, tag string) (*Comm, error) {
	const call = "MPI_Intercomm_create_from_groups"
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case local.Rank() == Undefined:
		return nil, fail(call, "local_group", ErrGroup, "this rank is no member of it")
	case leader < 0 || leader >= local.Size():
		return nil, fail(call, "local_leader", ErrRank, "it is %d, and the group has %d ranks", leader, local.Size())
	case remoteLeader < 0 || remoteLeader >= remote.Size():
		return nil, fail(call, "remote_leader", ErrRank, "it is %d, and the group has %d ranks", remoteLeader, remote.Size())
	case local.j != remote.j:
		return nil, fail(call, "remote_group", ErrGroup, "it is of another job: connect with that by Connect")
	case slices.ContainsFunc(remote.ranks, func(rank int) bool { return slices.Contains(local.ranks, rank) }):
		return nil, fail(call, "remote_group", ErrGroup, "a rank is in both groups")
	}
	c, err := CommFromGroup(ctx, local, tag)
	if err != nil {
		return nil, err
	}
	inter, err := c.Intercomm(ctx, leader, local.fromGroups(), remote.ranks[remoteLeader], tagOf(tag))
	if err != nil {
		return nil, err
	}
	inter.name = tag
	return inter, c.Free()
}
