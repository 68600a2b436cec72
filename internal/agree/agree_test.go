package agree_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/agree"
	"github.com/vmmc-go/vmmc/internal/hosts"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// peer answers with pages of its own, as a hostile node may.
type peer struct {
	nodev1connect.UnimplementedClusterServiceHandler
	page func(after string) *nodev1.NodesResponse
}

func (p *peer) Nodes(_ context.Context, r *connect.Request[nodev1.NodesRequest]) (*connect.Response[nodev1.NodesResponse], error) {
	return connect.NewResponse(p.page(r.Msg.GetAfter())), nil
}

func page(more bool, places ...uint32) *nodev1.NodesResponse {
	a := &nodev1.NodesResponse{More: more}
	for _, p := range places {
		name := string(rune('a' + p - 1))
		a.Hosts = append(a.Hosts, &nodev1.Host{Name: name, ControlAddress: "h:1", DataAddress: "h:1", Place: p})
	}
	return a
}

// Whatever another node says of its list, the comparison ends and says it.
func TestListsOfOthers(t *testing.T) {
	own := []hosts.Host{{Name: "a", Control: "h:1", Data: "h:1"}, {Name: "c", Control: "h:1", Data: "h:1", Free: 1}}
	always := func(a *nodev1.NodesResponse) func(string) *nodev1.NodesResponse {
		return func(string) *nodev1.NodesResponse { return a }
	}
	tests := []struct {
		name   string
		digest uint64
		page   func(after string) *nodev1.NodesResponse
		how    string
	}{
		{"an older node", 0, always(nil), ""},
		{"the same", hosts.Digest(own), always(nil), ""},
		{"pages", 1, func(after string) *nodev1.NodesResponse {
			if after == "" {
				return page(true, 1)
			}
			return page(false, 3, 4)
		}, `has node "d", this node's has not`},
		{"a digest that is not the list's", 1, always(page(false, 1, 3)), ""},
		{"one page for ever", 1, always(page(true, 1, 3)), "place 1 after place 3"},
		{"an empty page for ever", 1, always(page(true)), "names none"},
		{"pages for ever", 1, func(after string) *nodev1.NodesResponse {
			last := uint32(0)
			if after != "" {
				last = uint32([]rune(after)[0]) - 'a' + 1
			}
			var places []uint32
			for i := range uint32(200) {
				places = append(places, last+1+i)
			}
			return page(true, places...)
		}, "more than 20000 nodes"},
		{"no places", 1, always(&nodev1.NodesResponse{Hosts: []*nodev1.Host{{Name: "a"}}}), "place 0"},
		{"a terminal's codes", 1, always(&nodev1.NodesResponse{Hosts: []*nodev1.Host{{Name: "\x1b[2J", Place: 2}}}), `node "\x1b[2J"`},
		{"nothing", 1, nil, "how it differs is not known"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			if tt.page != nil {
				mux.Handle(nodev1connect.NewClusterServiceHandler(&peer{page: tt.page}))
			}
			s := httptest.NewServer(mux)
			defer s.Close()
			how, conflict := agree.With(t.Context(), nodev1connect.NewClusterServiceClient(s.Client(), s.URL), own, tt.digest)
			if (how == "") != (tt.how == "") || !strings.Contains(how, tt.how) || conflict {
				t.Errorf("%q, conflict %v; want %q", how, conflict, tt.how)
			}
		})
	}
}
