package nodeproto

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/hosts"
)

// What a program of a group finds in its environment.
const (
	GroupEnv = "VMMC_GROUP" // the group, see [ParseGroup]
	RankEnv  = "VMMC_RANK"  // the program's number in it, from 0 on
	SizeEnv  = "VMMC_SIZE"  // how many there are
)

// What a rank of package mpi finds, too.
const (
	ParentEnv = "VMMC_MPI_PARENT" // of a job that another one has spawned: what connects it
	AppNumEnv = "VMMC_MPI_APPNUM" // the number of its command, from 0 on
	// UniverseEnv is how many ranks the nodes of the job have room for.
	UniverseEnv = "VMMC_MPI_UNIVERSE"

	// LifelineEnv has the descriptors of two pipes with vmmc mpirun, and their inodes.
	LifelineEnv = "VMMC_MPI_LIFELINE"
)

// MaxGroup bounds a group's text, in bytes.
const MaxGroup = 16 << 10

const (
	groupVersion = "1"
	groupIDBytes = 16
)

// Group says on which nodes the programs of a group run.
type Group struct {
	ID    string // 32 hexadecimal digits
	Parts []Part // in the order of ranks; two that follow each other are on different nodes
}

// Part is the programs of a group on one node.
type Part struct {
	Node  string
	Count int
}

// ParseGroup reads a group: "1:ID:n1*4,n2*3", where "*1" may be left out. A node may come again
// behind another one, as in "1:ID:n1,n2,n1".
func ParseGroup(s string) (g Group, err error) {
	bad := func(format string, args ...any) (Group, error) {
		return Group{}, code.New(code.BadConfig, "%s: %s", GroupEnv, fmt.Sprintf(format, args...))
	}
	if len(s) > MaxGroup {
		return bad("it has %d bytes, at most %d are possible", len(s), MaxGroup)
	}
	version, rest, _ := strings.Cut(s, ":")
	id, parts, found := strings.Cut(rest, ":")
	switch b, err := hex.DecodeString(id); {
	case version != groupVersion:
		return bad("it has version %.16q, want %q", version, groupVersion)
	case !found || err != nil || len(b) != groupIDBytes || strings.ToLower(id) != id:
		return bad("its ID %.40q is not %d hexadecimal digits", id, 2*groupIDBytes)
	}
	g.ID = id
	size := 0
	for part := range strings.SplitSeq(parts, ",") {
		node, count, counted := strings.Cut(part, "*")
		p := Part{Node: hosts.Canonical(node), Count: 1}
		if err := hosts.CheckName(node); err != nil {
			return bad("%v is no node", err)
		}
		if counted {
			n, err := strconv.ParseUint(count, 10, 31)
			if err != nil || n == 0 {
				return bad("%.16q is not a number of programs on node %q", count, p.Node)
			}
			p.Count = int(n)
		}
		if size > math.MaxInt32-p.Count {
			return bad("it has more than %d programs", math.MaxInt32)
		}
		if n := len(g.Parts); n > 0 && g.Parts[n-1].Node == p.Node {
			return bad("node %q follows itself: count its programs together", p.Node)
		}
		size += p.Count
		g.Parts = append(g.Parts, p)
	}
	return g, nil
}

// String is the group as ParseGroup reads it.
func (g Group) String() string {
	parts := make([]string, len(g.Parts))
	for i, p := range g.Parts {
		if parts[i] = p.Node; p.Count > 1 {
			parts[i] += "*" + strconv.Itoa(p.Count)
		}
	}
	return strings.Join([]string{groupVersion, g.ID, strings.Join(parts, ",")}, ":")
}

// Size is the number of programs.
func (g Group) Size() (n int) {
	for _, p := range g.Parts {
		n += p.Count
	}
	return n
}

// NodeOf is the node of a rank, and "" of a rank out of range.
func (g Group) NodeOf(rank int) string {
	if rank < 0 {
		return ""
	}
	for _, p := range g.Parts {
		if rank < p.Count {
			return p.Node
		}
		rank -= p.Count
	}
	return ""
}

// Append adds a program of the next rank on a node.
func (g *Group) Append(node string) {
	if n := len(g.Parts); n > 0 && g.Parts[n-1].Node == node {
		g.Parts[n-1].Count++
		return
	}
	g.Parts = append(g.Parts, Part{Node: node, Count: 1})
}

// CountOn is the number of programs on a node whose ranks are lower than a rank.
func (g Group) CountOn(node string, rank int) (n int) {
	for _, p := range g.Parts {
		if p.Node == node {
			n += min(p.Count, max(rank, 0))
		}
		rank -= p.Count
	}
	return n
}

// First is the lowest rank on a node, and -1 if the group has none there.
func (g Group) First(node string) int {
	rank := 0
	for _, p := range g.Parts {
		if p.Node == node {
			return rank
		}
		rank += p.Count
	}
	return -1
}

// MemberName is the name under which the program of a rank publishes its part of the group.
func (g Group) MemberName(rank int) string { return fmt.Sprintf(".group.%s.%d", g.ID, rank) }
