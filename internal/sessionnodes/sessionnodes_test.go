package sessionnodes

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

func TestOrder(t *testing.T) {
	// has is the answer of a node on which a call at that second, of that list of nodes,
	// made the session; second 0: an older version, which recorded neither.
	has := func(node string, second int64, list string) Answer {
		o := &nodev1.SessionOriginResponse{Nodes: strings.Fields(list)}
		if second != 0 {
			o.Made = timestamppb.New(time.Unix(second, 0))
		}
		return Answer{Node: node, Origin: o}
	}
	hasNot := func(node string) Answer { return Answer{Node: node} }
	silent := func(node string) Answer { return Answer{Node: node, Silent: true} }
	for name, c := range map[string]struct {
		answers []Answer
		want    string
	}{
		"no node has it":                 {[]Answer{hasNot("a"), silent("b")}, ""},
		"one call":                       {[]Answer{has("a", 1, "c a"), hasNot("b"), has("c", 1, "c a")}, "c a"},
		"a call for each node":           {[]Answer{has("a", 3, "a"), has("b", 1, "b"), has("c", 2, "c")}, "b c a"},
		"a call for two, then for one":   {[]Answer{has("a", 2, "a"), has("b", 1, "c b"), has("c", 1, "c b")}, "c b a"},
		"a node is silent":               {[]Answer{has("a", 1, "c b a"), silent("b"), has("c", 1, "c b a")}, "c b a"},
		"a silent node that has none":    {[]Answer{has("a", 1, "c a"), silent("b"), has("c", 1, "c a")}, "c a"},
		"deleted on a listed node":       {[]Answer{has("a", 1, "c b a"), hasNot("b"), has("c", 1, "c b a")}, "c a"},
		"made again on a listed node":    {[]Answer{has("a", 1, "c a"), hasNot("b"), has("c", 2, "c")}, "a c"},
		"made again, and silent":         {[]Answer{has("a", 1, "c a"), has("b", 2, "c b"), silent("c")}, "a c b"},
		"an older version made it":       {[]Answer{has("a", 0, ""), has("b", 0, ""), hasNot("c")}, "a b"},
		"an older version made a part":   {[]Answer{has("a", 1, "a"), has("b", 0, ""), has("c", 0, "")}, "b c a"},
		"two calls at the same moment":   {[]Answer{has("a", 1, "a"), has("b", 1, "b")}, "a b"},
		"the list was too long":          {[]Answer{has("a", 2, ""), has("b", 1, ""), has("c", 1, "")}, "b c a"},
		"a list that names a node twice": {[]Answer{has("a", 1, "b a b"), has("b", 1, "b a b")}, "b a"},
		"a list with an unknown node":    {[]Answer{has("a", 1, "x a")}, "a"},
	} {
		if got := strings.Join(Order(c.answers), " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		nodes []string
		sent  int
	}{{[]string{"b", "a"}, 2}, {[]string{strings.Repeat("n", MaxNames)}, 1}, {[]string{strings.Repeat("n", MaxNames), "n"}, 0}} {
		r := &nodev1.AddSessionRequest{}
		if Request(r, c.nodes); len(r.GetNodes()) != c.sent || !r.GetMade().IsValid() {
			t.Errorf("%d nodes with %d bytes: %d are sent, want %d", len(c.nodes), Size(c.nodes), len(r.GetNodes()), c.sent)
		}
	}
}
