package peers

import (
	"context"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/daemon/names/directory"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Directory is the other nodes as the directory of names asks them.
type Directory struct{ *Cluster }

var _ directory.Net = Directory{}

// Claim registers a name with a node.
func (c Directory) Claim(
	ctx context.Context, node string, nodes uint64, r directory.Registration,
) (directory.Answer, error) {
	p, err := c.Peer(node)
	if err != nil {
		return directory.Answer{}, err
	}
	a, err := p.directory.Claim(ctx, connect.NewRequest(&nodev1.ClaimRequest{
		Nodes: nodes, Registration: RegistrationMessage(r),
	}))
	if err != nil {
		return directory.Answer{}, p.olderThanDirectory(ctx, err)
	}
	m := a.Msg
	return directory.Answer{
		Outcome: outcome(m.GetOutcome()), Owner: processID(m.GetOwner()), Reason: truncateError(m.GetReason()),
	}, nil
}

// Update tells a node what is registered and withdrawn.
func (c Directory) Update(
	ctx context.Context, node string, register, withdraw []directory.Registration,
) (out []directory.Outcome, err error) {
	p, err := c.Peer(node)
	if err != nil {
		return nil, err
	}
	a, err := p.directory.Update(ctx, connect.NewRequest(&nodev1.UpdateRequest{
		Register: registrationMessages(register), Withdraw: registrationMessages(withdraw),
	}))
	if err != nil {
		return nil, p.olderThanDirectory(ctx, err)
	}
	for _, o := range a.Msg.GetOutcomes() {
		out = append(out, outcome(o))
	}
	return out, nil
}

// Find asks a node who owns a name.
func (c Directory) Find(
	ctx context.Context, node string, q directory.Query,
) (a directory.Answer, err error) {
	p, err := c.Peer(node)
	if err != nil {
		return a, err
	}
	m, err := p.directory.Find(ctx, connect.NewRequest(&nodev1.FindRequest{
		User: q.User, Session: q.Session, Name: q.Name, Wait: q.Wait, Stale: registrationMessages(q.Stale),
		Nodes: q.Nodes,
	}))
	if err != nil {
		return a, p.olderThanDirectory(ctx, err)
	}
	a = directory.Answer{
		Outcome: outcome(m.Msg.GetOutcome()), Reason: truncateError(m.Msg.GetReason()),
	}
	for _, r := range m.Msg.GetOwners() {
		if own := ReadRegistration(r); own.Key == q.Key {
			a.Owners = append(a.Owners, own)
		}
	}
	if a.Outcome == directory.Registered && len(a.Owners) == 0 {
		return a, code.New(code.Protocol, "node %q finds a name without an owner", node)
	}
	return a, nil
}

// Holds asks a node whether a process of it has a name.
func (c Directory) Holds(
	ctx context.Context, node string, nodes uint64, r directory.Registration,
) (directory.Holding, error) {
	p, err := c.Peer(node)
	if err != nil {
		return 0, err
	}
	a, err := p.directory.Holds(ctx, connect.NewRequest(&nodev1.HoldsRequest{
		Registration: RegistrationMessage(r), Nodes: nodes,
	}))
	if err != nil {
		err = p.olderThanDirectory(ctx, err)
		if c.Older(err) {
			return directory.HoldsNothing, nil // no process of it has a name of the cluster
		}
		return 0, err
	}
	switch a.Msg.GetHolding() {
	case nodev1.Holding_HOLDING_NONE:
		return directory.HoldsNothing, nil
	case nodev1.Holding_HOLDING_CLAIMING:
		return directory.HoldsClaim, nil
	}
	return directory.HoldsName, nil
}

// Owned asks a node for the names of its processes.
func (c Directory) Owned(
	ctx context.Context, node string, nodes uint64, after *directory.Registration,
) (out directory.Page, err error) {
	p, err := c.Peer(node)
	if err != nil {
		return out, err
	}
	r := &nodev1.OwnedRequest{Nodes: nodes}
	if after != nil {
		r.After = RegistrationMessage(*after)
	}
	a, err := p.directory.Owned(ctx, connect.NewRequest(r))
	if err != nil {
		return out, p.olderThanDirectory(ctx, err)
	}
	out.OtherNodes, out.More = a.Msg.GetOtherNodes(), a.Msg.GetMore()
	out.Absent = a.Msg.GetAbsentUsers()
	for _, m := range a.Msg.GetRegistrations() {
		out.Registrations = append(out.Registrations, ReadRegistration(m))
	}
	return out, nil
}

// ImportRegistered requests a grant of what a process of the node has published under a name, for
// an importer of this node.
func (p *Peer) ImportRegistered(
	ctx context.Context, im nodeproto.Importer, r directory.Registration,
) (nodeproto.Grant, error) {
	a, err := retryInterrupted(ctx, p.directory.Import, &nodev1.DirectoryServiceImportRequest{
		Importer: ProcessID(im.Process), User: im.User, Session: im.Session,
		Registration: RegistrationMessage(r),
	})
	if err != nil {
		return nodeproto.Grant{}, p.olderThanDirectory(ctx, err)
	}
	g := p.grant(a.Msg.GetGrant())
	g.Buffer = a.Msg.GetBufferId()
	return g, nil
}

// Older reports whether an error of a node says that it knows no directory.
func (c Directory) Older(err error) bool { return codeOf(err) == code.NotImplemented }

func (p *Peer) olderThanDirectory(ctx context.Context, err error) error {
	if _, answered := answeredError(err); !answered &&
		connect.CodeOf(err) == connect.CodeUnimplemented {
		return code.New(code.NotImplemented,
			"node %q runs an older version, which knows no names of the cluster", p.host.Name)
	}
	return p.failed(ctx, err)
}

// RegistrationMessage is a registration in messages to other nodes.
func RegistrationMessage(r directory.Registration) *nodev1.Registration {
	return &nodev1.Registration{
		User: r.User, Session: r.Session, Name: r.Name, Owner: ProcessID(r.Owner), Serial: r.Serial,
		Set: r.Set, Order: r.Order,
	}
}

func registrationMessages(rs []directory.Registration) (out []*nodev1.Registration) {
	for _, r := range rs {
		out = append(out, RegistrationMessage(r))
	}
	return out
}

// ReadRegistration reads one.
func ReadRegistration(m *nodev1.Registration) directory.Registration {
	return directory.Registration{
		Key: directory.Key{
			Scope: directory.Scope{User: m.GetUser(), Session: m.GetSession()}, Name: m.GetName(),
		},
		Owner: processID(m.GetOwner()), Serial: m.GetSerial(), Set: m.GetSet(), Order: m.GetOrder(),
	}
}

func processID(m *nodev1.ProcessID) nodeproto.ProcessID {
	return nodeproto.ProcessID{Node: m.GetNode(), PID: m.GetPid(), Incarnation: m.GetIncarnation()}
}

var outcomes = map[directory.Outcome]nodev1.DirectoryOutcome{
	directory.Registered: nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_REGISTERED,
	directory.Taken:      nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_TAKEN,
	directory.Claimed:    nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_CLAIMED,
	directory.Absent:     nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_ABSENT,
	directory.Waiting:    nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_WAITING,
	directory.OtherNodes: nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_OTHER_NODES,
	directory.Full:       nodev1.DirectoryOutcome_DIRECTORY_OUTCOME_FULL,
}

// OutcomeMessage is an outcome in messages to other nodes.
func OutcomeMessage(o directory.Outcome) nodev1.DirectoryOutcome { return outcomes[o] }

// outcome reads one. One that is not known registers nothing.
func outcome(m nodev1.DirectoryOutcome) directory.Outcome {
	for o, is := range outcomes {
		if is == m {
			return o
		}
	}
	return directory.Waiting
}
