package daemon

import (
	"context"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/vmmc-go/vmmc/internal/daemon/peers"
	"github.com/vmmc-go/vmmc/internal/daemon/users"
	pages "github.com/vmmc-go/vmmc/internal/shmlayout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// linkService tells of links.
type linkService struct{ n *Node }

// maxEnds is how many links are in one answer, each at most about 400 bytes of it.
const maxEnds = 64

func (s *linkService) Links(
	ctx context.Context, r *connect.Request[nodev1.LinksRequest],
) (*connect.Response[nodev1.LinksResponse], error) {
	c, err := users.CallerOf(ctx)
	if err != nil {
		return nil, peers.Coded(err)
	}
	all := s.n.accounts.Administrates(c)
	pid, place := r.Msg.GetAfterPid(), int(r.Msg.GetAfterPlace())
	m := &nodev1.LinksResponse{}
	for l := range s.n.registry.linkEnds(func(p *process) bool {
		return (all || p.user == c.User) && p.id.Load().PID >= pid
	}) {
		if l.p.id.Load().PID == pid && l.Slot <= place {
			continue
		}
		if m.More = len(m.Links) == maxEnds; m.More {
			break
		}
		m.Links = append(m.Links, s.info(l))
	}
	return reply(m, nil)
}

func (s *linkService) info(l linkEnd) *nodev1.Link {
	c := &l.Counts
	return &nodev1.Link{
		Pid: l.p.id.Load().PID, Place: uint32(l.Slot), User: l.p.user,
		Session: truncateReason(l.p.session), Program: l.p.programName(),
		Imports: l.Importing, Mapped: l.Mapped, Encrypted: l.Secret, State: l.State.String(),
		// The process may say anything, and no error may come of it.
		PeerNode: strings.ToValidUTF8(l.Peer.Node, "?"), PeerPid: l.Peer.PID,
		Begun:  timestamppb.New(l.Begun),
		IdleNs: int64(l.idle), ReadNs: int64(l.read.Sub(s.n.started)),
		Messages: c[pages.Messages], Bytes: c[pages.Bytes], Notifications: c[pages.Notifications],
		Gets: c[pages.Gets], GotBytes: c[pages.GetBytes], Atomics: c[pages.Atomics],
		Updates:          c[pages.Updates],
		Acknowledgements: c[pages.Acks], Resumes: c[pages.Resumes], Resent: c[pages.Resent],
		ResentBytes: c[pages.ResentBytes], Duplicates: c[pages.Duplicates],
	}
}
