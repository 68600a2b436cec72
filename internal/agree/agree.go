// Package agree finds out whether another node has the same list of nodes as this one.
// A node's place in its list gives it its block of logical pids: where lists are not the
// same, two nodes may give out one pid.
package agree

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/hosts"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
	"github.com/vmmc-go/vmmc/proto/vmmc/node/v1/nodev1connect"
)

// maxNodes bounds what another node may say that it knows.
const maxNodes = 20_000

// With compares the list own with that of the node that gave the digest in its Ping. The
// node is asked for its list only if the digests differ; 0 is that of an older node.
// Lists are in conflict as [hosts.Difference] says.
func With(
	ctx context.Context, cl nodev1connect.ClusterServiceClient, own []hosts.Host, digest uint64,
) (how string, conflict bool) {
	if digest == 0 || digest == hosts.Digest(own) {
		return "", false
	}
	its, err := list(ctx, cl)
	if err != nil {
		return fmt.Sprintf("its hosts file is not this node's, and how it differs is not known: %v", err), false
	}
	return hosts.Difference(own, its)
}

// list asks a node for its list.
func list(
	ctx context.Context, cl nodev1connect.ClusterServiceClient,
) (all []hosts.Host, err error) {
	next := 1 // place
	for after := ""; ; {
		a, err := cl.Nodes(ctx, connect.NewRequest(&nodev1.NodesRequest{After: after}))
		if err != nil {
			return nil, err
		}
		for _, h := range a.Msg.GetHosts() {
			place := int(h.GetPlace())
			if place < next {
				return nil, fmt.Errorf("it gives node %q the place %d after place %d",
					h.GetName(), place, next-1)
			}
			all = append(all, hosts.Host{
				Name: h.GetName(), Control: h.GetControlAddress(), Data: h.GetDataAddress(), Free: place - next,
			})
			next, after = place+1, h.GetName()
		}
		switch {
		case !a.Msg.GetMore():
			return all, nil
		case len(a.Msg.GetHosts()) == 0:
			return nil, fmt.Errorf("it says that there are more nodes after %q, and names none", after)
		case len(all) > maxNodes:
			return nil, fmt.Errorf("it names more than %d nodes", maxNodes)
		}
	}
}
