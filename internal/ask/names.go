package ask

import (
	"context"
	"strings"

	"connectrpc.com/connect"

	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Name is one published name.
type Name struct {
	Node    string `json:"node"`
	Name    string `json:"name"`  // with "/" before it if it is the cluster's
	Scope   string `json:"scope"` // where it is known: "node" or "cluster"
	User    string `json:"user"`
	Session string `json:"session,omitempty"`
	PID     uint32 `json:"pid"`
	Buffer  uint32 `json:"buffer"`
	Size    uint64 `json:"size"`
	Set     bool   `json:"set"`
	Program string `json:"program,omitempty"` // that the process ran when it joined
}

// PublishedNames lists the names of all chosen nodes that the caller may see and that match a
// pattern: "/*" for those of the cluster, "" for all.
func (a *Cluster) PublishedNames(ctx context.Context, pattern string) (all []Name, errs []error) {
	found := make([][]Name, len(a.Chosen))
	errs = a.Each(func(i int, n *Node) (err error) {
		rest, cluster := strings.CutPrefix(pattern, "/")
		if pattern == "" {
			rest = "*"
		}
		found[i], err = n.names(ctx, rest, cluster)
		if err == nil && pattern == "" {
			var more []Name
			more, err = n.names(ctx, rest, true)
			found[i] = append(found[i], more...)
		}
		return err
	})
	all = []Name{}
	for _, f := range found {
		all = append(all, f...)
	}
	return all, errs
}

func (n *Node) names(ctx context.Context, pattern string, cluster bool) (rows []Name, err error) {
	for r := (&nodev1.ListNamesRequest{Pattern: pattern, Cluster: cluster}); ; {
		page, err := n.Names.ListNames(ctx, connect.NewRequest(r))
		if err != nil {
			return rows, err
		}
		for _, l := range page.Msg.GetNames() {
			r.After = l
			row := Name{
				Node: n.Name, Name: l.GetName(), User: l.GetUser(), Session: l.GetSession(), PID: l.GetPid(),
				Scope: "node", Buffer: l.GetBufferId(), Size: l.GetSize(), Set: l.GetSet(), Program: l.GetProgram(),
			}
			if l.GetCluster() {
				row.Name, row.Scope = "/"+row.Name, "cluster"
			}
			rows = append(rows, row)
		}
		if !page.Msg.GetMore() || len(page.Msg.GetNames()) == 0 {
			return rows, nil
		}
	}
}
