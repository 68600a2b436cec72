package ask

import (
	"context"
	"errors"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// changing has pages of one node; the nodes change before each question.
type changing struct {
	nodev1connect.ClusterServiceClient
	lists [][]string
}

func (c *changing) Nodes(_ context.Context, r *connect.Request[nodev1.NodesRequest]) (*connect.Response[nodev1.NodesResponse], error) {
	list := c.lists[0]
	if len(c.lists) > 1 {
		c.lists = c.lists[1:]
	}
	i := 0
	if a := r.Msg.GetAfter(); a != "" {
		if i = slices.Index(list, a) + 1; i == 0 {
			return nil, code.New(code.NoSuchNode, "no node %q", a)
		}
	}
	a := &nodev1.NodesResponse{More: i+1 < len(list)}
	if i < len(list) {
		a.Hosts = []*nodev1.Host{{Name: list[i]}}
	}
	return connect.NewResponse(a), nil
}

func TestHostsThatChangeBetweenPages(t *testing.T) {
	for what, c := range map[string]struct {
		lists [][]string
		want  []string
	}{
		"the last of a page is removed": {[][]string{{"a", "b", "c"}, {"a", "b", "c"}, {"a", "c"}}, []string{"a", "c"}},
		"one is added":                  {[][]string{{"a"}, {"a", "b"}}, []string{"a"}},
		"another one is removed":        {[][]string{{"a", "b", "c"}, {"a", "c"}}, []string{"a", "c"}},
	} {
		hs, err := (&Node{Cluster: &changing{lists: c.lists}}).Hosts(t.Context(), nodev1.Look_LOOK_UNSPECIFIED)
		var got []string
		for _, h := range hs {
			got = append(got, h.GetName())
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v; want %q", what, got, err, c.want)
		}
	}
	// One that never stays is an error, and not asked for ever.
	var lists [][]string
	for range 100 {
		lists = append(lists, []string{"a", "b"}, []string{"c", "d"})
	}
	if _, err := (&Node{Cluster: &changing{lists: lists}}).Hosts(t.Context(), nodev1.Look_LOOK_UNSPECIFIED); !errors.Is(err, code.NoSuchNode) {
		t.Errorf("a list that never stays gives %v", err)
	}
}
