package mpi

import (
	"context"
	"slices"

	"github.com/vmmc-go/vmmc"
)

// branch is a child of a rank in a tree, or the rank's own part of it. In a binomial tree it is the
// positions from first up to end, counted from the rank's own one.
type branch struct{ rank, first, end int }

// tree is a rank's place in a tree of ranks.
type tree struct {
	parent   int // -1 at the root
	own      branch
	children []branch // from the smallest branch to the largest
}

// binomial is the place of the rank at a position in a binomial tree. ranks are in the order of
// positions, and the root is the first one.
func binomial(ranks []int, at int) tree {
	n, d := len(ranks), 1
	t := tree{parent: -1}
	for ; d < n; d *= 2 {
		if at&d != 0 {
			t.parent = ranks[at-d]
			break
		}
		if at+d < n {
			t.children = append(t.children, branch{ranks[at+d], d, min(2*d, n-at)})
		}
	}
	t.own = branch{ranks[at], 0, min(d, n-at)}
	return t
}

// rotated is a binomial tree of all ranks of a communicator, in the order of ranks from the root
// on.
func (c *Comm) rotated(root int) tree {
	n := len(c.ranks)
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = (root + i) % n
	}
	return binomial(ranks, (c.rank-root+n)%n)
}

// up receives each child's branch, the smallest first, merges it, and then sends this rank's own
// branch to the parent.
func (t *tree) up(
	ctx context.Context, r *round, part func(branch) []byte, merge func(branch),
) error {
	for _, child := range t.children {
		if err := r.recv(ctx, part(child), child.rank); err != nil {
			return err
		}
		merge(child)
	}
	if t.parent < 0 {
		return nil
	}
	return r.send(ctx, part(t.own), t.parent)
}

// down receives this rank's branch from the parent, and sends each child its own, the largest
// first.
func (t *tree) down(ctx context.Context, r *round, part func(branch) []byte) error {
	if t.parent >= 0 {
		if err := r.recv(ctx, part(t.own), t.parent); err != nil {
			return err
		}
	}
	for _, child := range slices.Backward(t.children) {
		if err := r.send(ctx, part(child), child.rank); err != nil {
			return err
		}
	}
	return nil
}

// nothing is the part of a branch in a tree that only synchronizes.
func nothing(branch) []byte { return nil }

// kept merges a branch that its part has received in place.
func kept(branch) {}

// layout says which ranks of a communicator share a node.
type layout struct {
	node    []int   // index of each rank's node
	members [][]int // ranks of each node, upwards
	leaders []int   // the first rank of each node
	ordered bool    // reports whether the ranks of each node follow one another
}

// layout finds out which ranks share a node. It is the same at all ranks.
func (c *Comm) layout() *layout {
	c.layoutOnce.Do(func() {
		l := &layout{node: make([]int, len(c.ranks)), ordered: true}
		at := map[vmmc.NodeID]int{}
		for rank, process := range c.ranks {
			id := c.j.e.Node(process)
			i, ok := at[id]
			if !ok {
				i = len(l.members)
				at[id] = i
				l.members = append(l.members, nil)
				l.leaders = append(l.leaders, rank)
			} else if l.node[rank-1] != i {
				l.ordered = false
			}
			l.node[rank] = i
			l.members[i] = append(l.members[i], rank)
		}
		c.laidOut = l
	})
	return c.laidOut
}

// byNode lists all ranks, node by node.
func (l *layout) byNode() []int { return slices.Concat(l.members...) }

// local is a rank's place in the tree of its node, whose root is the node's first rank.
func (l *layout) local(rank int) tree {
	members := l.members[l.node[rank]]
	return binomial(members, slices.Index(members, rank))
}

// tree is a rank's place in a tree of all ranks: a binomial tree of one rank of each node, and
// below each of these a binomial tree of its node. So each node but the root's receives one message
// from another node. Branches have no positions.
func (l *layout) tree(root, rank int) tree {
	home, n := l.node[root], len(l.members)
	leader := func(node int) int {
		if node == home {
			return root
		}
		return l.leaders[node]
	}
	node := l.node[rank]
	members, first := l.members[node], leader(node)
	if i := slices.Index(members, first); i > 0 {
		members = slices.Concat(members[i:], members[:i])
	}
	t := binomial(members, slices.Index(members, rank))
	if rank == first && n > 1 {
		leaders := make([]int, n)
		for i := range leaders {
			leaders[i] = leader((home + i) % n)
		}
		above := binomial(leaders, (node-home+n)%n)
		t.parent, t.children = above.parent, append(t.children, above.children...)
	}
	return t
}
