package daemon

import (
	"context"
	"path"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// ImportName is asked by the node of the importing process.
func (s *service) ImportName(
	ctx context.Context, r *connect.Request[nodev1.ImportNameRequest],
) (*connect.Response[nodev1.ImportNameResponse], error) {
	m := r.Msg
	im, err := importer(ctx, m.GetImporter(), m.GetUser(), m.GetSession())
	if err != nil {
		return nil, peers.Coded(err)
	}
	ctx, _, leave, err := s.n.network.use(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	defer leave()
	g, buffer, err := s.n.grantNamed(ctx, im, names.Key{
		Scope: names.Scope{User: m.GetOwnerUser(), Session: m.GetOwnerSession()}, Name: m.GetName(),
	})
	if err != nil {
		return nil, peers.Coded(s.orEnding(err))
	}
	return connect.NewResponse(&nodev1.ImportNameResponse{Grant: grantMessage(g), BufferId: buffer}), nil
}

// grantMessage is a grant as another node gets it.
func grantMessage(g nodeproto.Grant) *nodev1.ImportResponse {
	return &nodev1.ImportResponse{
		Exporter: peers.ProcessID(g.Exporter), Handle: g.Handle, Size: uint64(g.Size),
		Rights: uint32(g.Rights), Label: g.Label,
	}
}

// nameService tells of names.
type nameService struct{ n *Node }

func (s *nameService) ListNames(
	ctx context.Context, r *connect.Request[nodev1.ListNamesRequest],
) (*connect.Response[nodev1.ListNamesResponse], error) {
	c, err := users.CallerOf(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	m := r.Msg
	if _, err := path.Match(m.GetPattern(), ""); err != nil ||
		len(m.GetPattern()) > nodeproto.MaxPattern {
		return nil, peers.Coded(code.New(code.BadArg, "%.64q is no pattern of at most %d bytes",
			m.GetPattern(), nodeproto.MaxPattern))
	}
	f := names.Filter{User: &c.User}
	switch {
	case m.GetOwnScope():
		f.Session = &m.Session
	case s.n.accounts.Administrates(c):
		f.User = nil
	}
	// A list looks at all names of its users: one of a caller at a time, so that it is no way to keep
	// the node busy.
	leave, err := s.n.listing.enter(ctx, c.User)
	if err != nil {
		return nil, peers.Coded(err)
	}
	defer leave()
	at := m.GetAfter()
	rows, more := s.n.namesAfter(f, names.Position{
		Name: at.GetName(), Cluster: at.GetCluster(), PID: at.GetPid(), Buffer: at.GetBufferId(),
	}, func(k names.Key) bool {
		return k.Cluster == m.GetCluster() && matchName(m.GetPattern(), k.Name)
	})
	a := &nodev1.ListNamesResponse{More: more}
	for _, e := range rows {
		a.Names = append(a.Names, &nodev1.Name{
			Name: e.Key.Name, User: e.Key.User, Session: truncateReason(e.Key.Session),
			Pid: e.Owner.ID.PID, BufferId: e.ID, Size: uint64(e.size), Set: e.Set, Cluster: e.Key.Cluster,
			Program: e.owner.programName(),
		})
	}
	return reply(a, nil)
}
