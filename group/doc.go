// Package group makes one group of the programs that vmmc run -n has started: each has a rank,
// finds the others by theirs, and meets them in barriers.
//
//	p, err := vmmc.Open(ctx)
//	g, err := group.Join(ctx, p)                                  // rank g.Rank() of g.Size()
//	sums, err := group.Exchange(ctx, g, mySum)                    // one value of each member
//	s, err := group.Share[float64](ctx, g, 1000)                  // memory of each member
//	right, err := s.Of(ctx, (g.Rank()+1)%g.Size())
//	err = right.Put(ctx, 0, values)
//	err = g.Barrier(ctx)                                          // all values are in place
//
// A program that was started otherwise is a group of size 1.
//
// # Collectives
//
// [Group.Barrier], [Exchange] and [Share] are collectives: all members call the same ones in the
// same order, each from one goroutine at a time. A call returns nil when all members have made it.
// A member that waits for another one is bounded by its context alone. When the context ends, the
// others wait on: make the same call again, and it goes on where it was. The value of an Exchange
// is that of the first of these calls. After any other error than [MemberGoneError] the others wait
// on, too.
//
// When a member has died, has left or cannot be reached, the collective that it has not entered
// fails at every member with [MemberGoneError], and so do all later ones. If it dies within a
// collective, that one may return nil at some members and MemberGoneError at others; the next one
// fails at all. A stopped process is not gone for the members of its node, which wait for it. Those
// of other nodes give it up as one that cannot be reached, after [vmmc.WithSilence] and
// [vmmc.WithResume].
//
// # Cost
//
// A member has links with 2⌈log2 n⌉ others, which its first collective makes. A barrier takes a
// [vmmc.Process.Fence], which is a round trip on each link between nodes that has been sent over
// since, and ⌈log2 n⌉ rounds of one word. A group has at most 4,096 members.
//
// Experimental: this package may change in any release.
package group

// Where to change what:
//
//   - a barrier, what a member stores in its partners' blocks, how a failed collective ends:
//     barrier.go
//   - the value of each member (Exchange): exchange.go; memory of each member (Share): share.go
//   - the words of a member's block: layout.go
//   - links with partners, floods of a failure, notices that a member has died: partner.go
//   - what the programs of one vmmc run find: internal/nodeproto/group.go
//
// docs/groups.md has the protocol, and docs/models/group.pml the model.
//
// A partner is a member that this one has a link with, and a block is what a member exports for its
// partners. Dissemination is the rounds of a barrier. In a flood partners pass a failure on to
// theirs. A death notice is a notification that a member has died.
