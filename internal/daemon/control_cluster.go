package daemon

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/hosts"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// clusterService answers users and administrators about the nodes.
type clusterService struct{ n *Node }

// maxPage bounds a page of nodes, in bytes of what the hosts file says of them
// and roomForNode more for each, so that it fits into an answer.
const (
	maxPage     = 24 << 10
	roomForNode = 1024
)

// page cuts the nodes after one.
func page(all []hosts.Host, after string) (out []hosts.Host, more bool, err error) {
	if after != "" {
		i := slices.IndexFunc(all, func(h hosts.Host) bool { return h.Name == after })
		if i < 0 {
			return nil, false, code.New(code.NoSuchNode, "no node %q, after which the list was to go on",
				after)
		}
		all = all[i+1:]
	}
	size := 0
	for i, h := range all {
		if size += len(h.Name) + len(h.Control) + len(h.Data) + roomForNode; size > maxPage && i > 0 {
			return all[:i], true, nil
		}
	}
	return all, false, nil
}

// Nodes lists the nodes, in pages.
func (s *clusterService) Nodes(
	ctx context.Context, r *connect.Request[nodev1.NodesRequest],
) (*connect.Response[nodev1.NodesResponse], error) {
	nodes := s.n.cluster.Roster()
	hs, more, err := page(nodes.Hosts(), r.Msg.GetAfter())
	if err != nil {
		return nil, peers.Coded(err)
	}
	return connect.NewResponse(&nodev1.NodesResponse{
		Hosts: s.n.cluster.Probe(ctx, nodes, hs, r.Msg.GetLook()), More: more,
	}), nil
}

// administrator refuses all others.
func (s *clusterService) administrator(ctx context.Context) (users.Caller, error) {
	c, err := users.CallerOf(ctx)
	if err == nil && !s.n.accounts.Administrates(c) {
		err = code.New(code.NoRights, "user %q does not administer node %q: root does, its daemon's "+
			"own user, and those that vmmcd --admin names", c.User, s.n.cfg.Name)
	}
	return c, err
}

// TakeDown ends the node's part in the network.
func (s *clusterService) TakeDown(
	ctx context.Context, r *connect.Request[nodev1.TakeDownRequest],
) (*connect.Response[nodev1.TakeDownResponse], error) {
	c, err := s.administrator(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	s.n.logs.Driver.Info("an administrator takes the node down", "user", c.User)
	return connect.NewResponse(s.n.network.takeDown(ctx, r.Msg.GetReason())), nil
}

// BringUp begins it again.
func (s *clusterService) BringUp(
	ctx context.Context, _ *connect.Request[nodev1.BringUpRequest],
) (*connect.Response[nodev1.BringUpResponse], error) {
	c, err := s.administrator(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	s.n.logs.Driver.Info("an administrator brings the node up", "user", c.User)
	if err := s.n.network.bringUp(); err != nil {
		return nil, peers.Coded(err)
	}
	return connect.NewResponse(&nodev1.BringUpResponse{}), nil
}
