package main

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
)

// groupVariables are what only this tool sets.
var groupVariables = []string{nodeproto.GroupEnv, nodeproto.RankEnv, nodeproto.SizeEnv}

// runGroup is the group of the processes that one "run -n" starts. The zero one is none.
type runGroup struct {
	nodeproto.Group
	ranks []int // of each process, in the order in which they are started
}

// newGroupID returns the ID of a new group.
func newGroupID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// newRunGroup makes a group of count processes that are started on nodes in turn. The ranks of a
// node follow each other, in the order in which its processes are started.
func newRunGroup(at []*ask.Node, count int) (g runGroup, err error) {
	g.ID = newGroupID()
	for i, n := range at[:min(len(at), count)] {
		g.Parts = append(g.Parts, nodeproto.Part{Node: n.Name, Count: (count - i + len(at) - 1) / len(at)})
	}
	for i := range count {
		g.ranks = append(g.ranks, g.First(at[i%len(at)].Name)+i/len(at))
	}
	if n := len(g.String()); n > nodeproto.MaxGroup {
		return g, code.New(code.BadConfig, "the names of %d nodes do not fit into %s (%d bytes, at most %d): run on fewer nodes", len(g.Parts),
			nodeproto.GroupEnv, n, nodeproto.MaxGroup)
	}
	return g, nil
}

// member returns the variables of process i, and the name under which it is a member.
func (g *runGroup) member(i int) (env [][]byte, name string) {
	if len(g.ranks) == 0 {
		return nil, ""
	}
	rank := g.ranks[i]
	for _, v := range groupEnv(g.Group, rank) {
		env = append(env, []byte(v))
	}
	return env, g.MemberName(rank)
}

// oneRankEnv is what the program of a job of one rank finds. It tells the rank from one of a launcher
// below which this tool runs, and whose variables it has too.
func oneRankEnv() []string {
	return []string{nodeproto.RankEnv + "=0", nodeproto.SizeEnv + "=1"}
}

// groupEnv is what the program of a rank finds.
func groupEnv(g nodeproto.Group, rank int) []string {
	return []string{
		nodeproto.GroupEnv + "=" + g.String(),
		nodeproto.RankEnv + "=" + strconv.Itoa(rank),
		nodeproto.SizeEnv + "=" + strconv.Itoa(g.Size()),
	}
}
