package ask

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// maxRestarts is how often a list is, whose nodes change while it is read.
const maxRestarts = 3

// Hosts are all nodes as this one sees them, page by page; each page has a time of
// its own.
func (n *Node) Hosts(ctx context.Context, look nodev1.Look) (all []*nodev1.Host, err error) {
	again := maxRestarts
	for r := (&nodev1.NodesRequest{Look: look}); ; {
		page, err := n.hostsPage(ctx, r)
		if r.After != "" && errors.Is(err, code.NoSuchNode) && again > 0 {
			again--
			r.After, all = "", nil // that node was removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page.GetHosts()...)
		if !page.GetMore() || len(page.GetHosts()) == 0 {
			return all, nil
		}
		r.After = all[len(all)-1].GetName()
	}
}

func (n *Node) hostsPage(
	ctx context.Context, r *nodev1.NodesRequest,
) (*nodev1.NodesResponse, error) {
	ctx, stop := context.WithTimeout(ctx, timeout.Control)
	defer stop()
	a, err := n.Cluster.Nodes(ctx, connect.NewRequest(r))
	if err != nil {
		return nil, ErrorOf(n, err)
	}
	return a.Msg, nil
}
