package daemon

import (
	"context"
	"sync"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/fairshare"
	"github.com/vmmc-go/vmmc/internal/nodeproto"
	"github.com/vmmc-go/vmmc/internal/sessionnodes"
	"github.com/vmmc-go/vmmc/internal/timeout"
)

// sessionNodes gives a process the nodes of its session, in the order of making.
func (p *process) sessionNodes(ctx context.Context) (nodeproto.SessionNodesAnswer, error) {
	if p.member == nil {
		return nodeproto.SessionNodesAnswer{}, code.New(code.NoSuchSession,
			"process %d is in no session that node %q has", p.id.Load().PID, p.n.cfg.Name)
	}
	s := p.member.s
	select {
	case <-s.deletedCh:
		return nodeproto.SessionNodesAnswer{}, s.deleted()
	default:
	}
	nodes, err := s.nodes(ctx)
	return nodeproto.SessionNodesAnswer{Nodes: nodes}, err
}

// nodesQuery asks all nodes for a session. Processes of the session that ask meanwhile
// share the answer: however many there are, no node is asked more than once at a time.
type nodesQuery struct {
	done  chan struct{}
	nodes []string
}

func (s *session) nodes(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	q := s.query
	if q == nil {
		q = &nodesQuery{done: make(chan struct{})}
		s.query = q
		s.n.wg.Go(func() {
			q.nodes = s.askNodes()
			s.mu.Lock()
			s.query = nil
			s.mu.Unlock()
			close(q.done)
		})
	}
	s.mu.Unlock()
	defer fairshare.Leave(ctx)()
	select {
	case <-q.done:
		return q.nodes, nil
	case <-ctx.Done():
		return nil, ctxCause(ctx, "ask for the nodes of session %q", s.Name)
	}
}

func (s *session) askNodes() []string {
	ctx, stop := context.WithTimeout(s.n.ctx, timeout.Ping)
	defer stop()
	roster := s.n.cluster.Roster()
	answers := make([]sessionnodes.Answer, len(roster.Hosts()))
	var all sync.WaitGroup
	for i, h := range roster.Hosts() {
		if answers[i].Node = h.Name; h.Name == s.n.cfg.Name {
			answers[i].Origin = s.Origin()
			continue
		}
		all.Go(func() { roster.Peer(h.Name).SessionOrigin(ctx, s.User, s.Name, &answers[i]) })
	}
	all.Wait()
	return sessionnodes.Order(answers)
}
