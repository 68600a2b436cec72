package daemon

import (
	"context"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/cert"
	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/members"
	"github.com/vmmc-go/vmmc/internal/daemon/names"
	"github.com/vmmc-go/vmmc/internal/daemon/names/directory"
	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// directoryService answers the directories of other nodes.
type directoryService struct{ n *Node }

// callingNode is the node that asks. A user is refused.
func callingNode(ctx context.Context) (string, error) {
	p, _ := ctx.Value(callerKey{}).(cert.Peer)
	if p.Kind != cert.Node {
		return "", code.New(code.NoRights, "%v is no node", p)
	}
	return p.Name, nil
}

// maxUserName bounds a user's name, in bytes.
const maxUserName = 256

// checkKey refuses what no node says.
func checkKey(k directory.Key) error {
	if len(k.User) > maxUserName || len(k.Session) > members.MaxSession {
		return code.New(code.BadArg, "a user's name of %d bytes or a session's of %d", len(k.User),
			len(k.Session))
	}
	return nodeproto.CheckName(k.Name)
}

// ownRegistration reads what a node says of one of its own processes.
func ownRegistration(node string, m *nodev1.Registration) (directory.Registration, error) {
	r := peers.ReadRegistration(m)
	if r.Owner.Node != node {
		return r, code.New(code.NoRights, "node %q may not speak for a process of node %q", node,
			r.Owner.Node)
	}
	return r, checkKey(r.Key)
}

func ownRegistrations(
	node string, ms []*nodev1.Registration,
) (out []directory.Registration, err error) {
	for _, m := range ms {
		r, err := ownRegistration(node, m)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (s *directoryService) Claim(
	ctx context.Context, r *connect.Request[nodev1.ClaimRequest],
) (*connect.Response[nodev1.ClaimResponse], error) {
	node, err := callingNode(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	own, err := ownRegistration(node, r.Msg.GetRegistration())
	if err != nil {
		return nil, peers.Coded(err)
	}
	a := s.n.directory.Claim(ctx, r.Msg.GetNodes(), own)
	return connect.NewResponse(&nodev1.ClaimResponse{
		Outcome: peers.OutcomeMessage(a.Outcome), Owner: peers.ProcessID(a.Owner), Reason: a.Reason,
	}), nil
}

func (s *directoryService) Update(
	ctx context.Context, r *connect.Request[nodev1.UpdateRequest],
) (*connect.Response[nodev1.UpdateResponse], error) {
	node, err := callingNode(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	register, err := ownRegistrations(node, r.Msg.GetRegister())
	if err != nil {
		return nil, peers.Coded(err)
	}
	withdraw, err := ownRegistrations(node, r.Msg.GetWithdraw())
	if err != nil {
		return nil, peers.Coded(err)
	}
	a := &nodev1.UpdateResponse{}
	for _, o := range s.n.directory.Update(ctx, register, withdraw) {
		a.Outcomes = append(a.Outcomes, peers.OutcomeMessage(o))
	}
	return connect.NewResponse(a), nil
}

func (s *directoryService) Find(
	ctx context.Context, r *connect.Request[nodev1.FindRequest],
) (*connect.Response[nodev1.FindResponse], error) {
	node, err := callingNode(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	m := r.Msg
	q := directory.Query{
		Key: directory.Key{
			Scope: names.Scope{User: m.GetUser(), Session: m.GetSession()}, Name: m.GetName(),
		}, Wait: m.GetWait(), Nodes: m.GetNodes(),
	}
	if err := checkKey(q.Key); err != nil {
		return nil, peers.Coded(err)
	}
	for _, o := range m.GetStale() {
		q.Stale = append(q.Stale, peers.ReadRegistration(o))
	}
	_, end, err := s.n.lookups.begin(node, q.User)
	if err != nil {
		return nil, peers.Coded(err)
	}
	defer end()
	a := s.n.directory.Find(ctx, q)
	if err := ctx.Err(); err != nil {
		return nil, peers.Coded(err)
	}
	out := &nodev1.FindResponse{Outcome: peers.OutcomeMessage(a.Outcome), Reason: a.Reason}
	for _, o := range a.Owners {
		out.Owners = append(out.Owners, peers.RegistrationMessage(o))
	}
	return connect.NewResponse(out), nil
}

func (s *directoryService) Holds(
	ctx context.Context, r *connect.Request[nodev1.HoldsRequest],
) (*connect.Response[nodev1.HoldsResponse], error) {
	if _, err := callingNode(ctx); err != nil {
		return nil, peers.Coded(err)
	}
	own, err := ownRegistration(s.n.cfg.Name, r.Msg.GetRegistration())
	if err != nil {
		return nil, peers.Coded(err)
	}
	h, err := s.n.directory.Holds(ctx, r.Msg.GetNodes(), own)
	if err != nil {
		return nil, peers.Coded(err)
	}
	if s.n.ctx.Err() != nil { // its processes have lost it, and live
		return nil, peers.Coded(code.New(code.NoDaemon, "the daemon of node %q is ending", s.n.cfg.Name))
	}
	return connect.NewResponse(&nodev1.HoldsResponse{Holding: [...]nodev1.Holding{
		directory.HoldsNothing: nodev1.Holding_HOLDING_NONE,
		directory.HoldsClaim:   nodev1.Holding_HOLDING_CLAIMING,
		directory.HoldsName:    nodev1.Holding_HOLDING_HELD,
	}[h]}), nil
}

func (s *directoryService) Owned(
	ctx context.Context, r *connect.Request[nodev1.OwnedRequest],
) (*connect.Response[nodev1.OwnedResponse], error) {
	node, err := callingNode(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	var after *directory.Registration
	if m := r.Msg.GetAfter(); m != nil {
		last := peers.ReadRegistration(m)
		after = &last
	}
	p, err := s.n.directory.Owned(ctx, node, r.Msg.GetNodes(), after)
	if err == nil && s.n.ctx.Err() != nil { // its processes have lost it, and live
		err = code.New(code.NoDaemon, "the daemon of node %q is ending", s.n.cfg.Name)
	}
	if err != nil {
		return nil, peers.Coded(err)
	}
	a := &nodev1.OwnedResponse{
		OtherNodes: p.OtherNodes, More: p.More, AbsentUsers: p.Absent,
	}
	for _, o := range p.Registrations {
		a.Registrations = append(a.Registrations, peers.RegistrationMessage(o))
	}
	return connect.NewResponse(a), nil
}

// Import is asked by the node of the importing process.
func (s *directoryService) Import(
	ctx context.Context, r *connect.Request[nodev1.DirectoryServiceImportRequest],
) (*connect.Response[nodev1.DirectoryServiceImportResponse], error) {
	m := r.Msg
	im, err := importer(ctx, m.GetImporter(), m.GetUser(), m.GetSession())
	if err != nil {
		return nil, peers.Coded(err)
	}
	own, err := ownRegistration(s.n.cfg.Name, m.GetRegistration())
	if err != nil {
		return nil, peers.Coded(err)
	}
	ctx, _, leave, err := s.n.network.use(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	defer leave()
	g, buffer, err := s.n.grantRegistered(ctx, im, own)
	if err != nil {
		return nil, peers.Coded((&service{s.n}).orEnding(err))
	}
	return connect.NewResponse(&nodev1.DirectoryServiceImportResponse{
		Grant: grantMessage(g), BufferId: buffer,
	}), nil
}
