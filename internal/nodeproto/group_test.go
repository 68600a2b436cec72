package nodeproto

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/code"
)

const groupID = "00112233445566778899aabbccddeeff"

func TestParseGroup(t *testing.T) {
	g, err := ParseGroup("1:" + groupID + ":N1*4,n2,n3*3")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Group{groupID, []Part{{"n1", 4}, {"n2", 1}, {"n3", 3}}}, g); diff != "" {
		t.Error(diff)
	}
	if g.String() != "1:"+groupID+":n1*4,n2,n3*3" || g.Size() != 8 {
		t.Errorf("%v has %d programs", g, g.Size())
	}
	for rank, node := range []string{"n1", "n1", "n1", "n1", "n2", "n3", "n3", "n3", ""} {
		if got := g.NodeOf(rank); got != node {
			t.Errorf("rank %d is on node %q, want %q", rank, got, node)
		}
	}
	if g.NodeOf(-1) != "" || g.First("n1") != 0 || g.First("n2") != 4 || g.First("n3") != 5 ||
		g.First("n4") != -1 {
		t.Errorf("%q: %d %d %d %d", g.NodeOf(-1), g.First("n1"), g.First("n2"), g.First("n3"), g.First("n4"))
	}
	if name := g.MemberName(7); name != ".group."+groupID+".7" || CheckName(name) != nil {
		t.Errorf("member 7 is %q: %v", name, CheckName(name))
	}
	for s, says := range map[string]string{
		"":                                      "version",
		"2:" + groupID + ":n1":                  "version",
		"1:" + groupID:                          "its ID",
		"1::n1":                                 "its ID",
		"1:" + groupID[2:] + ":n1":              "its ID",
		"1:" + groupID + "00:n1":                "its ID",
		"1:" + strings.ToUpper(groupID) + ":n1": "its ID",
		"1:" + groupID + ":":                    "is no node",
		"1:" + groupID + ":n1,":                 "is no node",
		"1:" + groupID + ":n/1":                 "is no node",
		"1:" + groupID + ":n1*":                 "not a number",
		"1:" + groupID + ":n1*0":                "not a number",
		"1:" + groupID + ":n1*-1":               "not a number",
		"1:" + groupID + ":n1*2*3":              "not a number",
		"1:" + groupID + ":n1*2147483648":       "not a number",
		"1:" + groupID + ":n1*2147483647,n2":    "more than",
		"1:" + groupID + ":n1,n2,N2":            "follows itself",
		"1:" + groupID + ":n1*2,n1":             "follows itself",
		"1:" + strings.Repeat("x", MaxGroup):    "at most",
	} {
		if _, err := ParseGroup(s); !errors.Is(err, code.BadConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.60q: %v, want %q", s, err, says)
		}
	}
}

// The ranks of a node need not follow each other.
func TestGroupByNode(t *testing.T) {
	g := Group{ID: groupID}
	nodes := []string{"n1", "n2", "n3", "n1", "n1", "n3", "n1"}
	for _, n := range nodes {
		g.Append(n)
	}
	again, err := ParseGroup("1:" + groupID + ":n1,n2,n3,n1*2,n3,n1")
	if diff := cmp.Diff(g, again); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	before := map[string]int{}
	for rank, n := range nodes {
		if g.NodeOf(rank) != n || g.CountOn(n, rank) != before[n] {
			t.Errorf("rank %d is number %d on node %q, want %d on %q", rank, g.CountOn(n, rank), g.NodeOf(rank), before[n], n)
		}
		before[n]++
	}
	for n, count := range before {
		if got := g.CountOn(n, len(nodes)); got != count {
			t.Errorf("node %q has %d programs, want %d", n, got, count)
		}
	}
}

// FuzzParseGroup: a group that is accepted is written as it was read, and each rank has a node.
func FuzzParseGroup(f *testing.F) {
	f.Add("1:" + groupID + ":n1*4,n2,n3*3")
	f.Add("1:" + groupID + ":n1*2147483647")
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGroup(s)
		if err != nil {
			return
		}
		again, err := ParseGroup(g.String())
		if diff := cmp.Diff(g, again); err != nil || diff != "" {
			t.Errorf("%q is written as %q: %v %s", s, g, err, diff)
		}
		for _, p := range g.Parts {
			if g.NodeOf(g.First(p.Node)) != p.Node {
				t.Errorf("%q: rank %d is not on node %q", s, g.First(p.Node), p.Node)
			}
		}
		if g.Size() < 1 || g.NodeOf(g.Size()-1) == "" || g.NodeOf(g.Size()) != "" {
			t.Errorf("%q has %d programs", s, g.Size())
		}
	})
}
