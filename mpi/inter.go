package mpi

import (
	"cmp"
	"context"
	"slices"

	engine "github.com/vmmc-go/vmmc/internal/mpi"
)

// Root is the root of a collective of an intercommunicator at the rank that is the root. Others of its
// group give [ProcNull], and those of the other group the rank of the root (MPI_ROOT). At ranks that give
// ProcNull the collective does nothing, and buffers are not used.
//
// Experimental: it may change in any release.
const Root = -4

// An intercommunicator is a Comm with a remote group. Its messages go to ranks of that one. Each
// group has a communicator of its own, local, for the parts of collectives that are within the group.
// Both groups use the same context for that, which is revoked with the intercommunicator's. A
// collective fails in both groups if a rank of either is gone, because all of its messages do.

// newInter makes an intercommunicator. first reports whether this group is the first one in an order
// that both know.
func newInter(j *job, id uint64, rank int, ranks, remote []int, first bool, name string) *Comm {
	c := newComm(j, id, rank, ranks, name)
	c.peers, c.first = remote, first
	c.all = slices.Concat(remote, ranks)
	c.local = newComm(j, engine.LocalContext(id), rank, ranks, name+" local")
	c.local.all = slices.Concat(ranks, remote)
	return c
}

// Inter reports whether the communicator is an intercommunicator (MPI_Comm_test_inter).
//
// Experimental: it may change in any release.
func (c *Comm) Inter() bool { return c.local != nil }

// RemoteSize is the number of ranks of the other group of an intercommunicator, and 0 otherwise
// (MPI_Comm_remote_size).
//
// Experimental: it may change in any release.
func (c *Comm) RemoteSize() int { return c.RemoteGroup().Size() }

// RemoteGroup is the other group of an intercommunicator, and empty otherwise (MPI_Comm_remote_group).
//
// Experimental: it may change in any release.
func (c *Comm) RemoteGroup() Group {
	if !c.Inter() {
		return Group{}
	}
	return c.Group().with(c.peers)
}

// intra is an error of calls that intercommunicators do not have, nor communicators that are freed.
func (c *Comm) intra(call string) error {
	if err := c.live(call); err != nil {
		return err
	}
	if c.Inter() {
		return fail(call, "comm", ErrComm, "%s is an intercommunicator, which has no such call: make a communicator of both groups by Merge",
			c.Name())
	}
	return nil
}

// Intercomm makes an intercommunicator of the ranks of c and those of another communicator, which has
// no rank of c (MPI_Intercomm_create, chapter Groups, Contexts, Communicators, and Caching). It is
// a collective of both. One rank of c is its leader, and reaches the leader of the others by another
// communicator, peer, with a tag that no other message of the two has. At other ranks peer,
// remoteLeader and tag do not matter.
//
// Point-to-point calls of an intercommunicator name ranks of the other group. Its collectives give each
// group what comes from the other one. Those with a root have [Root] at the root. Scan, Exscan and the
// collectives of topologies are [ErrComm].
//
// Errors: [ErrRank]: a leader is no rank of its communicator; [ErrTag]; [ErrComm], at all ranks:
// a rank is in both groups, or a communicator cannot be used. A leader that waits for the other group
// does not hear that c is revoked: only its context ends that.
//
// Experimental: it may change in any release.
func (c *Comm) Intercomm(ctx context.Context, leader int, peer *Comm, remoteLeader, tag int) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Intercomm_create"
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case leader < 0 || leader >= len(c.ranks):
		return nil, c.badRank(call, "local_leader", leader)
	}
	if err := c.intra(call); err != nil {
		return nil, err
	}
	var met meeting
	var bad error
	if c.rank == leader {
		met, bad = c.meet(ctx, call, peer, remoteLeader, tag)
	}
	// The leader tells the others also that it has failed, so that they do not wait for ever.
	head := []int64{int64(met.id), int64(len(met.remote)), 0}
	if met.first {
		head[2] = 1
	}
	r := c.begin(call)
	if err := bcastPlan(c, call, head, leader).run(ctx, r); err != nil {
		return nil, err
	}
	switch {
	case bad != nil:
		return nil, bad
	case head[1] == 0:
		return nil, fail(call, "", ErrComm, "the leader, rank %d, does not reach the other group: its error says why", leader)
	}
	remote := make([]int64, head[1])
	copy(remote, met.remote)
	if err := bcastPlan(c, call, remote, leader).run(ctx, r); err != nil {
		return nil, err
	}
	return newInter(c.j, uint64(head[0]), c.rank, c.ranks, intsOf(remote), head[2] != 0, c.Name()+" intercomm").like(c), nil
}

// meeting is what the leaders of two groups tell each other.
type meeting struct {
	id     uint64
	remote []int64 // ranks in the job
	first  bool
}

