package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/vmmc-go/vmmc/internal/ask"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// Each process of a run has another rank, which is on the node where it is started.
func TestRunGroup(t *testing.T) {
	for _, c := range []struct {
		nodes, count int
		parts        string
		ranks        []int
	}{
		{3, 7, "n0*3,n1*2,n2*2", []int{0, 3, 5, 1, 4, 6, 2}},
		{3, 6, "n0*2,n1*2,n2*2", []int{0, 2, 4, 1, 3, 5}},
		{1, 3, "n0*3", []int{0, 1, 2}},
		{5, 2, "n0,n1", []int{0, 1}},
		{2, 2, "n0,n1", []int{0, 1}},
	} {
		var at []*ask.Node
		for i := range c.nodes {
			at = append(at, &ask.Node{Name: fmt.Sprint("n", i)})
		}
		g, err := newRunGroup(at, c.count)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.ranks, g.ranks); diff != "" || !strings.HasSuffix(g.String(), ":"+c.parts) {
			t.Errorf("%d on %d nodes: %v %s", c.count, c.nodes, g, diff)
		}
		again, err := nodeproto.ParseGroup(g.String())
		if err != nil || again.Size() != c.count {
			t.Errorf("%v: %d, %v", g, again.Size(), err)
		}
		for i, rank := range g.ranks {
			if node := at[i%c.nodes].Name; again.NodeOf(rank) != node {
				t.Errorf("rank %d is on %q, and was started on %q", rank, again.NodeOf(rank), node)
			}
			env, name := g.member(i)
			if len(env) != len(groupVariables) || name != again.MemberName(rank) ||
				string(env[1]) != fmt.Sprint("VMMC_RANK=", rank) || string(env[2]) != fmt.Sprint("VMMC_SIZE=", c.count) {
				t.Errorf("member %d: %s, %q", i, env, name)
			}
		}
	}
	var many []*ask.Node
	for i := range 2000 {
		many = append(many, &ask.Node{Name: fmt.Sprint("a-long-name-", i)})
	}
	if _, err := newRunGroup(many, len(many)); !errors.Is(err, code.BadConfig) {
		t.Errorf("a group that does not fit: %v", err)
	}
	if env, name := (&runGroup{}).member(0); env != nil || name != "" {
		t.Errorf("a run without a group: %s, %q", env, name)
	}
}

// namelessNode starts programs as a node does that keeps no names for them.
type namelessNode struct {
	nodev1connect.SessionServiceClient
	killed []uint32
}

func (n *namelessNode) Run(context.Context, *connect.Request[nodev1.RunRequest]) (*connect.Response[nodev1.RunResponse], error) {
	return connect.NewResponse(&nodev1.RunResponse{Process: &nodev1.Process{Pid: 7}, EnvSet: true}), nil
}

func (n *namelessNode) Kill(_ context.Context, r *connect.Request[nodev1.KillRequest]) (*connect.Response[nodev1.KillResponse], error) {
	n.killed = append(n.killed, r.Msg.GetPid())
	return connect.NewResponse(&nodev1.KillResponse{}), nil
}

// A node that is older than groups starts no member of one.
func TestRunGroupOnAnOlderNode(t *testing.T) {
	older := &namelessNode{}
	at := []*ask.Node{{Name: "n1", Client: older}}
	g, err := newRunGroup(at, 2)
	if err != nil {
		t.Fatal(err)
	}
	o := runOptions{count: 2, group: g, request: &nodev1.RunRequest{Session: "s"}}
	if _, err := o.start(t.Context(), at); !errors.Is(err, code.BadConfig) || !strings.Contains(err.Error(), `"n1" is older`) {
		t.Errorf("a member: %v", err)
	}
	if diff := cmp.Diff([]uint32{7}, older.killed); diff != "" {
		t.Error(diff)
	}
	o = runOptions{count: 1, request: o.request}
	if _, err := o.start(t.Context(), at); err != nil {
		t.Errorf("a program in no group: %v", err)
	}
}
