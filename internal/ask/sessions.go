package ask

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"

	"connectrpc.com/connect"

	"github.com/vmmc-go/vmmc/internal/code"
	"github.com/vmmc-go/vmmc/internal/sessionnodes"
	"github.com/vmmc-go/vmmc/internal/timeout"
	nodev1 "github.com/vmmc-go/vmmc/proto/vmmc/node/v1"
)

// Session is a session on a node.
type Session struct {
	Node      string `json:"node"`
	Name      string `json:"name"`
	User      string `json:"user"`
	Drive     string `json:"drive"`
	Share     string `json:"share,omitempty"`
	Base      string `json:"base"`
	Output    string `json:"output"`
	Processes int    `json:"processes"`       // that run
	State     string `json:"state,omitempty"` // supervised, unsupervised or deleting
	Cgroup    string `json:"cgroup,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Sessions lists those of the chosen nodes, node by node.
func (a *Cluster) Sessions(ctx context.Context) ([]Session, []error) {
	found := make([][]Session, len(a.Chosen))
	errs := a.Each(func(i int, n *Node) error {
		for r := (&nodev1.ListSessionsRequest{}); ; {
			l, err := n.Client.ListSessions(ctx, connect.NewRequest(r))
			if err != nil {
				return err
			}
			for _, s := range l.Msg.GetSessions() {
				r.After = s.GetName()
				found[i] = append(found[i], Session{
					Node: n.Name, Name: s.GetName(), User: s.GetUser(), Drive: s.GetDrive(), Share: s.GetShare(), Base: s.GetBase(),
					Output: s.GetOutputDirectory(), Processes: int(s.GetProcesses()), State: s.GetState(), Cgroup: s.GetCgroup(), Error: s.GetError(),
				})
			}
			if !l.Msg.GetMore() || len(l.Msg.GetSessions()) == 0 {
				return nil
			}
		}
	})
	all := []Session{} // none are [] in JSON
	for _, f := range found {
		all = append(all, f...)
	}
	return all, errs
}

// AddSession makes it everywhere or nowhere.
func (a *Cluster) AddSession(ctx context.Context, r *nodev1.AddSessionRequest) error {
	r.Attempt = rand.Text()
	names := make([]string, len(a.Chosen))
	for i, n := range a.Chosen {
		names[i] = n.Name
	}
	sessionnodes.Request(r, names)
	errs := a.Each(func(_ int, n *Node) error {
		_, err := n.Client.AddSession(ctx, connect.NewRequest(r))
		return err
	})
	err := Failure(fmt.Sprintf("make session %q", r.Name), errs)
	if err == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*timeout.Control)
	defer stop()
	undone := a.Each(func(i int, n *Node) error {
		if errs[i] != nil && !outcomeUnknown(errs[i]) {
			return nil
		}
		_, err := n.Client.DeleteSession(ctx, connect.NewRequest(&nodev1.DeleteSessionRequest{Name: r.Name, Attempt: r.Attempt}))
		if err = ErrorOf(n, err); err == nil || errors.Is(err, code.NoSuchSession) {
			return nil
		}
		if errs[i] != nil {
			return code.New(code.Unreachable, "whether node %q has made it is not known: %v", n.Name, err)
		}
		return err
	})
	if left := Failure("take it back where it was made; delete it there", undone); left != nil {
		return errors.Join(err, left)
	}
	return err
}

// SessionNodes are the nodes that have a session of the caller's, in the order of making.
// A node that cannot be reached is among them if others know that it has the session.
func (a *Cluster) SessionNodes(ctx context.Context, name string) (nodes []*Node) {
	ctx, stop := context.WithTimeout(ctx, timeout.Ping)
	defer stop()
	answers := make([]sessionnodes.Answer, len(a.All))
	byName := make(map[string]*Node, len(a.All))
	var all sync.WaitGroup
	for i, n := range a.All {
		answers[i].Node, byName[n.Name] = n.Name, n
		all.Go(func() {
			m, err := n.Client.SessionOrigin(ctx, connect.NewRequest(&nodev1.SessionOriginRequest{Session: name}))
			if err == nil {
				answers[i].Origin = m.Msg
				return
			}
			err = ErrorOf(n, err)
			// A session of that name may be another user's.
			answers[i].Silent = !errors.Is(err, code.NoSuchSession) && !errors.Is(err, code.NoRights)
		})
	}
	all.Wait()
	for _, s := range sessionnodes.Order(answers) {
		nodes = append(nodes, byName[s])
	}
	return nodes
}

// outcomeUnknown reports whether a node that gave this error may have done what it was
// asked.
func outcomeUnknown(err error) bool {
	return errors.Is(err, code.OutcomeUnknown) || errors.Is(err, code.Unreachable) ||
		errors.Is(err, context.DeadlineExceeded)
}

// DeleteSession deletes it where it is. What nodes have to say beside that goes to
// notices, a line each.
func (a *Cluster) DeleteSession(ctx context.Context, name string, notices io.Writer) error {
	said := make([]string, len(a.Chosen))
	errs := a.Each(func(i int, n *Node) error {
		d, err := n.Client.DeleteSession(ctx, connect.NewRequest(&nodev1.DeleteSessionRequest{Name: name}))
		if err == nil {
			said[i] = d.Msg.GetNotice()
		}
		return err
	})
	for _, s := range said {
		if s != "" {
			fmt.Fprintln(notices, "vmmc:", s)
		}
	}
	return Failure(fmt.Sprintf("delete session %q", name), a.Somewhere(errs, code.NoSuchSession))
}