// meet exchanges the groups with the other leader. Both take the context of the one that is first in
// the job.
func (c *Comm) meet(ctx context.Context, call string, peer *Comm, remoteLeader, tag int) (m meeting, err error) {
	switch {
	case peer == nil:
		return m, fail(call, "peer_comm", ErrComm, "it is nil")
	case peer.j != c.j:
		return m, fail(call, "peer_comm", ErrComm, "it comes from another Init: give a communicator of one job")
	case remoteLeader < 0 || remoteLeader >= len(peer.peers):
		return m, peer.badRank(call, "remote_leader", remoteLeader)
	case tag < 0 || tag > MaxTag:
		return m, fail(call, "tag", ErrTag, "it is %d, want 0 to %d", tag, MaxTag)
	}
	mine, theirs := []int64{int64(c.j.e.NewContext()), int64(len(c.ranks))}, []int64{0, 0}
	if _, err := Sendrecv(ctx, peer, mine, remoteLeader, tag, theirs, remoteLeader, tag); err != nil {
		return m, err
	}
	if n := theirs[1]; n < 1 || n > int64(c.j.e.Size()) {
		return m, fail(call, "peer_comm", ErrComm, "the other leader has a group of %d ranks, and the job has %d", n, c.j.e.Size())
	}
	ours, remote := make([]int64, len(c.ranks)), make([]int64, theirs[1])
	for i, rank := range c.ranks {
		ours[i] = int64(rank)
	}
	if _, err := Sendrecv(ctx, peer, ours, remoteLeader, tag, remote, remoteLeader, tag); err != nil {
		return m, err
	}
	for _, rank := range remote {
		switch {
		case slices.Contains(ours, rank):
			return m, fail(call, "local_comm", ErrComm, "rank %d of the job is in both groups: give groups with no rank in common", rank)
		case rank < 0 || int(rank) >= c.j.e.Size():
			return m, fail(call, "peer_comm", ErrComm, "the other leader names rank %d, and the job has %d", rank, c.j.e.Size())
		}
	}
	m = meeting{uint64(mine[0]), remote, c.ranks[c.rank] < peer.peers[remoteLeader]}
	if !m.first {
		m.id = uint64(theirs[0])
	}
	return m, nil
}

func intsOf(list []int64) []int {
	ints := make([]int, len(list))
	for i, v := range list {
		ints[i] = int(v)
	}
	return ints
}

// within is a round of the local group, as a part of one of the intercommunicator.
func (r *round) within() *round { return &round{r.c.local, r.call, r.tag} }

// Merge makes a communicator of both groups of an intercommunicator (MPI_Intercomm_merge, chapter
// Groups, Contexts, Communicators, and Caching). It is a collective of both. The ranks of the group
// that gives high as false are first. If both groups give the same, either is. [ErrArg], at all ranks:
// the ranks of one group do not agree. [ErrComm]: c is no intercommunicator.
//
// Experimental: it may change in any release.
func (c *Comm) Merge(ctx context.Context, high bool) (_ *Comm, err error) {
	defer func() { err = c.raise(err) }()
	const call = "MPI_Intercomm_merge"
	switch {
	case ctx == nil:
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	case !c.Inter():
		return nil, fail(call, "intercomm", ErrComm, "%s is no intercommunicator", c.Name())
	}
	mine := []int64{int64(c.j.e.NewContext()), 0}
	if high {
		mine[1] = 1
	}
	ours, theirs, err := c.allOf(ctx, call, mine)
	if err != nil {
		return nil, err
	}
	for _, all := range [][]int64{ours, theirs} {
		for i := 1; i < len(all); i += 2 {
			if all[i] != all[1] {
				return nil, fail(call, "high", ErrArg, "ranks 0 and %d of one group give different values: give the same", i/2)
			}
		}
	}
	first := c.first
	if ours[1] != theirs[1] {
		first = ours[1] == 0
	}
	if first {
		return newComm(c.j, uint64(ours[0]), c.rank, slices.Concat(c.ranks, c.peers), c.Name()+" merge").like(c), nil
	}
	return newComm(c.j, uint64(theirs[0]), len(c.peers)+c.rank, slices.Concat(c.peers, c.ranks), c.Name()+" merge").like(c), nil
}

// allOf gives all ranks of an intercommunicator the values of all ranks of both groups.
func (c *Comm) allOf(ctx context.Context, call string, mine []int64) (ours, theirs []int64, err error) {
	ours, theirs = make([]int64, len(mine)*len(c.ranks)), make([]int64, len(mine)*len(c.peers))
	r := c.begin(call)
	if err := allgatherPlan(c, call, mine, theirs).execute(ctx, r); err != nil {
		return nil, nil, err
	}
	err = allgatherPlan(c.local, call, mine, ours).run(ctx, r.within())
	return ours, theirs, err
}

// splitInter is Split of an intercommunicator. Each group is split. Parts of the same color make an
// intercommunicator.
func (c *Comm) splitInter(ctx context.Context, call string, color, key int, name string) (*Comm, error) {
	if ctx == nil {
		return nil, fail(call, "ctx", ErrArg, "the context is nil")
	}
	ours, theirs, err := c.allOf(ctx, call, []int64{int64(color), int64(key), int64(c.j.e.NewContext())})
	if err != nil || color == Undefined {
		return nil, err
	}
	part := func(all []int64, in []int) (members []int) {
		for rank := range in {
			if all[3*rank] == int64(color) {
				members = append(members, rank)
			}
		}
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[3*a+1], all[3*b+1]) })
		return members
	}
	here, there := part(ours, c.ranks), part(theirs, c.peers)
	if len(there) == 0 {
		return nil, nil //nolint:nilnil // MPI_COMM_NULL
	}
	process := func(members, in []int) []int {
		list := make([]int, len(members))
		for i, rank := range members {
			list[i] = in[rank]
		}
		return list
	}
	ranks, remote := process(here, c.ranks), process(there, c.peers)
	first := ranks[0] < remote[0]
	id := ours[3*here[0]+2]
	if !first {
		id = theirs[3*there[0]+2]
	}
	return newInter(c.j, uint64(id), slices.Index(here, c.rank), ranks, remote, first, c.Name()+" "+name).like(c), nil
}
